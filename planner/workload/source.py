"""The clients: they send requests in order of arrival and answer every finish."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random

from planner.scenario import PriorityClass
from planner.workload.columns import Requests
from planner.workload.request import Request


class Source:
    """Hands requests out in order of arrival, and sends what clients send in answer to a finish.

    A session is one client: its next turn follows the end of the last one after a pause. With `max_concurrency` that many clients
    are active at once and the next session starts when one ends, never before it is due; the wait for that is the client's own.
    Nothing is sent after the requests' horizon.
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
        longest_keyed: int | None = None,
    ) -> None:
        """`block_size` 0 gives requests no content keys (no prefix cache). At most `max_requests` are ever sent.

        No keys name what lies beyond `longest_keyed` tokens of a request: the engine refuses or cuts it there.
        """
        self.requests = requests
        self.sent = 0
        self.exhausted = False
        """Whether `max_requests` cut the traffic short."""
        self._block_size = block_size if requests.shares_content else 0
        self._longest_keyed = longest_keyed
        self._clients = max_concurrency or len(requests)
        self._priorities = [c.priority for c in priority_classes] or [0]
        self._patience_s = math.inf if deadline_s is None else deadline_s
        self._retry_rate, self._random = retry_rate, Random(f"{seed} retries")
        self._max_requests = max_requests or 10 * len(requests)
        # Views whose items are plain Python numbers.
        self._first_row, self._start_s = requests.first_row.data, requests.session_start_s.data
        self._input, self._output, self._decode_steps = requests.input_tokens.data, requests.output_tokens.data, requests.decode_steps.data
        self._thinking, self._class, self._truncated = requests.thinking_tokens.data, requests.priority_class.data, requests.truncated.data
        self._due: list[tuple[float, int, int]] = []  # (time, row, session) of what is known to be sent
        self._active = self._opened = 0  # sessions under way, sessions ever opened
        self._open_next(0.0)

    @property
    def answering(self) -> bool:
        """Whether the end of a request can bring another one: a session's next turn, a closed loop's next client, a retry."""
        sessions = len(self.requests.session_start_s)
        return sessions < len(self.requests) or self._clients < sessions or self._retry_rate > 0

    @property
    def stopped(self) -> str:
        """Why the traffic was cut short; empty when it was not."""
        return f"stopped after {self.sent} requests: retries keep coming" if self.exhausted else ""

    def peek(self) -> float:
        """Arrival time of the next request known so far, s; infinity when there is none."""
        return self._due[0][0] if self._due else math.inf

    def next(self) -> Request:
        """The request that `peek` announced."""
        arrival_s, row, session = heappop(self._due)
        if row == self._first_row[session] and session == self._opened - 1:
            self._open_next(arrival_s)
        return self._request(arrival_s, row, session)

    def finished(self, request: Request) -> None:
        """A client learns at `request.finish_s` how its request ended, and may send another.

        Only what missed its deadline is retried: a failed request can never run here, so that sending it again would change nothing.
        """
        now = request.finish_s
        if request.status == "finished":
            following = request.row + 1
            if following < self._first_row[request.session + 1]:
                self._send(now + float(self.requests.think_s[following]), following, request.session)
                return
        elif request.status == "cancelled" and self._random.random() < self._retry_rate:
            self._send(now, request.row, request.session)
            return
        self._active -= 1
        if self._active == self._clients - 1:
            self._open_next(now)

    def _open_next(self, now: float) -> None:
        """Make the next session known, if a client is free for it."""
        session = self._opened
        if session < len(self._start_s) and self._active < self._clients:
            self._active += 1
            self._opened += 1
            self._send(max(now, self._start_s[session]), self._first_row[session], session)

    def _send(self, at_s: float, row: int, session: int) -> None:
        if at_s > self.requests.horizon_s:
            return
        if self.sent < self._max_requests:
            heappush(self._due, (at_s, row, session))
        else:
            self.exhausted = True

    def _request(self, arrival_s: float, row: int, session: int) -> Request:
        self.sent += 1
        if self.sent >= self._max_requests:
            self.exhausted = self.exhausted or bool(self._due)
            self._due.clear()
        priority_class = self._class[row]
        return Request(
            number=self.sent - 1,
            arrival_s=arrival_s,
            input_tokens=self._input[row],
            output_tokens=self._output[row],
            decode_steps=self._decode_steps[row],
            thinking_tokens=self._thinking[row],
            priority=self._priorities[priority_class],
            priority_class=priority_class,
            keys=self.requests.keys(row, session, self._block_size, self._longest_keyed) if self._block_size else (),
            session=session,
            row=row,
            deadline_s=arrival_s + self._patience_s,
            truncated=bool(self._truncated[row]),
        )
