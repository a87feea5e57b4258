"""Latency of each priority class by itself: the mean over all of them hides who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.metrics.statistics import Distribution, combine, quantiles
from planner.metrics.window import e2e_s, meets, tpot_s, ttft_s, window
from planner.scenario import Mode, PriorityClass, Slo
from planner.scheduler import Timeline


@dataclass(frozen=True, slots=True)
class ClassLatency:
    """What one priority class sees, s; None where none of its requests has that latency."""

    priority: int
    """vLLM's meaning: lower is served first."""
    share: float
    """Share of the counted requests that belong to it."""
    good_share: float | None
    """Share of them that kept the class's own promise, or the scenario's where it has none."""
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    e2e_s: Distribution | None


def by_class(
    timelines: Sequence[Timeline], classes: Sequence[PriorityClass], slo: Slo, mode: Mode = "planning", api_s: float = 0.0
) -> tuple[ClassLatency, ...]:
    """One entry per class, in the scenario's order, over the window of the whole traffic; one timeline per replication."""
    windows = [window(t, mode) for t in timelines if len(t)]
    total = sum(int(w.counted.sum()) for w in windows)
    found = []
    for index, own in enumerate(classes):
        counted = [w.timeline.only(w.counted & (w.timeline.priority_class == index)) for w in windows]
        done = [t.only(t.finished) for t in counted]
        members = sum(len(t) for t in counted)
        kept = sum(int(meets(t, own.slo or slo, api_s).sum()) for t in counted)
        found.append(
            ClassLatency(
                priority=own.priority,
                share=members / total if total else 0.0,
                good_share=kept / members if members else None,
                ttft_s=combine([quantiles(ttft_s(t, api_s)) for t in done]),
                tpot_s=combine([quantiles(tpot_s(t)[t.output_tokens > 1]) for t in done]),
                e2e_s=combine([quantiles(e2e_s(t, api_s)) for t in done]),
            )
        )
    return tuple(found)
