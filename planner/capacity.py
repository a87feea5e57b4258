"""The largest request rate at which a promise still holds. The simulation is passed in; nothing here knows what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log

STRETCH = 1.6
"""Factor between probes while the answer is not yet bracketed."""
GIVE_UP_BELOW = 1e-4
"""Share of the starting rate at which a promise that still breaks is called infeasible."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One rate that was tried."""

    rate: float
    strain: float
    """Worst promise: observed over promised. Up to 1 everything holds."""

    @property
    def holds(self) -> bool:
        """Whether all promises hold at this rate."""
        return self.strain <= 1.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a search found."""

    rate: float
    """The largest rate seen to hold, requests/s; 0 when even a lone request breaks the promise."""
    limit: float | None
    """The smallest rate seen to break it; None when nothing up to `at_most` broke it."""
    probes: tuple[Probe, ...]
    """Everything tried, by rate: the points of a rate-latency chart."""


def largest_rate(
    strain: Callable[[float], float], start: float, tolerance: float = 0.03, at_most: float = inf, max_probes: int = 16
) -> Capacity:
    """Search for the rate at which `strain` crosses 1: stretch from `start` until it is bracketed, then close in.

    `strain(rate)` is the worst of observed over promised latency (infinity when the load cannot drain) and must use the
    same random numbers at every rate, or the answer dithers. Closing in interpolates on the logarithm of the strain and
    stays off the ends of the bracket, because latency turns from flat to vertical at the knee. It ends when the bracket
    is within `tolerance` or after `max_probes` calls.
    """
    tried: dict[float, Probe] = {}

    def probe(rate: float) -> Probe:
        tried[rate] = Probe(rate, strain(rate))
        return tried[rate]

    low: Probe | None = None
    high: Probe | None = None
    rate = min(start, at_most)
    while len(tried) < max_probes and (low is None or high is None):
        point = probe(rate)
        if point.holds:
            low = point
            if rate >= at_most:
                break
            rate = min(rate * STRETCH, at_most)
        else:
            high = point
            # A lone request decides feasibility; walking down to it in small steps would waste the probes.
            rate = rate / STRETCH if len(tried) < max_probes // 2 else start * GIVE_UP_BELOW
            if point.rate <= start * GIVE_UP_BELOW:
                break
    while low is not None and high is not None and len(tried) < max_probes and high.rate > low.rate * (1 + tolerance):
        point = probe(_between(low, high))
        if point.holds:
            low = point
        else:
            high = point
    probes = tuple(tried[r] for r in sorted(tried))
    return Capacity(low.rate if low else 0.0, high.rate if high else None, probes)


def crossing(probes: Sequence[Probe]) -> float | None:
    """The rate at which a line through the probes crosses a strain of 1, straight between their logarithms.

    Between a rate that holds and one at which nothing drains there is no line: then the one that holds. None where none holds.
    """
    by_rate = sorted(probes, key=lambda probe: probe.rate)
    holding = [i for i, probe in enumerate(by_rate) if probe.holds]
    if not holding:
        return None
    low = by_rate[holding[-1]]
    high = by_rate[holding[-1] + 1] if holding[-1] + 1 < len(by_rate) else None
    if high is None or high.strain == inf or low.strain <= 0:
        return low.rate
    share = -log(low.strain) / (log(high.strain) - log(low.strain))
    return exp(log(low.rate) + share * (log(high.rate) - log(low.rate)))


def strain_at(probes: Sequence[Probe], rate: float) -> float | None:
    """The strain on the line between the logarithms of the probes beside a rate; None beyond them or where it is not finite."""
    by_rate = sorted(probes, key=lambda probe: probe.rate)
    for low, high in pairwise(by_rate):
        if low.rate <= rate <= high.rate:
            if low.rate == rate or high.rate == rate:
                strain = low.strain if low.rate == rate else high.strain
                return strain if 0 < strain < inf else None
            if not 0 < low.strain < inf or not 0 < high.strain < inf:
                return None
            share = log(rate / low.rate) / log(high.rate / low.rate)
            return exp(log(low.strain) + share * log(high.strain / low.strain))
    return None


def _between(low: Probe, high: Probe) -> float:
    """The next rate to try: where a straight line in log strain crosses 1, kept in the middle six tenths of the bracket."""
    span = high.rate - low.rate
    share = 0.5
    if 0 < low.strain < 1 < high.strain < inf:
        share = -log(low.strain) / (log(high.strain) - log(low.strain))
    return low.rate + span * min(0.8, max(0.2, share))
