"""Attention and recurrent layers: linear in the contexts of decoding sequences, a closed form for a prefill chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planner.roofline.constants import ACTIVATION_BYTES, Constants
from planner.sharding import Shard, ShardAttention, ShardRecurrent
from planner.units import MULTIPLY_ADD_FLOPS, US


@dataclass(slots=True)
class DecodeCosts:
    """Seconds of one step's decode attention over all layers of a replica's pipeline."""

    launch: float = 0.0
    per_sequence: float = 0.0
    per_context: float = 0.0
    per_windowed: float = 0.0
    state_per_sequence: float = 0.0
    """Part of `per_sequence` that reads and writes recurrent state."""
    compute_share: float = 0.0
    """Part of `per_context` and `per_windowed` that is arithmetic, s per token."""
    sparse: tuple[tuple[float, int], ...] = ()
    """(seconds per token read, most tokens read per sequence) of layers that read a chosen few."""


class ChunkCosts(NamedTuple):
    """Prefill attention of layers that share a window: seconds = per_pair × pairs × (1 + half / length) + per_prefix × cached."""

    per_pair: float
    half_tokens: float
    per_prefix: float
    window: int
    """Tokens looked back; a huge number for full attention."""
    indexer_per_pair: float = 0.0
    """Seconds per pair of the full context that an indexer scores before a chosen few are read."""


NO_WINDOW = 1 << 60
"""Window of full attention, in tokens."""

STATE_FLOPS, STATE_ELEMENT_BYTES = 8, 4
"""Operations of one token on one element of recurrent state, and the element's size: those of the gated delta rule that was timed."""
STATE_PASSES = 2.0
"""A decode step reads the state and writes it."""


def kv_dtype(kv_precision: str) -> str:
    """Cache data type as kernels name it."""
    return "fp8" if kv_precision in ("fp8", "int8", "int4") else "bf16"


def costs(shard: Shard, kv_precision: str, queries: int, c: Constants) -> tuple[DecodeCosts, tuple[ChunkCosts, ...], float, float]:
    """(decode, chunks, launch of a step with chunks, seconds per chunk token in recurrent layers) over all stages.

    `queries` is 1, or k + 1 when drafts are verified: arithmetic grows with it, cache reads do not.
    """
    decode = DecodeCosts()
    chunks: dict[tuple[float, int], ChunkCosts] = {}
    chunk_launch = per_token = 0.0
    dtype = kv_dtype(kv_precision)
    for layer in (layer for stage in shard.stages for layer in stage.layers):
        if layer.attention is not None:
            _decode(decode, layer.attention, layer.count, dtype, queries, c)
            new, launch = _chunk(layer.attention, layer.count, dtype, c)
            chunk_launch += launch
            key = (new.half_tokens, new.window)
            old = chunks.get(key, ChunkCosts(0.0, new.half_tokens, 0.0, new.window))
            chunks[key] = ChunkCosts(
                old.per_pair + new.per_pair,
                new.half_tokens,
                old.per_prefix + new.per_prefix,
                new.window,
                old.indexer_per_pair + new.indexer_per_pair,
            )
        if layer.recurrent is not None:
            launch, token = _recurrent(decode, layer.recurrent, layer.count, queries, c)
            chunk_launch += launch
            per_token += token
    return decode, tuple(chunks.values()), chunk_launch, per_token


def _decode(d: DecodeCosts, a: ShardAttention, count: int, dtype: str, queries: int, c: Constants) -> None:
    if a.mla:
        row = c.row("mla_decode", dtype)
        heads_started = row["sequence_us"] * US
        flops = MULTIPLY_ADD_FLOPS * a.heads * (2 * a.kv_lora_rank + a.qk_rope_head_dim)
    else:
        row = c.row("decode_attention", dtype, head_dim=a.head_dim)
        heads_started = row["sequence_head_us"] * US * a.kv_heads
        flops = MULTIPLY_ADD_FLOPS * a.heads * (a.head_dim + a.v_head_dim)
    memory = a.kv_read_bytes_per_token / (c.gpu.memory_bandwidth_bytes_s * row["memory"])
    compute = queries * flops / a.compression / (c.gpu.peak_flops("bf16") * row["compute"])
    per_token = max(memory, compute) if c.ideal else memory + compute
    d.launch += count * row["launch_us"] * US
    d.per_sequence += count * heads_started
    if a.indexer_topk:
        d.sparse += ((count * per_token, a.indexer_topk),)
        scored = max(
            a.indexer_head_dim / c.gpu.memory_bandwidth_bytes_s,
            queries * MULTIPLY_ADD_FLOPS * a.indexer_heads * a.indexer_head_dim / c.gpu.peak_flops("fp8"),
        )
        d.per_context += count * scored / c.share("indexer_share")
    elif a.window is None:
        d.per_context += count * per_token
        d.compute_share += count * compute
    else:
        d.per_windowed += count * per_token


def _chunk(a: ShardAttention, count: int, dtype: str, c: Constants) -> tuple[ChunkCosts, float]:
    if a.mla:
        row = c.row("mla_prefill", dtype)
        prefix: float = (a.kv_lora_rank + a.qk_rope_head_dim) * ACTIVATION_BYTES
    else:
        row = c.row("prefill_attention", dtype, head_dim=a.head_dim)
        prefix = a.kv_read_bytes_per_token
    per_pair = MULTIPLY_ADD_FLOPS * a.heads * (a.head_dim + a.v_head_dim) / a.compression / (c.gpu.peak_flops("bf16") * row["compute"])
    window = a.indexer_topk or a.window or NO_WINDOW
    scored = MULTIPLY_ADD_FLOPS * a.indexer_heads * a.indexer_head_dim / c.gpu.peak_flops("fp8") / c.share("indexer_share")
    new = ChunkCosts(
        per_pair=count * per_pair,
        half_tokens=row["half_tokens"],
        per_prefix=count * prefix / c.gpu.memory_bandwidth_bytes_s / c.share("cached_prefix_memory"),
        window=window,
        indexer_per_pair=count * scored,
    )
    return new, count * row["launch_us"] * US


def _recurrent(d: DecodeCosts, r: ShardRecurrent, count: int, queries: int, c: Constants) -> tuple[float, float]:
    row = c.row("recurrent", None, phase="generation")
    state = count * STATE_PASSES * r.state_bytes / (c.gpu.memory_bandwidth_bytes_s * row["memory"])
    d.launch += count * row["launch_us"] * US
    d.per_sequence += state * queries
    d.state_per_sequence += state * queries
    prefill = c.row("recurrent", None, phase="context")
    per_token = count * STATE_FLOPS * r.state_bytes / STATE_ELEMENT_BYTES / (c.gpu.peak_flops("bf16") * prefill["compute"])
    return count * prefill["launch_us"] * US, per_token


def pairs(new: int, cached: int, window: int) -> float:
    """(query, key) pairs of a causal chunk behind `cached` tokens when nothing looks back further than `window`."""
    if cached + new <= window:
        return new * (cached + new / 2)
    if cached >= window:
        return float(new * window)
    growing = window - cached
    return growing * (cached + growing / 2) + (new - growing) * window
