"""What arrives: who sends which request when, drawn up front as columns, and how clients react when an answer ends.

`requests` draws the columns (arrivals, lengths, sessions, prefixes, classes) from one seed, each from a random stream of its own, so
that two scenarios with the same seed meet the same traffic whatever else differs (common random numbers). `Source` hands the
requests out in time order and answers every finish: the next turn of a session, the closed loop's next client, a retry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

import numpy as np

from planner.problems import InputError
from planner.scenario import Lengths, PriorityClass, Workload
from planner.speculation import draw_decode_steps
from planner.traces import Trace

ARRIVALS, INPUTS, OUTPUTS, PREFIXES, CLASSES, THINKING, ACCEPTANCE, RETRIES, WINDOW = range(9)
"""Random streams; each draw has its own, so adding one never shifts another."""

KEY_BITS = 24
"""Room in a block's content key for its position: sessions and prefix groups are numbered above these bits."""


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through a replica: what the client sent, then what the scheduler wrote beside it."""

    number: int
    arrival_s: float
    input_tokens: int
    """The whole prompt, history and shared prefix included."""
    output_tokens: int
    """Tokens it will emit, thinking included, after every cut."""
    decode_steps: int
    """Decode steps after the first token; without speculation output_tokens - 1."""
    thinking_tokens: int = 0
    priority: int = 0
    priority_class: int = 0
    keys: Sequence[int] = ()
    """Content keys of its full KV blocks, prompt first, then the part of the output that a next turn will send again."""
    session: int = 0
    row: int = 0
    """Where it stands in `Requests`; a retry shares its original's row."""
    deadline_s: float = math.inf
    """Moment at which the client gives up."""
    truncated: bool = False
    """The output was cut by max_output_len or max_model_len."""
    has_kv: bool = False
    """Its prompt was computed elsewhere and the KV comes with it (disaggregated decode)."""
    keeps_kv: bool = False
    """Its KV stays when it finishes, until `Replica.free` (disaggregated prefill)."""

    cached_tokens: int = 0
    """Prompt tokens whose KV needed no computing at the last admission: prefix hits, or all of them when it came along."""
    scheduled_s: float = math.nan
    first_token_s: float = math.nan
    answer_s: float = math.nan
    """First token after thinking."""
    finish_s: float = math.nan
    preemptions: int = 0
    status: str = "waiting"
    """waiting, running, then one of finished, cancelled, failed."""
    reason: str = ""

    ticket: int = 0
    """Order of arrival at its replica."""
    prompt_tokens: int = 0
    """Tokens to have in KV before it decodes: the prompt, and after a preemption what it had emitted too."""
    computed_tokens: float = 0
    """Tokens in KV, brought up to date when a chunk is scheduled and when it stops decoding."""
    reused_tokens: int = 0
    """Those of them that this admission found in the prefix cache."""
    emitted_tokens: float = 0
    """Tokens emitted before the present decode run, its first one included."""
    steps_left: int = 0
    """Decode steps after the next first token."""
    tokens_per_step: float = 1
    blocks: int = 0
    """KV blocks taken at admission, shared ones included."""
    published: int = 0
    """Leading keys it holds in the prefix cache."""
    start_clock: int = -1
    """Decode clock at which the present decode run began; -1 outside one."""
    run_start_s: float = 0.0
    finish_clock: int = 0
    """Decode clock at which it ends; likewise the next two, 0 when there is no such moment ahead."""
    answer_clock: int = 0
    window_clock: int = 0


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

    def __len__(self) -> int:
        return len(self.input_tokens)

    @property
    def shares_content(self) -> bool:
        """Whether any two prompts can begin alike."""
        return self.shared_tokens > 0 or self.hash_ids is not None or len(self.session_start_s) < len(self)

    def keys(self, row: int, session: int, block_size: int) -> Sequence[int]:
        """Content keys of the full KV blocks of a row: shared prefix, session, or the trace's own ids."""
        prompt, output = int(self.input_tokens[row]), int(self.output_tokens[row])
        if self.hash_ids is not None:
            return trace_keys(self.hash_ids[row], self.hash_tokens, block_size, prompt)
        # Thinking is dropped from the history, so the KV behind it serves no later turn.
        reusable = prompt if self.thinking_tokens[row] else prompt + output - 1
        shared = min(self.shared_tokens, prompt) // block_size
        group, own = -1 - (int(self.prefix_group[session]) << KEY_BITS), session << KEY_BITS
        return [*range(group, group - shared, -1), *range(own + shared, own + reusable // block_size)]


def trace_keys(hash_ids: Sequence[int], hash_tokens: int, block_size: int, input_tokens: int) -> Sequence[int]:
    """A trace's ids at the engine's block size: each full block is named by the id over its last token and its place there."""
    if block_size == hash_tokens:
        return list(hash_ids[: input_tokens // block_size])
    ends = range(block_size - 1, min(input_tokens, len(hash_ids) * hash_tokens), block_size)
    return [(hash_ids[end // hash_tokens] << KEY_BITS) + end % hash_tokens for end in ends]


def stream(seed: int, which: int) -> np.random.Generator:
    """One of the independent random streams of a seed."""
    return np.random.default_rng((seed, which))


def draw_lengths(rng: np.random.Generator, length: float | Lengths, n: int) -> np.ndarray:
    """`n` whole token counts, each at least 1, from a number or a distribution."""
    if isinstance(length, (int, float)):
        return np.full(n, max(1, round(length)), dtype=np.int64)
    if length.kind == "fixed":
        drawn = np.full(n, float(length.mean or 1))
    elif length.kind == "uniform":
        mean, half = float(length.mean or 1), float(length.half_width or 0)
        drawn = rng.uniform(mean * (1 - half), mean * (1 + half), n)
    elif length.kind == "lognormal":
        variance = math.log1p(float(length.cv or 0) ** 2)
        drawn = rng.lognormal(math.log(float(length.mean or 1)) - variance / 2, math.sqrt(variance), n)
    elif length.kind == "percentiles":
        probability, tokens = np.array(length.points, dtype=float).T
        drawn = np.interp(rng.random(n), probability, tokens)
    else:
        drawn = rng.choice(np.asarray(length.values, dtype=float), n)
    if length.max is not None:
        drawn = np.minimum(drawn, length.max)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def draw_arrivals(rng: np.random.Generator, rate: float, burstiness: float, n: int) -> np.ndarray:
    """`n` arrival times, s: Gamma gaps of mean 1 / rate and shape `burstiness` (1 is Poisson, towards infinity constant)."""
    return rng.gamma(burstiness, 1 / burstiness, n).cumsum() / rate


def requests(
    workload: Workload,
    seed: int | None = None,
    rate_scale: float = 1.0,
    acceptance_rates: Sequence[float] = (),
    trace: Trace | None = None,
) -> Requests:
    """The traffic of one replication, `workload.num_prompts` requests of the whole fleet.

    `rate_scale` multiplies the arrival rate and leaves everything else, draw for draw. `trace` holds the rows that `workload.trace`
    names; more of them than num_prompts gives a stretch that starts at a random row, fewer gives them all.
    Raises InputError for a rate of zero or a trace without rows.
    """
    seed = workload.seed if seed is None else seed
    if trace is not None:
        return _replayed(workload, trace, seed, rate_scale, acceptance_rates)
    if workload.request_rate == 0:
        raise InputError("workload.request_rate is 0, so nothing ever arrives; give a rate above 0, or null with max_concurrency")
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


def draw_classes(rng: np.random.Generator, classes: Sequence[PriorityClass], n: int) -> np.ndarray:
    """Index of each request's priority class, by their shares."""
    if len(classes) < 2:
        return np.zeros(n, dtype=np.int64)
    shares = np.array([c.share for c in classes])
    if shares.sum() <= 0:
        raise InputError("workload.priority_classes have shares that sum to 0; give at least one class a share above 0")
    return rng.choice(len(classes), n, p=shares / shares.sum())


class Source:
    """Hands requests out in order of arrival, and sends what clients send in answer to a finish.

    A session is one client: its next turn follows the end of the last one after a pause. With `max_concurrency` that many clients
    are active at once and the next session starts when one ends, never before it is due; the wait for that is the client's own.
    """

    def __init__(
        self,
        requests: Requests,
        block_size: int = 0,
        max_concurrency: int | None = None,
        priority_classes: Sequence[PriorityClass] = (),
        deadline_s: float | None = None,
        retry_rate: float = 0.0,
        seed: int = 0,
        max_requests: int | None = None,
    ) -> None:
        """`block_size` 0 gives requests no content keys (no prefix cache). At most `max_requests` are ever sent."""
        self.requests = requests
        self.sent = 0
        self.exhausted = False
        """Whether `max_requests` cut the traffic short."""
        self._block_size = block_size if requests.shares_content else 0
        self._clients = max_concurrency or len(requests)
        self._priorities = [c.priority for c in priority_classes] or [0]
        self._patience_s = math.inf if deadline_s is None else deadline_s
        self._retry_rate, self._random = retry_rate, Random(f"{seed} retries")
        self._max_requests = max_requests or 10 * len(requests)
        self._due: list[tuple[float, int, int]] = []  # (time, row, session) of what is known to be sent
        self._active = self._opened = 0  # sessions under way, sessions ever opened
        self._open_next(0.0)

    @property
    def answering(self) -> bool:
        """Whether the end of a request can bring another one: a session's next turn, a closed loop's next client, a retry."""
        sessions = len(self.requests.session_start_s)
        return sessions < len(self.requests) or self._clients < sessions or self._retry_rate > 0

    def peek(self) -> float:
        """Arrival time of the next request known so far, s; infinity when there is none."""
        return self._due[0][0] if self._due else math.inf

    def next(self) -> Request:
        """The request that `peek` announced."""
        arrival_s, row, session = heappop(self._due)
        if row == self.requests.first_row[session] and session == self._opened - 1:
            self._open_next(arrival_s)
        return self._request(arrival_s, row, session)

    def finished(self, request: Request) -> None:
        """A client learns at `request.finish_s` how its request ended, and may send another."""
        columns, now = self.requests, request.finish_s
        if request.status == "finished":
            following = request.row + 1
            if following < columns.first_row[request.session + 1]:
                self._send(now + float(columns.think_s[following]), following, request.session)
                return
        elif request.status == "cancelled" and self._random.random() < self._retry_rate:
            self._send(now, request.row, request.session)
            return
        self._active -= 1
        if self._active == self._clients - 1:
            self._open_next(now)

    def _open_next(self, now: float) -> None:
        """Make the next session known, if a client is free for it."""
        if self._opened < len(self.requests.session_start_s) and self._active < self._clients:
            start_s = max(now, float(self.requests.session_start_s[self._opened]))
            self._active += 1
            self._opened += 1
            self._send(start_s, int(self.requests.first_row[self._opened - 1]), self._opened - 1)

    def _send(self, at_s: float, row: int, session: int) -> None:
        heappush(self._due, (at_s, row, session))

    def _request(self, arrival_s: float, row: int, session: int) -> Request:
        columns = self.requests
        self.sent += 1
        if self.sent >= self._max_requests:
            self.exhausted = bool(self._due)
            self._due.clear()
        priority_class = int(columns.priority_class[row])
        return Request(
            number=self.sent - 1,
            arrival_s=arrival_s,
            input_tokens=int(columns.input_tokens[row]),
            output_tokens=int(columns.output_tokens[row]),
            decode_steps=int(columns.decode_steps[row]),
            thinking_tokens=int(columns.thinking_tokens[row]),
            priority=self._priorities[priority_class],
            priority_class=priority_class,
            keys=columns.keys(row, session, self._block_size) if self._block_size else (),
            session=session,
            row=row,
            deadline_s=arrival_s + self._patience_s,
            truncated=bool(columns.truncated[row]),
        )
