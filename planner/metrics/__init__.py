"""What users feel and what a fleet delivers, from the timelines of a simulation."""

from planner.metrics.classes import ClassLatency, by_class
from planner.metrics.overload import SENT, backlog_growth, binding, overloaded, piling_up, sent_share
from planner.metrics.promises import Kept, Promise, decided, on_average, promises, reached, settled
from planner.metrics.statistics import MIN_REPLICATIONS, Distribution, known, quantiles, t975, t_interval
from planner.metrics.summary import Latency, Metrics, Run, Throughput, summarize
from planner.metrics.window import Window, e2e_s, gaps_s, good_requests, meets, tpot_s, ttft_s, window

__all__ = [
    "MIN_REPLICATIONS",
    "SENT",
    "ClassLatency",
    "Distribution",
    "Kept",
    "Latency",
    "Metrics",
    "Promise",
    "Run",
    "Throughput",
    "Window",
    "backlog_growth",
    "binding",
    "by_class",
    "decided",
    "e2e_s",
    "gaps_s",
    "good_requests",
    "known",
    "meets",
    "on_average",
    "overloaded",
    "piling_up",
    "promises",
    "quantiles",
    "reached",
    "sent_share",
    "settled",
    "summarize",
    "t975",
    "t_interval",
    "tpot_s",
    "ttft_s",
    "window",
]
