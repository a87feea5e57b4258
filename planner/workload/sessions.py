"""Sessions that are under way when a run begins, so that it begins in its steady state instead of with everybody's first turn.

By Little's law the rate of requests times the time from one turn to the next is the number of sessions under way. Each is at a random
turn, and either pauses – exponentially, so what is left of the pause is independent of how long it has lasted – or waits for an answer.
The answers under way themselves are left out: the batch fills within one of them, and the warm-up covers that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.scenario import Workload
from planner.workload.draws import ARRIVALS, HISTORIES, UNDER_WAY, draw_arrivals, draw_lengths, stream

MOST_UNDER_WAY = 200_000
"""Sessions under way that are drawn; of more, those used longest ago are in no cache."""
SERIES = 4096
"""Turns from which the histories are cut."""


@dataclass(frozen=True, slots=True)
class Histories:
    """Columns: one row for each session under way at time 0 that has a history, the one used longest ago first.

    Sessions beyond those of `Sessions` send nothing before the horizon, but their histories take room in the caches.
    """

    session: np.ndarray
    tokens: np.ndarray
    """Leading tokens of the session whose KV was computed, shared prefix included."""
    prompt_tokens: np.ndarray
    """Those of them that were in the prompt of its last turn."""
    used_s: np.ndarray
    """When its last turn ended, s; never above 0."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """Columns: one row for each session that may send something, in order of when it does so first."""

    start_s: np.ndarray
    first_turn: np.ndarray
    """Turn it sends first, from 0."""
    history_tokens: np.ndarray
    """What the prompt of that turn repeats; 0 at turn 0."""
    histories: Histories

    @property
    def all(self) -> int:
        """Sessions that need a name, silent ones included."""
        return max(len(self.start_s), int(self.histories.session.max(initial=-1)) + 1)


def steady_sessions(
    workload: Workload, seed: int, rate: float | None, turn_s: float, horizon_s: float, most: int, longest: float
) -> Sessions:
    """Sessions of a steady state seen from time 0 to `horizon_s`: those under way, then those that begin.

    `rate` is in requests/s; None is a closed loop of `max_concurrency` clients, who never rest between sessions; they begin at most
    `most` sessions more. `turn_s` lasts from one turn of a session to its next. Sessions have ended whose last prompt was over `longest`.
    """
    turns, clients = workload.turns, workload.max_concurrency or 1
    rng = stream(seed, UNDER_WAY)
    if rate is None:
        count, begin_s = clients, np.zeros(most)
    else:
        turn_s = min(turn_s, MOST_UNDER_WAY / rate)
        begin_s = _beginnings(workload, seed, rate / turns, horizon_s)
        mean = rate * turn_s * (turns - 1) / turns
        # A Poisson number, read off unit gaps: a higher rate meets the same sessions and more.
        gaps = stream(seed, HISTORIES).exponential(1.0, int(mean + 6 * mean**0.5) + 10)
        count = int(np.searchsorted(gaps.cumsum(), mean))
    think_s = min(workload.think_time_s, turn_s)
    uniform, rest, past = rng.random((count, 3)), rng.exponential(1.0, (count, 2)), rng.random(count)
    pausing = uniform[:, 0] < think_s / turn_s if turn_s else np.ones(count, bool)
    due_s = rest[:, 0] * think_s + np.where(pausing, 0.0, uniform[:, 1] * (turn_s - think_s))
    used_s = np.where(pausing, -rest[:, 1] * think_s, 0.0)
    first = 1 if rate is not None else 0
    turn = first + (uniform[:, 2] * (turns - first)).astype(np.int64)
    history, last_answer = _histories(workload, seed, turn, past)

    alive = history - last_answer < longest
    count = int(alive.sum())
    due_s, used_s, turn, history, last_answer = (column[alive] for column in (due_s, used_s, turn, history, last_answer))
    sending = due_s <= horizon_s
    start_s = np.concatenate([due_s[sending], begin_s])
    order = np.argsort(start_s, kind="stable") if rate is not None else np.arange(len(start_s))
    if rate is None:
        order[: sending.sum()] = np.argsort(due_s[sending], kind="stable")
    name = np.empty(count, dtype=np.int64)
    name[sending] = np.argsort(order)[: sending.sum()]
    name[~sending] = len(start_s) + np.arange(count - sending.sum())
    oldest = np.argsort(used_s, kind="stable")
    oldest = oldest[turn[oldest] > 0]
    computed = history - np.where(workload.thinking_share > 0, last_answer, 1)
    return Sessions(
        start_s=start_s[order],
        first_turn=np.concatenate([turn[sending], np.zeros(len(begin_s), dtype=np.int64)])[order],
        history_tokens=np.concatenate([history[sending], np.zeros(len(begin_s), dtype=np.int64)])[order],
        histories=Histories(name[oldest], computed[oldest], (history - last_answer)[oldest], used_s[oldest]),
    )


def _beginnings(workload: Workload, seed: int, rate: float, horizon_s: float) -> np.ndarray:
    """When sessions begin, up to the horizon, s."""
    n = int(rate * horizon_s) + 16
    while True:
        begin_s = draw_arrivals(stream(seed, ARRIVALS), rate, workload.burstiness, n)
        if begin_s[-1] > horizon_s:
            return begin_s[begin_s <= horizon_s]
        n *= 2


def _histories(workload: Workload, seed: int, turn: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the `turn` turns that each session has had, and those of its last answer: stretches of one series of turns."""
    rng, length = stream(seed, HISTORIES), SERIES + workload.turns
    shared = round(workload.shared_prefix_len)
    new = np.maximum(draw_lengths(rng, workload.input_len, length), shared + 1) - shared
    drawn = draw_lengths(rng, workload.output_len, length)
    output = np.minimum(drawn, workload.max_output_len or np.iinfo(np.int64).max)
    answer = output - np.minimum(np.rint(drawn * workload.thinking_share).astype(np.int64), output - 1)
    upto = np.concatenate([[0], (new + answer).cumsum()])
    start = (past * SERIES).astype(np.int64)
    history = np.where(turn > 0, shared + upto[start + turn] - upto[start], 0)
    return history, np.where(turn > 0, answer[start + turn - 1], 0)
