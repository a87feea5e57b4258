"""The traffic of one replication, drawn up front as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.problems import InputError
from planner.scenario import Workload
from planner.speculation import draw_decode_steps
from planner.traces import Trace
from planner.workload.draws import (
    ACCEPTANCE,
    ARRIVALS,
    CLASSES,
    INPUTS,
    OUTPUTS,
    PREFIXES,
    THINKING,
    WINDOW,
    draw_arrivals,
    draw_classes,
    draw_lengths,
    stream,
)
from planner.workload.sessions import Histories, steady_sessions

KEY_BITS = 24
"""Room in a block's content key for its position: sessions and prefix groups are numbered above these bits."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Columns: one row a request, the rows of a session side by side and in order of its turns."""

    session_start_s: np.ndarray
    """When each session's first request is due, rising; all 0 in a pure closed loop."""
    first_row: np.ndarray
    """Session s owns rows first_row[s] to first_row[s + 1]."""
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    thinking_tokens: np.ndarray
    decode_steps: np.ndarray
    priority_class: np.ndarray
    truncated: np.ndarray
    think_s: np.ndarray
    """Pause between the end of the turn before and this one."""
    prefix_group: np.ndarray
    """By session."""
    shared_tokens: int = 0
    hash_ids: Sequence[Sequence[int]] | None = None
    hash_tokens: int = 0
    horizon_s: float = math.inf
    """Clients send nothing after this moment."""
    expected_requests: float | None = None
    """What sessions send by then at the pace they were drawn for; None without a pace or in a closed loop."""
    histories: Histories | None = None
    """What sessions under way at time 0 have left in the caches; None where the run starts from nothing."""

    def __len__(self) -> int:
        return len(self.input_tokens)

    @property
    def shares_content(self) -> bool:
        """Whether any two prompts can begin alike."""
        sessions = self.histories is not None or len(self.session_start_s) < len(self)
        return sessions or self.shared_tokens > 0 or self.hash_ids is not None

    def keys(self, row: int, session: int, block_size: int, longest: int | None = None) -> Sequence[int]:
        """Content keys of the full KV blocks of a row: shared prefix, session, or the trace's own ids; none beyond `longest` tokens."""
        prompt, output = int(self.input_tokens[row]), int(self.output_tokens[row])
        if longest is not None:
            prompt, output = min(prompt, longest), min(output, max(1, longest - prompt + 1))
        if self.hash_ids is not None:
            return trace_keys(self.hash_ids[row], self.hash_tokens, block_size, prompt)
        # Thinking is dropped from the history, so the KV behind it serves no later turn.
        reusable = prompt if self.thinking_tokens[row] else prompt + output - 1
        return self.session_keys(session, min(self.shared_tokens, prompt), reusable, block_size)

    def session_keys(self, session: int, shared: int, tokens: int, block_size: int) -> list[int]:
        """Content keys of the first `tokens` tokens of a session, `shared` of which are its group's."""
        group, own, blocks = -1 - (int(self.prefix_group[session]) << KEY_BITS), session << KEY_BITS, shared // block_size
        return [*range(group, group - blocks, -1), *range(own + blocks, own + tokens // block_size)]


def trace_keys(hash_ids: Sequence[int], hash_tokens: int, block_size: int, input_tokens: int) -> Sequence[int]:
    """A trace's ids at the engine's block size: each full block is named by the id over its last token and its place there."""
    if block_size == hash_tokens:
        return list(hash_ids[: input_tokens // block_size])
    ends = range(block_size - 1, min(input_tokens, len(hash_ids) * hash_tokens), block_size)
    return [(hash_ids[end // hash_tokens] << KEY_BITS) + end % hash_tokens for end in ends]


def requests(
    workload: Workload,
    seed: int | None = None,
    rate_scale: float = 1.0,
    acceptance_rates: Sequence[float] = (),
    trace: Trace | None = None,
    turn_s: float | None = None,
    longest: int | None = None,
) -> Requests:
    """The traffic of one replication, `workload.num_prompts` requests of the whole fleet.

    `rate_scale` multiplies the arrival rate and leaves everything else, draw for draw. `trace` holds the rows that `workload.trace`
    names; more of them than num_prompts gives a stretch that starts at a random row, fewer gives them all.
    `turn_s`, the time from one turn of a session to its next, lets sessions be under way when the run begins, as in a steady state
    (`sessions`); without it every session begins with its first turn. Those whose prompts grew to `longest` tokens are not among them:
    the engine refused one, and they ended.
    Raises InputError for a rate of zero or a trace without rows.
    """
    seed = workload.seed if seed is None else seed
    if trace is not None:
        return _replayed(workload, trace, seed, rate_scale, acceptance_rates)
    if workload.request_rate == 0:
        raise InputError("workload.request_rate is 0, so nothing ever arrives; give a rate above 0, or null with max_concurrency")
    if turn_s is not None and workload.turns > 1:
        steady = _steady(workload, seed, rate_scale, acceptance_rates, turn_s, longest or math.inf)
        if len(steady):  # a stretch too short for a single request says nothing
            return steady
    n, turns = workload.num_prompts, workload.turns
    sessions = -(-n // turns)
    if workload.request_rate is None:
        start_s = np.zeros(sessions)
    else:
        start_s = draw_arrivals(stream(seed, ARRIVALS), rate_scale * workload.request_rate / turns, workload.burstiness, sessions)
    shared = round(workload.shared_prefix_len)
    new = np.maximum(draw_lengths(stream(seed, INPUTS), workload.input_len, sessions * turns), shared + 1).reshape(sessions, turns)
    new[:, 1:] -= shared  # the system prompt opens a session once
    output, thinking, truncated = _outputs(workload, draw_lengths(stream(seed, OUTPUTS), workload.output_len, sessions * turns))
    answer = (output - thinking).reshape(sessions, turns)
    prompt = new.cumsum(axis=1) + answer.cumsum(axis=1) - answer
    pause = stream(seed, THINKING).exponential(1.0, sessions * turns)
    return Requests(
        session_start_s=start_s,
        first_row=np.minimum(np.arange(sessions + 1) * turns, n),
        input_tokens=prompt.ravel()[:n],
        output_tokens=output[:n],
        thinking_tokens=thinking[:n],
        decode_steps=draw_decode_steps(stream(seed, ACCEPTANCE), output - 1, acceptance_rates)[:n],
        priority_class=draw_classes(stream(seed, CLASSES), workload.priority_classes, n),
        truncated=truncated[:n],
        think_s=pause[:n] * workload.think_time_s,
        prefix_group=stream(seed, PREFIXES).integers(0, workload.prefix_groups, sessions),
        shared_tokens=shared,
    )


SPARE_TURNS = 5
"""Turns drawn for a session beyond three times those that fit into the run: clients that are answered faster than thought send more."""


def _steady(workload: Workload, seed: int, rate_scale: float, acceptance_rates: Sequence[float], turn_s: float, longest: float) -> Requests:
    """Sessions of a steady state, for as long as `num_prompts` requests last: rows only for what a session may send by then."""
    n, turns, shared = workload.num_prompts, workload.turns, round(workload.shared_prefix_len)
    rate = None if workload.request_rate is None else workload.request_rate * rate_scale
    horizon_s = n / rate if rate else n * turn_s / (workload.max_concurrency or 1)
    most = min(turns, math.ceil(3 * horizon_s / turn_s) + SPARE_TURNS) if turn_s else turns
    found = steady_sessions(workload, seed, rate, turn_s, horizon_s, -(-n // turns) + (workload.max_concurrency or 1), longest)
    rows = np.minimum(turns - found.first_turn, most)
    first_row = np.concatenate([[0], rows.cumsum()])
    total, session = int(first_row[-1]), np.repeat(np.arange(len(rows)), rows)
    new = np.maximum(draw_lengths(stream(seed, INPUTS), workload.input_len, total), shared + 1)
    opening = np.zeros(total, dtype=bool)
    opening[first_row[:-1][found.first_turn == 0]] = True
    new = np.where(opening, new, new - shared)
    output, thinking, truncated = _outputs(workload, draw_lengths(stream(seed, OUTPUTS), workload.output_len, total))
    grown = (new + output - thinking).cumsum()
    before = np.concatenate([[0], grown])[first_row[:-1]]
    prompt = found.history_tokens[session] + grown - before[session] - (output - thinking)
    # A session sends its first prompt over the limit, and no more.
    accepted = np.add.reduceat(prompt < longest, first_row[:-1]) if total else rows
    in_time = 1 + (horizon_s - found.start_s) // turn_s if rate and turn_s else rows
    return Requests(
        session_start_s=found.start_s,
        first_row=first_row,
        input_tokens=prompt,
        output_tokens=output,
        thinking_tokens=thinking,
        decode_steps=draw_decode_steps(stream(seed, ACCEPTANCE), output - 1, acceptance_rates),
        priority_class=draw_classes(stream(seed, CLASSES), workload.priority_classes, total),
        truncated=truncated,
        think_s=stream(seed, THINKING).exponential(1.0, total) * workload.think_time_s,
        prefix_group=stream(seed, PREFIXES).integers(0, workload.prefix_groups, found.all),
        shared_tokens=shared,
        horizon_s=horizon_s,
        expected_requests=float(np.minimum(np.minimum(rows, accepted + 1), in_time).sum()) if rate and turn_s else None,
        histories=found.histories,
    )


def _replayed(workload: Workload, trace: Trace, seed: int, rate_scale: float, acceptance_rates: Sequence[float]) -> Requests:
    rows = len(trace.input_tokens)
    if not rows:
        raise InputError(f"trace {workload.trace.name if workload.trace else ''!r} has no rows; give at least one request")
    trace = trace.smoothed(stream(seed, ARRIVALS))
    n = min(rows, workload.num_prompts)
    first = int(stream(seed, WINDOW).integers(0, rows - n + 1)) if seed != workload.seed else 0
    window = slice(first, first + n)
    arrival_s = np.asarray(trace.arrival_s[window], dtype=float)
    output, thinking, truncated = _outputs(workload, np.maximum(1, np.asarray(trace.output_tokens[window], dtype=np.int64)))
    return Requests(
        session_start_s=(arrival_s - arrival_s[0]) / rate_scale,
        first_row=np.arange(n + 1),
        input_tokens=np.maximum(1, np.asarray(trace.input_tokens[window], dtype=np.int64)),
        output_tokens=output,
        thinking_tokens=thinking,
        decode_steps=draw_decode_steps(stream(seed, ACCEPTANCE), output - 1, acceptance_rates),
        priority_class=draw_classes(stream(seed, CLASSES), workload.priority_classes, n),
        truncated=truncated,
        think_s=np.zeros(n),
        prefix_group=np.zeros(n, dtype=np.int64),
        hash_ids=None if trace.hash_ids is None else trace.hash_ids[window],
        hash_tokens=trace.hash_tokens,
    )


def _outputs(workload: Workload, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output tokens after the cut, those of them that are thinking (never all), and which were cut."""
    limit = workload.max_output_len or np.iinfo(np.int64).max
    output = np.minimum(drawn, limit)
    thinking = np.minimum(np.rint(drawn * workload.thinking_share).astype(np.int64), output - 1)
    return output, thinking, drawn > limit
