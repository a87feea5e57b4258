"""Random draws: arrivals, lengths and classes, each from a stream of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.problems import InputError
from planner.scenario import Lengths, PriorityClass
from planner.scenario.base import LONGEST_TOKENS

ARRIVALS, INPUTS, OUTPUTS, PREFIXES, CLASSES, THINKING, ACCEPTANCE, RETRIES, WINDOW, UNDER_WAY, HISTORIES = range(11)
"""Random streams; each draw has its own, so adding one never shifts another."""


def stream(seed: int, which: int) -> np.random.Generator:
    """One of the independent random streams of a seed."""
    return np.random.default_rng((seed, which))


def draw_lengths(rng: np.random.Generator, length: float | Lengths, n: int) -> np.ndarray:
    """`n` whole token counts, each at least 1, from a number or a distribution."""
    if isinstance(length, (int, float)):
        return np.full(n, max(1, round(length)), dtype=np.int64)
    if length.kind == "fixed":
        drawn = np.full(n, float(length.mean or 1))
    elif length.kind == "uniform":
        mean, half = float(length.mean or 1), float(length.half_width or 0)
        drawn = rng.uniform(mean * (1 - half), mean * (1 + half), n)
    elif length.kind == "lognormal":
        variance = math.log1p(float(length.cv or 0) ** 2)
        drawn = rng.lognormal(math.log(float(length.mean or 1)) - variance / 2, math.sqrt(variance), n)
    elif length.kind == "percentiles":
        probability, tokens = np.array(length.points, dtype=float).T
        drawn = np.interp(rng.random(n), probability, tokens)
    else:
        drawn = rng.choice(np.asarray(length.values, dtype=float), n)
    drawn = np.minimum(drawn, LONGEST_TOKENS if length.max is None else length.max)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def draw_arrivals(rng: np.random.Generator, rate: float, burstiness: float, n: int) -> np.ndarray:
    """`n` arrival times, s: Gamma gaps of mean 1 / rate and shape `burstiness` (1 is Poisson, towards infinity constant)."""
    return rng.gamma(burstiness, 1 / burstiness, n).cumsum() / rate


def draw_classes(rng: np.random.Generator, classes: Sequence[PriorityClass], n: int) -> np.ndarray:
    """Index of each request's priority class, by their shares."""
    if len(classes) < 2:
        return np.zeros(n, dtype=np.int64)
    shares = np.array([c.share for c in classes])
    if shares.sum() <= 0:
        raise InputError("workload.priority_classes have shares that sum to 0; give at least one class a share above 0")
    return rng.choice(len(classes), n, p=shares / shares.sum())
