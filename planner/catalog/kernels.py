"""Kernel constants by (GPU, engine, data type), fitted on public kernel benchmarks by `planner.fit`; never on serving runs.

`find` returns the row that fits best and says how far it had to reach: another engine's kernels, another GPU's efficiencies.
Efficiencies are shares of the datasheet peak, so a borrowed row scales with the datasheet of the GPU that borrows it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.gpus import gpus

KERNELS_FILE = Path(__file__).with_name("kernels.json")

COMPUTE = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int4": "bf16", "mxfp4": "bf16", "mxfp4_fp8": "fp8"}
"""Precision of the arithmetic behind a kernel's data type; 4-bit weights without 4-bit arithmetic are unpacked to 16 bit."""

SUBSTITUTES = {
    "fp8": ("fp8_block", "bf16"),
    "fp8_block": ("fp8", "bf16"),
    "nvfp4": ("mxfp4_fp8", "fp8", "int4", "bf16"),
    "int4": ("mxfp4", "bf16"),
    "mxfp4": ("int4", "bf16"),
    "mxfp4_fp8": ("mxfp4", "nvfp4", "fp8", "bf16"),
}
"""Data types whose kernels stand in when a type was not measured, nearest first."""

WEIGHT_ONLY = "int4"
"""Data type whose kernels unpack weights to 16 bit on the way. Every engine has its own, so that another engine's say little:
TensorRT-LLM's lose to FP8 on Hopper, where Marlin (near 4 x over 16 bit up to 16-32 tokens: IST-DASLab/marlin, 2024-01) and Machete
(16-bit arithmetic at a quarter of the bytes: Red Hat, 2024-10) do not; Qwen3-32B alone on an H100 is 2.7 x as fast in int4 as in 16 bit
(AIMultiple, 2026-03). So an engine's own 16-bit matrix products, reading fewer bytes, stand in before another engine's."""

REFERENCE_GPU = {
    "turing": "a100-80-sxm",
    "ampere": "a100-80-sxm",
    "ada": "l40s",
    "hopper": "h100-sxm",
    "blackwell": "b200-sxm",
    "blackwell_rtx": "rtx-pro-6000",
    "rubin": "gb300-nvl72",
    "cdna2": "a100-80-sxm",
    "cdna3": "h200-sxm",
    "cdna4": "b200-sxm",
}
"""Measured part that stands in for a family; families not listed borrow the H100's efficiencies."""


ANOTHER_ENGINE = 200.0
"""Distance of another engine's weight-only kernels: behind the own engine's 16-bit ones on a GPU of the family, before another family's."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row of constants and how far it is from what was asked for."""

    row: dict[str, Any]
    same_gpu: bool
    same_family: bool
    same_engine: bool
    same_dtype: bool


@cache
def document() -> dict[str, Any]:
    """The constants file: source, date, licence, `kernels` by kind, `host` by engine."""
    return json.loads(KERNELS_FILE.read_text(encoding="utf-8"))


def fingerprint() -> str:
    """First digits of a hash of every number in the file: equal as long as nothing that moves a prediction has changed."""

    def numbers(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: numbers(v) for k, v in value.items() if not isinstance(v, str)}
        return [numbers(v) for v in value] if isinstance(value, list) else value

    known = {name: numbers(document()[name]) for name in ("kernels", "host", "assumed")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


@cache
def _rows(kernel: str) -> tuple[dict[str, Any], ...]:
    return tuple(document()["kernels"][kernel])


@cache
def find(kernel: str, gpu: str, engine: str, dtype: str | None = None, **key: Any) -> Found | None:
    """The best row of `kernel` for this GPU slug, engine and data type; None when no GPU was measured.

    `key` must match exactly (`phase`, `ranks`, `eager`, `experts`; None: rows without one), except `head_dim`, which takes the nearest.
    A missing data type is replaced first, then the engine, then the GPU: a part's own kernels tell more than another's. Of WEIGHT_ONLY
    matrix products the engine is replaced last.
    """
    family = gpus()[gpu].family
    reference = REFERENCE_GPU.get(family, "h100-sxm")
    types = (dtype, *SUBSTITUTES.get(dtype, ())) if dtype else (None,)
    head_dim = key.pop("head_dim", None)
    best: tuple[float, Found] | None = None
    for row in _rows(kernel):
        if any(row.get(name) != value for name, value in key.items()):
            continue
        if dtype and row["dtype"] not in types:
            continue
        row_family = gpus()[row["gpu"]].family
        distance = 0.0 if row["gpu"] == gpu else 20.0 if row["gpu"] == reference else 25.0 if row_family == family else 500.0
        if row["engine"] != engine:
            distance += ANOTHER_ENGINE if kernel == "gemm" and dtype == WEIGHT_ONLY else 2 if row["engine"] != "sglang" else 3
        distance += 30 * types.index(row["dtype"]) if dtype else 0
        if head_dim is not None:
            distance += abs(head_dim - row["head_dim"]) / 256
        if best is None or distance < best[0]:
            same_dtype = not dtype or row["dtype"] == dtype
            best = distance, Found(row, row["gpu"] == gpu, row_family == family, row["engine"] == engine, same_dtype)
    return best[1] if best else None


def host(engine: str, version: str, async_scheduling: bool, gpu: str = "") -> dict[str, Any]:
    """Host time of an engine; the newest row not above `version`, one of this GPU's own before a general one.

    `step_us` and `sequence_us` are added to a step; `overlapped_sequence_us` runs beside it, so a step takes at least that much a
    sequence; `api_us` is per request.
    """
    ask = _version(version)
    rows = [r for r in document()["host"] if r["engine"] == engine and r["async_scheduling"] == async_scheduling]
    rows = [r for r in rows if gpu in r.get("gpus", (gpu,))]
    fitting = [r for r in rows if _version(r["from_version"]) <= ask] or rows
    return max(fitting, key=lambda r: (_version(r["from_version"]), "gpus" in r))


def _version(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.lstrip("v").split("."):
        digits = "".join(c for c in part if c.isdigit())
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)
