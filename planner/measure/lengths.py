"""What a distribution of token counts comes out as once it is cut and its shared prefix taken off, for those who send it to a server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from planner import traces
from planner.problems import InputError
from planner.scenario import Lengths, Scenario, TraceRef, length_quantile

SLICES = 20
POINTS_PER_SLICE = 64
TAIL_HALVINGS = 24
"""The last slice is integrated in cells that halve towards certainty: half the variance of a long tail lies in a thousandth of it."""
NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens of one request as the plan draws them."""

    mean: float
    stdev: float
    slices: tuple[float, ...]
    """Mean of each twentieth of the requests, shortest first."""
    longest: float
    """No draw is longer; infinite where nothing cuts it."""

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        return self.stdev / self.mean


def lengths(scenario: Scenario) -> tuple[Drawn, Drawn]:
    """Prompt beyond the shared prefix, and output, of each request of the plan."""
    w = scenario.workload
    if w.trace is not None:
        found = _recorded(w.trace, float(w.max_output_len or math.inf))
        if found is not None:
            return found
    return drawn(w.input_len, less=round(w.shared_prefix_len)), drawn(w.output_len, at_most=float(w.max_output_len or math.inf))


@lru_cache(maxsize=64)
def drawn(length: float | Lengths, at_most: float = math.inf, less: int = 0) -> Drawn:
    """Draws cut to `at_most`, less a prefix of `less` tokens; at least one token remains."""
    tokens, weights = _spectrum(length)
    cut = min(at_most, (length.max or math.inf) if isinstance(length, Lengths) else math.inf)
    return _of(np.maximum(1.0, np.minimum(tokens, at_most) - less), weights, cut - less)


def _recorded(ref: TraceRef, at_most: float) -> tuple[Drawn, Drawn] | None:
    """Lengths of a trace's rows; None where the trace is not on this machine."""
    try:
        trace = traces.get(ref)
    except InputError:
        return None
    found = []
    for column, cut in ((trace.input_tokens, math.inf), (trace.output_tokens, at_most)):
        tokens = np.sort(np.clip(np.asarray(column, dtype=float), 1, cut))
        found.append(_of(tokens, np.full(len(tokens), 1 / len(tokens)), float(tokens[-1])))
    return found[0], found[1]


def _of(tokens: np.ndarray, weights: np.ndarray, longest: float) -> Drawn:
    mean = float(tokens @ weights)
    reached = np.concatenate([[0.0], weights.cumsum()])
    summed = np.concatenate([[0.0], (tokens * weights).cumsum()])
    edges = np.interp(np.linspace(0.0, 1.0, SLICES + 1), reached / reached[-1], summed)
    stdev = math.sqrt(max(0.0, float((tokens - mean) ** 2 @ weights)))
    return Drawn(mean, stdev if stdev > 1e-9 * mean else 0.0, tuple(float(v) for v in np.diff(edges) * SLICES), longest)


def _spectrum(length: float | Lengths) -> tuple[np.ndarray, np.ndarray]:
    """Lengths in rising order and the share of requests that each stands for."""
    if not isinstance(length, Lengths) or length.kind == "fixed" or (length.kind == "lognormal" and not length.cv):
        return np.array([length_quantile(length, 0.5)]), np.ones(1)
    if length.kind == "empirical":
        values = np.sort(np.array(length.values, dtype=float))
        values = values if length.max is None else np.minimum(values, length.max)
        return values, np.full(len(values), 1 / len(values))
    inner = np.linspace(0.0, 1 - 1 / SLICES, (SLICES - 1) * POINTS_PER_SLICE + 1)
    tail = 1 - np.geomspace(1 / SLICES, 2.0**-TAIL_HALVINGS / SLICES, TAIL_HALVINGS * 8 + 1)
    edges = np.concatenate([inner[:-1], tail, [1.0]])
    middles = (edges[1:] + edges[:-1]) / 2
    return np.array([length_quantile(length, float(share)) for share in middles]), np.diff(edges)


def clamped_mean(mean: float, stdev: float, low: float, high: float) -> float:
    """E[min(max(N, low), high)] of N normal."""
    a, b = (low - mean) / stdev, (high - mean) / stdev
    inside = NORMAL.cdf(b) - NORMAL.cdf(a)
    return low * NORMAL.cdf(a) + high * (1 - NORMAL.cdf(b)) + mean * inside - stdev * (NORMAL.pdf(b) - NORMAL.pdf(a))


def clamped_stdev(mean: float, stdev: float, low: float, high: float) -> float:
    """Standard deviation of the same."""
    a, b = (low - mean) / stdev, (high - mean) / stdev
    inside = (mean**2 + stdev**2) * (NORMAL.cdf(b) - NORMAL.cdf(a))
    inside += stdev * ((mean + low) * NORMAL.pdf(a) - (mean + high) * NORMAL.pdf(b))
    square = low**2 * NORMAL.cdf(a) + high**2 * (1 - NORMAL.cdf(b)) + inside
    return math.sqrt(max(0.0, square - clamped_mean(mean, stdev, low, high) ** 2))


def normal_for(wanted: float, stdev: float, low: float, high: float) -> float:
    """Mean of the normal distribution whose clamped draws have the mean `wanted`, which lies between `low` and `high`."""
    least, most = wanted - 20 * stdev, wanted + 20 * stdev
    for _ in range(100):
        middle = (least + most) / 2
        least, most = (middle, most) if clamped_mean(middle, stdev, low, high) < wanted else (least, middle)
    return (least + most) / 2


__all__ = ["SLICES", "Drawn", "clamped_mean", "clamped_stdev", "drawn", "lengths", "normal_for"]
