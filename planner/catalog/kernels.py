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
from planner.units import GB

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
"""Measured part that stands in for a family; families not listed borrow those of `REFERENCE`."""

REFERENCE = "h100-sxm"
"""Part whose kernels stand in where no other is named."""

PCIE_PARTS = ((50.0, "l40s"), (100.0, "rtx-pro-6000"))
"""(link below so many GB/s in one direction, part timed over such a link): PCIe 4.0 and 5.0 x16; anything faster is no PCIe."""

# How far a row is from the GPU, engine and data type that were asked for: `find` takes the nearest.
SAME_GPU, REFERENCE_PART, SAME_FAMILY, ANOTHER_FAMILY = 0.0, 20.0, 25.0, 500.0
DATA_TYPE = 30.0
"""For every place down the list of `SUBSTITUTES`: another data type is further than another part of the family."""
ENGINE, SGLANG = 2.0, 3.0
"""Another engine: of two, SGLang's kernels come second."""
WEIGHT_ONLY_ENGINE = 200.0
"""Another engine's weight-only kernels: behind the own engine's 16-bit ones on a GPU of the family, before another family's."""
HEAD_DIM = 1 / 256
"""For every element that a head is wider or narrower: decides between rows that are otherwise equally near."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row of constants and how far it is from what was asked for."""

    row: dict[str, Any]
    same_gpu: bool
    same_engine: bool
    same_dtype: bool


@cache
def document() -> dict[str, Any]:
    """The constants file: source, date, licence, `kernels` by kind, `host` by engine."""
    return json.loads(KERNELS_FILE.read_text(encoding="utf-8"))


def assumed() -> dict[str, Any]:
    """Constants of kernels that nobody timed, chosen by hand before any comparison with serving runs; `note` says how."""
    return document()["assumed"]


def fingerprint() -> str:
    """First digits of a hash of every number in the file: equal as long as nothing that moves a prediction has changed."""

    def numbers(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: numbers(v) for k, v in value.items() if not isinstance(v, str)}
        return [numbers(v) for v in value] if isinstance(value, list) else value

    known = {name: numbers(document()[name]) for name in ("kernels", "host", "assumed")}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


@cache
def timed_on(kernel: str, key: str) -> tuple[int, ...]:
    """Values of a key that a kernel was timed at, ascending: `ranks` of an all-reduce, `nodes` of an all-to-all."""
    return tuple(sorted({row[key] for row in _rows(kernel)}))


def pcie_part(link_bytes_s: float) -> str | None:
    """The part whose all-reduces were timed over PCIe of this rate; None where the link is faster than PCIe."""
    return next((part for below_gb_s, part in PCIE_PARTS if link_bytes_s < below_gb_s * GB), None)


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
    reference = REFERENCE_GPU.get(family, REFERENCE)
    types = (dtype, *SUBSTITUTES.get(dtype, ())) if dtype else (None,)
    head_dim = key.pop("head_dim", None)
    best: tuple[float, Found] | None = None
    for row in _rows(kernel):
        if any(row.get(name) != value for name, value in key.items()):
            continue
        if dtype and row["dtype"] not in types:
            continue
        row_family = gpus()[row["gpu"]].family
        if row["gpu"] == gpu:
            distance = SAME_GPU
        elif row["gpu"] == reference:
            distance = REFERENCE_PART
        else:
            distance = SAME_FAMILY if row_family == family else ANOTHER_FAMILY
        if row["engine"] != engine:
            weight_only = kernel == "gemm" and dtype == WEIGHT_ONLY
            distance += WEIGHT_ONLY_ENGINE if weight_only else SGLANG if row["engine"] == "sglang" else ENGINE
        if dtype:
            distance += DATA_TYPE * types.index(row["dtype"])
        if head_dim is not None:
            distance += HEAD_DIM * abs(head_dim - row["head_dim"])
        if best is None or distance < best[0]:
            same_dtype = not dtype or row["dtype"] == dtype
            best = distance, Found(row, row["gpu"] == gpu, row["engine"] == engine, same_dtype)
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
        digits = "".join(c for c in part if c.isdecimal())
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)
