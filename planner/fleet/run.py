"""Replicas behind a router: requests spread, replicas lost and replaced, and capacity that follows the demand with a delay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil, inf

import numpy as np

from planner.fleet.clock import Clock
from planner.fleet.routing import Router
from planner.scenario import Routing
from planner.scheduler import MAX_STEPS, EngineLog, Ledger, Replica, Timeline
from planner.units import HOUR_S
from planner.workload import Request, Source


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Replicas for the load seen in the last minute, at a share of what one can carry within the promise."""

    capacity_requests_per_s: float
    """What one replica carries within the SLO."""
    target_utilization: float = 0.7
    min_replicas: int = 1
    max_replicas: int | None = None
    interval_s: float = 15.0
    """Between decisions: Kubernetes' default sync period."""
    window_s: float = 60.0
    """Over which arrivals are counted."""
    patience_s: float = 300.0
    """How long fewer must have been enough before one goes: Kubernetes' default stabilisation window."""

    def wanted(self, requests_per_s: float) -> int:
        """Replicas for a load, floor and ceiling applied."""
        replicas = max(ceil(requests_per_s / (self.target_utilization * self.capacity_requests_per_s) - 1e-9), self.min_replicas, 1)
        return min(replicas, self.max_replicas or replicas)


@dataclass(frozen=True, slots=True)
class Span:
    """The paid life of one replica."""

    name: int
    asked_s: float
    ready_s: float
    gone_s: float
    """Infinity when it outlived the run."""


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What a fleet did."""

    timeline: Timeline
    """One engine log per replica that ever took traffic, by name."""
    spans: tuple[Span, ...]
    rerouted: int
    """Requests that lost their replica and started again on another."""

    def replica_hours(self) -> float:
        """Paid replica-hours up to the end of the run, start-up and spares included."""
        end_s = self.timeline.end_s
        return sum(max(0.0, min(s.gone_s, end_s) - s.asked_s) for s in self.spans) / HOUR_S


def interruptions(rng: np.random.Generator, replicas: int, per_hour: float, horizon_s: float) -> list[float]:
    """Moments at which a spot replica is taken away, s, sorted: each replica with chance `per_hour` in an hour, independently."""
    if per_hour <= 0:
        return []
    rate = -np.log1p(-min(per_hour, 1 - 1e-12)) / HOUR_S * replicas
    times = rng.exponential(1 / rate, max(16, int(3 * rate * horizon_s) + 16)).cumsum()
    return [float(t) for t in times if t < horizon_s]


class Fleet:
    """Replicas that come and go behind one router, driven by `simulate`."""

    def __init__(
        self, build: Callable[[], Replica], replicas: int, spares: int, routing: Routing, startup_s: float, answering: bool
    ) -> None:
        self.build, self.startup_s = build, startup_s
        self.clock, self.router = Clock(answering), Router(routing)
        self.ledger = Ledger()
        self.serving: list[int] = []  # take traffic
        self.starting: list[tuple[float, int, bool]] = []  # heap: (ready, name, becomes a spare)
        self.spans: dict[int, Span] = {}
        self.logs: dict[int, EngineLog] = {}
        self.homeless: list[Request] = []  # arrived while nobody served
        self.first_arrival_s: dict[int, float] = {}  # of requests that had to start again
        self.rerouted = 0
        self.spares = [self._launch(0.0, 0.0) for _ in range(spares)]
        for _ in range(replicas):
            self._join(self._launch(0.0, 0.0), 0.0)

    def route(self, request: Request, t: float) -> None:
        """Send a request that is at the door at `t` to a replica, or keep it until there is one."""
        if not self.serving:
            self.homeless.append(request)
            return
        names, replicas = self.serving, self.clock.replicas
        at = self.router.choose(
            request.keys,
            names,
            lambda i: replicas[names[i]].queue_length + replicas[names[i]].running_count,
            lambda i: replicas[names[i]].kv.match(request.keys, t),
        )
        if request.arrival_s < t:
            self.first_arrival_s.setdefault(request.number, request.arrival_s)
            request.arrival_s = t
        replicas[names[at]].admit(request, t)
        self.clock.touch(names[at], request)

    def order(self, t: float, spare: bool = False) -> None:
        """Ask for one more replica, or a new spare, at `t`."""
        name = self._launch(t, t + self.startup_s)
        heappush(self.starting, (t + self.startup_s, name, spare))

    def start_due(self, t: float) -> None:
        """Let the replicas that are ready by `t` take traffic, or stand by as spares."""
        while self.starting and self.starting[0][0] <= t:
            _, name, spare = heappop(self.starting)
            if spare:
                self.spares.append(name)
            else:
                self._join(name, t)

    def lose(self, name: int, t: float) -> None:
        """A replica is gone at `t`: a spare takes its place, a replacement is ordered, and its requests start again elsewhere."""
        if name in self.serving:
            self.serving.remove(name)
        replica = self.clock.remove(name)
        self._close(name, replica, t)
        self.order(t, spare=bool(self.spares))
        if self.spares:
            self._join(self.spares.pop(), t)
        for request in sorted(replica.unfinished, key=lambda r: r.number):
            self.rerouted += 1
            self.route(_restarted(request), t)

    def retire(self, t: float) -> None:
        """Take the last joined replica out of traffic; it ends when its requests have."""
        name = self.serving.pop()
        if self.clock.replicas[name].next_start_s() == inf:
            self._close(name, self.clock.remove(name), t)

    def ended(self, name: int, requests: Sequence[Request], source: Source) -> None:
        """Write down what ended on a replica, and tell the clients."""
        for request in requests:
            request.arrival_s = self.first_arrival_s.pop(request.number, request.arrival_s)
            self.ledger.add(request)
            source.finished(request)
        if name not in self.serving and name in self.clock.replicas and self.clock.replicas[name].next_start_s() == inf:
            self._close(name, self.clock.remove(name), requests[-1].finish_s)

    def close(self, stopped: str, max_steps: int | None) -> FleetRun:
        """End the run."""
        for name, replica in self.clock.replicas.items():
            self.logs[name] = replica.log()
            for request in replica.unfinished:
                self.ledger.add(request)
        for request in self.homeless:
            self.ledger.add(request)
        logs = [self.logs[name] for name in sorted(self.logs)]
        spans = tuple(self.spans[name] for name in sorted(self.spans))
        return FleetRun(self.ledger.timeline(logs, stopped, max_steps), spans, self.rerouted)

    def _launch(self, t: float, ready_s: float) -> int:
        name = len(self.spans)
        self.spans[name] = Span(name, t, ready_s, inf)
        return name

    def _join(self, name: int, t: float) -> None:
        self.serving.append(name)
        self.clock.add(name, self.build())
        homeless, self.homeless = self.homeless, []
        for request in homeless:
            self.route(request, t)

    def _close(self, name: int, replica: Replica, t: float) -> None:
        self.logs[name] = replica.log()
        self.spans[name] = replace(self.spans[name], gone_s=t)


def _restarted(request: Request) -> Request:
    """The same request as its client sent it; what the lost replica had done for it is gone, what the client has seen is not."""
    return Request(
        number=request.number,
        arrival_s=request.arrival_s,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        decode_steps=request.decode_steps,
        thinking_tokens=request.thinking_tokens,
        priority=request.priority,
        priority_class=request.priority_class,
        keys=request.keys,
        session=request.session,
        row=request.row,
        deadline_s=request.deadline_s,
        truncated=request.truncated,
        scheduled_s=request.scheduled_s,
        first_token_s=request.first_token_s,
        answer_s=request.answer_s,
        preemptions=request.preemptions,
    )


def simulate(
    source: Source,
    build: Callable[[], Replica],
    replicas: int = 1,
    spares: int = 0,
    routing: Routing = "round_robin",
    startup_s: float = 120.0,
    losses: Sequence[float] = (),
    autoscaling: Autoscaling | None = None,
    max_steps: int = MAX_STEPS,
) -> FleetRun:
    """Serve everything the source sends with `replicas` replicas made by `build`, or as many as `autoscaling` wants from then on.

    `losses` are moments at which the replica longest in service is taken away, s. Requests still there when `max_steps` are over
    come out as unfinished.
    """
    fleet = Fleet(build, replicas, spares, routing, startup_s, source.answering)
    due_losses = sorted(losses, reverse=True)
    decide_s = autoscaling.interval_s if autoscaling else inf
    arrivals: deque[float] = deque()
    fewer_since_s = 0.0
    while (source.peek() < inf or fleet.homeless or fleet.clock.next_s() < inf) and fleet.clock.steps < max_steps:
        arrival_s = source.peek()
        ready_s = fleet.starting[0][0] if fleet.starting else inf
        loss_s = due_losses[-1] if due_losses else inf
        t = min(arrival_s, ready_s, loss_s, decide_s)
        outcome = fleet.clock.advance(t)
        if outcome is not None:
            fleet.ended(*outcome, source)
        elif t == inf:
            break
        elif t == ready_s:
            fleet.start_due(t)
        elif t == loss_s:
            due_losses.pop()
            if fleet.serving:
                fleet.lose(fleet.serving[0], t)
        elif t == arrival_s:
            arrivals.append(t)
            fleet.route(source.next(), t)
        elif autoscaling is not None:
            decide_s += autoscaling.interval_s
            while arrivals and arrivals[0] <= t - autoscaling.window_s:
                arrivals.popleft()
            wanted = autoscaling.wanted(len(arrivals) / min(t, autoscaling.window_s))
            for _ in range(wanted - len(fleet.serving) - len(fleet.starting)):
                fleet.order(t)
            if wanted >= len(fleet.serving):
                fewer_since_s = t
            elif t - fewer_since_s >= autoscaling.patience_s:
                fleet.retire(t)
    return fleet.close(source.stopped, max_steps if fleet.clock.steps >= max_steps else None)
