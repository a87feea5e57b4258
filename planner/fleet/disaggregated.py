"""Prefill and decode on pools of their own: one computes prompts, the KV cache moves over a link, the other generates the rest.

The prefill pool holds a prompt's KV until its transfer is over, and a transfer starts only when a decode replica has a seat and the
blocks for it. A full decode pool therefore backs up into the prefill pool, and from there to the door. A replica moves one cache at
a time. The client sees the first token when its KV has arrived: that is when the decode replica can answer for the stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

from planner.fleet.clock import Clock
from planner.fleet.routing import Router, Routing
from planner.scheduler import MAX_STEPS, Ledger, Replica, Timeline
from planner.workload import Request, Source


@dataclass(frozen=True, slots=True)
class Link:
    """What moves KV caches between the pools."""

    name: str
    bytes_s: float
    """Bandwidth of one replica's end, bytes/s."""
    latency_s: float = 0.0
    """Fixed time of one transfer, s."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """What went over the link."""

    link: Link
    count: int
    total_bytes: float
    busy_s: float
    """Σ of transfer times."""
    queue_s: float
    """Σ of waits between the end of a prefill and the start of its transfer: the link's own queue and back-pressure."""
    blocked_s: float
    """The part of `queue_s` in which no decode replica had room."""

    @property
    def mean_bytes(self) -> float:
        return self.total_bytes / self.count if self.count else 0.0

    @property
    def mean_s(self) -> float:
        return self.busy_s / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class DisaggregatedRun:
    """What two pools did."""

    timeline: Timeline
    """Engine logs of the prefill replicas first, then of the decode replicas."""
    transfers: Transfers


@dataclass(slots=True)
class _Passage:
    """A request between the pools."""

    request: Request
    """As the client sent it, with what the prefill pool wrote beside it."""
    prefill: int
    """Name of the replica that holds its KV."""
    ready_s: float
    decode: int = -1
    blocks: int = 0


