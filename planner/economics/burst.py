"""What bursts cost: one first-come prefill server replays arrivals, against smooth ones of the same mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
