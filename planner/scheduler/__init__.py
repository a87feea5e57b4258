"""One replica's step loop: what an engine schedules in each step, and when every request is therefore answered.

The life of a request:

1. `simulate` takes it from the source when it is due and `Replica.admit`s it; what can never run is refused with a reason (`blocks`).
2. It waits in the `queue`, first come first served within its priority.
3. The policy (`policies`) plans each step: decoding sequences get room for a token, prompts get chunks, and the request gets a seat
   when one is free and its prompt's KV fits (`scheduler`, `blocks`), sharing what the prefix cache holds of it.
4. The replica asks `StepTime` how long the step takes and moves its clock (`replica`).
5. The step that computes the end of its prompt emits its first token.
6. It decodes. Only sums and a calendar know of it now (`batch`), and its KV grows by counting remainders (`growth`).
7. When KV runs out the newest is preempted: it gives back its blocks, returns to the queue and computes everything again.
8. On its last decode step it ends, gives back its blocks and is written down as a row (`timeline`, `log`).
"""

from planner.scheduler.limits import Limits, limits_of
from planner.scheduler.policies import POLICIES, Policy
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
    "simulate",
]
