"""A slow simulator used only as truth: every step looks at every request, every KV block is an object, nothing is counted ahead.

It knows the rules of an engine and none of the tricks of `planner.scheduler`: no decode clock, no calendar, no sums kept from step to
step, no `KvCache`. It shares with the real one only what is not under test: `Source` as the clients, `Limits` as the settings.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan

from planner.roofline import StepShape
from planner.scheduler import Limits
from planner.workload import Request, Source


@dataclass(eq=False)
class Block:
    key: int | None = None
    references: int = 0
    last_use_s: float = 0.0


@dataclass
class Pool:
    """Block objects: empty, idle (readable, nobody's) or in the tables of sequences."""

    total: int
    size: int
    prefix: bool
    ttl_s: float = inf
    empty: list[Block] = field(default_factory=list)
    idle: list[Block] = field(default_factory=list)
    cached: dict[int, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.empty = [Block() for _ in range(self.total)]

    @property
    def free(self) -> int:
        return len(self.empty) + len(self.idle)

    def new(self) -> Block:
        if self.empty:
            block = self.empty.pop()
        else:
            block = self.idle.pop(0)
            del self.cached[block.key]
            block.key = None
        block.references = 1
        return block

    def share(self, block: Block) -> Block:
        if block.references == 0:
            self.idle.remove(block)
        block.references += 1
        return block

    def drop(self, block: Block, now_s: float) -> None:
        block.references -= 1
        if block.references == 0:
            block.last_use_s = now_s
            (self.idle if block.key is not None else self.empty).append(block)

    def find(self, keys: list[int], now_s: float) -> list[Block]:
        found = []
        for key in keys if self.prefix else ():
            block = self.cached.get(key)
            if block is None or (block.references == 0 and block.last_use_s < now_s - self.ttl_s):
                break
            found.append(block)
        return found


@dataclass(eq=False)
class Sequence:
    request: Request
    ticket: int
    emissions: list[int]
    """Tokens that each decode step emits, the first token apart."""
    prompt: int = 0
    computed: int = 0
    emitted: int = 0
    reused: int = 0
    named: int = 0
    decoding: bool = False
    table: list[Block] = field(default_factory=list)
    status: str = "waiting"
    scheduled_s: float = nan
    first_token_s: float = nan
    answer_s: float = nan
    finish_s: float = nan
    cached_tokens: int = 0
    preemptions: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.request.priority, self.ticket


class Oracle:
    def __init__(
        self,
        source: Source,
        step_time: Callable[[StepShape], float],
        limits: Limits,
        pool: Pool,
        policy: str,
        emissions: Callable[[Request], list[int]] | None = None,
    ) -> None:
        self.source, self.step_time, self.limits, self.pool, self.policy = source, step_time, limits, pool, policy
        self.emissions = emissions or (lambda request: [1] * request.decode_steps)
        self.now_s = self.last_start_s = 0.0
        self.tickets = self.preempted = 0
        self.queue: list[Sequence] = []  # by rank
        self.hurried = False
        self.horizon_s = 0.0
        self.running: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.lingering: list[Sequence] = []
        self.ended: list[Sequence] = []
        self.steps: list[tuple[float, int, int, int]] = []
        """(end, decode rows, chunk tokens, used blocks)"""
        self.emission_times: dict[int, list[float]] = {}

    # -- the run

    def run(self) -> list[Sequence]:
        while True:
            while self.source.peek() <= self.now_s:
                self.arrive(self.source.next())
            if not self.decoding and not self.lingering and not self.prefilling:
                start_s = self.idle_start()
                if start_s == inf:
                    return sorted(self.ended, key=lambda s: s.request.number)
                if start_s > self.now_s:
                    self.now_s = start_s
                    continue
            self.step()

    def idle_start(self) -> float:
        """When an idle engine goes on: with its next step, or to the next arrival."""
        if self.queue and self.policy == "static" and len(self.queue) < self.limits.seats:
            oldest = min(s.request.arrival_s for s in self.queue)
            return max(self.now_s, min(oldest + self.limits.static_timeout_s, self.source.peek()))
        return self.now_s if self.queue else self.source.peek()

    def arrive(self, request: Request) -> None:
        limit = self.limits.max_model_len
        if limit is not None and request.input_tokens < limit < request.input_tokens + request.output_tokens:
            output = limit - request.input_tokens
            if request.decode_steps:
                request.decode_steps = -(-request.decode_steps * (output - 1) // (request.output_tokens - 1))
            request.output_tokens = output
            request.thinking_tokens = min(request.thinking_tokens, output - 1)
        sequence = Sequence(request, self.tickets, self.emissions(request), prompt=request.input_tokens)
        most = self.limits.reserved_tokens(request.input_tokens, request.output_tokens) if self.limits.contiguous else None
        most = most or request.input_tokens + request.output_tokens - 1
        too_long = limit is not None and request.input_tokens >= limit
        if too_long or self.blocks(most + self.limits.num_speculative_tokens) > self.pool.total:
            self.end(sequence, "failed", request.arrival_s)
            return
        self.tickets += 1
        self.hurried = self.hurried or request.deadline_s < inf
        self.wait(sequence)

    def wait(self, sequence: Sequence) -> None:
        insort(self.queue, sequence, key=lambda s: s.rank)

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.pool.size)

    # -- one step

    def step(self) -> None:
        self.cancel_late()
        idle = not self.decoding and not self.lingering and not self.prefilling
        self.horizon_s = self.last_start_s if self.limits.async_scheduling and not idle else self.now_s
        preempted = self.preempted
        decode, chunks = getattr(self, self.policy)(idle)
        rows = [*self.decoding, *self.lingering] if decode else []
        if not chunks and not rows:
            assert self.preempted > preempted or not self.queue, "work waits, and a step has nothing in it"
            return
        contexts = [s.computed + 1 for s in rows]
        windowed = sum(min(c, self.limits.window) for c in contexts) if self.limits.window else 0
        complete = [s for s, _, _ in chunks if s.computed == s.prompt]
        shape = StepShape(
            len(rows),
            sum(contexts),
            windowed,
            tuple((new, cached) for _, new, cached in chunks),
            len(rows) + len(complete),
            len(rows) * self.limits.num_speculative_tokens,
        )
        self.last_start_s = self.now_s
        self.now_s += self.step_time(shape)
        self.steps.append((self.now_s, len(rows), sum(new for _, new, _ in chunks), self.pool.total - self.pool.free))
        for sequence in self.decoding if decode else []:
            sequence.computed += sequence.emissions[0]
        self.cancel_late()
        for sequence in list(self.decoding) if decode else []:
            self.emit(sequence, sequence.emissions.pop(0))
            if not sequence.emissions:
                self.finish(sequence)
        for sequence in complete:
            if sequence.status != "running":
                continue
            self.prefilling.remove(sequence)
            self.emit(sequence, 1)
            if sequence.emissions:
                self.decoding.append(sequence)
                sequence.decoding = True
            else:
                self.finish(sequence)

    def emit(self, sequence: Sequence, tokens: int) -> None:
        sequence.emitted += tokens
        self.emission_times.setdefault(sequence.request.number, []).append(self.now_s)
        if sequence.first_token_s != sequence.first_token_s:
            sequence.first_token_s = self.now_s
        if sequence.answer_s != sequence.answer_s and sequence.emitted > sequence.request.thinking_tokens:
            sequence.answer_s = self.now_s

    # -- policies

    def mixed(self, idle: bool) -> tuple[bool, list]:
        preempted = self.grow()
        budget = self.limits.max_num_batched_tokens - len(self.decoding) * (1 + self.limits.num_speculative_tokens)
        return True, self.chunks(budget, admitting=not preempted)

    def prefill_first(self, idle: bool) -> tuple[bool, list]:
        chunks = self.chunks(self.limits.max_num_batched_tokens, admitting=True)
        if not chunks:
            self.grow()
        return not chunks, chunks

    def static(self, idle: bool) -> tuple[bool, list]:
        while idle and (head := self.head()) and self.admit(head, inf):
            pass
        chunks = self.chunks(self.limits.max_num_batched_tokens, admitting=False)
        if not chunks:
            self.grow()
        return not chunks, chunks

    def head(self) -> Sequence | None:
        """Whose turn it is, of those that the scheduler sees."""
        return next((s for s in self.queue if s.request.arrival_s <= self.horizon_s), None)

    def grow(self) -> bool:
        """Blocks for the next token of every decoding sequence; the newest go until there are enough."""
        preempted = False
        while True:
            wants = [(s, self.blocks(s.computed + 1 + self.limits.num_speculative_tokens) - len(s.table)) for s in self.decoding]
            if self.limits.contiguous or sum(max(0, n) for _, n in wants) <= self.pool.free:
                break
            self.preempt(max(self.running, key=lambda s: s.rank))
            preempted = True
        for sequence, blocks in [] if self.limits.contiguous else wants:
            sequence.table += [self.pool.new() for _ in range(blocks)]
        return preempted

    def chunks(self, budget: int, admitting: bool) -> list[tuple[Sequence, int, int]]:
        chunks: list[tuple[Sequence, int, int]] = []
        whole = not self.limits.enable_chunked_prefill
        under_way = list(self.prefilling)
        while budget > 0:
            longest = budget if whole and chunks else inf
            sequence = under_way.pop(0) if under_way else self.head() if admitting else None
            if sequence is None or (sequence.status == "waiting" and not self.admit(sequence, longest)):
                break
            cached, new = sequence.computed, sequence.prompt - sequence.computed
            if new > longest:
                break
            new = new if whole else min(new, budget)
            budget -= new
            chunks.append((sequence, new, cached))
            sequence.computed += new
            self.name(sequence)
        return chunks

    # -- a sequence's life

    def admit(self, sequence: Sequence, longest: float) -> bool:
        if len(self.running) + len(self.lingering) >= self.limits.seats:
            return False
        keys = list(sequence.request.keys)[: (sequence.prompt - 1) // self.pool.size]
        found = self.pool.find(keys, self.now_s)
        tokens = sequence.prompt + self.limits.num_speculative_tokens
        if self.limits.contiguous:
            tokens = self.limits.reserved_tokens(sequence.request.input_tokens, sequence.request.output_tokens)
        fresh = self.blocks(tokens) - len(found)
        if fresh + sum(b.references == 0 for b in found) > self.pool.free:
            return False
        if sequence.prompt - len(found) * self.pool.size > longest:
            return False
        sequence.table = [self.pool.share(b) for b in found]
        sequence.table += [self.pool.new() for _ in range(fresh)]
        sequence.named = len(found)
        sequence.computed = len(found) * self.pool.size
        sequence.status = "running"
        if sequence.scheduled_s != sequence.scheduled_s:
            sequence.scheduled_s, sequence.cached_tokens = self.now_s, sequence.computed
        self.queue.remove(sequence)
        self.running.append(sequence)
        self.prefilling.append(sequence)
        return True

    def name(self, sequence: Sequence) -> None:
        """Full blocks get their content's name; one that exists already is shared instead."""
        for i in range(sequence.named, min(sequence.computed // self.pool.size, len(sequence.request.keys))):
            key, own = sequence.request.keys[i], sequence.table[i]
            if not self.pool.prefix:
                continue
            known = self.pool.cached.get(key)
            if known is None:
                own.key = key
                self.pool.cached[key] = own
            else:
                sequence.table[i] = self.pool.share(known)
                self.pool.drop(own, self.now_s)
            sequence.named = i + 1

    def vacate(self, sequence: Sequence) -> None:
        self.name(sequence)
        for block in reversed(sequence.table):
            self.pool.drop(block, self.now_s)
        sequence.table, sequence.named = [], 0

    def leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        for group in (self.prefilling, self.decoding):
            if sequence in group:
                group.remove(sequence)

    def preempt(self, sequence: Sequence) -> None:
        self.leave(sequence)
        self.vacate(sequence)
        if sequence.decoding:
            sequence.prompt = sequence.request.input_tokens + sequence.emitted
            sequence.emissions[-1] -= 1  # the token that its next prefill emits
            sequence.emissions = [tokens for tokens in sequence.emissions if tokens]
        sequence.decoding = False
        sequence.preemptions += 1
        self.preempted += 1
        sequence.status = "waiting"
        self.wait(sequence)
        self.close_static()

    def finish(self, sequence: Sequence) -> None:
        decoded = sequence.decoding
        self.leave(sequence)
        self.end(sequence, "finished", self.now_s)
        if self.policy == "static" and decoded:
            self.lingering.append(sequence)
        else:
            self.vacate(sequence)
        self.close_static()

    def close_static(self) -> None:
        if not self.running:
            for sequence in self.lingering:
                self.vacate(sequence)
            self.lingering = []

    def cancel_late(self) -> None:
        if not self.hurried:
            return
        late = [s for s in [*self.queue, *self.running] if s.request.deadline_s < self.now_s]
        for sequence in sorted(late, key=lambda s: (s.request.deadline_s, s.ticket)):
            if sequence.status == "running":
                self.leave(sequence)
                self.vacate(sequence)
                self.close_static()
            else:
                self.queue.remove(sequence)
            self.end(sequence, "cancelled", sequence.request.deadline_s)

    def end(self, sequence: Sequence, status: str, t: float) -> None:
        sequence.status, sequence.finish_s = status, t
        sequence.request.status, sequence.request.finish_s = status, t
        self.ended.append(sequence)
        self.source.finished(sequence.request)
