"""The fewest replicas that keep the promise at a rate, found by simulation within a bound of work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

from planner import bounds
from planner.plan import plan
from planner.problems import InputError
from planner.scenario import Price, Scenario
from planner.sweep import strain

MOST_REPLICAS = 100_000
LARGE_FLEET = 128
"""Replicas from which every fleet is simulated as the same few of them, each with its share: what one carries is then found once, within
half a per cent, for every rate."""
TOLERANCE = 1.005


class OutOfWork(InputError):
    """A question of many simulations has used up the work that one search may cause."""


@dataclass(slots=True)
class Work:
    """What one question may still cause, in engine steps and requests.

    What a simulation costs counts also where its answer is at hand from before: a question then ends at the same place on every day.
    """

    left: int = field(default_factory=lambda: bounds.MAX_WORK_PER_SEARCH)

    @property
    def out(self) -> bool:
        """Whether nothing is left."""
        return self.left < 0

    def spend(self, amount: int) -> None:
        """Count a simulation. Raises OutOfWork when that was the last one."""
        self.left -= amount
        if self.out:
            raise OutOfWork(
                "workload.request_rate: sizing this fleet takes more simulation than one search may cause "
                f"(PLANNER_MAX_WORK_PER_SEARCH = {bounds.MAX_WORK_PER_SEARCH:,} steps); ask about a lower rate"
            )


def replicas_needed(scenario: Scenario, rate: float, work: Work | None = None) -> int:
    """Fewest replicas that keep the promise at this rate, by simulation; 0 when even one request alone breaks it.

    Doubling finds a fleet that holds, bisection the smallest: every fleet meets the same traffic, so more replicas never
    do worse than the noise of routing. Raises OutOfWork.
    """
    work = work or Work()
    # What it costs does not change what it carries; leaving it out lets price changes share one answer.
    scenario = scenario.model_copy(update={"price": Price(), "name": "", "notes": ""})
    if _holds(scenario, rate, 1, work):
        return 1
    if not holds_alone(scenario):
        return 0
    low, high = 1, 2
    while not _holds(scenario, rate, high, work):
        low, high = high, high * 2
        if high > LARGE_FLEET:
            one_each = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"request_rate": 1.0})})
            needed = math.ceil(rate / _rate_each(one_each, work))
            return needed if needed <= MOST_REPLICAS else 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _holds(scenario, rate, middle, work) else (middle, high)
    return high


def holds_alone(scenario: Scenario) -> bool:
    """Whether the promise holds at a trickle: when not, no number of replicas keeps it."""
    traffic = scenario.workload.model_copy(update={"request_rate": 1e-3, "num_prompts": min(100, scenario.workload.num_prompts)})
    lone = scenario.model_copy(update={"workload": traffic, "fleet": scenario.fleet.model_copy(update={"replicas": 1})})
    return strain(plan(lone, "quick")) <= 1


def _rate_each(scenario: Scenario, work: Work) -> float:
    """Requests a second of each replica of a large fleet that keeps the promise; the scenario's own rate is not looked at."""
    low, high = 1e-3, 2e-3
    while _holds(scenario, LARGE_FLEET * high, LARGE_FLEET, work):
        low, high = high, high * 2
    while high > low * TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _holds(scenario, LARGE_FLEET * middle, LARGE_FLEET, work) else (low, middle)
    return low


def _holds(scenario: Scenario, rate: float, count: int, work: Work) -> bool:
    holds, cost = _tried(scenario, rate, count)
    work.spend(cost)
    return holds


@lru_cache(maxsize=1024)
def _tried(scenario: Scenario, rate: float, count: int) -> tuple[bool, int]:
    """Whether so many replicas keep the promise at this rate, and the work of finding out."""
    traffic = scenario.workload.model_copy(update={"request_rate": rate})
    fleet = scenario.fleet.model_copy(update={"replicas": count})
    answer = plan(scenario.model_copy(update={"workload": traffic, "fleet": fleet}), "quick")
    done = answer.load.metrics.simulation if answer.load else None
    return strain(answer) <= 1, done.steps + done.requests if done else 0
