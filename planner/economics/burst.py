"""What bursts cost: recorded arrivals against smooth ones of the same mean, through the whole plan and through one first-come server."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from planner import traces
from planner.plan import Plan, plan
from planner.problems import InputError
from planner.scenario import Scenario, TraceRef

SMOOTH_RUNS = 5


@dataclass(frozen=True, slots=True)
class BurstCost:
    """Prompt tokens/s that one server needs to answer a share of prompts within a time."""

    trace_tokens_per_s: float
    """With the recorded arrivals."""
    poisson_tokens_per_s: float
    """With as many requests at random times, lengths shuffled; mean of several draws."""
    no_queue_tokens_per_s: float
    """Without any waiting: what a sizing from service time alone would buy."""

    @property
    def ratio(self) -> float:
        """Recorded over Poisson: the price of the bursts."""
        return self.trace_tokens_per_s / self.poisson_tokens_per_s


@dataclass(frozen=True, slots=True)
class Bursts:
    """The plan with the recorded arrivals, and with the same requests at random times."""

    recorded: Plan
    poisson: Plan
    prefill: BurstCost | None
    """What one prefill server would need for the scenario's TTFT; None without such a promise."""


def bursts(scenario: Scenario, seed: int = 0) -> Bursts:
    """The scenario's trace replayed, beside its own requests in random order at random (Poisson) times over the same span.

    Raises InputError for a scenario without a trace.
    """
    ref = scenario.workload.trace
    if ref is None:
        raise InputError(
            f"workload.trace is null, so there are no recorded arrivals; name one, such as {', '.join(list(traces.index())[:3])}"
        )
    trace = traces.get(ref)
    smooth = traces.upload(poisson_rows(trace, seed), f"{trace.name}-poisson")
    named = {"trace": TraceRef(name=smooth.name, content_hash=smooth.content_hash)}
    even = scenario.model_copy(update={"workload": scenario.workload.model_copy(update=named)})
    recorded = plan(scenario, "quick")
    rate, promise_s = scenario.workload.request_rate, scenario.slo.ttft_s
    pace = rate / trace.request_rate if rate and np.isfinite(trace.request_rate) else 1.0
    prefill = burst_cost(trace.arrival_s / pace, trace.input_tokens, promise_s, scenario.slo.percentile, seed) if promise_s else None
    return Bursts(recorded, plan(even, "quick"), prefill)


def poisson_rows(trace: traces.Trace, seed: int = 0) -> bytes:
    """A trace's requests in random order at uniformly random times over its span (Poisson given their number), as an upload's JSONL."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0.0, float(trace.arrival_s[-1]) + trace.tick_s, len(trace)))
    rows = []
    for at_s, i in zip(times.tolist(), rng.permutation(len(trace)).tolist(), strict=True):
        row = {"t_s": at_s, "input_tokens": int(trace.input_tokens[i]), "output_tokens": int(trace.output_tokens[i])}
        rows.append(json.dumps(row | {"blocks": [] if trace.hash_ids is None else list(trace.hash_ids[i])}))
    return "\n".join(rows).encode()


def burst_cost(arrival_s: np.ndarray, input_tokens: np.ndarray, ttft_s: float, percentile: float = 95, seed: int = 0) -> BurstCost:
    """Smallest constant prefill speed with wait + service of this percentile under `ttft_s`.

    One pooled server is the kindest case and decode interference is left out, so the ratio is a lower bound on what a
    plan that assumes Poisson arrivals is short of.
    """
    arrival_s, tokens = np.asarray(arrival_s, dtype=float), np.asarray(input_tokens, dtype=float)
    span_s = float(arrival_s[-1] - arrival_s[0])
    rng = np.random.default_rng(seed)
    smooth = []
    for _ in range(SMOOTH_RUNS):
        times = np.sort(rng.uniform(0, span_s, len(arrival_s)))
        smooth.append(slowest_server(times, rng.permutation(tokens), ttft_s, percentile))
    alone = max(float(np.percentile(tokens, percentile)) / ttft_s, float(tokens.sum()) / span_s)
    return BurstCost(slowest_server(arrival_s, tokens, ttft_s, percentile), float(np.mean(smooth)), alone)


def slowest_server(arrival_s: np.ndarray, tokens: np.ndarray, promise_s: float, percentile: float, tolerance: float = 1e-3) -> float:
    """Tokens/s of the slowest first-come server that keeps this percentile of time in system within `promise_s`."""
    low = float(np.percentile(tokens, percentile)) / promise_s / 2
    high = 2 * low
    while time_in_system(arrival_s, tokens, high, percentile) > promise_s:
        low, high = high, 2 * high
    while high > low * (1 + tolerance):
        middle = (low + high) / 2
        if time_in_system(arrival_s, tokens, middle, percentile) > promise_s:
            low = middle
        else:
            high = middle
    return high


def time_in_system(arrival_s: np.ndarray, tokens: np.ndarray, tokens_per_s: float, percentile: float) -> float:
    """Percentile of waiting plus service, first come first served: the Lindley recursion as a running maximum."""
    work = np.cumsum(tokens / tokens_per_s)
    before = np.concatenate([[0.0], work[:-1]])
    finish = work + np.maximum.accumulate(arrival_s - before)
    return float(np.percentile(finish - arrival_s, percentile))
