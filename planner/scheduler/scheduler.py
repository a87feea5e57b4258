"""Who is where: the queue, the seats and the KV blocks of one replica, and what a step changes about them.

A request waits in the `queue`, then takes a seat and KV blocks and stands in exactly one of `loading`, `prefilling`, `starting` and the
decode `batch` until it ends or is preempted. Policies plan steps with `make_room`, `seat` and `prefill`; the replica prices the step and
then calls `settle`.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import ceil, inf, isnan

from planner.kv_cache import KvCache
from planner.scheduler.batch import DecodeBatch
from planner.scheduler.blocks import allocate, growth_of, publish, refusal, vacate
from planner.scheduler.limits import Limits
from planner.scheduler.log import Log
from planner.scheduler.queue import Queue
from planner.workload import Request

Chunks = list[tuple[int, int]]
"""(new, cached) tokens of each prompt in a step: what it computes now, and what it finds computed."""

UNLIMITED = 10**15
"""More tokens than any sequence has."""


class Scheduler:
    """The state that policies plan with. `now_s` is the time at which the next step starts, or the present one has ended."""

    def __init__(self, limits: Limits, kv: KvCache, log: Log, ends_together: bool) -> None:
        """`ends_together`: a batch keeps all its rows and blocks until its longest member has ended (static batching)."""
        self.limits, self.kv, self.log, self.ends_together = limits, kv, log, ends_together
        self.seats = limits.seats
        self.now_s = 0.0
        self.queue = Queue()
        self.running: dict[Request, None] = {}
        """Everyone with a seat, in order of admission."""
        self.loading: list[tuple[float, int, Request]] = []
        """Heap of those whose prefix is on its way from an offload tier, by when it is there."""
        self.prefilling: deque[Request] = deque()
        """Prompts under way."""
        self.starting: list[Request] = []
        """Prompts that this step completes."""
        self.batch = DecodeBatch(growth_of(limits, kv.block_size), limits.window)
        self.lingering: list[Request] = []
        """Ended members of a static batch whose rows run on."""
        self.deadlines: list[tuple[float, int, Request]] = []
        """Heap of when clients give up."""
        self.ended: list[Request] = []
        """Not yet handed to the driver."""
        self.uncached: Chunks = []
        """This step's chunks as if nothing had been in the prefix cache."""
        self.preempted = False
        """Whether this step took a preemption."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute: no sequence decodes and no prompt is under way."""
        return not self.batch.sequences and not self.prefilling

    def admit(self, request: Request, t: float) -> None:
        """A request reaches the server at `t`. One that can never run here fails at once, with the reason."""
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
            heappush(self.deadlines, (request.deadline_s, request.ticket, request))

    def free(self, request: Request, t: float) -> None:
        """Give back, at `t`, the KV of a finished request that `keeps_kv`."""
        if self.idle:
            self.now_s = max(self.now_s, t)
        vacate(self.kv, request, self.now_s)

    def open_step(self, last_start_s: float) -> None:
        """See who has arrived and who has given up by now; with asynchronous scheduling, who arrived before the last step began."""
        self.preempted = False
        self.queue.see(last_start_s if self.limits.async_scheduling and not self.idle else self.now_s)
        while self.loading and self.loading[0][0] <= self.now_s:
            self.prefilling.append(heappop(self.loading)[2])
        if self.deadlines:
            self._give_up()
        while (head := self.queue.head()) and head.has_kv and self.free_seats > 0 and self._seat(head):
            head.emitted_tokens = 1
            self.batch.start(head, head.first_token_s)

    def settle(self) -> None:
        """The step is over: clients may have given up, sequences have appointments, completed prompts emit their first tokens."""
        if self.deadlines:
            self._give_up()
        if self.batch.clock in self.batch.appointments:
            self._keep_appointments()
        if self.starting:
            self._emit_first_tokens()

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
            self.preempted = True
            due = growth.due(clock)
        if due:
            self.kv.take(due)
            growth.took(due)
        return not self.preempted

    def seat(self, seats: int) -> None:
        """Admit up to `seats` waiting requests while their prompts fit into KV."""
        while seats > 0 and self._seat_head():
            seats -= 1

    def prefill(self, budget: int, seats: int) -> Chunks:
        """Chunks of prompts for this step, at most `budget` tokens: those under way, then those of newly seated requests.

        Without chunked prefill a prompt is computed whole, and one over the budget in a step without other prompts.
        """
        chunks: Chunks = []
        self.uncached = []
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
            self.uncached.append((new, cached - request.reused_tokens))
            request.computed_tokens += new
            if request.keys:
                publish(self.kv, request)
            if request.computed_tokens == request.prompt_tokens:
                self.starting.append(self.prefilling.popleft())
        return chunks

    def _keep_appointments(self) -> None:
        for occasion, request in self.batch.appointments.pop(self.batch.clock):
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
                self.log.run(request, self.batch.clock)
                request.start_clock = -1
                self._finish(request)

    def _cut(self, request: Request) -> Request:
        """Shorten an output that would overrun max_model_len."""
        room = (self.limits.max_model_len or UNLIMITED) - request.input_tokens
        if 0 < room < request.output_tokens:
            if request.decode_steps:
                request.decode_steps = ceil(request.decode_steps * (room - 1) / (request.output_tokens - 1))
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
            # The prefill that brings it back emits one token, so it is spared as many decode steps as that token would have taken.
            tokens_left = request.output_tokens - request.emitted_tokens - 1
            request.steps_left = max(int(tokens_left > 0), round(tokens_left / request.tokens_per_step))
            request.prompt_tokens = request.input_tokens + round(request.emitted_tokens)
        request.has_kv = False
        request.preemptions += 1
        request.status = "waiting"
        self.queue.put_back(request)

    def _unseat(self, request: Request) -> bool:
        """Take a running request off its seat, wherever it stands; whether it was decoding."""
        del self.running[request]
        decoding = request.start_clock >= 0
        if decoding:
            self.log.run(request, self.batch.clock)
            self.batch.stop(request, early=True)
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
        if isnan(request.answer_s):
            request.answer_s = self.now_s
        self._end(request, "finished", self.now_s)
        decoding = request.start_clock >= 0
        if decoding:
            self.log.run(request, self.batch.clock)
            self.batch.stop(request, early=False)
        if decoding and self.ends_together:
            self.lingering.append(request)
        else:
            if decoding:
                self.batch.remove(request)
            if not request.keeps_kv:
                vacate(self.kv, request, self.now_s)
        if self.lingering:
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
        while self.deadlines and self.deadlines[0][0] < self.now_s:
            deadline_s, _, request = heappop(self.deadlines)
            if request.status == "running":
                self._unseat(request)
                self._end(request, "cancelled", deadline_s)
            elif request.status == "waiting":
                self._end(request, "cancelled", deadline_s)
                self.queue.cancel(request)

    def _end(self, request: Request, status: str, t: float) -> None:
        request.status, request.finish_s = status, t
        self.ended.append(request)
