"""What is promised to whom, and what a run makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

import numpy as np

from planner.metrics.statistics import MIN_REPLICATIONS, known, t_interval
from planner.metrics.window import e2e_s, tpot_s, ttft_s, window
from planner.scenario import Mode, PriorityClass, Slo
from planner.scheduler import Timeline

PROMISED = ("ttft_s", "tpot_s", "e2e_s")
"""Latencies that an SLO can promise, by their names in it."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One latency that one group of requests must not exceed."""

    name: str
    """One of `PROMISED`."""
    limit_s: float
    percentile: int
    classes: tuple[int, ...] | None = None
    """Priority classes it is given to, by position in the scenario; None for all requests."""
    to: str = ""
    """The class in words, for a promise of its own; empty for the common one."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a promise."""

    promise: Promise
    at_s: float
    """The latency at the promised percentile over ALL requests it is given to, infinite where too many were refused or given up."""

    @property
    def strain(self) -> float:
        """Reached over promised; up to 1 it holds."""
        return self.at_s / self.promise.limit_s


def promises(slo: Slo, classes: Sequence[PriorityClass] = ()) -> tuple[Promise, ...]:
    """The common promise to every class without one of its own, then the classes' own."""
    common = tuple(i for i, c in enumerate(classes) if c.slo is None) if any(c.slo for c in classes) else None
    groups = [] if common == () else [(slo, common, "")]
    groups += [(c.slo, (i,), f"priority {c.priority}") for i, c in enumerate(classes) if c.slo is not None]
    return tuple(
        Promise(name, limit_s, own.percentile, who, to)
        for own, who, to in groups
        for name in PROMISED
        if (limit_s := getattr(own, name)) is not None
    )


def reached(timeline: Timeline, given: Sequence[Promise], api_s: float = 0.0, mode: Mode = "planning") -> tuple[Kept, ...]:
    """What a run makes of each promise; those given to nobody who came are left out."""
    w = window(timeline, mode)
    latencies = {
        "ttft_s": (ttft_s(timeline, api_s), w.counted),
        "tpot_s": (tpot_s(timeline), w.counted & (timeline.output_tokens > 1)),
        "e2e_s": (e2e_s(timeline, api_s), w.counted),
    }
    found = []
    for promise in given:
        latency_s, who = latencies[promise.name]
        if promise.classes is not None:
            who = who & np.isin(timeline.priority_class, promise.classes)
        if who.any():
            seen_s = np.where(timeline.finished, latency_s, inf)[who]
            # Between a number and "never" there is no straight line.
            method: Literal["linear", "higher"] = "linear" if np.isfinite(seen_s).all() else "higher"
            found.append(Kept(promise, float(np.percentile(seen_s, promise.percentile, method=method))))
    return tuple(found)


def on_average(runs: Sequence[Sequence[Kept]]) -> tuple[Kept, ...]:
    """Each promise with the mean of what the runs made of it."""
    return tuple(Kept(promise, sum(k.at_s for k in seen) / len(seen)) for promise, seen in _by_promise(runs).items())


def _by_promise(runs: Sequence[Sequence[Kept]]) -> dict[Promise, list[Kept]]:
    seen: dict[Promise, list[Kept]] = {}
    for run in runs:
        for kept in run:
            seen.setdefault(kept.promise, []).append(kept)
    return seen


def settled(timelines: Sequence[Timeline], given: Sequence[Promise], api_s: float = 0.0, min_replications: int = MIN_REPLICATIONS) -> bool:
    """Whether the replications so far are enough: at least five, and what becomes of every promise known to ±10 %."""
    if len(timelines) < min_replications:
        return False
    seen = _by_promise([reached(t, given, api_s) for t in timelines])
    return all(known([kept.at_s for kept in runs]) for runs in seen.values())


def decided(timelines: Sequence[Timeline], given: Sequence[Promise], api_s: float = 0.0) -> bool:
    """Whether the replications so far tell if the promises are kept: at least five, and for each promise an interval beside its limit.

    One that is clearly broken settles it; the others are then of no consequence. Without promises there is nothing to tell.
    """
    if not given:
        return True
    if len(timelines) < MIN_REPLICATIONS:
        return False
    seen = _by_promise([reached(t, given, api_s) for t in timelines])
    each = [[kept.strain for kept in runs] for runs in seen.values()]
    ends = [t_interval(strains) if all(map(isfinite, strains)) else (inf, inf) for strains in each]
    sure = [end for end in ends if end is not None]
    return any(low > 1 for low, _ in sure) or all(high <= 1 for _, high in sure)
