"""Drive one replica with a source of requests until all is done, or until a bound says that it never will be."""

from __future__ import annotations

from math import inf

from planner.scheduler.replica import Replica
from planner.scheduler.timeline import Ledger, Timeline
from planner.workload import Source

MAX_STEPS = 5_000_000
"""Bound on one simulation: about half a minute."""


def simulate(source: Source, replica: Replica, max_steps: int = MAX_STEPS) -> Timeline:
    """Serve everything the source sends. Requests still there when `max_steps` are over come out as unfinished, with the reason."""
    ledger = Ledger()
    replica.max_steps = max_steps
    while True:
        arrival_s = source.peek()
        ended = replica.advance(arrival_s)
        for request in ended:
            ledger.add(request)
            source.finished(request)
        if not ended:
            if arrival_s == inf or replica.steps >= max_steps:
                break
            while source.peek() == arrival_s:  # all who come at once
                replica.admit(source.next(), arrival_s)
    for request in replica.unfinished:
        ledger.add(request)
    return ledger.timeline([replica.log()], source.stopped, max_steps if replica.steps >= max_steps else None)
