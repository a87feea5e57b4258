"""One replica of a serving engine, simulated step by step.

Each step is planned by a policy (`policies`), priced by `step_time`, and settled: tokens come out, requests end, blocks come free.
The work is O(arrivals + chunks + ends + steps), not O(sequences × steps): see `batch` for how.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import ceil, inf, isnan
from typing import Protocol

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scheduler.batch import DecodeBatch
from planner.scheduler.blocks import allocate, growth_of, publish, refusal, vacate
from planner.scheduler.limits import Limits
from planner.scheduler.log import Log
from planner.scheduler.policies import Chunks, Policy, mixed, static
from planner.scheduler.queue import Queue
from planner.scheduler.timeline import EngineLog
from planner.workload import Request

NEVER = 10**15
"""More steps than any simulation runs."""


class StepTime(Protocol):
    """How long a step takes, s: all that the scheduler knows of GPUs and models."""

    def __call__(self, shape: StepShape) -> float: ...

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float: ...


class Replica:
    """A state machine that a driver feeds: `admit` each request when it arrives, `advance` the steps up to a moment.

    A router may look at `queue_length`, `running_count`, `kv.free_blocks` and `outstanding_tokens`.
    """

    def __init__(
        self,
        step_time: StepTime,
        limits: Limits,
        kv: KvCache,
        policy: Policy = mixed,
        record_steps: bool = True,
        max_steps: int = NEVER,
    ) -> None:
        self.step_time, self.limits, self.kv, self.policy = step_time, limits, kv, policy
        self.max_steps = max_steps
        """Bound on the steps it will ever run; `advance` does nothing beyond it."""
        self.now_s = 0.0
        """Where the next step starts at the earliest."""
        self.outstanding_tokens = 0
        """Prompt and output tokens of the requests it has not ended yet."""
        self.seats = limits.seats
        self.queue = Queue()
        self.running: dict[Request, None] = {}  # in order of admission; each has a seat and KV blocks, and stands in one of:
        self.loading: list[tuple[float, int, Request]] = []  # heap: its prefix is on the way from an offload tier
        self.prefilling: deque[Request] = deque()  # its prompt is under way
        self.starting: list[Request] = []  # its prompt is complete with this step
        self.batch = DecodeBatch(growth_of(limits, kv.block_size), limits.window)  # it decodes
        self.lingering: list[Request] = []  # static batching: ended, but its row runs on until the batch ends
        self._deadlines: list[tuple[float, int, Request]] = []  # heap
        self._ended: list[Request] = []  # not yet handed to the driver
        self._uncached: Chunks = []  # this step's chunks as if nothing had been in the prefix cache
        self._preempted = False  # this step took a preemption
        self._last_start_s = 0.0
        self._log = Log(record_steps)

    # What a driver does.

    def admit(self, request: Request, t: float) -> None:
        """A request reaches the server at `t`. One that can never run here fails at once, with the reason."""
        self.outstanding_tokens += request.input_tokens + request.output_tokens
        request.reason = refusal(self.kv, self.limits, self._cut(request))
        if request.reason:
            self._end(request, "failed", t)
            return
        if request.has_kv and not request.decode_steps:
            self._end(request, "finished", t)
            return
        request.prompt_tokens, request.steps_left = request.input_tokens, request.decode_steps
        self.queue.arrive(request)
        if request.deadline_s < inf:
            heappush(self._deadlines, (request.deadline_s, request.ticket, request))

    def advance(self, until: float) -> list[Request]:
        """Run the steps that start before `until`, but stop after one in which requests end, and return those.

        An empty list means that nothing more starts before `until`. Stopping at every end lets the driver answer it with the next
        arrival before time moves on. Steps are indivisible, so the clock may come to stand behind `until`.
        """
        while not self._ended and self._log.steps < self.max_steps:
            start_s = self.next_start_s()
            if start_s >= until:
                break
            self.now_s = start_s
            if not self._step(until) and not self.loading:
                break
        ended, self._ended = self._ended, []
        return ended

    def next_start_s(self) -> float:
        """When the next step starts if nothing else happens, s; infinity when there is nothing to do."""
        if not self.idle:
            return self.now_s
        if self.loading:
            return max(self.now_s, self.loading[0][0])
        if not len(self.queue):
            return inf
        timeout_s, missing = self.limits.static_timeout_s, self.seats - self.queue.waiting
        if timeout_s and missing > len(self.queue.arriving):
            return max(self.now_s, min(r.arrival_s for r in self.queue) + timeout_s)
        if timeout_s and missing > 0:
            return max(self.now_s, self.queue.arriving[missing - 1].arrival_s)
        return self.now_s if self.queue.waiting else max(self.now_s, self.queue.arriving[0].arrival_s)

    def free(self, request: Request, t: float) -> None:
        """Give back, at `t`, the KV of a finished request that `keeps_kv`."""
        if self.idle:
            self.now_s = max(self.now_s, t)
        vacate(self.kv, request, self.now_s)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute: no sequence decodes and no prompt is under way."""
        return not self.batch.sequences and not self.prefilling

    @property
    def steps(self) -> int:
        """Steps run so far."""
        return self._log.steps

    @property
    def queue_length(self) -> int:
        """Requests without a seat."""
        return len(self.queue)

    @property
    def running_count(self) -> int:
        """Requests with a seat."""
        return len(self.running)

    @property
    def unfinished(self) -> list[Request]:
        """Requests that have not ended."""
        return [*self.running, *self.queue]

    def log(self) -> EngineLog:
        """Sums, and records if kept, over the steps so far."""
        return self._log.engine(self.kv, self.seats, self.now_s)

    # One step.

    def _step(self, until: float) -> bool:
        """Plan, and run what was planned. False when there is nothing to run, and planning again would not change that."""
        self._see_arrivals()
        self._preempted = False
        decodes, chunks = self.policy(self)
        if chunks:
            self._compute(self.batch.sequences if decodes else 0, chunks)
        elif self.batch.sequences:
            self._decode(self.now_s if self._preempted else until)
        else:
            return self._preempted
        if self._deadlines:
            self._give_up()
        self._keep_appointments()
        self._emit_first_tokens()
        return True

    def _see_arrivals(self) -> None:
        """Bring the queue up to date. With asynchronous scheduling it holds what came before the step now ending began."""
        self.queue.see(self._last_start_s if self.limits.async_scheduling and not self.idle else self.now_s)
        while self.loading and self.loading[0][0] <= self.now_s:
            self.prefilling.append(heappop(self.loading)[2])
        if self._deadlines:
            self._give_up()
        while (head := self.queue.head()) and head.has_kv and self.free_seats > 0 and self._seat(head):
            head.emitted_tokens = 1
            self.batch.start(head, head.first_token_s)

    def _compute(self, rows: int, chunks: Chunks) -> None:
        """One step that carries prompt chunks beside `rows` decoding sequences.

        Its time is split for the price: what it would take without the chunks is output's, the rest input's, and of that rest cached
        input's share is the extra time for re-reading the prefixes found in the cache.
        """
        batch, log, step_time = self.batch, self._log, self.step_time
        context, windowed = (batch.context_tokens, batch.windowed_context_tokens) if rows else (0, 0)
        drafts = rows * self.limits.num_speculative_tokens
        shape = StepShape(rows, context, windowed, tuple(chunks), rows + len(self.starting), drafts)
        seconds = step_time(shape)
        output_s = step_time.decode(rows, context, windowed) if rows else 0.0
        cached_s = seconds - step_time(shape._replace(chunks=tuple(self._uncached))) if chunks != self._uncached else 0.0
        log.output_busy_s += output_s
        log.cached_busy_s += cached_s
        log.input_busy_s += seconds - output_s - cached_s
        self._last_start_s = self.now_s
        self.now_s += seconds
        used_blocks = self.kv.used_blocks
        log.kv_block_s += used_blocks * seconds
        log.kv_token_s += (batch.context_tokens + sum(r.computed_tokens for r in (*self.prefilling, *self.starting))) * seconds
        log.alike(1, rows, len(self.lingering) if rows else 0, sum(new for new, _ in chunks), self.queue.waiting)
        if log.recording:
            log.end_s.append(self.now_s)
            log.seconds.append(seconds)
            log.kv_used_blocks.append(used_blocks)
        if rows:
            batch.clock += 1
            batch.context_tokens += batch.tokens_per_step
            batch.windowed_context_tokens += batch.windowed_tokens_per_step

    def _decode(self, until: float) -> None:
        """Steps that only decode. The plan stays what it is until something happens, so they run on, touching no request, until an
        appointment, an arrival to see, a deadline, the end of a fetch, a want of blocks, or `until`. (A step that took a preemption
        admits nobody, so the one after it needs a plan of its own.)"""
        batch, kv, log = self.batch, self.kv, self._log
        sequences, tokens_per_step, windowed_per_step = batch.sequences, batch.tokens_per_step, batch.windowed_tokens_per_step
        context, windowed, clock = batch.context_tokens, batch.windowed_context_tokens, batch.clock
        decode, due_at, appointments = self.step_time.decode, batch.growth.due, batch.appointments
        recording, add_end, add_seconds, add_used = log.recording, log.end_s.append, log.seconds.append, log.kv_used_blocks.append
        now_s, used_blocks, lag = self.now_s, kv.used_blocks, self.limits.async_scheduling
        arrival_s = self.queue.arriving[0].arrival_s if self.queue.arriving else inf
        until = min([until, *(heap[0][0] for heap in (self.loading, self._deadlines) if heap)])
        output_s = block_s = token_s = 0.0
        for _ in range(self.max_steps - log.steps):
            start_s = now_s
            seconds = decode(sequences, context, windowed)
            now_s += seconds
            output_s += seconds
            block_s += used_blocks * seconds
            token_s += context * seconds
            if recording:
                add_end(now_s)
                add_seconds(seconds)
                add_used(used_blocks)
            clock += 1
            context += tokens_per_step
            windowed += windowed_per_step
            if clock in appointments or now_s >= until or (start_s if lag else now_s) >= arrival_s:
                break
            due = due_at(clock)
            if due:
                if due > kv.free_blocks:
                    break
                kv.take(due)
                batch.growth.took(due)
                used_blocks += due
        log.output_busy_s += output_s
        log.kv_block_s += block_s
        log.kv_token_s += token_s
        log.alike(clock - batch.clock, sequences, len(self.lingering), 0, self.queue.waiting)
        batch.clock, batch.context_tokens, batch.windowed_context_tokens = clock, context, windowed
        self.now_s, self._last_start_s = now_s, start_s

    def _keep_appointments(self) -> None:
        for occasion, request in self.batch.appointments.pop(self.batch.clock, ()):
            if occasion == "window":
                self.batch.fill_window(request)
            elif occasion == "answer":
                request.answer_s = self.now_s
            else:
                self._finish(request)

    def _emit_first_tokens(self) -> None:
        starting, self.starting = self.starting, []
        for request in starting:
            request.emitted_tokens += 1
            if isnan(request.first_token_s):
                request.first_token_s = self.now_s
            if isnan(request.answer_s) and request.emitted_tokens > request.thinking_tokens:
                request.answer_s = self.now_s
            if request.steps_left:
                self.batch.start(request, self.now_s)
            else:
                request.start_clock, request.run_start_s = self.batch.clock, self.now_s
                self._log.run(request, self.batch.clock)
                request.start_clock = -1
                self._finish(request)

    # What a policy does.

    @property
    def free_seats(self) -> int:
        """Sequences that may still join."""
        return self.seats - len(self.running) - len(self.lingering)

    def make_room(self) -> bool:
        """Give every decoding sequence the block its next token may need. False when that took a preemption."""
        growth, clock = self.batch.growth, self.batch.clock
        due = growth.due(clock)
        while due > self.kv.free_blocks:
            self._preempt(self._newest())
            self._preempted = True
            due = growth.due(clock)
        if due:
            self.kv.take(due)
            growth.took(due)
        return not self._preempted

    def seat(self, seats: int) -> None:
        """Admit up to `seats` waiting requests while their prompts fit into KV."""
        while seats > 0 and self._seat_head():
            seats -= 1

    def prefill(self, budget: int, seats: int) -> Chunks:
        """Chunks of prompts for this step, at most `budget` tokens: those under way, then those of newly seated requests.

        Without chunked prefill a prompt is computed whole, and one over the budget in a step without other prompts.
        """
        chunks: Chunks = []
        self._uncached = []
        whole = not self.limits.enable_chunked_prefill
        while budget > 0:
            longest = budget if whole and chunks else inf
            if not self.prefilling:
                if seats <= 0 or not self._seat_head(longest):
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
            self._uncached.append((new, cached - request.reused_tokens))
            request.computed_tokens += new
            if request.keys:
                publish(self.kv, request, self.now_s)
            if request.computed_tokens == request.prompt_tokens:
                self.starting.append(self.prefilling.popleft())
        return chunks

    # What happens to a request.

    def _cut(self, request: Request) -> Request:
        """Shorten an output that would overrun max_model_len."""
        room = (self.limits.max_model_len or NEVER) - request.input_tokens
        if 0 < room < request.output_tokens:
            if request.decode_steps:
                request.decode_steps = ceil(request.decode_steps * (room - 1) / (request.output_tokens - 1))
            self.outstanding_tokens -= request.output_tokens - room
            request.output_tokens, request.truncated = room, True
            request.thinking_tokens = min(request.thinking_tokens, room - 1)
        return request

    def _seat_head(self, longest: float = inf) -> bool:
        """Seat the head of the queue if its KV fits and at most `longest` tokens of it are to compute."""
        request = self.queue.head()
        return request is not None and not request.has_kv and self._seat(request, longest)

    def _seat(self, request: Request, longest: float = inf) -> bool:
        fetch_s = allocate(self.kv, self.limits, request, self.now_s, longest)
        if fetch_s is None:
            return False
        self.queue.pop()
        self.running[request] = None
        request.status = "running"
        if isnan(request.scheduled_s):
            request.scheduled_s, request.cached_tokens = self.now_s, request.reused_tokens
        if fetch_s:
            heappush(self.loading, (self.now_s + fetch_s, request.ticket, request))
        elif not request.has_kv:
            self.prefilling.append(request)
        return True

    def _newest(self) -> Request:
        """Whom to preempt: of the lowest class, the one that came last."""
        if len(self.queue.priorities) == 1:
            return next(reversed(self.running))
        return max(self.running, key=lambda request: (request.priority, request.ticket))

    def _preempt(self, request: Request) -> None:
        """Take all blocks of a running request; it will compute its prompt, and what it has emitted, again."""
        if self._unseat(request):
            # The prefill that brings it back emits a token, and so stands for a decode step.
            request.prompt_tokens = request.input_tokens + round(request.emitted_tokens)
            request.steps_left -= 1
        request.has_kv = False
        request.preemptions += 1
        request.status = "waiting"
        self.queue.put_back(request)

    def _unseat(self, request: Request) -> bool:
        """Take a running request off its seat, wherever it stands; whether it was decoding."""
        del self.running[request]
        decoding = request.start_clock >= 0
        if decoding:
            self._log.run(request, self.batch.clock)
            self.batch.stop(request)
            self.batch.remove(request)
        elif request in self.prefilling:
            self.prefilling.remove(request)
        elif request in self.starting:
            self.starting.remove(request)
        else:
            self.loading = [entry for entry in self.loading if entry[2] is not request]
            heapify(self.loading)
        vacate(self.kv, request, self.now_s)
        self._end_static_batch()
        return decoding

    def _finish(self, request: Request) -> None:
        """Its last token is out."""
        del self.running[request]
        self._end(request, "finished", self.now_s)
        decoding = request.start_clock >= 0
        if decoding:
            self._log.run(request, self.batch.clock)
            self.batch.stop(request)
        if decoding and self.policy is static:
            self.lingering.append(request)
        else:
            if decoding:
                self.batch.remove(request)
            if not request.keeps_kv:
                vacate(self.kv, request, self.now_s)
        self._end_static_batch()

    def _end_static_batch(self) -> None:
        """A static batch gives its rows and its KV back when its last member has ended."""
        if not self.running:
            for request in self.lingering:
                self.batch.remove(request)
                if not request.keeps_kv:
                    vacate(self.kv, request, self.now_s)
            self.lingering.clear()

    def _give_up(self) -> None:
        """Cancel what its client gave up on before now."""
        while self._deadlines and self._deadlines[0][0] < self.now_s:
            deadline_s, _, request = heappop(self._deadlines)
            if request.status == "running":
                self._unseat(request)
                self._end(request, "cancelled", deadline_s)
            elif request.status == "waiting":
                self._end(request, "cancelled", deadline_s)
                self.queue.cancel(request)

    def _end(self, request: Request, status: str, t: float) -> None:
        request.status, request.finish_s = status, t
        self.outstanding_tokens -= request.input_tokens + request.output_tokens
        self._ended.append(request)
