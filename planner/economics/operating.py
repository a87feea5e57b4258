"""Closed forms of a loaded replica: what it does at a steady batch, prefill riding along. No queue, no simulation.

They rank and prune candidates and draw the frontier; what a plan promises comes from the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.plan.deployment import Deployment
from planner.plan.steady import cached_tokens, decode_shape, input_tokens, output_tokens
from planner.roofline import StepShape


@dataclass(frozen=True, slots=True)
class Operating:
    """One replica that always has `batch` sequences decoding and as many prompts coming in as answers end."""

    batch: int
    tpot_s: float
    """Mean time per output token, prefill interference included."""
    requests_per_s: float
    output_tokens_per_s: float
    prefill_share: float
    """Share of time that steps take beyond pure decoding."""

    @property
    def tokens_per_s_per_user(self) -> float:
        """How fast one answer grows."""
        return 1 / self.tpot_s


def chunks_of(prompt: int, cached: int, budget: int) -> list[tuple[int, int]]:
    """(new, cached) tokens of each step of one prompt under a token budget."""
    starts = range(cached, max(prompt, cached + 1), max(1, budget))
    return [(min(budget, max(prompt, cached + 1) - start), start) for start in starts]


def prompt_extra_s(deployment: Deployment, shape: StepShape, prompt: float, cached: float) -> float:
    """What one prompt adds to the decode steps it rides in."""
    engine = deployment.scenario.engine
    room = engine.max_num_batched_tokens - shape.decode_sequences - shape.verify_tokens
    whole = round(prompt)
    budget = max(1, room) if engine.enable_chunked_prefill else whole
    step = deployment.step_time
    alone = step(shape) if shape.decode_sequences else 0.0
    return sum(
        step(shape._replace(chunks=(chunk,), logit_rows=shape.logit_rows + 1)) - alone for chunk in chunks_of(whole, round(cached), budget)
    )


def prompt_s(deployment: Deployment) -> float:
    """Time of one mean prompt on a replica that only prefills, steps filled by as many whole prompts as the budget holds."""
    prompt, cached = input_tokens(deployment.scenario), cached_tokens(deployment.scenario)
    fresh = max(1, round(prompt - cached))
    together = max(1, deployment.scenario.engine.max_num_batched_tokens // fresh)
    if together == 1:
        return prompt_extra_s(deployment, StepShape(), prompt, cached)
    return deployment.step_time(StepShape(chunks=((fresh, round(cached)),) * together, logit_rows=together)) / together


def operating(deployment: Deployment, batch: int, prefill: bool = True) -> Operating:
    """The steady state at `batch` decoding sequences; without `prefill`, of a pool that only decodes."""
    scenario, output = deployment.scenario, output_tokens(deployment.scenario)
    shape = decode_shape(deployment, batch)
    emitted = batch * deployment.profile.acceptance_length
    # One token of every answer comes out of its prefill, the rest out of decode steps.
    ended_per_step = emitted / max(1.0, output - 1)
    riding_s = prompt_extra_s(deployment, shape, input_tokens(scenario), cached_tokens(scenario)) if prefill else 0.0
    extra = ended_per_step * riding_s
    decode_s = deployment.step_time(shape)
    step_s = decode_s + extra
    requests_per_s = ended_per_step / step_s
    return Operating(
        batch=batch,
        tpot_s=step_s / deployment.profile.acceptance_length,
        requests_per_s=requests_per_s,
        output_tokens_per_s=requests_per_s * output,
        prefill_share=extra / step_s,
    )


def largest_batch(deployment: Deployment) -> int:
    """Sequences that memory and the engine let run at once without preemption."""
    s = deployment.scenario
    return min(deployment.memory.cache_limited_batch, s.engine.max_num_seqs * s.parallel.data_parallel_size)


def best_within(deployment: Deployment, tpot_s: float | None, prefill: bool = True) -> Operating | None:
    """The fullest steady state that keeps mean TPOT within a promise, or None when even one sequence breaks it.

    More sequences always give more requests per second, at a higher TPOT: a bisection finds the largest batch.
    """
    most = largest_batch(deployment)
    if most < 1:
        return None
    top = operating(deployment, most, prefill)
    if tpot_s is None or top.tpot_s <= tpot_s:
        return top
    low, found = 1, operating(deployment, 1, prefill)
    if found.tpot_s > tpot_s:
        return None
    high = most
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        at = operating(deployment, middle, prefill)
        if at.tpot_s <= tpot_s:
            low, found = middle, at
        else:
            high = middle
    return found
