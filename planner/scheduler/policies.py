"""How prefill and decode share steps: three plain functions.

A policy plans one step with the replica's own verbs. `make_room` gives every decoding sequence the block its next token may need and
preempts the newest until they all have one; `prefill` hands out chunks of prompts within a token budget, seating waiting requests as
it goes; `seat` only seats. A policy answers: does the step decode, and which chunks does it carry?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.scheduler.replica import Replica

Chunks = list[tuple[int, int]]
"""(new, cached) tokens of each prompt in a step: what it computes now, and what it finds computed."""

Policy = Callable[["Replica"], tuple[bool, Chunks]]


def mixed(replica: Replica) -> tuple[bool, Chunks]:
    """vLLM's V1: every sequence decodes in every step, and prompts fill what is left of the token budget."""
    fits = replica.make_room()
    budget = replica.limits.max_num_batched_tokens - replica.batch.sequences * replica.limits.tokens_per_decode
    return True, replica.prefill(budget, seats=replica.free_seats if fits else 0)


def prefill_first(replica: Replica) -> tuple[bool, Chunks]:
    """SGLang's default: prompts go first and alone; sequences decode when no prompt can be computed."""
    chunks = replica.prefill(replica.limits.max_num_batched_tokens, seats=replica.free_seats)
    if not chunks:
        replica.make_room()
    return not chunks, chunks


def static(replica: Replica) -> tuple[bool, Chunks]:
    """The oldest way: take a batch, prefill it, decode until its longest member ends, and only then take the next."""
    if replica.idle:
        replica.seat(replica.free_seats)
    chunks = replica.prefill(replica.limits.max_num_batched_tokens, seats=0)
    if not chunks:
        replica.make_room()
    return not chunks, chunks


POLICIES: dict[str, Policy] = {"mixed": mixed, "prefill_first": prefill_first, "static": static}
