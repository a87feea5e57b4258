"""Own fleet or API: cost against volume, with the steps where a replica is added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.problems import InputError
from planner.units import DAY_S

HOURS_PER_DAY = 24
DAYS_PER_MONTH = 730 / 24


@dataclass(frozen=True, slots=True)
class Step:
    """A fleet of a fixed number of replicas, and the volumes at which it beats the API."""

    replicas: int
    """Replicas that take traffic; spares come on top."""
    usd_per_day: float
    max_requests_per_day: float
    """What this many replicas carry, peaks considered."""
    break_even_requests_per_day: float
    """Volume whose API bill equals this fleet's."""
    utilization_at_break_even: float
    """That volume over what the fleet carries; above 1 this size never pays."""

    @property
    def pays(self) -> bool:
        """Whether some volume that this fleet carries is cheaper on it than on the API."""
        return self.break_even_requests_per_day <= self.max_requests_per_day


@dataclass(frozen=True, slots=True)
class Point:
    """One volume on the chart."""

    requests_per_day: float
    replicas: int
    own_usd_per_month: float
    api_usd_per_month: float


def step(
    replicas: int,
    usd_per_replica_hour: float,
    api_usd_per_request: float,
    replica_requests_per_day: float,
    spares: int = 0,
    other_usd_per_hour: float = 0.0,
) -> Step:
    """The fleet of `replicas` plus `spares` beside an API; `replica_requests_per_day` is what one carries in a day like the plan's."""
    usd_per_day = ((replicas + spares) * usd_per_replica_hour + other_usd_per_hour) * HOURS_PER_DAY
    carried = replicas * replica_requests_per_day
    volume = usd_per_day / api_usd_per_request if api_usd_per_request > 0 else math.inf
    return Step(replicas, usd_per_day, carried, volume, volume / carried if carried else math.inf)


def replica_requests_per_day(capacity_requests_per_s: float, peak_to_mean: float, target_utilization: float = 1.0) -> float:
    """Requests a day that one replica carries when the busiest moment is `peak_to_mean` times the day's mean."""
    return capacity_requests_per_s * target_utilization / checked_peak(peak_to_mean) * DAY_S


MOST_PEAK = 1000.0


def checked_peak(peak_to_mean: float) -> float:
    """The ratio, or InputError: the busiest moment is never below the mean."""
    if not 1 - 1e-9 <= peak_to_mean <= MOST_PEAK:
        raise InputError(f"peak_to_mean: {peak_to_mean:g} is not the busiest moment over the mean; give 1 to {MOST_PEAK:g}")
    return peak_to_mean


def break_even(steps: Sequence[Step]) -> float | None:
    """The smallest volume at which some fleet is cheaper than the API, or None when no size pays.

    A larger fleet can lose again just after a replica is added: each paying step wins from its own break-even on.
    """
    paying = [s.break_even_requests_per_day for s in steps if s.pays]
    return min(paying) if paying else None


def always_above(steps: Sequence[Step]) -> float | None:
    """The volume from which the fleet stays cheaper whatever replica is added next, or None when it never does."""
    losing = [s for s in steps if not s.pays]
    last = max((s.replicas for s in losing), default=0)
    later = [s for s in steps if s.replicas > last]
    if not later:
        return None
    cleared = 0.0
    for before, after in pairwise(later):
        if after.break_even_requests_per_day > before.max_requests_per_day:
            cleared = after.break_even_requests_per_day
    return max(cleared, later[0].break_even_requests_per_day)


def curve(
    volumes_per_day: Sequence[float],
    usd_per_replica_hour: float,
    api_usd_per_request: float,
    replica_requests_per_day: float,
    spares: int = 0,
    other_usd_per_hour: float = 0.0,
) -> tuple[Point, ...]:
    """Both monthly bills at each volume, the fleet with as many replicas as the volume needs."""
    points = []
    for volume in volumes_per_day:
        replicas = max(1, math.ceil(volume / replica_requests_per_day - 1e-9))
        own = step(replicas, usd_per_replica_hour, api_usd_per_request, replica_requests_per_day, spares, other_usd_per_hour)
        points.append(Point(volume, replicas, own.usd_per_day * DAYS_PER_MONTH, volume * api_usd_per_request * DAYS_PER_MONTH))
    return tuple(points)
