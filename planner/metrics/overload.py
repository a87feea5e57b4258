"""Overload is an answer: does the queue grow without end, how fast, and what holds it back?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.metrics.statistics import t_interval
from planner.metrics.window import window
from planner.scheduler import CANCELLED, UNFINISHED, Timeline

SENT = 0.95
"""Share of what sessions would send at their pace that they do send where nothing holds them up."""
LOST = 0.1
"""Share of requests lost to deadlines above which a system is overloaded whatever its queue looks like."""
LEAST_ARRIVALS, LEAST_AFTER_WARM_UP = 20, 10
"""Requests of a run, and those of them after its warm-up, below which its queue shows no growth."""
GROWS_IN_A_RUN, LINE_IN_A_RUN = 0.05, 0.7
"""Growth of the queue an arrival, and r² of the line through it, above which a single run is overloaded."""
GROWS_ON_AVERAGE, LINE_ON_AVERAGE = 0.02, 0.5
"""The same, of the means over replications whose interval of growth stays above zero."""
FULL = 0.9
"""Share of the KV blocks in use above which a request that waits is taken to wait for blocks."""
SELDOM = 0.01
"""Share of the steps up to which requests that wait are no limit worth naming."""


def backlog_growth(timeline: Timeline) -> tuple[float, float]:
    """How much longer the queue gets with every arrival, and r² of the straight line through it.

    Below capacity the queue wanders around a level, above it grows by 1 − capacity / demand a request. The line is fitted to the queue
    met by each request that arrives after the warm-up. A batch that comes all at once has no growth to speak of. A session in the queue
    keeps its later turns from arriving, so the line counts all its turns, against the arrivals that there should have been.
    """
    if len(timeline) < LEAST_ARRIVALS or np.ptp(timeline.arrival_s) == 0:
        return 0.0, 0.0
    arrival_s = np.sort(timeline.arrival_s)
    left_s = np.where(np.isfinite(timeline.scheduled_s), timeline.scheduled_s, timeline.finish_s)
    queue = np.arange(1, len(arrival_s) + 1) - np.searchsorted(np.sort(left_s), arrival_s, side="right")
    queue = queue[arrival_s >= window(timeline, "planning").start_s]
    if len(queue) < LEAST_AFTER_WARM_UP or queue.std() == 0:
        return 0.0, 0.0
    place = np.arange(len(queue))
    r = float(np.corrcoef(place, queue)[0, 1])
    slope = r * float(queue.std() / place.std())
    if timeline.expected_requests:
        slope *= timeline.session_turns * len(arrival_s) / timeline.expected_requests
    return slope, r * r


def overloaded(*timelines: Timeline) -> bool:
    """Whether more arrives than can be served, judged from one run or from several.

    Runs that lose one request in ten to deadlines are, or that end with one in ten waiting for ever; in a run that was only cut short
    by the bound of steps, what is under way then is not lost. Otherwise the backlog must grow along a line: clearly in a single run, a
    little on average over replications that agree. Sessions that are held up send less: they are
    overloaded where they send too little and wait longer than they are served.
    """
    if any(len(t) and np.mean(_lost(t)) > LOST for t in timelines):
        return True
    share = sent_share(timelines)
    if share is not None and share >= SENT:
        return False
    if piling_up(timelines):
        return True
    growth, fit = zip(*(backlog_growth(t) for t in timelines), strict=True)
    interval = t_interval(growth)
    if interval is None:
        return growth[0] > GROWS_IN_A_RUN and fit[0] > LINE_IN_A_RUN
    return interval[0] > 0 and float(np.mean(growth)) > GROWS_ON_AVERAGE and float(np.mean(fit)) > LINE_ON_AVERAGE


def sent_share(timelines: Sequence[Timeline]) -> float | None:
    """Share of what the sessions of a steady open loop would send that they did send; None for other traffic.

    Below SENT the run is not in a steady state: overloaded, or too short to reach one.
    """
    expected = sum(t.expected_requests or 0.0 for t in timelines)
    return sum(len(t) for t in timelines) / expected if expected else None


def piling_up(timelines: Sequence[Timeline]) -> bool:
    """Whether sessions of a steady open loop are held up, because their requests wait longer than they are served."""
    share = sent_share(timelines)
    if share is None or share >= SENT:
        return False
    waits = np.concatenate([(t.scheduled_s - t.arrival_s)[t.finished] for t in timelines])
    served = np.concatenate([(t.finish_s - t.scheduled_s)[t.finished] for t in timelines])
    return bool(len(waits)) and float(waits.mean()) > float(served.mean())


def _lost(timeline: Timeline) -> np.ndarray:
    under_way = np.isfinite(timeline.scheduled_s) if timeline.out_of_steps else np.zeros(len(timeline), bool)
    return (timeline.status == CANCELLED) | ((timeline.status == UNFINISHED) & ~under_way)


def binding(timelines: Sequence[Timeline]) -> str:
    """What most held requests back in the steps that left some waiting; empty when none waited or steps were not recorded."""
    held = {"max_num_seqs": 0, "kv_cache": 0, "max_num_batched_tokens": 0}
    steps = 0
    for timeline in timelines:
        for engine in timeline.engines:
            records = engine.records
            if records is None:
                continue
            waits = records.waiting > 0
            seats = waits & (records.decode_sequences + (records.chunk_tokens > 0) >= engine.seats)
            full = waits & ~seats & (records.kv_used_blocks >= FULL * engine.total_blocks)
            held["max_num_seqs"] += int(seats.sum())
            held["kv_cache"] += int(full.sum())
            held["max_num_batched_tokens"] += int((waits & ~seats & ~full).sum())
            steps += len(waits)
    return max(held, key=lambda name: held[name]) if sum(held.values()) > SELDOM * steps else ""
