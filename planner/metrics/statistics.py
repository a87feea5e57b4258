"""Percentiles of pooled gaps, t-intervals over replications, and when to stop replicating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

PERCENTILES = (50, 90, 95, 99)
WITHIN = 0.10
"""A percentile is known once its 95 % interval reaches no further than this share of it to either side."""
MIN_REPLICATIONS = 5

_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % quantile of Student's t for 1 to 10 degrees of freedom (standard table)."""


def t975(degrees: int) -> float:
    """97.5 % quantile of Student's t: the table, then the first four terms of its expansion in 1 / degrees."""
    if degrees <= len(_T975):
        return _T975[degrees - 1]
    z = 1.959964
    first, second, third = z**3 + z, 5 * z**5 + 16 * z**3 + 3 * z, 3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z
    return z + first / (4 * degrees) + second / (96 * degrees**2) + third / (384 * degrees**3)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A latency over requests (or gaps), s. Over replications each figure is the mean of theirs."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p95_ci: tuple[float, float] | None = None
    """95 % t-interval over replications; None when there was one."""
    p99_ci: tuple[float, float] | None = None

    def percentile(self, which: int) -> float:
        """One of p50, p90, p95, p99."""
        return float(getattr(self, f"p{which}"))


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean of independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), t975(len(values) - 1) * float(np.std(values, ddof=1)) / sqrt(len(values))
    return mean - half, mean + half


def known(values: Sequence[float], within: float = WITHIN) -> bool:
    """Whether replications pin their mean down to ± `within` of itself."""
    interval = t_interval(values) if all(isfinite(v) for v in values) else None
    if interval is None:
        return False
    low, high = interval
    return (high - low) / 2 <= within * abs(low + high) / 2


def quantiles(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Mean, then PERCENTILES, of values that each stand for `weights` equal ones; NaN for none.

    Equal to `numpy.percentile` (linear) over the values written out `weights` times.
    """
    if weights is None:
        if not len(values):
            return np.full(1 + len(PERCENTILES), np.nan)
        ordered = np.sort(values)
        # numpy.percentile does the same, but its first call loads a tenth of numpy.
        place = (len(ordered) - 1) * np.array(PERCENTILES) / 100
        below = np.floor(place).astype(int)
        low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
        return np.array([values.mean(), *(low + (high - low) * (place - below))])
    total = int(weights.sum())
    if not total:
        return np.full(1 + len(PERCENTILES), np.nan)
    order = np.argsort(values)
    values, upto = values[order], weights[order].cumsum()
    place = (total - 1) * np.array(PERCENTILES) / 100
    below = np.floor(place)
    low = values[np.searchsorted(upto, below, side="right")]
    high = values[np.searchsorted(upto, np.minimum(below + 1, total - 1), side="right")]
    mean = float((values * weights[order]).sum() / total)
    return np.array([mean, *(low + (high - low) * (place - below))])


def combine(rows: Sequence[np.ndarray]) -> Distribution | None:
    """One `quantiles` row per replication → their mean, with intervals on p95 and p99; None when no replication has values."""
    table = np.array([row for row in rows if isfinite(row[0])])
    if not len(table):
        return None
    mean, p50, p90, p95, p99 = (float(v) for v in table.mean(axis=0))
    return Distribution(mean, p50, p90, p95, p99, t_interval(table[:, 3].tolist()), t_interval(table[:, 4].tolist()))
