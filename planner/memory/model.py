"""The answer of the memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Term:
    """One line of the budget of the worst GPU."""

    name: str
    bytes: float
    formula: str
    """The sum in words, with the values in it."""
    source: str
    """Where the constant or the rule came from."""
    date: str | None = None
    """When that source was read or logged; None for arithmetic on the other lines."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that would make the plan fit."""

    field: str
    """Dotted path in the scenario."""
    value: Any
    """What to set it to."""
    message: str
    """One sentence for a person."""
    kv_pool_bytes_per_gpu: float
    """Pool after the change."""
    cache_limited_batch: int
    """Sequences that fit after the change."""
    fits: bool
    """Whether this change, with `also`, is enough."""
    gpus: int
    """GPUs of the replica after the change."""
    also: tuple[tuple[str, Any], ...] = ()
    """(dotted path, value) of what has to change with it; empty for a single change."""


@dataclass(frozen=True, slots=True)
class OffloadTier:
    """A slower tier of the prefix cache."""

    tier: str
    tokens: int
    """Tokens of cache it holds, whole replica."""
    bytes: float
    gb_s: float
    """Bandwidth at which a replica reads it back."""
    seconds_per_token: float
    """Time to read the cache of one token back."""


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One group of equal layers."""

    layers: str
    """Positions, e.g. 0–2 or 3, 7, 11 …"""
    count: int
    kind: str
    """full, window, chunk, mla, compressed, recurrent, shared or none."""
    mixer: str
    """Attention or recurrent part in words."""
    mlp: str
    params_each: int
    active_params_each: int
    weight_bytes_per_gpu_each: float
    kv_bytes_per_token_each: float
    """Whole model, one copy, 16-bit; inside the window for windowed layers."""
    state_bytes_each: float
    """Fixed state of one sequence."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of one replica. Bytes are of its worst GPU, tokens and sequences of the whole replica."""

    fits: bool
    """Weights and reserves leave room for one sequence of the planned length and one of `max_model_len`."""
    weights_bytes_per_gpu: float
    activation_bytes_per_gpu: float
    non_torch_bytes_per_gpu: float
    cuda_graph_bytes_per_gpu: float
    kv_pool_bytes_per_gpu: float
    """What is left for the cache; negative when even weights and reserves do not fit."""
    kv_pool_tokens: int
    """`GPU KV cache size` as this version of the engine defines it, all DP ranks together."""
    kv_bytes_per_token: float
    """This precision, whole model, one copy, every layer at short context (windowed layers included)."""
    kv_bytes_per_token_per_gpu: float
    """Of the GPU whose pool decides."""
    cache_limited_batch: int
    """Sequences that fit at their final mean length: the batch that never preempts; all DP ranks together."""
    sequences: float
    """The same before it is rounded down; `max_num_seqs` where a sequence keeps nothing."""
    max_model_len_concurrency: float
    """Sequences of max_model_len at once, as the engine prints it (`Maximum concurrency`), all DP ranks together."""
    shortfall_bytes_per_gpu: float
    """Bytes that are missing per GPU for one sequence; 0 when it fits."""
    gpu_memory_bytes: float
    """Memory of one GPU that the budget starts from."""
    budget_bytes_per_gpu: float
    """Share of it that the engine may use."""
    max_model_len: int
    sequence_bytes_per_gpu: float
    """Cache of one sequence at its final mean length on the deciding GPU, in whole blocks, shared prefix left out."""
    full_kv_bytes_per_token_per_gpu: float
    """Growing part: full-context layers on the deciding GPU."""
    windowed_kv_bytes_per_token_per_gpu: float
    state_bytes_per_sequence_per_gpu: float
    blocks: int = 0
    """Blocks of the engine's pool on one DP rank."""
    terms: tuple[Term, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    """Changes when it does not fit, those that are enough marked: single ones in the order of what they cost, then pairs on fewer GPUs
    than any single one that is enough needs."""
    notes: tuple[str, ...] = ()
    engine_log: tuple[str, ...] = ()
    """The lines that vLLM prints at start-up for one DP rank."""
    offload: tuple[OffloadTier, ...] = ()
    """Slower tiers of the prefix cache."""
    layers: tuple[LayerRow, ...] = ()
    """The model layer by layer, a row per group of equal layers."""
