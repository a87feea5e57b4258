"""The closed-form half of a plan: one decode step, one prefill, the batch table. No queue, no simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import cost, traffic
from planner.plan.deployment import Deployment
from planner.roofline import StepShape, Term
from planner.scenario import Scenario

TABLE_BATCHES = (1, 8, 64, 256)
"""Batches that every table shows beside the plan's own, as the book chapter does."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One line of the batch table."""

    batch: int
    decode_step_s: float
    decode_tokens_per_s: float
    usd_per_mtok_output: float | None
    """Floor price at this batch; None where it does not fit."""
    usd_per_mtok_input: float | None
    kv_bytes: float
    """Cache of this many sequences at their final length as it lies in the memory of all GPUs of the replica: copies that tensor
    parallelism stores of MLA's latent, and of KV heads beyond their number, count each time."""
    fits: bool
    bound: str
    """What the step is bound by."""


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """One of the things that bound the batch of a replica; the smallest binds."""

    name: str
    """kv_cache, max_num_seqs or clients."""
    sequences: int


@dataclass(frozen=True, slots=True)
class Steady:
    """The `roofline` part of a plan. Times are of one replica."""

    batch: int
    """The smallest of `batch_limits`; 0 when nothing fits."""
    batch_limits: tuple[BatchLimit, ...]
    context_tokens: float
    """Mean context of a decoding sequence that the next figures were evaluated at."""
    decode_step_s: float
    decode_bound: str
    decode_step_batch1_s: float
    prefill_tokens_per_s: float
    """Prompt tokens per second of a replica that does nothing else."""
    prefill_s: float
    """Time of one mean prompt alone, nothing cached."""
    arithmetic_batch1_s: float
    """Arithmetic of one token at the prefill rate: what a decode step of one sequence computes."""
    compute_bound_batch: float
    """Batch of the replica, all ranks and micro-batches together, whose arithmetic takes as long as reading the weights."""
    terms: tuple[Term, ...]
    batch_table: tuple[BatchRow, ...]


def input_tokens(scenario: Scenario) -> float:
    """Mean prompt, tokens."""
    return traffic.of(scenario.workload).input_tokens


def output_tokens(scenario: Scenario) -> float:
    """Mean output, tokens, after truncation."""
    return traffic.of(scenario.workload).output_tokens


def cached_tokens(scenario: Scenario) -> float:
    """Leading prompt tokens that a warm prefix cache holds, mean: the shared prefix and the history of earlier turns."""
    return traffic.of(scenario.workload).reusable_tokens if scenario.engine.enable_prefix_caching else 0.0


def batch_limits(deployment: Deployment, replicas: int) -> tuple[BatchLimit, ...]:
    """What bounds the batch of a replica: its cache, the seats of all data-parallel ranks, its share of a closed loop's clients."""
    s = deployment.scenario
    limits = [
        BatchLimit("kv_cache", deployment.memory.cache_limited_batch),
        BatchLimit("max_num_seqs", s.engine.max_num_seqs * s.parallel.data_parallel_size),
    ]
    if s.workload.request_rate is None and s.workload.max_concurrency is not None:
        limits.append(BatchLimit("clients", math.ceil(s.workload.max_concurrency / replicas)))
    return tuple(limits)


def plan_batch(deployment: Deployment, replicas: int) -> int:
    """The batch that the plan's floor price and step time are quoted at (per replica)."""
    return min(limit.sequences for limit in batch_limits(deployment, replicas))


def context(scenario: Scenario) -> float:
    """Mean context of a decoding sequence: input + output / 2; the textbook level counts the final length."""
    share = 1.0 if scenario.fidelity == "textbook" else 0.5
    return input_tokens(scenario) + share * output_tokens(scenario)


def decode_shape(deployment: Deployment, batch: int) -> StepShape:
    """A pure decode step of `batch` sequences at their mean context."""
    each = context(deployment.scenario)
    window = deployment.architecture.window
    verify = batch * deployment.profile.num_speculative_tokens
    return StepShape(
        decode_sequences=batch,
        context_tokens=round(batch * each),
        windowed_context_tokens=round(batch * min(each, window)) if window else 0,
        logit_rows=batch,
        verify_tokens=verify,
    )


MOST_CHUNKS = 200
"""Chunks of one prompt that are priced one by one."""


