"""The KV blocks of one sequence, from admission to the end: what it needs, shares, names and gives back."""

from __future__ import annotations

from math import inf

from planner.kv_cache import KvCache
from planner.scheduler.growth import Growth, MeanGrowth, NoGrowth, PagedGrowth
from planner.scheduler.limits import Limits
from planner.workload import Request


def growth_of(limits: Limits, block_size: int) -> Growth:
    """How sequences grow: not at all when reserved ahead, by exact blocks, or by mean blocks under speculation."""
    if limits.contiguous:
        return NoGrowth()
    return MeanGrowth(block_size) if limits.num_speculative_tokens else PagedGrowth(block_size)


def needed_blocks(kv: KvCache, limits: Limits, request: Request, tokens: int) -> int:
    """Blocks of a sequence with `tokens` tokens in KV and room for the drafts of a step, or the whole reservation."""
    if limits.contiguous:
        tokens = limits.reserved_tokens(request.input_tokens, request.output_tokens)
    return kv.blocks(tokens + limits.num_speculative_tokens)


def refusal(kv: KvCache, limits: Limits, request: Request) -> str:
    """Why a request can never run here, or nothing."""
    longest = limits.max_model_len
    if longest is not None and request.input_tokens >= longest:
        return f"a prompt of {request.input_tokens} tokens leaves no room for output within max_model_len {longest}"
    tokens = request.input_tokens + request.output_tokens - 1  # the last token is sent, not stored
    blocks = needed_blocks(kv, limits, request, tokens)
    if blocks > kv.total_blocks:
        return f"a request of {tokens + 1} tokens needs {blocks} KV blocks of {kv.block_size}, the pool has {kv.total_blocks}"
    return ""


def allocate(kv: KvCache, limits: Limits, request: Request, now_s: float, longest: float = inf) -> float | None:
    """Take the blocks of the whole prompt, sharing what the prefix cache holds of it.

    Returns how long reading back from an offload tier takes, s, mostly 0; None, with nothing changed, when the blocks are not free
    or more than `longest` tokens are left to compute.
    """
    hits = 0
    if request.has_kv:
        reused = request.prompt_tokens
    else:
        if request.keys:  # the last token is always computed, because its output is wanted
            hits = kv.match(request.keys[: (request.prompt_tokens - 1) // kv.block_size], now_s)
        reused = hits * kv.block_size
    blocks = needed_blocks(kv, limits, request, request.prompt_tokens)
    if request.prompt_tokens - reused > longest or blocks - hits > kv.free_blocks:
        return None
    fetch_s = 0.0
    if hits:
        shared = request.keys[:hits]
        if blocks - hits + kv.cost(shared) > kv.free_blocks:
            return None
        fetch_s = kv.fetch_s(shared)
        kv.hold(shared)
    kv.take(blocks - hits)
    request.blocks, request.published = blocks, hits
    request.computed_tokens = request.reused_tokens = reused
    return fetch_s


def publish(kv: KvCache, request: Request) -> None:
    """Name the blocks that have become full, for others to find."""
    full = min(len(request.keys), int(request.computed_tokens) // kv.block_size, request.blocks)
    if full > request.published:
        kv.publish(request.keys[request.published : full])
        request.published = full


def vacate(kv: KvCache, request: Request, now_s: float) -> None:
    """Give back every block; named ones stay readable until they are evicted."""
    if request.keys:
        publish(kv, request)
        kv.release(request.keys[: request.published], now_s)
    kv.give(request.blocks - request.published)
    request.blocks = request.published = 0
