"""One replica of a serving engine, simulated step by step.

The trick that makes plain Python enough: a *decode clock* that counts decode steps, and *calendars* keyed by it. Once a sequence
decodes, the decode step at which it ends is known, so are the one that emits its first token after thinking and the one that fills
its attention window. A decode step therefore touches no sequence: it adds what they all grow by to the summed context, asks
`step_time` how long that takes, and looks up who has an appointment. Blocks are counted the same way (`growth`). The work is
O(arrivals + chunks + finishes + steps), not O(sequences × steps).
"""

from __future__ import annotations

from array import array
from collections import deque
from heapq import heapify, heappop, heappush
from math import ceil, inf, isnan
from typing import Protocol

import numpy as np

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scheduler.growth import Growth, MeanGrowth, NoGrowth, PagedGrowth
from planner.scheduler.limits import Limits
from planner.scheduler.policies import Chunks, Policy, mixed, static
from planner.scheduler.timeline import EngineLog, StepRecords
from planner.workload import Request

Calendar = dict[int, list[Request]]
"""Decode clock → requests with an appointment then."""


class StepTime(Protocol):
    """How long a step takes, s: all the scheduler knows of GPUs and models."""

    def __call__(self, shape: StepShape) -> float: ...

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float: ...


class Replica:
    """A state machine that a driver feeds: `admit` a request when it arrives, `advance` the steps up to a moment.

    For a router: `queue_length`, `running_count`, `kv.free_blocks` and `outstanding_tokens` say how loaded it is.
    """

    def __init__(
        self, step_time: StepTime, limits: Limits, kv: KvCache, policy: Policy = mixed, record_steps: bool = True, max_steps: float = inf
    ) -> None:
        self.step_time, self.limits, self.kv, self.policy = step_time, limits, kv, policy
        self.max_steps = max_steps
        """Bound on the steps it will ever run; beyond it `advance` does nothing."""
        self.now_s = 0.0
        self.outstanding_tokens = 0
        """Prompt and output tokens of all requests it has not ended yet."""

        self.arriving: deque[Request] = deque()  # in order of arrival, not seen by the scheduler yet
        self.waiting: list[tuple[int, int, Request]] = []  # heap: lowest priority number first, then first come
        self.running: dict[Request, None] = {}  # in order of admission: holds a seat and KV blocks
        self.loading: list[tuple[float, int, Request]] = []  # heap: seated, its prefix on the way from an offload tier
        self.prefilling: deque[Request] = deque()  # seated, prompt under way
        self.starting: list[Request] = []  # prompt complete with this step
        self.lingering: list[Request] = []  # static: ended, but its row runs on until the batch ends
        self.ended: list[Request] = []  # not yet handed to the driver

        self.clock = 0  # decode steps so far
        self.finishing: Calendar = {}
        self.answering: Calendar = {}
        self.filling_window: Calendar = {}
        self.deadlines: list[tuple[float, int, Request]] = []  # heap

        self.decode_sequences = 0  # rows of the next decode step
        self.context_tokens: float = 0  # Σ over them of tokens attended to, each one's new token included
        self.windowed_context_tokens: float = 0  # Σ min(that, window)
        self.tokens_per_step: float = 0  # what a decode step adds to the first sum
        self.windowed_tokens_per_step: float = 0  # and to the second
        self.prefilled_tokens: float = 0  # tokens in KV of prompts under way
        self.growth: Growth = self._growth()

        self._static = policy is static
        self._tickets = 0
        self._stale = 0  # cancelled requests still on the waiting heap
        self._ranks: set[int] = set()  # priorities seen
        self._last_start_s = 0.0
        self._bare: Chunks = []  # this step's chunks as if nothing had been found in the prefix cache
        self._log = _Log(record_steps)

    # ---- the driver's side

    def admit(self, request: Request, t: float) -> None:
        """A request reaches the server at `t`. One that can never run fails at once, with the reason."""
        request.ticket, self._tickets = self._tickets, self._tickets + 1
        self._ranks.add(request.priority)
        self._cut(request)
        self.outstanding_tokens += request.input_tokens + request.output_tokens
        request.reason = self._refusal(request)
        if request.reason:
            self._end(request, "failed", t)
            return
        request.prompt_tokens = request.input_tokens
        request.steps_left = request.decode_steps
        self.arriving.append(request)
        if request.deadline_s < inf:
            heappush(self.deadlines, (request.deadline_s, request.ticket, request))

    def advance(self, until: float) -> list[Request]:
        """Run the steps that start before `until`, but stop after one in which requests end, and return those.

        An empty list means that nothing more starts before `until`. Stopping at every end lets a driver answer with the next
        arrival before time moves on. Steps are not divisible: the clock may come to stand behind `until`.
        """
        while not self.ended and self._log.steps < self.max_steps:
            start_s = self.next_start_s()
            if start_s >= until:
                break
            self.now_s = start_s
            if not self._step() and not self.loading:
                break
        ended, self.ended = self.ended, []
        return ended

    def next_start_s(self) -> float:
        """When the next step starts if nothing else arrives, s; infinity when there is nothing to do."""
        if not self.idle:
            return self.now_s
        seats_open = self.limits.seats - len(self.waiting)
        if self.loading and self.loading[0][0] > self.now_s:
            return self.loading[0][0]
        if not self.waiting and not self.arriving:
            return inf
        if self.limits.static_timeout_s and seats_open > len(self.arriving):
            oldest_s = min(r.arrival_s for r in [*self.arriving, *(w[-1] for w in self.waiting)])
            return max(self.now_s, oldest_s + self.limits.static_timeout_s)
        if self.limits.static_timeout_s and seats_open > 0:
            return max(self.now_s, self.arriving[seats_open - 1].arrival_s)
        return self.now_s if self.waiting else max(self.now_s, self.arriving[0].arrival_s)

    def free(self, request: Request, t: float) -> None:
        """Give back the KV of a finished request that `keeps_kv`, at `t`."""
        self.now_s = max(self.now_s, t) if self.idle else self.now_s
        self._vacate(request)

    @property
    def idle(self) -> bool:
        """Whether no sequence has anything to compute: nothing decodes and no prompt is under way."""
        return not self.decode_sequences and not self.prefilling

    @property
    def queue_length(self) -> int:
        """Requests without a seat."""
        return len(self.arriving) + len(self.waiting) - self._stale

    @property
    def running_count(self) -> int:
        """Requests with a seat."""
        return len(self.running)

    @property
    def steps(self) -> int:
        """Steps run so far."""
        return self._log.steps

    @property
    def free_seats(self) -> int:
        return self.limits.seats - len(self.running) - len(self.lingering)

    def unfinished(self) -> list[Request]:
        """Requests that the replica still has."""
        queued = [r for *_, r in self.waiting if r.status != "cancelled"]
        return [*self.running, *self.arriving, *queued]

    def log(self) -> EngineLog:
        """Sums, and records if kept, over the steps so far."""
        return self._log.engine(self)

    # ---- one step

    def _step(self) -> bool:
        """Plan a step, let its time pass, settle what it brought. False when there was nothing to run."""
        self._see_arrivals()
        decodes, chunks = self.policy(self)
        rows = self.decode_sequences if decodes else 0
        if not chunks and not rows:
            return False
        seconds = self._seconds(rows, chunks)
        self._last_start_s = self.now_s
        self.now_s += seconds
        self._log.step(self, rows, chunks, seconds)
        if self.deadlines:
            self._give_up()
        if rows:
            self._tick()
        if self.starting:
            self._emit_first_tokens()
        return True

    def _see_arrivals(self) -> None:
        """Move to the queue what the scheduler knows of: with asynchronous scheduling, what came before the last step began."""
        horizon_s = self._last_start_s if self.limits.async_scheduling and not self.idle else self.now_s
        while self.arriving and self.arriving[0].arrival_s <= horizon_s:
            self._enqueue(self.arriving.popleft())
        while self.loading and self.loading[0][0] <= self.now_s:
            self.prefilling.append(heappop(self.loading)[-1])
        if self.deadlines:
            self._give_up()
        while self.waiting and self.waiting[0][-1].has_kv and self.free_seats > 0 and self._allocate(self.waiting[0][-1]):
            self._start_decoding(heappop(self.waiting)[-1])

    def _seconds(self, rows: int, chunks: Chunks) -> float:
        """Time of the step, booked: what it would take without its chunks to output, the rest to input, cached or not."""
        log, context, windowed = self._log, self.context_tokens, self.windowed_context_tokens
        if not chunks:
            seconds = self.step_time.decode(rows, context, windowed)
            log.output_busy_s += seconds
            return seconds
        if not rows:
            context = windowed = 0
        drafts = rows * self.limits.num_speculative_tokens
        shape = StepShape(rows, context, windowed, tuple(chunks), rows + len(self.starting), drafts)
        seconds = self.step_time(shape)
        output_s = self.step_time.decode(rows, context, windowed) if rows else 0.0
        cached_s = seconds - self.step_time(shape._replace(chunks=tuple(self._bare))) if chunks != self._bare else 0.0
        log.output_busy_s += output_s
        log.cached_busy_s += cached_s
        log.input_busy_s += seconds - output_s - cached_s
        return seconds

    def _tick(self) -> None:
        """One decode step is over: every sequence has grown, and some have an appointment."""
        self.clock += 1
        self.context_tokens += self.tokens_per_step
        self.windowed_context_tokens += self.windowed_tokens_per_step
        if self.filling_window:
            for request in self.filling_window.pop(self.clock, ()):
                self._fill_window(request)
        if self.answering:
            for request in self.answering.pop(self.clock, ()):
                request.answer_s = self.now_s
        if self.clock in self.finishing:
            for request in self.finishing.pop(self.clock):
                self._finish(request)

    def _emit_first_tokens(self) -> None:
        starting, self.starting = self.starting, []
        for request in starting:
            request.emitted_tokens += 1
            if isnan(request.first_token_s):
                request.first_token_s = self.now_s
            if isnan(request.answer_s) and request.emitted_tokens > request.thinking_tokens:
                request.answer_s = self.now_s
            self.prefilled_tokens -= request.prompt_tokens
            if request.steps_left:
                self._start_decoding(request)
            else:
                request.start_clock, request.run_start_s = self.clock, self.now_s
                self._log.run(request, self.clock)
                request.start_clock = -1
                self._finish(request)

    # ---- verbs of the policies

    def make_room(self) -> bool:
        """Give every decoding sequence the block its next token may need. False when that took a preemption."""
        due, preempted = self.growth.due(self.clock), False
        while due > self.kv.free_blocks:
            self._preempt(self._newest())
            due, preempted = self.growth.due(self.clock), True
        if due:
            self.kv.take(due)
            self.growth.took(due)
        return not preempted

    def prefill(self, budget: int, seats: int) -> Chunks:
        """Chunks of prompts for this step, at most `budget` tokens: those under way, then newly seated ones.

        Without chunked prefill a prompt is computed whole, and one over the budget gets a step without other prompts.
        """
        chunks: Chunks = []
        bare: Chunks = []
        whole = not self.limits.enable_chunked_prefill
        while budget > 0:
            longest = budget if whole and chunks else inf
            if not self.prefilling:
                if seats <= 0 or not self._seat_next(longest):
                    break
                seats -= 1
                continue
            request = self.prefilling[0]
            cached = int(request.computed_tokens)
            new = request.prompt_tokens - cached
            if new > longest:
                break
            new = new if whole else min(new, budget)
            budget -= new
            chunks.append((new, cached))
            bare.append((new, cached - request.reused_tokens))
            self._compute(request, new)
        self._bare = bare
        return chunks

    def seat(self, seats: int) -> None:
        """Admit up to `seats` waiting requests while they fit."""
        while seats > 0 and self._seat_next():
            seats -= 1

    # ---- requests on their way

    def _cut(self, request: Request) -> None:
        """Shorten an output that would overrun max_model_len."""
        limit = self.limits.max_model_len
        if limit is None or request.input_tokens + request.output_tokens <= limit or request.input_tokens >= limit:
            return
        output = limit - request.input_tokens
        if request.decode_steps:
            request.decode_steps = ceil(request.decode_steps * (output - 1) / (request.output_tokens - 1))
        request.output_tokens, request.truncated = output, True
        request.thinking_tokens = min(request.thinking_tokens, output - 1)

    def _refusal(self, request: Request) -> str:
        """Why the request can never run here, or nothing."""
        limit = self.limits.max_model_len
        if limit is not None and request.input_tokens >= limit:
            return f"a prompt of {request.input_tokens} tokens leaves no room for output within max_model_len {limit}"
        if self._most_blocks(request) > self.kv.total_blocks:
            return f"a request of {request.input_tokens + request.output_tokens} tokens needs {self._most_blocks(request)} KV blocks, the pool has {self.kv.total_blocks}"
        return ""

    def _most_blocks(self, request: Request) -> int:
        """Blocks it holds just before it ends."""
        last_token_unwritten = request.input_tokens + request.output_tokens - 1
        return self._blocks_at_admission(request, last_token_unwritten)

    def _blocks_at_admission(self, request: Request, prompt_tokens: int) -> int:
        if self.limits.contiguous:
            return self.kv.blocks(self.limits.reserved_tokens(request.input_tokens, request.output_tokens))
        return self.kv.blocks(prompt_tokens + self.limits.num_speculative_tokens)

    def _enqueue(self, request: Request) -> None:
        if request.status != "cancelled":
            heappush(self.waiting, (request.priority, request.ticket, request))

    def _seat_next(self, longest: float = inf) -> bool:
        """Admit the head of the queue if its KV fits and no more than `longest` tokens of its prompt are to compute."""
        while self.waiting and self.waiting[0][-1].status == "cancelled":
            heappop(self.waiting)
            self._stale -= 1
        if not self.waiting or self.waiting[0][-1].has_kv:
            return False
        request = self.waiting[0][-1]
        if not self._allocate(request, longest):
            return False
        heappop(self.waiting)
        return True

    def _allocate(self, request: Request, longest: float = inf) -> bool:
        """Take the KV blocks of the whole prompt, sharing what the prefix cache holds of it, and give the request its seat."""
        kv = self.kv
        blocks = self._blocks_at_admission(request, request.prompt_tokens)
        if request.has_kv:
            hits, reused = 0, request.prompt_tokens
        elif request.keys:
            # The last token is always computed: its output is wanted.
            prompt_keys = request.keys[: (request.prompt_tokens - 1) // kv.block_size]
            hits = kv.match(prompt_keys, self.now_s)
            reused = hits * kv.block_size
        else:
            hits = reused = 0
        if request.prompt_tokens - reused > longest:
            return False
        held = request.keys[:hits]
        if blocks - hits + (kv.cost(held) if hits else 0) > kv.free_blocks:
            return False
        fetch_s = 0.0
        if hits:
            fetch_s = kv.fetch_s(held)
            kv.hold(held, self.now_s)
        kv.take(blocks - hits)
        request.blocks, request.published = blocks, hits
        request.computed_tokens = request.reused_tokens = reused
        if isnan(request.scheduled_s):
            request.scheduled_s, request.cached_tokens = self.now_s, reused
        request.status = "running"
        self.running[request] = None
        self.prefilled_tokens += reused
        if request.has_kv:
            self.prefilled_tokens -= reused
            request.emitted_tokens = 1
        elif fetch_s:
            heappush(self.loading, (self.now_s + fetch_s, request.ticket, request))
        else:
            self.prefilling.append(request)
        return True

    def _compute(self, request: Request, new: int) -> None:
        """Put `new` more tokens of the prompt at the head of `prefilling` into this step."""
        request.computed_tokens += new
        self.prefilled_tokens += new
        if request.keys:
            self._publish(request)
        if request.computed_tokens == request.prompt_tokens:
            self.starting.append(self.prefilling.popleft())

    def _start_decoding(self, request: Request) -> None:
        """Enter a decode run: from here to its end only the sums and the calendars know of the request."""
        tokens_left = request.output_tokens - request.emitted_tokens
        grows = 1 if tokens_left == request.steps_left else tokens_left / request.steps_left
        request.tokens_per_step, request.start_clock = grows, self.clock
        request.run_start_s = request.first_token_s if request.has_kv else self.now_s
        self.decode_sequences += 1
        self.tokens_per_step += grows
        context = request.prompt_tokens + 1
        self.context_tokens += context
        self.growth.start(request, self.clock)
        request.finish_clock = self.clock + request.steps_left
        self.finishing.setdefault(request.finish_clock, []).append(request)
        request.answer_clock = request.window_clock = 0
        if isnan(request.answer_s):
            request.answer_clock = self.clock + ceil((request.thinking_tokens + 1 - request.emitted_tokens) / grows)
            self.answering.setdefault(request.answer_clock, []).append(request)
        window = self.limits.window
        if window is not None:
            self.windowed_context_tokens += min(context, window)
            if context < window:
                self.windowed_tokens_per_step += grows
                request.window_clock = self.clock + ceil((window - context) / grows)
                self.filling_window.setdefault(request.window_clock, []).append(request)

    def _fill_window(self, request: Request) -> None:
        """Its context has reached the window: from here the windowed layers read no more."""
        steps = request.window_clock - request.start_clock
        overshoot = request.prompt_tokens + 1 + steps * request.tokens_per_step - self.limits.window
        self.windowed_context_tokens -= overshoot
        self.windowed_tokens_per_step -= request.tokens_per_step
        request.window_clock = 0

    def _stop_decoding(self, request: Request) -> None:
        """Leave the decode run: bring the request up to date, and take back its growth and its appointments."""
        steps = self.clock - request.start_clock
        grown = steps * request.tokens_per_step
        request.computed_tokens = request.prompt_tokens + grown
        request.emitted_tokens += grown
        request.steps_left -= steps
        request.blocks += self.growth.stop(request, self.clock)
        self.tokens_per_step -= request.tokens_per_step
        if request.window_clock:
            self.windowed_tokens_per_step -= request.tokens_per_step
            if request.window_clock > self.clock:
                self.filling_window[request.window_clock].remove(request)
        if request.answer_clock > self.clock:
            self.answering[request.answer_clock].remove(request)
        if request.finish_clock > self.clock:
            self.finishing[request.finish_clock].remove(request)
        self._log.run(request, self.clock)
        request.start_clock = -1

    def _leave_batch(self, request: Request) -> None:
        """Take the row of a request that decodes no more out of the sums."""
        context = request.computed_tokens + 1
        self.decode_sequences -= 1
        self.context_tokens -= context
        if self.limits.window is not None:
            self.windowed_context_tokens -= min(context, self.limits.window)
        if not self.decode_sequences:  # leave no rounding behind
            self.context_tokens = self.windowed_context_tokens = self.tokens_per_step = self.windowed_tokens_per_step = 0

    def _finish(self, request: Request) -> None:
        """Its last token is out."""
        decoded = request.start_clock >= 0
        if decoded:
            self._stop_decoding(request)
        del self.running[request]
        self._end(request, "finished", self.now_s)
        if self._static and decoded:
            self.lingering.append(request)
        else:
            if decoded:
                self._leave_batch(request)
            if not request.keeps_kv:
                self._vacate(request)
        self._end_static_batch()

    def _end_static_batch(self) -> None:
        """A static batch gives its rows and its KV back when its last member has ended."""
        if self.running or not self.lingering:
            return
        for request in self.lingering:
            self._leave_batch(request)
            if not request.keeps_kv:
                self._vacate(request)
        self.lingering.clear()

    def _withdraw(self, request: Request) -> None:
        """Take a seated request off its seat, wherever it stands."""
        del self.running[request]
        if request.start_clock >= 0:
            self._stop_decoding(request)
            self._leave_batch(request)
        else:
            self.prefilled_tokens -= request.computed_tokens
            if request in self.prefilling:
                self.prefilling.remove(request)
            elif request in self.starting:
                self.starting.remove(request)
            else:
                self.loading = [entry for entry in self.loading if entry[-1] is not request]
                heapify(self.loading)
        self._vacate(request)

    def _newest(self) -> Request:
        """Whom to preempt: the last come of the lowest class."""
        if len(self._ranks) == 1:
            return next(reversed(self.running))
        return max(self.running, key=lambda r: (r.priority, r.ticket))

    def _preempt(self, request: Request) -> None:
        """Take all blocks of a running request; it will compute its prompt and what it has emitted again."""
        decoded = request.start_clock >= 0
        self._withdraw(request)
        if decoded:
            # The prefill that brings it back emits a token, and so stands for a decode step.
            request.prompt_tokens = request.input_tokens + round(request.emitted_tokens)
            request.steps_left -= 1
        request.has_kv = False
        request.preemptions += 1
        request.status = "waiting"
        self._enqueue(request)
        self._end_static_batch()

    def _give_up(self) -> None:
        """Cancel what its client has given up on before now."""
        while self.deadlines and self.deadlines[0][0] < self.now_s:
            deadline_s, _, request = heappop(self.deadlines)
            if request.status == "running":
                self._withdraw(request)
                self._end(request, "cancelled", deadline_s)
                self._end_static_batch()
            elif request.status == "waiting":
                self._stale += request not in self.arriving
                self._end(request, "cancelled", deadline_s)

    def _end(self, request: Request, status: str, t: float) -> None:
        request.status, request.finish_s = status, t
        self.outstanding_tokens -= request.input_tokens + request.output_tokens
        self.ended.append(request)

    # ---- KV blocks

    def _publish(self, request: Request) -> None:
        """Name the blocks that are full, for others to find."""
        full = min(len(request.keys), int(request.computed_tokens) // self.kv.block_size, request.blocks)
        if full > request.published:
            self.kv.publish(request.keys[request.published : full], self.now_s)
            request.published = full

    def _vacate(self, request: Request) -> None:
        """Give back every block; the named ones stay readable until they are evicted."""
        if request.keys:
            self._publish(request)
            self.kv.release(request.keys[: request.published], self.now_s)
        self.kv.give(request.blocks - request.published)
        request.blocks = request.published = 0

    def _growth(self) -> Growth:
        if self.limits.contiguous:
            return NoGrowth()
        return MeanGrowth(self.kv.block_size) if self.limits.num_speculative_tokens else PagedGrowth(self.kv.block_size)


class _Log:
    """Sums over steps, and their records as flat arrays when asked for."""

    def __init__(self, record_steps: bool) -> None:
        self.steps = self.decode_steps = self.decode_rows = self.padding_rows = 0
        self.output_busy_s = self.input_busy_s = self.cached_busy_s = 0.0
        self.kv_block_s = self.kv_token_s = 0.0
        self.records = record_steps
        self.end_s, self.seconds, self.run_start_s = array("d"), array("f"), array("d")
        self.decode_sequences, self.chunk_tokens, self.kv_used_blocks, self.waiting = (array("i") for _ in range(4))
        self.run_number, self.run_first, self.run_last = (array("q") for _ in range(3))

    def step(self, replica: Replica, rows: int, chunks: Chunks, seconds: float) -> None:
        used_blocks = replica.kv.total_blocks - replica.kv.free_blocks
        self.steps += 1
        self.decode_rows += rows
        self.kv_block_s += used_blocks * seconds
        self.kv_token_s += (replica.context_tokens + replica.prefilled_tokens) * seconds
        if rows:
            self.decode_steps += 1
            self.padding_rows += len(replica.lingering)
        if self.records:
            self.end_s.append(replica.now_s)
            self.seconds.append(seconds)
            self.decode_sequences.append(rows)
            self.chunk_tokens.append(sum([new for new, _ in chunks]) if chunks else 0)
            self.kv_used_blocks.append(used_blocks)
            self.waiting.append(len(replica.waiting))

    def run(self, request: Request, clock: int) -> None:
        if self.records:
            self.run_number.append(request.number)
            self.run_first.append(request.start_clock)
            self.run_last.append(clock)
            self.run_start_s.append(request.run_start_s)

    def engine(self, replica: Replica) -> EngineLog:
        records = None
        if self.records:
            records = StepRecords(
                end_s=np.array(self.end_s),
                seconds=np.array(self.seconds),
                decode_sequences=np.array(self.decode_sequences),
                chunk_tokens=np.array(self.chunk_tokens),
                kv_used_blocks=np.array(self.kv_used_blocks),
                waiting=np.array(self.waiting),
                run_number=np.array(self.run_number),
                run_first=np.array(self.run_first),
                run_last=np.array(self.run_last),
                run_start_s=np.array(self.run_start_s),
            )
        return EngineLog(
            steps=self.steps,
            decode_steps=self.decode_steps,
            decode_rows=self.decode_rows,
            padding_rows=self.padding_rows,
            output_busy_s=self.output_busy_s,
            input_busy_s=self.input_busy_s,
            cached_busy_s=self.cached_busy_s,
            kv_block_s=self.kv_block_s,
            kv_token_s=self.kv_token_s,
            total_blocks=replica.kv.total_blocks,
            block_size=replica.kv.block_size,
            end_s=replica.now_s,
            records=records,
        )
