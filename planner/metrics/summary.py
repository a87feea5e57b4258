"""Timelines → what a plan says about latency and throughput, and whether more replications are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.metrics.overload import backlog_growth, binding, overloaded
from planner.metrics.promises import promises, settled
from planner.metrics.statistics import Distribution, combine, quantiles
from planner.metrics.window import Window, e2e_s, gaps_s, good_requests, tpot_s, ttft_s, window, work
from planner.scenario import Mode, PriorityClass, Slo
from planner.scheduler import FAILED, Timeline


@dataclass(frozen=True, slots=True)
class Latency:
    """Each over finished requests, s; None where no request has one."""

    ttft_s: Distribution | None
    ttft_answer_s: Distribution | None
    tpot_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None
    queue_s: Distribution | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates of the whole fleet, means over replications."""

    requests_per_s: float
    output_tokens_per_s: float
    input_tokens_per_s: float
    mean_batch: float
    """Sequences decoding, over the steps of one replica that decode."""
    busy: float
    """Share of time a step is running."""
    kv_utilization: float
    """Share of the KV pool in use, over time."""
    prefix_hit_rate: float
    """Share of prompt tokens found in the prefix cache."""
    preemptions: int
    """Over all replications."""
    acceptance_length: float
    """Tokens per decode step and sequence."""
    goodput_requests_per_s: float
    """Requests that keep every promise at once; failed, cancelled and unfinished ones are misses."""
    good_share: float
    """Share of requests that keep every promise."""
    occupancy: float
    """Share of decode rows that belong to an unfinished answer: below 1 only where a static batch pads."""
    kv_waste: float
    """Share of the KV blocks in use that holds no token: reserved ahead, or the tail of a last block."""
    truncated: int
    """Outputs cut by a length limit, over all replications."""
    failed: int
    """Requests refused, cancelled or unfinished, over all replications."""


@dataclass(frozen=True, slots=True)
class Run:
    """How the figures were obtained."""

    mode: Mode
    replications: int
    requests: int
    """Simulated, over all replications."""
    steps: int
    warmup_s: float
    """Removed from each replication, mean."""
    stable: bool
    """Every promised percentile is known to ±10 % and no queue grows without end."""
    overloaded: bool
    """More arrives than can be served."""
    backlog_growth: float
    """Share of arrivals that pile up unserved: demand is 1 / (1 - this) of what can be served."""
    limited_by: str
    """What held waiting requests back most: max_num_seqs, kv_cache or max_num_batched_tokens; empty when nothing did."""
    stopped: str = ""
    """Why a replication was given up, if one was."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What all replications of a load say: latencies, rates, and how they were simulated."""

    latency: Latency
    throughput: Throughput
    simulation: Run

    def to_dict(self) -> dict[str, Any]:
        """Plain data, keyed as in a plan."""
        return asdict(self)


def summarize(
    timelines: Sequence[Timeline],
    slo: Slo,
    mode: Mode = "planning",
    api_s: float = 0.0,
    classes: Sequence[PriorityClass] = (),
) -> Metrics:
    """One timeline per replication → metrics. `classes` are the workload's, some with promises of their own.

    Raises ValueError without a request to speak of.
    """
    windows = [window(t, mode) for t in timelines if len(t)]
    if not windows:
        raise ValueError("no request was simulated, so there is nothing to summarise")
    latency = Latency(
        ttft_s=combine([quantiles(ttft_s(w.timeline, api_s)[w.done]) for w in windows]),
        ttft_answer_s=combine([quantiles((w.timeline.answer_s - w.timeline.arrival_s + api_s)[w.done]) for w in windows]),
        tpot_s=combine([quantiles(tpot_s(w.timeline)[w.done & (w.timeline.output_tokens > 1)]) for w in windows]),
        itl_s=combine([quantiles(*gaps_s(w)) for w in windows]),
        e2e_s=combine([quantiles(e2e_s(w.timeline, api_s)[w.done]) for w in windows]),
        queue_s=combine([quantiles((w.timeline.scheduled_s - w.timeline.arrival_s)[w.done]) for w in windows]),
    )
    overload = overloaded(*timelines)
    run = Run(
        mode=mode,
        replications=len(timelines),
        requests=sum(len(t) for t in timelines),
        steps=sum(t.steps for t in timelines),
        warmup_s=float(np.mean([w.start_s - w.timeline.arrival_s.min() for w in windows])),
        stable=not overload and (mode == "benchmark" or settled(timelines, promises(slo, classes), api_s)),
        overloaded=overload,
        backlog_growth=max(0.0, float(np.mean([backlog_growth(t)[0] for t in timelines]))),
        limited_by=binding(timelines),
        stopped=next((t.stopped for t in timelines if t.stopped), ""),
    )
    return Metrics(latency, _throughput(windows, slo, classes, api_s), run)


def _throughput(windows: Sequence[Window], slo: Slo, classes: Sequence[PriorityClass], api_s: float) -> Throughput:
    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    def share(part: float, whole: float) -> float:
        return float(part / whole) if whole else 0.0

    good = [good_requests(w.timeline, slo, classes, api_s) & w.counted for w in windows]
    span_s = [w.span_s or 1.0 for w in windows]
    works = [work(w, engine) for w in windows for engine in w.timeline.engines]
    logs = [engine for w in windows for engine in w.timeline.engines]
    timelines = [w.timeline for w in windows]
    decode_steps = sum(int(w.timeline.decode_steps[w.done].sum()) for w in windows)
    decode_tokens = sum(int((w.timeline.output_tokens[w.done] - 1).sum()) for w in windows)
    return Throughput(
        requests_per_s=mean([w.completed.sum() / s for w, s in zip(windows, span_s, strict=True)]),
        output_tokens_per_s=mean([w.timeline.output_tokens[w.completed].sum() / s for w, s in zip(windows, span_s, strict=True)]),
        input_tokens_per_s=mean([w.timeline.input_tokens[w.completed].sum() / s for w, s in zip(windows, span_s, strict=True)]),
        mean_batch=share(sum(x.decode_rows for x in works), sum(x.decode_steps for x in works)),
        busy=min(1.0, share(sum(x.busy_s for x in works), sum(x.span_s for x in works))),
        kv_utilization=share(sum(x.kv_block_s for x in works), sum(x.total_blocks * x.span_s for x in works)),
        prefix_hit_rate=share(
            sum(int(w.timeline.cached_tokens[w.counted].sum()) for w in windows),
            sum(int(w.timeline.input_tokens[w.counted].sum()) for w in windows),
        ),
        preemptions=sum(int(t.preemptions.sum()) for t in timelines),
        acceptance_length=share(decode_tokens, decode_steps) or 1.0,
        goodput_requests_per_s=mean([g.sum() / s for g, s in zip(good, span_s, strict=True)]),
        good_share=share(sum(int(g.sum()) for g in good), sum(int(w.counted.sum()) for w in windows)),
        occupancy=1.0 - share(sum(e.padding_rows for e in logs), sum(e.decode_rows for e in logs)),
        kv_waste=max(0.0, 1.0 - share(sum(e.kv_token_s for e in logs), sum(e.kv_block_s * e.block_size for e in logs))),
        truncated=sum(int(t.truncated.sum()) for t in timelines),
        failed=sum(int((t.status >= FAILED).sum()) for t in timelines),
    )