def prefill_steps(scenario: Scenario, prompt: int) -> list[tuple[float, StepShape]]:
    """The steps that one prompt takes alone, nothing cached, and how many of each.

    Of more than MOST_CHUNKS equal chunks, evenly spaced ones stand for their neighbours: a chunk's time rises in a straight
    line with what it attends to.
    """
    budget = min(prompt, scenario.engine.max_num_batched_tokens if scenario.engine.enable_chunked_prefill else prompt)
    last = (prompt - 1) // budget * budget
    steps = [(1.0, StepShape(chunks=((prompt - last, last),), logit_rows=1))]
    whole = last // budget
    priced = min(whole, MOST_CHUNKS)
    middles = [(2 * i + 1) * whole // (2 * priced) for i in range(priced)] if whole > priced else range(whole)
    return [*((whole / priced, StepShape(chunks=((budget, i * budget),))) for i in middles), *steps]


def prefill_alone_s(deployment: Deployment, prompt: int) -> float:
    """Time of one prompt alone on an idle replica, nothing cached."""
    return sum(count * deployment.step_time(shape) for count, shape in prefill_steps(deployment.scenario, prompt))


def prefill_rate(deployment: Deployment, prompt: int) -> float:
    """Prompt tokens per second with steps filled by as many whole prompts as the token budget holds."""
    per_step = max(1, deployment.scenario.engine.max_num_batched_tokens // max(1, prompt))
    if per_step > 1:
        step = StepShape(chunks=((prompt, 0),) * per_step, logit_rows=per_step)
        return per_step * prompt / deployment.step_time(step)
    return prompt / prefill_alone_s(deployment, prompt)


def steady(deployments: tuple[Deployment, ...], replicas: int, usd_per_hour: tuple[float, ...] | None) -> Steady:
    """Closed forms of one replica, or of one prefill and one decode replica when disaggregated.

    `replicas` is the number that share the clients of a closed loop; `usd_per_hour` what the GPUs of one replica of each
    deployment cost, None withholds the price columns.
    """
    prefill, deployment = deployments[0], deployments[-1]
    s, m, step = deployment.scenario, deployment.memory, deployment.step_time
    batch = plan_batch(deployment, replicas) if m.fits else 0
    prompt = max(1, round(input_tokens(s)))
    rate = prefill_rate(prefill, prompt)
    alone = prefill_steps(prefill.scenario, prompt)
    shape = decode_shape(deployment, max(1, batch))
    decode_terms = step.explain(shape)
    prefill_terms = [term for _, part in alone[:1] for term in prefill.step_time.explain(part)]
    sizes = sorted({*TABLE_BATCHES, *([batch, m.cache_limited_batch] if m.fits else [])} - {0})
    kv_bytes = m.sequence_bytes_per_gpu * s.parallel.tensor_parallel_size * s.parallel.pipeline_parallel_size
    return Steady(
        batch=batch,
        batch_limits=batch_limits(deployment, replicas),
        context_tokens=context(s),
        decode_step_s=step(shape),
        decode_bound=_bound(decode_terms),
        decode_step_batch1_s=step(decode_shape(deployment, 1)),
        prefill_tokens_per_s=rate,
        prefill_s=prefill_alone_s(prefill, prompt),
        arithmetic_batch1_s=1 / rate,
        compute_bound_batch=step.compute_bound_batch(),
        terms=(*decode_terms, *prefill_terms),
        batch_table=tuple(_row(deployment, size, rate, kv_bytes, usd_per_hour) for size in sizes),
    )


def _row(deployment: Deployment, batch: int, prefill_rate: float, kv_bytes: float, usd_per_hour: tuple[float, ...] | None) -> BatchRow:
    s = deployment.scenario
    shape = decode_shape(deployment, batch)
    seconds = deployment.step_time(shape)
    tokens_per_s = batch * deployment.profile.acceptance_length / seconds
    fits = batch <= deployment.memory.cache_limited_batch
    priced = usd_per_hour if deployment.memory.fits else None
    return BatchRow(
        batch=batch,
        decode_step_s=seconds,
        decode_tokens_per_s=tokens_per_s,
        usd_per_mtok_output=_floor(priced[-1] if priced else None, tokens_per_s, s.price.utilization),
        usd_per_mtok_input=_floor(priced[0] if priced else None, prefill_rate, s.price.utilization),
        kv_bytes=batch * kv_bytes,
        fits=fits,
        bound=_row_bound(deployment, shape),
    )


def _row_bound(deployment: Deployment, shape: StepShape) -> str:
    """What takes most of the step. Hand arithmetic reads weights whatever the batch, so there the compute-bound batch tells."""
    step = deployment.step_time
    if deployment.scenario.fidelity == "textbook" and shape.decode_sequences > step.compute_bound_batch():
        return "compute"
    return _bound(step.explain(shape))


def _floor(usd_per_hour: float | None, tokens_per_s: float, utilization: float) -> float | None:
    return None if usd_per_hour is None else cost.floor_usd_per_mtok(usd_per_hour, tokens_per_s, utilization)


def _bound(terms: tuple[Term, ...]) -> str:
    """The kind of work that takes most of a step."""
    seconds: dict[str, float] = {}
    for term in terms:
        seconds[term.bound] = seconds.get(term.bound, 0.0) + term.seconds
    return max(seconds, key=lambda kind: seconds[kind]) if seconds else "memory"
