"""Requests that have no seat: those the scheduler has not seen yet, and those that wait their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from planner.workload import Request


class Queue:
    """First come, first served within a priority; lower priority numbers first, as in vLLM.

    A preempted request keeps its ticket, so it comes back before all that came after it.
    """

    def __init__(self) -> None:
        self.arriving: deque[Request] = deque()
        """In order of arrival, not yet seen by the scheduler."""
        self._waiting: list[tuple[int, int, Request]] = []
        self._cancelled = 0  # still on the heap, skipped when they surface
        self._tickets = 0
        self.priorities: set[int] = set()
        """All that ever came."""

    def arrive(self, request: Request) -> None:
        """A request reaches the server."""
        request.ticket = self._tickets
        self._tickets += 1
        self.priorities.add(request.priority)
        self.arriving.append(request)

    def see(self, horizon_s: float) -> None:
        """Let everything that arrived by `horizon_s` wait its turn."""
        while self.arriving and self.arriving[0].arrival_s <= horizon_s:
            self.put_back(self.arriving.popleft())

    def put_back(self, request: Request) -> None:
        """Let a request wait its turn, or once more."""
        heappush(self._waiting, (request.priority, request.ticket, request))

    def head(self) -> Request | None:
        """Whose turn it is."""
        while self._waiting:
            request = self._waiting[0][2]
            if request.status != "cancelled":
                return request
            heappop(self._waiting)
            self._cancelled -= 1
        return None

    def pop(self) -> None:
        """Take the head off."""
        heappop(self._waiting)

    def cancel(self, request: Request) -> None:
        """A request that has no seat is given up; its status must say so already."""
        if request in self.arriving:
            self.arriving.remove(request)
        else:
            self._cancelled += 1

    def __len__(self) -> int:
        return len(self.arriving) + len(self._waiting) - self._cancelled

    def __iter__(self) -> Iterator[Request]:
        yield from self.arriving
        yield from (request for *_, request in self._waiting if request.status != "cancelled")

    @property
    def waiting(self) -> int:
        """Requests that the scheduler has seen."""
        return len(self._waiting) - self._cancelled
