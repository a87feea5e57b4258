"""One replica's step loop: what an engine schedules in each step, and when every request is therefore answered."""

from planner.scheduler.limits import Limits, limits_of
from planner.scheduler.policies import POLICIES, Policy, mixed, prefill_first, static
from planner.scheduler.replica import Replica, StepTime
from planner.scheduler.run import MAX_STEPS, simulate
from planner.scheduler.timeline import (
    CANCELLED,
    FAILED,
    FINISHED,
    STATUSES,
    UNFINISHED,
    EngineLog,
    Ledger,
    StepRecords,
    Timeline,
)

__all__ = [
    "CANCELLED",
    "FAILED",
    "FINISHED",
    "MAX_STEPS",
    "POLICIES",
    "STATUSES",
    "UNFINISHED",
    "EngineLog",
    "Ledger",
    "Limits",
    "Policy",
    "Replica",
    "StepRecords",
    "StepTime",
    "Timeline",
    "limits_of",
    "mixed",
    "prefill_first",
    "simulate",
    "static",
]