class _Pools:
    """The state of both pools, driven by `simulate`."""

    def __init__(
        self,
        prefill: Sequence[Replica],
        decode: Sequence[Replica],
        kv_bytes: Callable[[int], float],
        link: Link,
        routing: Routing,
    ) -> None:
        self.clock, self.router, self.kv_bytes, self.link = Clock(), Router(routing), kv_bytes, link
        self.prefill, self.decode = range(len(prefill)), range(len(prefill), len(prefill) + len(decode))
        for name, replica in enumerate([*prefill, *decode]):
            self.clock.add(name, replica)
        self.ledger = Ledger()
        self.original: dict[int, Request] = {}  # by number, while under way
        self.ready: deque[_Passage] = deque()  # prefilled, first come first moved
        self.moving: list[tuple[float, int, _Passage]] = []  # heap: (arrival at the decode pool, number)
        self.expected: dict[int, list[Request]] = {name: [] for name in self.decode}  # sent there, not seated yet
        self.reserved: dict[int, int] = dict.fromkeys(self.decode, 0)  # blocks of caches on their way
        self.coming: dict[int, int] = dict.fromkeys(self.decode, 0)  # caches on their way
        self.end_free_s = dict.fromkeys((*self.prefill, *self.decode), 0.0)
        self.count, self.bytes, self.busy_s, self.queue_s, self.blocked_s = 0, 0.0, 0.0, 0.0, 0.0

    def load(self, name: int) -> int:
        replica = self.clock.replicas[name]
        return replica.queue_length + replica.running_count

    def arrive(self, request: Request, t: float) -> None:
        """A request goes to the prefill pool, as one that ends with its first token and keeps its KV."""
        replicas = self.clock.replicas
        at = self.router.choose(request.keys, self.prefill, self.load, lambda i: replicas[i].kv.match(request.keys, t))
        self.original[request.number] = request
        prompt = replace(request, output_tokens=1, decode_steps=0, thinking_tokens=0, keeps_kv=True)
        replicas[at].admit(prompt, t)
        self.clock.touch(at, prompt)

    def ended(self, name: int, requests: Sequence[Request], source: Source) -> None:
        """Requests ended on a replica: prompts wait for their move, answers go to the client."""
        for done in requests:
            original = self.original[done.number]
            if name in self.decode:
                done.arrival_s = original.arrival_s
                done.scheduled_s, done.cached_tokens = original.scheduled_s, original.cached_tokens
                done.preemptions += original.preemptions
                self._out(done, source)
                continue
            original.scheduled_s, original.cached_tokens, original.preemptions = done.scheduled_s, done.cached_tokens, done.preemptions
            if done.status == "finished" and original.decode_steps:
                self.ready.append(_Passage(done, name, done.finish_s))
                continue
            original.first_token_s, original.finish_s = done.first_token_s, done.finish_s
            original.answer_s, original.status, original.reason = done.answer_s, done.status, done.reason
            if done.status == "finished":
                self.clock.replicas[name].free(done, done.finish_s)
                self.clock.touch(name)
            self._out(original, source)
        self.dispatch(max(r.finish_s for r in requests))

    def dispatch(self, t: float) -> None:
        """Start the moves that have somewhere to go, in order of their prefills."""
        while self.ready:
            passage = self.ready[0]
            original = self.original[passage.request.number]
            blocks = self._blocks(original)
            names = [name for name in self.decode if self._has_room(name, blocks)]
            if not names:
                return
            self.ready.popleft()
            # A step is not divisible, so a prefill may be booked that ends after `t`.
            now_s = max(t, passage.ready_s)
            passage.decode, passage.blocks = min(names, key=self._decode_load), blocks
            size = self.kv_bytes(original.input_tokens)
            seconds = self.link.latency_s + size / self.link.bytes_s
            start_s = max(now_s, self.end_free_s[passage.prefill], self.end_free_s[passage.decode])
            self.end_free_s[passage.prefill] = self.end_free_s[passage.decode] = start_s + seconds
            self.reserved[passage.decode] += blocks
            self.coming[passage.decode] += 1
            self.count, self.bytes, self.busy_s = self.count + 1, self.bytes + size, self.busy_s + seconds
            self.queue_s += start_s - passage.ready_s
            self.blocked_s += now_s - passage.ready_s
            heappush(self.moving, (start_s + seconds, original.number, passage))

    def land(self) -> None:
        """The earliest move is over: the decode replica takes the request, the prefill replica its blocks back."""
        t, _, passage = heappop(self.moving)
        original, name = self.original[passage.request.number], passage.decode
        self.reserved[name] -= passage.blocks
        self.coming[name] -= 1
        request = replace(original, arrival_s=t, has_kv=True, keys=(), first_token_s=t)
        if not original.thinking_tokens:
            request.answer_s = t
        self.expected[name].append(request)
        self.clock.replicas[name].admit(request, t)
        self.clock.replicas[passage.prefill].free(passage.request, t)
        self.clock.touch(name, request)
        self.clock.touch(passage.prefill)
        self.dispatch(t)

    def close(self, stopped: str, max_steps: int | None) -> DisaggregatedRun:
        """End the run; what is still under way comes out unfinished."""
        for request in self.original.values():
            self.ledger.add(request)
        logs = [replica.log() for replica in self.clock.replicas.values()]
        transfers = Transfers(self.link, self.count, self.bytes, self.busy_s, self.queue_s, self.blocked_s)
        return DisaggregatedRun(self.ledger.timeline(logs, stopped, max_steps), transfers)

    def _out(self, request: Request, source: Source) -> None:
        del self.original[request.number]
        self.ledger.add(request)
        source.finished(request)

    def _blocks(self, request: Request) -> int:
        """Blocks that its arrival takes in the decode pool."""
        replica = self.clock.replicas[self.decode[0]]
        tokens = replica.limits.reserved_tokens(request.input_tokens, request.output_tokens) if replica.limits.contiguous else 0
        return replica.kv.blocks(max(tokens, request.input_tokens + replica.limits.tokens_per_decode))

    def _has_room(self, name: int, blocks: int) -> bool:
        """Whether a seat and `blocks` blocks are free beyond what is promised to those on their way; a hopeless one may go and fail."""
        replica = self.clock.replicas[name]
        waiting = self.expected[name] = [r for r in self.expected[name] if r.status == "waiting"]
        if replica.free_seats <= self.coming[name] + len(waiting):
            return False
        promised = self.reserved[name] + sum(self._blocks(r) for r in waiting)
        return blocks <= replica.kv.free_blocks - promised or blocks > replica.kv.total_blocks

    def _decode_load(self, name: int) -> int:
        return self.load(name) + self.coming[name]


def simulate(
    source: Source,
    prefill: Sequence[Replica],
    decode: Sequence[Replica],
    kv_bytes: Callable[[int], float],
    link: Link,
    routing: Routing = "least_loaded",
    max_steps: int = MAX_STEPS,
) -> DisaggregatedRun:
    """Serve everything the source sends with two pools whose replicas may differ in anything.

    `kv_bytes(tokens)` is what a prompt of that length moves, whole model, one copy. Requests still there when `max_steps` are over
    come out as unfinished.
    """
    pools = _Pools(prefill, decode, kv_bytes, link, routing)
    clock = pools.clock
    while clock.steps < max_steps:
        arrival_s = source.peek()
        landing_s = pools.moving[0][0] if pools.moving else inf
        t = min(arrival_s, landing_s)
        outcome = clock.advance(t)
        if outcome is not None:
            pools.ended(*outcome, source)
        elif t == inf:
            break
        elif landing_s <= arrival_s:
            pools.land()
        else:
            pools.arrive(source.next(), t)
    stuck = f"{len(pools.original)} requests can never move: the decode pool has no room for them" if pools.original else ""
    return pools.close(source.stopped or stuck, max_steps if clock.steps >= max_steps else None)
