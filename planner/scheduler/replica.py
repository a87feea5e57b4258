"""One replica of a serving engine, simulated step by step: plan with a policy, price with `step_time`, settle.

The work is O(arrivals + chunks + ends + steps), not O(sequences × steps): see `batch` for how.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scheduler.limits import Limits
from planner.scheduler.log import Log
from planner.scheduler.policies import POLICIES, Policy
from planner.scheduler.scheduler import Chunks, Scheduler
from planner.scheduler.timeline import EngineLog
from planner.workload import Request

NO_BOUND = 10**15
"""More steps than any simulation runs."""


class StepTime(Protocol):
    """How long a step takes, s: all that the simulation knows of GPUs and models."""

    def __call__(self, shape: StepShape) -> float: ...

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float: ...


class Replica:
    """A state machine that a driver feeds: `admit` each request when it arrives, `advance` the steps up to a moment."""

    def __init__(
        self,
        step_time: StepTime,
        limits: Limits,
        kv: KvCache,
        policy: Policy = POLICIES["mixed"],
        record_steps: bool = True,
    ) -> None:
        """`record_steps` keeps every step for charts and inter-token latencies; sums are kept in any case."""
        self.step_time, self.limits, self.kv, self.policy = step_time, limits, kv, policy
        self.max_steps = NO_BOUND
        """Bound on the steps it will ever run; `advance` does nothing beyond it."""
        self._log = Log(record_steps)
        self._scheduler = Scheduler(limits, kv, self._log, policy.ends_together)
        self._last_start_s = 0.0
        self._blocked = False  # idle, and nothing in the queue can be seated until something is freed, fetched or admitted

    def admit(self, request: Request, t: float) -> None:
        """A request reaches the server at `t`. One that can never run here fails at once, with the reason."""
        self._blocked = False
        self._scheduler.admit(request, t)

    def advance(self, until: float) -> list[Request]:
        """Run the steps that start before `until`, but stop after one in which requests end, and return those.

        An empty list means that nothing more starts before `until`. Stopping at every end lets the driver answer it with the next
        arrival before time moves on. Steps are indivisible, so the clock may come to stand behind `until`.
        """
        scheduler = self._scheduler
        while not scheduler.ended and self._log.steps < self.max_steps:
            if scheduler.idle:
                start_s = self.next_start_s()
                if start_s >= until:
                    break
                scheduler.now_s = start_s
            elif scheduler.now_s >= until:
                break
            self._step(until)
        ended, scheduler.ended = scheduler.ended, []
        return ended

    def next_start_s(self) -> float:
        """When the next step starts if nothing else happens, s; infinity when there is nothing to do."""
        s = self._scheduler
        if not s.idle:
            return s.now_s
        fetched_s = s.loading[0][0] if s.loading else inf
        return max(s.now_s, min(fetched_s, inf if self._blocked else self._queue_start_s()))

    def _queue_start_s(self) -> float:
        """When an idle engine turns to its queue: with the first arrival, or with a full static batch or its timeout."""
        queue, timeout_s = self._scheduler.queue, self.limits.static_timeout_s
        if not len(queue):
            return inf
        if not timeout_s:
            return 0.0 if queue.waiting else queue.arriving[0].arrival_s
        missing = self._scheduler.seats - queue.waiting
        if missing > len(queue.arriving):
            return min(request.arrival_s for request in queue) + timeout_s
        return queue.arriving[missing - 1].arrival_s if missing > 0 else 0.0

    def free(self, request: Request, t: float) -> None:
        """Give back, at `t`, the KV of a finished request that `keeps_kv`."""
        self._blocked = False
        self._scheduler.free(request, t)

    def log(self) -> EngineLog:
        """Sums, and records if kept, over the steps so far."""
        return self._log.engine(self.kv, self._scheduler.seats, self.now_s)

    @property
    def now_s(self) -> float:
        """End of the last step, or start of the next one."""
        return self._scheduler.now_s

    @property
    def steps(self) -> int:
        """Steps run so far."""
        return self._log.steps

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return self._scheduler.idle

    @property
    def queue_length(self) -> int:
        """Requests without a seat."""
        return len(self._scheduler.queue)

    @property
    def running_count(self) -> int:
        """Requests with a seat."""
        return len(self._scheduler.running)

    @property
    def free_seats(self) -> int:
        """Sequences that may still join."""
        return self._scheduler.free_seats

    @property
    def unfinished(self) -> list[Request]:
        """Requests that have not ended."""
        return [*self._scheduler.running, *self._scheduler.queue]

    def _step(self, until: float) -> None:
        """Plan, and run what was planned."""
        scheduler = self._scheduler
        scheduler.open_step(self._last_start_s)
        decodes, chunks = self.policy.plan_step(scheduler)
        if chunks:
            self._compute(scheduler.batch.sequences if decodes else 0, chunks)
        elif scheduler.batch.sequences:
            self._decode(scheduler.now_s if scheduler.preempted else until)
        else:  # a preemption may have emptied a static batch: then another plan finds work
            self._blocked = not scheduler.preempted
            return
        scheduler.settle()

    def _compute(self, rows: int, chunks: Chunks) -> None:
        """One step that carries prompt chunks beside `rows` decoding sequences.

        Its time is split for the price: what it would take without the chunks is output's, the rest input's, and of that rest cached
        input's share is the extra time for re-reading the prefixes found in the cache.
        """
        scheduler, batch, log, step_time = self._scheduler, self._scheduler.batch, self._log, self.step_time
        context, windowed = (batch.context_tokens, batch.windowed_context_tokens) if rows else (0, 0)
        drafts = rows * self.limits.num_speculative_tokens
        shape = StepShape(rows, context, windowed, tuple(chunks), rows + len(scheduler.starting), drafts)
        seconds = step_time(shape)
        output_s = step_time.decode(rows, context, windowed) if rows else 0.0
        cached_s = seconds - step_time(shape._replace(chunks=tuple(scheduler.uncached))) if chunks != scheduler.uncached else 0.0
        self._last_start_s = scheduler.now_s
        scheduler.now_s += seconds
        new_tokens = prompt_tokens = 0
        for new, cached in chunks:
            new_tokens += new
            prompt_tokens += new + cached
        log.output_busy_s += output_s
        log.cached_busy_s += cached_s
        log.input_busy_s += seconds - output_s - cached_s
        used_blocks = self.kv.used_blocks
        log.kv_block_s += used_blocks * seconds
        log.kv_token_s += (batch.context_tokens + prompt_tokens) * seconds
        log.alike(1, rows, len(scheduler.lingering) if rows else 0, new_tokens, scheduler.queue.waiting)
        if log.recording:
            log.end_s.append(scheduler.now_s)
            log.seconds.append(seconds)
            log.kv_used_blocks.append(used_blocks)
        if rows:
            batch.tick()

    def _decode(self, until: float) -> None:
        """Steps that only decode, touching no request.

        A plan without chunks stays the plan until something happens: an appointment, an arrival to see, a deadline, the end of a fetch,
        a want of blocks, or `until`. (A step that took a preemption admits nobody, so the one after it needs a plan of its own.) What
        one step after the other changes is kept in local variables, because this loop is most of the simulation.
        """
        scheduler = self._scheduler
        batch, kv, log = scheduler.batch, self.kv, self._log
        sequences, tokens_per_step, windowed_per_step = batch.sequences, batch.tokens_per_step, batch.windowed_tokens_per_step
        context, windowed, clock = batch.context_tokens, batch.windowed_context_tokens, batch.clock
        decode, due_at, appointments = self.step_time.decode, batch.growth.due, batch.appointments
        recording, add_end, add_seconds, add_used = log.recording, log.end_s.append, log.seconds.append, log.kv_used_blocks.append
        now_s = since_s = scheduler.now_s
        used_blocks, token_s, block_s = kv.used_blocks, 0.0, 0.0
        arrival_s = scheduler.queue.arriving[0].arrival_s if scheduler.queue.arriving else inf
        if scheduler.loading:
            until = min(until, scheduler.loading[0][0])
        if scheduler.deadlines:
            until = min(until, scheduler.deadlines[0][0])
        if not self.limits.async_scheduling:
            until = min(until, arrival_s)
        for _ in range(self.max_steps - log.steps):
            start_s = now_s
            seconds = decode(sequences, context, windowed)
            now_s += seconds
            token_s += context * seconds
            if recording:
                add_end(now_s)
                add_seconds(seconds)
                add_used(used_blocks)
            clock += 1
            context += tokens_per_step
            windowed += windowed_per_step
            if clock in appointments or now_s >= until or start_s >= arrival_s:
                break
            due = due_at(clock)
            if due:
                if due > kv.free_blocks:
                    break
                kv.take(due)
                batch.growth.took(due)
                block_s += used_blocks * (now_s - since_s)
                since_s, used_blocks = now_s, used_blocks + due
        log.output_busy_s += now_s - scheduler.now_s
        log.kv_block_s += block_s + used_blocks * (now_s - since_s)
        log.kv_token_s += token_s
        log.alike(clock - batch.clock, sequences, len(scheduler.lingering), 0, scheduler.queue.waiting)
        batch.clock, batch.context_tokens, batch.windowed_context_tokens = clock, context, windowed
        scheduler.now_s, self._last_start_s = now_s, start_s
