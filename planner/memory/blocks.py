"""The engine's block pool: how layers share it, what one sequence takes, and the two lines the engine prints.

vLLM cuts layers into groups of equal size that share one block table each; every block holds the same bytes in every
group. Full layers take blocks as the context grows, windowed layers stop, recurrent layers take a fixed number.
Rules read off engine logs: one more block for a sliding window, none for chunks, two blocks per recurrent group with
prefix caching; attention blocks grow until they hold as many bytes as a recurrent state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.scenario import Engine
from planner.sharding import Stage

PAD_RATIO = 1.25
"""Below this ratio of largest to smallest group the engine pads instead of cutting to the smallest."""
BLOCK_STEP = 16
"""Attention blocks that grow to match a recurrent state stay multiples of this many tokens."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers of one stage that are cached alike."""

    layers: int
    bytes_per_token: float
    """One layer, one rank; 0 for recurrent layers."""
    state_bytes: float = 0.0
    window: int = 0
    """Tokens kept; 0 for full attention."""
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Block tables of one kind: `tables` of them, each for `layers_per_table` layers."""

    kind: Kind
    tables: int
    block_tokens: int
    """Tokens in one block; 0 for recurrent layers."""

    def blocks(self, tokens: float, engine: Engine, admitting: bool) -> int:
        """Blocks that one sequence of `tokens` takes in all tables of this kind.

        `admitting` asks as the engine does before it starts: a window may be overshot by one step's token budget.
        """
        if not self.block_tokens:
            return self.tables * (2 if engine.enable_prefix_caching else 1)
        held, extra = tokens, 0
        if self.kind.window:
            budget = engine.max_num_batched_tokens if admitting else 0
            reach = self.kind.window + budget - (0 if self.kind.chunked else 1)
            held, extra = min(tokens, reach), 0 if self.kind.chunked else 1
        return self.tables * (math.ceil(held / self.block_tokens) + extra)


@dataclass(frozen=True, slots=True)
class BlockPool:
    """The pool of one rank of one stage."""

    total_blocks: int
    groups: tuple[Group, ...]
    block_bytes: float
    block_tokens: int
    """Tokens in one block of the widest layers: the engine's block size, or what it grew to beside recurrent layers."""

    @property
    def tables(self) -> int:
        return sum(g.tables for g in self.groups)

    def sequence_blocks(self, tokens: float, engine: Engine, admitting: bool = False) -> int:
        return sum(g.blocks(tokens, engine, admitting) for g in self.groups)

    def prefix_blocks(self, prefix: float) -> int:
        """Whole blocks that one shared prefix holds; in windowed layers those of its last window."""
        return sum(g.tables * int(min(prefix, g.kind.window or prefix) // g.block_tokens) for g in self.groups if g.block_tokens)

    def borrowed_blocks(self, tokens: float, prefix: float) -> int:
        """Blocks that a sequence of `tokens` takes from its prefix instead of its own: a window reaches back only so far."""
        own = tokens - prefix
        reach = ((g, min(prefix, max(0.0, (g.kind.window or tokens) - own))) for g in self.groups if g.block_tokens)
        return sum(g.tables * int(back // g.block_tokens) for g, back in reach)

    def concurrency(self, max_model_len: int, engine: Engine) -> float:
        """Sequences of max_model_len at once, of a pool that caches something: `Maximum concurrency`."""
        return self.total_blocks / self.sequence_blocks(max_model_len, engine, admitting=True)


def kinds(stage: Stage, extra: tuple[tuple[int, float], ...] = ()) -> tuple[Kind, ...]:
    """Cached layers of a stage, like with like; `extra` are (layers, bytes per token) of a drafter."""
    found: dict[tuple[float, float, int, bool], int] = {}
    for layer in stage.layers:
        a, r = layer.attention, layer.recurrent
        if a is not None:
            if a.kv_bytes_per_token:
                _add(found, (a.kv_bytes_per_token, 0.0, 0, False), layer.count)
            if a.kv_windowed_bytes_per_token:
                _add(found, (a.kv_windowed_bytes_per_token, 0.0, a.window or a.local_window, a.chunked), layer.count)
        if r is not None:
            _add(found, (0.0, r.state_bytes, 0, False), layer.count)
    for count, held in extra:
        _add(found, (held, 0.0, 0, False), count)
    return tuple(Kind(count, *key) for key, count in found.items())


def _add(found: dict[tuple[float, float, int, bool], int], key: tuple[float, float, int, bool], count: int) -> None:
    found[key] = found.get(key, 0) + count


def pool(stage: Stage, pool_bytes: float, engine: Engine, extra: tuple[tuple[int, float], ...] = ()) -> BlockPool:
    """The block pool that `pool_bytes` make on one rank of `stage`; negative bytes make an empty one."""
    cached = kinds(stage, extra)
    if not cached:
        return BlockPool(0, (), 0.0, engine.block_size)
    size = engine.block_size
    if all(not k.window and not k.state_bytes for k in cached):
        # all layers grow alike: one table, a block is a slice through every layer
        block_bytes = sum(k.layers * k.bytes_per_token for k in cached) * size
        merged = Kind(sum(k.layers for k in cached), block_bytes / size)
        return BlockPool(max(0, int(pool_bytes // block_bytes)), (Group(merged, 1, size),), block_bytes, size)
    counts = [k.layers for k in cached]
    per_table = max(counts) if max(counts) < PAD_RATIO * min(counts) else min(counts)
    page = max(k.bytes_per_token * size for k in cached)
    state = max(k.state_bytes for k in cached)
    if state > page:
        per_token = max(k.bytes_per_token for k in cached)
        page = math.ceil(state / per_token / BLOCK_STEP) * BLOCK_STEP * per_token if per_token else state
    groups = tuple(Group(k, math.ceil(k.layers / per_table), int(page // k.bytes_per_token) if k.bytes_per_token else 0) for k in cached)
    block_bytes = per_table * page
    printed = min((g.block_tokens for g in groups if g.block_tokens), default=0)
    return BlockPool(max(0, int(pool_bytes // block_bytes)), groups, block_bytes, printed)


def printed_tokens(p: BlockPool, meaning: str, max_model_len: int, engine: Engine) -> int:
    """`GPU KV cache size: N tokens` as this version of the engine defines N."""
    if meaning == "concurrency":
        return int(p.concurrency(max_model_len, engine) * max_model_len)
    return p.total_blocks // p.tables * p.block_tokens
