"""How prefill and decode share steps: three plain functions, and what else an engine that follows them does.

A policy's function plans one step with the scheduler's own verbs. `make_room` gives every decoding sequence the block its next token
may need and preempts the newest until they all have one; `prefill` hands out chunks of prompts within a token budget, seating waiting
requests as it goes; `seat` only seats. It answers: does the step decode, and which chunks does it carry?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.scheduler.scheduler import Chunks, Scheduler


@dataclass(frozen=True, slots=True)
class Policy:
    """How an engine batches."""

    plan_step: Callable[[Scheduler], tuple[bool, Chunks]]
    ends_together: bool = False
    """A batch keeps all its rows and blocks until its longest member has ended."""


def mixed(scheduler: Scheduler) -> tuple[bool, Chunks]:
    """vLLM's V1: every sequence decodes in every step, and prompts fill what is left of the token budget."""
    fits = scheduler.make_room()
    budget = scheduler.limits.max_num_batched_tokens - scheduler.batch.sequences * scheduler.limits.tokens_per_decode
    return True, scheduler.prefill(budget, seats=scheduler.free_seats if fits else 0)


def prefill_first(scheduler: Scheduler) -> tuple[bool, Chunks]:
    """SGLang's default: prompts go first and alone; sequences decode when no prompt can be computed."""
    chunks = scheduler.prefill(scheduler.limits.max_num_batched_tokens, seats=scheduler.free_seats)
    if not chunks:
        scheduler.make_room()
    return not chunks, chunks


def static(scheduler: Scheduler) -> tuple[bool, Chunks]:
    """The oldest way: take a batch, prefill it, decode until its longest member ends, and only then take the next."""
    if scheduler.idle:
        scheduler.seat(scheduler.free_seats)
    chunks = scheduler.prefill(scheduler.limits.max_num_batched_tokens, seats=0)
    if not chunks:
        scheduler.make_room()
    return not chunks, chunks


POLICIES: dict[str, Policy] = {
    "mixed": Policy(mixed),
    "prefill_first": Policy(prefill_first),
    "static": Policy(static, ends_together=True),
}
"""By the word of `engine.batching`."""
