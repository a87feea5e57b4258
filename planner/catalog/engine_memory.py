"""What serving engines set aside beside weights and cache, by engine and version, measured from their own start-up logs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.problems import InputError

MOVING = ("latest", "nightly", "main")
"""Names of versions that move: the newest constants stand for them."""
FILE = Path(__file__).with_name("engine_memory.json")


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Constants of one engine from one version on."""

    engine: str
    since: str
    """First version these constants hold for."""
    logits_bytes_per_entry: float
    """Bytes per (sequence, vocabulary entry) of the sampler's dummy run at max_num_seqs."""
    activation_bytes_per_token_width: float
    """Bytes per (batched token, hidden width) that live through the profiling run."""
    moe_workspace_share: float
    """Share of tokens × top_k × (max(2 × intermediate, hidden) + intermediate) × 2 bytes held by fused experts."""
    multimodal_gib: float
    """More for models with a vision tower."""
    activation_base_gib: float
    pipeline_bytes_per_token_width: float
    """More per (batched token, hidden width) on a pipeline stage: buffers between stages."""
    non_torch_gib: float
    """CUDA context and libraries at TP = 1."""
    non_torch_tp_gib: float
    """The same with NCCL, TP ≥ 2."""
    non_torch_pp_gib: float
    """The same for pipeline stages at TP = 1."""
    graph_base_gib: float
    graph_gib_per_layer: float
    graph_moe_gib: float
    graphs_inside_budget: bool
    """True when CUDA graphs are taken out of the utilised share before the cache is sized; otherwise they come on top."""
    tokens_printed: str
    """What `GPU KV cache size` means: "blocks" (blocks ÷ groups × block size) or "concurrency" (concurrency × max_model_len)."""
    measured: bool
    """Fitted on logs of this version; False for assumed values, which `source` explains."""
    source: str
    date: str


@cache
def _rows() -> tuple[EngineMemory, ...]:
    return tuple(EngineMemory(**row) for row in json.loads(FILE.read_text(encoding="utf-8"))["rows"])


def engine_memory(engine: str, version: str) -> EngineMemory:
    """The newest row of `engine` that is not newer than `version`; the oldest one for older versions, the newest for `latest`.

    Raises InputError for a version without a number.
    """
    rows = [r for r in _rows() if r.engine == engine]
    if version.strip().lower() in MOVING:
        return rows[-1]
    if not version_key(version):
        known_since = ", ".join(r.since for r in rows)
        raise InputError(
            f"engine.version {version[:32]!r} is no version; give a number such as {rows[-1].since} "
            f"(constants of {engine} are known from {known_since} on), or latest"
        )
    known = [r for r in rows if version_key(r.since) <= version_key(version)]
    return known[-1] if known else rows[0]


def newest(engine: str) -> str:
    """Version since which the newest row of `engine` holds."""
    return [r for r in _rows() if r.engine == engine][-1].since


def version_key(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "0.19.0rc1" → (0, 19, 0); text without numbers sorts first."""
    return tuple(int(x) for x in re.findall(r"\d{1,6}", version)[:3])
