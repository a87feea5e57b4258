"""A fleet over a week of demand: always sized for the peak, or following it with the delay of starting up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.problems import InputError
from planner.units import HOUR_S, HOURS_PER_WEEK, MINUTE_S

MOST_BURST_CV = 100.0
MOST_BYTES = 1_000_000
"""Largest file of a demand curve."""
LEAST_BURST_CV = 1e-6
"""Below it nothing scatters."""


def rates_by_minute(hourly_shares: Sequence[float], mean_rate: float, burst_cv: float = 0.0, seed: int = 0) -> np.ndarray:
    """Requests/s in every minute of a week whose hours have these shares (any scale) and this mean.

    Straight lines join the middles of the hours, last to first. `burst_cv` lets each minute scatter about them
    (Gamma, this coefficient of variation): hours alone hide the bursts that an autoscaler runs behind.
    """
    if len(hourly_shares) != HOURS_PER_WEEK:
        raise InputError(f"fleet.demand_curve: got {len(hourly_shares)} values; a week needs {HOURS_PER_WEEK} hourly shares")
    shares = np.asarray(hourly_shares, dtype=float)
    if shares.min() < 0 or shares.sum() <= 0:
        raise InputError("fleet.demand_curve: shares must not be negative, and at least one must be above zero")
    middles = (np.arange(HOURS_PER_WEEK) + 0.5) * (HOUR_S // MINUTE_S)
    minutes = np.arange(HOURS_PER_WEEK * HOUR_S // MINUTE_S) + 0.5
    rates = np.interp(minutes, middles, shares, period=len(minutes))
    if not 0 <= burst_cv <= MOST_BURST_CV:
        raise InputError(f"burst_cv: {burst_cv:g} is not a scatter from 0 to {MOST_BURST_CV:g}")
    if burst_cv > LEAST_BURST_CV:
        shape = 1 / burst_cv**2
        rates = rates * np.random.default_rng(seed).gamma(shape, 1 / shape, len(rates))
    return rates * (mean_rate / rates.mean())


def parse_shares(text: str, steps_per_hour: int = 1) -> tuple[float, ...]:
    """168 hourly shares from an uploaded file: the last number of every line, or all numbers of a single line.

    Several weeks are folded into one, a day is repeated, finer steps are averaged; a first line without a number is a
    header. Raises InputError naming the value that is no number, or the count when it is no day and no whole week.
    """
    lines = [line.strip() for line in text.replace(";", ",").splitlines() if line.strip()]
    cells = lines[0].split(",") if len(lines) == 1 else [line.split(",")[-1] for line in lines]
    if len(cells) > 1 and not _is_number(cells[0]):
        cells = cells[1:]
    wrong = next((i for i, cell in enumerate(cells, 1) if not _is_number(cell)), None)
    if wrong is not None:
        raise InputError(
            f"demand file: value {wrong} is {cells[wrong - 1].strip()[:40]!r}; give one number per line, the demand of each step"
        )
    values = np.array([float(cell) for cell in cells])
    if len(values) == 24 * steps_per_hour:
        values = np.tile(values, 7)
    week = HOURS_PER_WEEK * steps_per_hour
    if not len(values) or len(values) % week or not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
        allowed = f"{24 * steps_per_hour} or a multiple of {week}"
        raise InputError(f"demand file: {len(values)} values; give {allowed}, none negative and not all zero, or set the steps per hour")
    hours = values.reshape(-1, steps_per_hour).mean(axis=1)
    return tuple(float(v) for v in hours.reshape(-1, HOURS_PER_WEEK).mean(axis=0))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def replicas_for(rate: float | np.ndarray, capacity: float, target_utilization: float) -> np.ndarray:
    """Replicas that carry a rate at this share of one replica's capacity (requests/s)."""
    return np.ceil(np.asarray(rate) / (capacity * target_utilization) - 1e-9).astype(int)


@dataclass(frozen=True, slots=True)
class Week:
    """What a fleet did and cost in one week."""

    replicas: np.ndarray
    """Paid for in each interval, spares included."""
    ready: np.ndarray
    """Taking traffic in each interval."""
    missed_share: float
    """Share of requests that arrived while demand, or a backlog of it, was above what the ready replicas carry."""
    mean_replicas: float
    peak_replicas: int
    busy: float
    """Share of the ready replicas' capacity that is used."""
    usd: float

    @property
    def usd_per_month(self) -> float:
        """The week's bill over a month of 730 hours."""
        return self.usd / HOURS_PER_WEEK * 730


def static_week(
    rates: np.ndarray, capacity: float, target_utilization: float, spares: int, usd_per_replica_hour: float, interval_s: float = MINUTE_S
) -> Week:
    """A fleet that stays sized for the busiest interval."""
    peak = max(1, int(replicas_for(rates.max(), capacity, target_utilization)))
    ready = np.full(len(rates), peak)
    return _week(rates, capacity, ready, ready + spares, usd_per_replica_hour, interval_s)


def autoscaled_week(
    rates: np.ndarray,
    capacity: float,
    target_utilization: float,
    spares: int,
    usd_per_replica_hour: float,
    startup_s: float,
    min_replicas: int = 1,
    max_replicas: int | None = None,
    interval_s: float = MINUTE_S,
) -> Week:
    """A fleet that asks in every interval for what demand needs, and gets it `startup_s` later.

    Replicas are paid from the moment they are asked for and dropped as soon as demand allows, so those ready in an
    interval are the fewest that were wanted at any time in the start-up before it.
    """
    wanted = np.clip(replicas_for(rates, capacity, target_utilization), min_replicas, max_replicas or np.iinfo(int).max)
    lag = math.ceil(startup_s / interval_s)
    # The week repeats, so the first minutes look back into the last ones.
    rounded = np.concatenate([wanted[len(wanted) - lag :], wanted]) if lag else wanted
    ready = np.lib.stride_tricks.sliding_window_view(rounded, lag + 1).min(axis=1)
    return _week(rates, capacity, ready, wanted + spares, usd_per_replica_hour, interval_s)


def _week(rates: np.ndarray, capacity: float, ready: np.ndarray, paid: np.ndarray, usd_per_replica_hour: float, interval_s: float) -> Week:
    surplus = (rates - ready * capacity) * interval_s
    behind = _backlog(surplus) > 0
    replica_hours = float(paid.sum(dtype=float)) * interval_s / HOUR_S
    return Week(
        replicas=paid,
        ready=ready,
        missed_share=float(rates[behind].sum() / rates.sum()),
        mean_replicas=float(paid.mean()),
        peak_replicas=int(paid.max()),
        busy=float(min(1.0, rates.sum() / (ready.sum() * capacity))) if ready.sum() else 1.0,
        usd=float(replica_hours * usd_per_replica_hour),
    )


def _backlog(surplus: np.ndarray) -> np.ndarray:
    """Requests waiting at the end of each interval when what cannot be served queues up: a reflected sum."""
    total = np.cumsum(surplus)
    return total - np.minimum.accumulate(np.minimum(total, 0.0))
