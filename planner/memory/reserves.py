"""What an engine sets aside beside weights and cache: profiling peak, libraries, CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass

from planner.architecture import Architecture
from planner.catalog.engine_memory import EngineMemory, engine_memory, newest, version_key
from planner.scenario import Engine
from planner.sharding import Shard, ShardMoe, Stage
from planner.units import GIB


@dataclass(frozen=True, slots=True)
class Reserves:
    """Bytes of one rank of one stage, and how they came about."""

    activation: float
    activation_formula: str
    non_torch: float
    non_torch_formula: str
    graphs: float
    graphs_formula: str
    graphs_inside: bool
    """Graphs are taken out of the utilised share before the cache is sized; otherwise they come on top of it."""
    constants: EngineMemory


def of(arch: Architecture, shard: Shard, stage: Stage, engine: Engine) -> Reserves:
    """Reserves of one rank of `stage`.

    The activation peak is the sampler's dummy run (max_num_seqs rows of logits) on the last stage and one layer's MLP at
    max_num_batched_tokens on every other, on top of the hidden states and the fused experts' workspace that outlive both.
    """
    c = engine_memory(engine.name, engine.version)
    size = shard.activation_bytes_per_element
    tokens, hidden = engine.max_num_batched_tokens, shard.hidden_size
    rows = min(engine.max_num_seqs, tokens)
    wide = max((g.n for layer in stage.layers for g in layer.gemms if g.name in ("gate_up", "shared_gate_up", "up_proj")), default=0)
    peak = rows * shard.vocab_size * (c.logits_bytes_per_entry + size - 2) if stage.last else tokens * wide * 1.5 * size
    width = tokens * hidden * c.activation_bytes_per_token_width * size / 2
    between = 0.0 if stage.last else tokens * hidden * c.pipeline_bytes_per_token_width * size / 2
    experts = max((_workspace(layer.moe, tokens) for layer in stage.layers if layer.moe), default=0.0) * c.moe_workspace_share
    base = (c.activation_base_gib + (c.multimodal_gib if arch.tower_params else 0.0)) * GIB
    parts = [
        f"{rows:,} rows × {shard.vocab_size:,} vocabulary × {c.logits_bytes_per_entry + size - 2:g} B"
        if stage.last
        else f"{tokens:,} tokens × MLP width {wide:,} × {1.5 * size:g} B",
        f"{tokens:,} tokens × {hidden:,} × {c.activation_bytes_per_token_width * size / 2:g} B",
    ]
    if between:
        parts.append(f"{tokens:,} tokens × {hidden:,} × {c.pipeline_bytes_per_token_width * size / 2:g} B between stages")
    if experts:
        parts.append(f"expert workspace {experts / GIB:.2f} GiB")
    parts.append(f"{base / GIB:.2f} GiB")
    tp, pp = shard.tensor_parallel_size, shard.pipeline_parallel_size
    libraries, why = (
        (c.non_torch_tp_gib, "with NCCL") if tp > 1 else (c.non_torch_pp_gib, "pipeline stage") if pp > 1 else (c.non_torch_gib, "one GPU")
    )
    has_moe = any(layer.moe for layer in stage.layers)
    graphs = (
        0.0
        if engine.enforce_eager
        else c.graph_base_gib + c.graph_gib_per_layer * stage.layer_count + (c.graph_moe_gib if has_moe else 0.0)
    )
    return Reserves(
        activation=peak + width + between + experts + base,
        activation_formula=" + ".join(parts),
        non_torch=libraries * GIB,
        non_torch_formula=f"CUDA context and libraries, {why}",
        graphs=graphs * GIB,
        graphs_formula="eager: none"
        if engine.enforce_eager
        else f"{c.graph_base_gib:g} + {stage.layer_count} layers × {c.graph_gib_per_layer:g} GiB" + (" + experts" if has_moe else ""),
        graphs_inside=c.graphs_inside_budget,
        constants=c,
    )


def _workspace(moe: ShardMoe, tokens: int) -> float:
    """Two buffers of the fused expert kernel in 16 bit; MXFP4 kernels work in place."""
    if moe.precision == "mxfp4":
        return 0.0
    up = (2 if moe.gated else 1) * moe.intermediate
    return tokens * moe.top_k * (max(up, moe.hidden) + moe.intermediate) * 2.0


def doubts(engine: Engine) -> tuple[str, ...]:
    """What is assumed about this engine's reserves, in sentences; empty when they were measured on this version."""
    c = engine_memory(engine.name, engine.version)
    found = []
    if not c.measured:
        found.append(f"memory reserves of {engine.name} {engine.version} are not measured: {c.source}")
    if not version_key(engine.version):
        found.append(f"{engine.name} {engine.version} moves; the constants of {c.since}, the newest known here, are used")
    elif version_key(engine.version) < version_key(c.since):
        found.append(f"{engine.name} {engine.version} is older than any version known here ({c.since}); its constants are used")
    elif version_key(engine.version)[:2] > version_key(newest(engine.name))[:2] and c.measured:
        found.append(f"{engine.name} {engine.version} is newer than any version known here ({c.since}); its constants are used")
    return tuple(found)
