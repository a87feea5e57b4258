"""Several replicas on one clock."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf, nextafter

from planner.scheduler import Replica
from planner.workload import Request


class Clock:
    """Advances whichever replica's next step starts first, and never past the moment another one's starts.

    What a finish sets off (a session's next turn, a transfer) can therefore never come before a step that is already over.
    """

    def __init__(self, answering: bool = True) -> None:
        """`answering`: whether what ends on one replica can bring work to another; without it they need not wait for each other."""
        self.answering = answering
        self.replicas: dict[int, Replica] = {}
        self.steps = 0
        """Steps run so far, of replicas that are gone too."""
        self._start_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []  # holds outdated entries too: only those that equal _start_s count

    def add(self, name: int, replica: Replica) -> None:
        self.replicas[name] = replica
        self.touch(name)

    def remove(self, name: int) -> Replica:
        del self._start_s[name]
        return self.replicas.pop(name)

    def touch(self, name: int, admitted: Request | None = None) -> None:
        """Look again at when a replica's next step starts: something was admitted or freed. A refusal is handed on at once."""
        refused = admitted is not None and admitted.status == "failed"
        self._set(name, 0.0 if refused else self.replicas[name].next_start_s())

    def advance(self, until: float) -> tuple[int, list[Request]] | None:
        """Run steps that start before `until` up to one in which requests end; the replica's name and those requests, or None."""
        while self.next_s() < until:
            start_s, name = heappop(self._heap)
            replica = self.replicas[name]
            steps = replica.steps
            ended = replica.advance(min(until, max(self.next_s(), nextafter(start_s, inf))) if self.answering else until)
            next_s = replica.next_start_s()
            self.steps += replica.steps - steps
            # A replica whose pool is held by KV that waits for its transfer has work and cannot start it: it waits to be touched.
            stuck = replica.steps == steps and next_s <= start_s and not ended
            self._set(name, inf if stuck else next_s)
            if ended:
                return name, ended
        return None

    def next_s(self) -> float:
        """When the next step of any replica starts, s; infinity when all have nothing to do."""
        heap, start_s = self._heap, self._start_s
        while heap and start_s.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def _set(self, name: int, start_s: float) -> None:
        self._start_s[name] = start_s
        if start_s < inf:
            heappush(self._heap, (start_s, name))
