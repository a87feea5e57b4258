"""The budget identity: utilisation × memory = weights + activation peak + non-torch + KV pool, and what the pool holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.architecture import Architecture
from planner.hardware import Gpu
from planner.memory import blocks, drafting, reserves
from planner.memory.layers import layers
from planner.memory.lengths import final_length, model_len, prefix_copies
from planner.memory.model import MemoryPlan, OffloadTier, Term
from planner.memory.remedies import remedies
from planner.memory.textbook import textbook
from planner.scenario import Scenario
from planner.sharding import Shard, Stage
from planner.units import GB, GIB


def plan(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    """Memory of one replica of `scenario`. Not fitting is a result: `fits` is False, the pool may be negative, `remedies` help."""
    found = replace(budget(arch, shard, gpu, scenario), layers=layers(arch, shard))
    return found if found.fits else replace(found, remedies=remedies(arch, gpu, scenario, found, budget))


def budget(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    """`plan` without remedies and the table of layers."""
    if scenario.fidelity == "textbook":
        return textbook(arch, shard, gpu, scenario)
    return _engine(arch, shard, gpu, scenario)


@dataclass(frozen=True, slots=True)
class _Rank:
    """One rank of one stage: its budget and its block pool."""

    stage: Stage
    weights: float
    drafter: float
    reserves: reserves.Reserves
    pool_bytes: float
    pool: blocks.BlockPool
    own_blocks: int
    """Blocks of one sequence at its final mean length, shared prefix left out."""
    shared_blocks: int
    longest_blocks: int
    """Blocks that the engine asks for one sequence of max_model_len before it starts."""

    @property
    def sequences(self) -> float:
        """Sequences at their final mean length; a rank that fits and caches nothing limits none."""
        if not self.pool.groups:
            return math.inf if self.pool_bytes >= 0 else 0.0
        return max(0.0, (self.pool.total_blocks - self.shared_blocks) / self.own_blocks)

    @property
    def missing_bytes(self) -> float:
        """Bytes short of one planned sequence or one of max_model_len, whichever is larger; 0 when both fit."""
        blocks_needed = max(self.own_blocks + self.shared_blocks, self.longest_blocks) if self.pool.groups else 0
        if blocks_needed <= self.pool.total_blocks and self.pool_bytes >= 0:
            return 0.0
        return blocks_needed * self.pool.block_bytes - self.pool_bytes


def _engine(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    e, kv = scenario.engine, scenario.precision.kv_cache
    share = gpu.memory_engine_bytes * e.gpu_memory_utilization
    max_len = model_len(arch, scenario)
    ranks = [_rank(arch, shard, stage, share, max_len, scenario) for stage in shard.stages]
    worst = max(ranks, key=lambda r: (r.missing_bytes, -r.sequences))
    dp = shard.data_parallel_size
    sequences = min(r.sequences for r in ranks)
    if math.isinf(sequences):  # nothing grows and no state is kept: only max_num_seqs limits
        sequences = float(e.max_num_seqs)
    cached = [r for r in ranks if r.pool.groups]
    concurrency = min((r.pool.concurrency(max_len, e) for r in cached), default=float(e.max_num_seqs))
    printed = min((blocks.printed_tokens(r.pool, r.reserves.constants.tokens_printed, max_len, e) for r in cached), default=0)
    stage = worst.stage
    return MemoryPlan(
        fits=worst.missing_bytes == 0.0,
        weights_bytes_per_gpu=worst.weights,
        activation_bytes_per_gpu=worst.reserves.activation,
        non_torch_bytes_per_gpu=worst.reserves.non_torch,
        cuda_graph_bytes_per_gpu=worst.reserves.graphs,
        kv_pool_bytes_per_gpu=worst.pool_bytes,
        kv_pool_tokens=printed * dp,
        kv_bytes_per_token=arch.kv_bytes_per_token(kv) + arch.kv_windowed_bytes_per_token(kv),
        kv_bytes_per_token_per_gpu=stage.kv_bytes_per_token + stage.kv_windowed_bytes_per_token,
        cache_limited_batch=math.floor(sequences) * dp,
        sequences=sequences * dp,
        max_model_len_concurrency=concurrency * dp,
        shortfall_bytes_per_gpu=worst.missing_bytes,
        gpu_memory_bytes=gpu.memory_engine_bytes,
        budget_bytes_per_gpu=share,
        max_model_len=max_len,
        sequence_bytes_per_gpu=worst.own_blocks * worst.pool.block_bytes,
        full_kv_bytes_per_token_per_gpu=stage.kv_bytes_per_token,
        windowed_kv_bytes_per_token_per_gpu=stage.kv_windowed_bytes_per_token,
        state_bytes_per_sequence_per_gpu=stage.state_bytes_per_sequence,
        blocks=min((r.pool.total_blocks for r in cached), default=0),
        terms=_terms(arch, shard, gpu, scenario, share, worst),
        notes=reserves.doubts(e),
        engine_log=(
            f"GPU KV cache size: {printed:,} tokens",
            f"Maximum concurrency for {max_len:,} tokens per request: {concurrency:.2f}x",
        ),
        offload=_offload(shard, scenario),
    )


def _rank(arch: Architecture, shard: Shard, stage: Stage, share: float, max_len: int, scenario: Scenario) -> _Rank:
    e = scenario.engine
    kept = reserves.of(arch, shard, stage, e)
    draft = drafting.built(arch, scenario) if stage.last else None
    drafter = drafting.weight_bytes(draft, arch, shard, scenario) if draft else 0.0
    weights = stage.weight_bytes + stage.engine_bytes + drafter
    pool_bytes = share - weights - kept.activation - kept.non_torch - (kept.graphs if kept.graphs_inside else 0.0)
    extra = drafting.kv_bytes_per_token(draft, shard, scenario) if draft else ()
    pool = blocks.pool(stage, pool_bytes, e, extra)
    length, prefix = final_length(scenario)
    if e.kv_allocation == "contiguous":
        own, shared = pool.sequence_blocks(max_len, e), 0
    else:
        own = pool.sequence_blocks(length, e) - pool.borrowed_blocks(length, prefix)
        shared = pool.prefix_blocks(prefix) * prefix_copies(scenario)
    # vLLM refuses to start when one sequence of max_model_len does not fit; the others only cap what they accept
    longest = pool.sequence_blocks(max_len, e, admitting=True) if e.name == "vllm" else 0
    return _Rank(stage, weights, drafter, kept, pool_bytes, pool, own, shared, longest)


def _terms(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario, share: float, r: _Rank) -> tuple[Term, ...]:
    e, c = scenario.engine, r.reserves.constants
    latent = any(g.attention and g.attention.mla for g in arch.layers)
    stage = f", stage {r.stage.index + 1} of {shard.pipeline_parallel_size}" if shard.pipeline_parallel_size > 1 else ""
    formula = f"{r.stage.weight_bytes / GIB:.2f} GiB of tensors at TP {shard.tensor_parallel_size}{stage}"
    if r.stage.engine_bytes:
        formula += f" + {r.stage.engine_bytes / GIB:.2f} GiB rotary table{' and MLA copies' if latent else ''}"
    if r.drafter:
        formula += f" + {r.drafter / GIB:.2f} GiB drafter"
    kv = f"one sequence of {final_length(scenario)[0]:,.0f} tokens takes {r.own_blocks:,} blocks of {r.pool.block_bytes / 1024:,.0f} KiB"
    inside = "inside the share" if r.reserves.graphs_inside else "on top of the share"
    return (
        Term(
            "budget",
            share,
            f"{e.gpu_memory_utilization:g} × {gpu.memory_engine_bytes / GIB:.2f} GiB",
            f"memory as the engine sees it: {gpu.memory_basis}",
            gpu.verified_date,
        ),
        Term("weights", r.weights, formula, arch.source or "configuration"),
        Term("activation", r.reserves.activation, r.reserves.activation_formula, c.source, c.date),
        Term("non_torch", r.reserves.non_torch, r.reserves.non_torch_formula, c.source, c.date),
        Term("cuda_graph", r.reserves.graphs, f"{r.reserves.graphs_formula}, {inside}", c.source, c.date),
        Term(
            "kv_pool",
            r.pool_bytes,
            "budget − weights − activation − non_torch" + (" − cuda_graph" if r.reserves.graphs_inside else ""),
            "identity, holds to 0.05 GiB in every complete vLLM log",
            c.date,
        ),
        Term("sequence", r.own_blocks * r.pool.block_bytes, kv, "block rules read off vLLM logs", c.date),
    )


def _offload(shard: Shard, scenario: Scenario) -> tuple[OffloadTier, ...]:
    """Capacity of the slower tiers: every rank parks its own part of the cache there."""
    ranks = shard.tensor_parallel_size
    per_token = sum(s.kv_bytes_per_token + s.kv_windowed_bytes_per_token for s in shard.stages) * ranks
    tiers = []
    for t in scenario.engine.kv_offload:
        size = t.gib * GIB
        tiers.append(OffloadTier(t.tier, int(size // per_token) if per_token else 0, size, t.gb_s, per_token / (t.gb_s * GB)))
    return tuple(tiers)
