"""What runs where: accelerators and the engines' builds for them, the engine version that knows a model, the KV blocks its kernels take.

`engine_support.json` holds the dated facts on versions and blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner import architecture, catalog, hardware
from planner.catalog.engine_memory import MOVING, version_key
from planner.export.flags import flag_list
from planner.scenario import Engine, FrozenJson, Hardware, Model, Scenario

SUPPORT_FILE = Path(__file__).with_name("engine_support.json")
PLATFORMS = {"cdna": "amd", "tpu": "tpu", "neuron": "neuron", "gaudi": "gaudi"}
"""By the beginning of a GPU family; all others are NVIDIA's."""
ENGINES_ON = {
    "nvidia": ("vllm", "sglang", "trtllm"),
    "amd": ("vllm", "sglang"),
    "tpu": ("vllm",),
    "neuron": ("vllm",),
    "gaudi": ("vllm",),
}
BUILDS = {
    "tpu": "the package vllm-tpu or the image vllm/vllm-tpu (docs.vllm.ai/projects/tpu, 2026-11)",
    "neuron": "the plug-in vllm-neuron or AWS's vLLM Neuron container (awsdocs-neuron.readthedocs-hosted.com, 2026-07)",
    "gaudi": "the plug-in vllm-gaudi (github.com/vllm-project/vllm-gaudi, 2026-11)",
}
"""vLLM for accelerators that its own images do not serve: plug-ins with versions and arguments of their own."""
NOT_BUILT = {("turing", "trtllm"): "it supports Ampere and newer (nvidia.github.io/TensorRT-LLM/supported-hardware, 2026-11)"}
NOT_BUILT[("cdna2", "sglang")] = "its images are for MI300X and newer (sgl-project/sglang cookbook, 2026-06)"
SIXTEEN_BIT_ONLY_FLOAT = {"turing"}
"""Families without bfloat16."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """KV blocks of one kind of attention on one platform, in vLLM."""

    tokens: int
    """What to ask for."""
    allowed: tuple[int, ...]
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Since:
    """The least vLLM version that a model's recipe asks for."""

    version: str
    of_model: bool
    """The recipe is of this very model; otherwise the oldest of its architecture."""
    source: str
    date: str


@cache
def _facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SUPPORT_FILE.read_text("utf-8"))
    return found


def platform(parts: Hardware) -> str:
    """nvidia, amd, tpu, neuron or gaudi."""
    family = hardware.of(parts).family
    return next((name for start, name in PLATFORMS.items() if family.startswith(start)), "nvidia")


def why_not(engine: str, parts: Hardware) -> str:
    """Why this engine does not run on this accelerator, as the end of a sentence; empty where it does."""
    family, where = hardware.of(parts).family, platform(parts)
    if engine not in ENGINES_ON[where]:
        return f"it has no build for {parts.gpu}"
    return NOT_BUILT.get((family, engine), "")


def since(model: Model) -> Since | None:
    """What the recipe of the model, or the oldest recipe of its architecture, asks for; None where there is none."""
    facts = _facts()["vllm_versions"]
    rows: list[Mapping[str, str]] = facts["rows"]
    own = [row for row in rows if model.hf_config is None and row["model"] == model.name]
    if own:
        return Since(own[0]["since"], True, facts["source"], own[0]["date"])
    alike = [row for row in rows if row["model_type"] == _model_type(model)]
    if not alike:
        return None
    least = min(alike, key=lambda row: version_key(row["since"]))
    return Since(least["since"], False, facts["source"], least["date"])


def served_version(s: Scenario) -> str:
    """vLLM version to launch: the plan's, or the least that knows the model where that is newer."""
    planned, needed = _planned_version(s), since(s.model)
    return needed.version if needed is not None and _older(planned, needed.version) else planned


def version_note(s: Scenario) -> str:
    """What to know of the engine's version and this model; empty where the plan's version is known to serve it."""
    planned, needed, name = _planned_version(s), since(s.model), s.model.name or "this model"
    if needed is not None and _older(planned, needed.version):
        of = name if needed.of_model else f"the architecture of {name}"
        constants = f" Plan again with engine.version {needed.version}: memory reserves depend on it." if s.engine.name == "vllm" else ""
        asks = f"the recipe for {of} asks for {needed.version} or newer ({needed.source}, {needed.date})"
        return f"vLLM {planned} is older than known to serve this: {asks}; images here are of {needed.version}.{constants}"
    row = catalog.models().get(s.model.name) if s.model.hf_config is None else None
    known = flag_list("vllm serve", planned)
    if needed is None and row is not None and known.version == planned.lstrip("v") and row.release_date > known.date:
        return f"{name} was released on {row.release_date}, after vLLM {planned} ({known.date}): check that this version knows it."
    if needed is None and row is None:
        return f"No recipe of this architecture is known: check that vLLM {planned} serves it."
    return ""


def _planned_version(s: Scenario) -> str:
    """The plan's vLLM version; the schema's default for a plan of another engine."""
    return s.engine.version if s.engine.name == "vllm" else Engine().version


def _older(version: str, than: str) -> bool:
    return version.lower() not in MOVING and version_key(version) < version_key(than)


def attention_kind(model: Model) -> str:
    """hybrid, compressed, sparse_mla, mla, minimax_m3 or full: what decides on the size of KV blocks."""
    arch = architecture.of(model)
    if any(layer.recurrent is not None for layer in arch.layers):
        return "hybrid"
    found = [layer.attention for layer in arch.layers if layer.attention is not None]
    if any(a.compression for a in found):
        return "compressed"
    if any(a.indexer_heads for a in found):
        return "sparse_mla"
    if any(a.kv_lora_rank for a in found):
        return "mla"
    return "minimax_m3" if _model_type(model) == "minimax_m3" else "full"


def _model_type(model: Model) -> Any:
    return (model.hf_config.value if isinstance(model.hf_config, FrozenJson) else catalog.model_config(model.name)).get("model_type")


def blocks(kind: str, where: str) -> Blocks | None:
    """What the kernels of this attention take; None where any multiple of 16 does."""
    for row in _facts()["vllm_blocks"]["rows"]:
        if row["attention"] == kind and row["platform"] in (where, "any"):
            return Blocks(row["tokens"], tuple(row["allowed"]), row["source"], row["date"])
    return None


def block_size(s: Scenario) -> tuple[int | None, str]:
    """vLLM's `--block-size`, and what to say of it; None leaves it to the engine."""
    planned, kind = s.engine.block_size, attention_kind(s.model)
    if kind == "hybrid":
        told = "vLLM sizes the KV blocks of a model with recurrent layers itself, so --block-size is left out"
        return None, f"{told}; the plan counts in blocks of {planned} tokens."
    known = blocks(kind, platform(s.hardware))
    if known is None or planned in known.allowed:
        return planned, ""
    takes = " or ".join(map(str, known.allowed))
    told = f"KV blocks hold {known.tokens} tokens where the plan counts in {planned}: the kernels of this attention take {takes}"
    return known.tokens, f"{told} ({known.source}, {known.date})."


__all__ = [
    "BUILDS",
    "SIXTEEN_BIT_ONLY_FLOAT",
    "Blocks",
    "Since",
    "attention_kind",
    "block_size",
    "blocks",
    "platform",
    "served_version",
    "since",
    "version_note",
    "why_not",
]
