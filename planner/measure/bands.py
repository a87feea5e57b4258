"""Reading a Plan's JSON: the figure it promises for a metric, and how far off it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.problems import InputError

FIGURES = {
    "ttft": ("latency", "ttft_s"),
    "tpot": ("latency", "tpot_s"),
    "e2e": ("latency", "e2e_s"),
    "queue": ("latency", "queue_s"),
    "throughput": ("throughput", "output_tokens_per_s"),
}
"""Where each metric stands in the plan's JSON."""

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
UNSTATED_BAND = 0.2
"""Relative half-width taken where a plan states no band for a metric; every use is labelled as such."""


@dataclass(frozen=True, slots=True)
class Band:
    """A predicted figure with the range in which a measurement agrees with it. SI units (seconds, tokens per second)."""

    metric: str
    statistic: str
    mean: float
    """The predicted figure of that statistic."""
    low: float
    high: float
    stated: bool
    """The plan states the band; otherwise ±20 % stands in for it."""

    def holds(self, value: float) -> bool:
        """The measured value agrees."""
        return self.low <= value <= self.high


def band(plan: Mapping[str, Any], metric: str, statistic: str = "mean") -> Band:
    """The predicted figure of a metric and its band.

    A plan states its band around one statistic (or as factors); the same factors hold for the others. Raises InputError
    when the plan lacks the figure.
    """
    figures = _figures(plan, metric)
    value = figures.get(statistic)
    if value is None:
        raise InputError(f"the plan has no {metric} {statistic}; make it again with a version that states {'.'.join(FIGURES[metric])}")
    factors = _factors(plan, metric, figures)
    low, high = factors or (1 - UNSTATED_BAND, 1 + UNSTATED_BAND)
    return Band(metric, statistic, value, value * low, value * high, factors is not None)


def figure(plan: Mapping[str, Any], metric: str, statistic: str = "mean") -> float | None:
    """The predicted figure alone, or None when the plan lacks it."""
    return _figures(plan, metric).get(statistic)


def _figures(plan: Mapping[str, Any], metric: str) -> dict[str, float]:
    section, name = FIGURES[metric]
    found = (plan.get(section) or {}).get(name)
    if isinstance(found, Mapping):
        return {s: float(found[s]) for s in STATISTICS if _is_number(found.get(s))}
    return {"mean": float(found)} if _is_number(found) else {}  # type: ignore[arg-type]


def _factors(plan: Mapping[str, Any], metric: str, figures: Mapping[str, float]) -> tuple[float, float] | None:
    """The stated band as factors of the figure it is around, or None where none is stated."""
    stated = ((plan.get("confidence") or {}).get("bands") or {}).get(metric)
    if stated is None and metric in ("e2e", "queue"):
        # An answer's time is mostly its tokens'; waiting is part of the time to the first one.
        stated = ((plan.get("confidence") or {}).get("bands") or {}).get("tpot" if metric == "e2e" else "ttft")
        figures = _figures(plan, "tpot" if metric == "e2e" else "ttft")
    if not isinstance(stated, (list, tuple)) or len(stated) != 2 or not all(map(_is_number, stated)):
        return None
    low, high = float(stated[0]), float(stated[1])
    if not 0 <= low <= high:
        return None
    for value in figures.values():
        if low <= value <= high and value > 0:
            return low / value, high / value
    return (low, high) if low <= 1 <= high else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
