"""What arrives: who sends which request when, drawn up front as columns, and how clients react when an answer ends.

`requests` draws the columns (arrivals, lengths, sessions, prefixes, classes) from one seed, each from a random stream of its own, so
that two scenarios with the same seed meet the same traffic whatever else differs (common random numbers). `Source` hands the
requests out in time order and answers every finish: the next turn of a session, the closed loop's next client, a retry.
"""

from planner.traces import Trace
from planner.workload.columns import Requests, requests, trace_keys
from planner.workload.draws import draw_arrivals, draw_classes, draw_lengths, stream
from planner.workload.request import Request
from planner.workload.sessions import Histories
from planner.workload.source import Source

__all__ = [
    "Histories",
    "Request",
    "Requests",
    "Source",
    "Trace",
    "draw_arrivals",
    "draw_classes",
    "draw_lengths",
    "requests",
    "stream",
    "trace_keys",
]
