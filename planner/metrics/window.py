"""Which part of a timeline counts, and the latencies of the requests in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.scenario import Mode, PriorityClass, Slo
from planner.scheduler import EngineLog, Timeline

LEAST_WARM_UP, MOST_WARM_UP, MOST_DRAIN = 0.1, 0.5, 0.2
"""Shares of the time in which requests arrive that a planning run leaves out at its beginning, at least and at most, and at its end."""
WARM_UP_RESIDENCES = 2
"""Mean E2E latencies after which an empty system has filled."""


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of one timeline: requests that arrive, and steps that run, between two moments."""

    timeline: Timeline
    start_s: float
    end_s: float
    counted: np.ndarray
    """Requests that arrived inside."""
    done: np.ndarray
    """Those of them that finished."""
    completed: np.ndarray
    """Requests that finished inside, whenever they arrived."""

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s


def window(timeline: Timeline, mode: Mode) -> Window:
    """The whole run (benchmark), or without its warm-up and without those whose answers run into the drain (planning).

    Warm-up lasts twice the mean E2E latency, at least a tenth and at most half of the time in which requests arrive: an empty system
    fills within a few residence times. A run whose requests all come at once has no steady part and is kept whole.
    """
    first_s, last_s = float(timeline.arrival_s.min()), float(timeline.arrival_s.max())
    end_s = float(np.nanmax(timeline.finish_s)) if np.isfinite(timeline.finish_s).any() else last_s
    arriving_s = last_s - first_s
    if mode == "planning" and arriving_s > 0:
        finished = timeline.finished
        residence_s = float((timeline.finish_s - timeline.arrival_s)[finished].mean()) if finished.any() else arriving_s
        start_s = first_s + min(MOST_WARM_UP * arriving_s, max(LEAST_WARM_UP * arriving_s, WARM_UP_RESIDENCES * residence_s))
        # Requests that come at the very end finish while nobody follows, faster than any in between.
        end_s = last_s - min(MOST_DRAIN * arriving_s, residence_s)
    else:
        start_s = first_s
    counted = (timeline.arrival_s >= start_s) & (timeline.arrival_s <= end_s)
    completed = timeline.finished & (timeline.finish_s >= start_s) & (timeline.finish_s <= end_s)
    return Window(timeline, start_s, end_s, counted, counted & timeline.finished, completed)


def ttft_s(timeline: Timeline, api_s: float = 0.0) -> np.ndarray:
    """Arrival to first token, s. `api_s`: what a server spends on a request outside the engine (HTTP, tokeniser)."""
    return timeline.first_token_s - timeline.arrival_s + api_s


def e2e_s(timeline: Timeline, api_s: float = 0.0) -> np.ndarray:
    """Arrival to last token, s."""
    return timeline.finish_s - timeline.arrival_s + api_s


def tpot_s(timeline: Timeline) -> np.ndarray:
    """(E2E − TTFT) / (output tokens − 1), s; 0 for answers of one token."""
    return (timeline.finish_s - timeline.first_token_s) / np.maximum(timeline.output_tokens - 1, 1)


def meets(timeline: Timeline, slo: Slo, api_s: float = 0.0) -> np.ndarray:
    """Which requests finished and kept every promise at once."""
    good = timeline.finished.copy()
    for promise_s, latency_s in (
        (slo.ttft_s, ttft_s(timeline, api_s)),
        (slo.tpot_s, tpot_s(timeline)),
        (slo.e2e_s, e2e_s(timeline, api_s)),
    ):
        if promise_s is not None:
            good &= latency_s <= promise_s
    return good


def good_requests(timeline: Timeline, slo: Slo, classes: Sequence[PriorityClass] = (), api_s: float = 0.0) -> np.ndarray:
    """`meets`, each priority class by its own promise where it has one."""
    good = meets(timeline, slo, api_s)
    for index, own in enumerate(classes):
        if own.slo is not None:
            good = np.where(timeline.priority_class == index, meets(timeline, own.slo, api_s), good)
    return good


def gaps_s(window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Every gap between emissions of the counted requests, pooled, as (gap in s, how many gaps are that one).

    All sequences that decode in two steps running share the gap between their ends: a decode run of n steps is n − 1 entries in a
    count per step, its first gap starts at the run's own first token, and a preempted request has a gap between its runs.
    """
    gaps, counts = [np.empty(0)], [np.empty(0, dtype=np.int64)]
    numbers = window.timeline.number[window.done]
    runs = []
    for engine in window.timeline.engines:
        records = engine.records
        if records is None:
            continue
        end_s = records.decode_end_s
        mine = np.isin(records.run_number, numbers)
        first, last, start_s = records.run_first[mine], records.run_last[mine], records.run_start_s[mine]
        ran = last > first
        change = np.zeros(len(end_s) + 1, dtype=np.int64)
        np.add.at(change, first[ran] + 1, 1)
        np.add.at(change, last[ran], -1)
        shared = change.cumsum()[1 : len(end_s)]
        gaps += [np.diff(end_s)[shared > 0], end_s[first[ran]] - start_s[ran]]
        counts += [shared[shared > 0], np.ones(ran.sum(), dtype=np.int64)]
        run_end_s = np.where(ran, end_s[np.maximum(last - 1, 0)] if len(end_s) else start_s, start_s)
        runs.append((records.run_number[mine], start_s, run_end_s))
    if runs:
        number, start_s, run_end_s = (np.concatenate(column) for column in zip(*runs, strict=True))
        order = np.lexsort((start_s, number))
        number, start_s, run_end_s = number[order], start_s[order], run_end_s[order]
        again = number[1:] == number[:-1]
        gaps.append((start_s[1:] - run_end_s[:-1])[again])
        counts.append(np.ones(again.sum(), dtype=np.int64))
    return np.concatenate(gaps), np.concatenate(counts)


@dataclass(frozen=True, slots=True)
class Work:
    """What the engines did inside a window; over the whole run where steps were not recorded."""

    span_s: float
    busy_s: float
    decode_rows: float
    decode_steps: float
    kv_block_s: float
    total_blocks: int


def work(window: Window, engine: EngineLog) -> Work:
    """One engine's share of the window."""
    records = engine.records
    if records is None:
        span_s = engine.end_s or 1.0
        return Work(span_s, engine.busy_s, engine.decode_rows, engine.decode_steps, engine.kv_block_s, engine.total_blocks)
    inside = (records.end_s > window.start_s) & (records.end_s <= window.end_s)
    seconds, rows = records.seconds[inside].astype(float), records.decode_sequences[inside]
    return Work(
        span_s=window.span_s or 1.0,
        busy_s=float(seconds.sum()),
        decode_rows=float(rows.sum()),
        decode_steps=float((rows > 0).sum()),
        kv_block_s=float((records.kv_used_blocks[inside] * seconds).sum()),
        total_blocks=engine.total_blocks,
    )
