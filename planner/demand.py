"""Demand over a week: 168 hourly multipliers of the mean rate, shipped or the user's own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog import lookup
from planner.problems import InputError
from planner.units import HOUR_S, HOURS_PER_WEEK

PEAK_HOUR = 14
"""Hour of the day at which a derived day peaks; its trough is twelve hours away."""


@cache
def index() -> dict[str, dict[str, Any]]:
    """What is shipped: title, kind, source, date, note and the figures, by name."""
    return json.loads((Path(__file__).parent / "catalog" / "demand.json").read_text(encoding="utf-8"))


def curve(demand_curve: str | Sequence[float] | None) -> np.ndarray:
    """168 multipliers with mean 1, hour by hour from the start of the week.

    A day of 24 values is repeated. Raises InputError for an unknown name, another number of values, or values that are negative,
    not finite or all zero.
    """
    if demand_curve is None:
        return np.ones(HOURS_PER_WEEK)
    if isinstance(demand_curve, str):
        row = lookup.row(index(), demand_curve, "fleet.demand_curve", "give 168 hourly shares instead")
        hourly = np.array(row["hourly"]) if "hourly" in row else smooth_week(**row["weekly"])
    else:
        hourly = np.asarray(demand_curve, dtype=float)
    if hourly.size not in (24, HOURS_PER_WEEK):
        raise InputError(f"fleet.demand_curve has {hourly.size} values; give 168 hourly shares of a week, or 24 of a day")
    if not np.isfinite(hourly).all() or (hourly < 0).any() or hourly.sum() == 0:
        raise InputError("fleet.demand_curve has a value that is negative or not finite, or only zeros; give shares of 0 or more")
    return np.resize(hourly / hourly.mean(), HOURS_PER_WEEK)


def smooth_week(mean: float, weekday_peak: float, trough: float, weekend_peak: float | None = None) -> np.ndarray:
    """A week of smooth days with the stated peaks, trough and mean: a raised cosine whose width is what the mean leaves open."""
    weekend_peak = weekday_peak if weekend_peak is None else weekend_peak
    phase = (np.arange(24) - PEAK_HOUR) * math.tau / 24
    bump = (1 + np.cos(phase)) / 2
    swings = np.repeat([weekday_peak - trough] * 5 + [weekend_peak - trough] * 2, 24)
    low, high = 0.01, 100.0
    while high - low > 1e-9:
        power = (low + high) / 2
        week = trough + swings * np.tile(bump**power, 7)
        low, high = (power, high) if week.mean() > mean else (low, power)
    return week


def follow(arrival_s: np.ndarray, multipliers: np.ndarray, interval_s: float = HOUR_S) -> np.ndarray:
    """The same arrivals, recorded or drawn at a constant mean rate, at the times a varying rate would bring them, s.

    `multipliers` of the mean rate hold for `interval_s` each and repeat; their mean is 1, so that the total rate stays what it is.
    """
    period_s = len(multipliers) * interval_s
    expected_s = np.concatenate([[0.0], np.cumsum(multipliers) * interval_s])
    periods, within = np.divmod(np.asarray(arrival_s, dtype=float), expected_s[-1])
    return periods * period_s + np.interp(within, expected_s, np.arange(len(multipliers) + 1) * interval_s)
