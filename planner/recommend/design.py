"""One design on its way to the fewest replicas that keep the promise, and the batching limits that help it there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner.plan import Plan, plan
from planner.recommend.bounds import Bound
from planner.recommend.space import with_replicas, with_setting
from planner.scenario import Scenario
from planner.sweep import strain, strains

GROWTH = 1.2
"""Replicas grow by this factor while the promise breaks, by one while there are few."""
MOST_OVER_BOUND = 16
"""A design that needs this many times its closed-form bound is given up."""
FAR_OFF = 1.5
"""Worst promise, observed over promised, above which one run is enough to give a design up."""
NEAR = 1.25
"""The same, above which one run of a very large fleet says that replicas do not help: a percentile of one run errs by so much."""
ROOM = 0.95
"""Observed over promised above which a promise has nothing left to trade."""


@dataclass(slots=True)
class Design:
    """A layout on its way to the fewest replicas that keep the promise."""

    judged: Bound
    replicas: int
    """To be simulated next."""
    failed: int = 0
    """The most replicas seen to break the promise."""
    holds: int = 0
    """The fewest seen to keep it; 0 while none did."""
    answer: Plan | None = None
    """The plan at `holds`."""
    simulated: int = 0
    steps: int = 0
    """Engine steps behind the simulations so far."""
    failures: int = 0
    doubted: bool = False
    """Whether a very large fleet was tried."""

    @property
    def most(self) -> int:
        """Replicas beyond which it is not worth asking."""
        return MOST_OVER_BOUND * self.judged.replicas

    def settle(self) -> str:
        """Simulate once more: "open" when another number of replicas is to be tried, "closed" when all is known.

        Grows by a share at a time while the promise breaks, then halves the gap; before the third attempt, for which many designs are
        too dear, one very large fleet decides whether replicas help at all.
        """
        if self.failures > 1 and not self.doubted and not self.holds:
            self.doubted = True
            if not self._helped(self.most):
                return "closed"
        answer = self._try(self.replicas)
        if answer is not None:
            self.holds, self.answer = self.replicas, answer
        else:
            self.failed, self.failures = self.replicas, self.failures + 1
        if self.holds:
            self.replicas = (self.failed + self.holds) // 2
            # The bound itself was not simulated to fail, but nothing below it can hold.
            least = max(self.failed, self.judged.replicas - 1)
            self.replicas = max(self.replicas, least + 1)
            return "closed" if self.holds - least <= 1 else "open"
        self.replicas = max(self.replicas + 1, math.ceil(self.replicas * GROWTH))
        return "closed" if self.replicas > self.most else "open"

    def _try(self, replicas: int) -> Plan | None:
        """The plan with the first batching limits that keep the promise at this many replicas, or None."""
        return next((answer for answer in self._answers(replicas, _decided) if strain(answer) <= 1), None)

    def _helped(self, replicas: int) -> bool:
        """Whether so many replicas could keep the promise with any batching limits, by one run each."""
        return any(strain(answer) <= NEAR for answer in self._answers(replicas, lambda scenario: (plan(scenario, "quick"), 1)))

    def _answers(self, replicas: int, ask: Callable[[Scenario], tuple[Plan, int]]) -> Iterator[Plan]:
        """Plans at this many replicas, one for each of the batching limits that are worth trying after what those before them did.

        `ask` gives the plan of a scenario and the simulations behind it.
        """
        layout, seen = self.judged.layout, None
        for setting in layout.settings:
            if seen is not None and not _worth_trying(setting, layout.settings[0], seen):
                continue
            answer, runs = ask(with_replicas(with_setting(layout.scenario, setting), replicas))
            self.simulated += runs
            self.steps += answer.load.metrics.simulation.steps if answer.load else 0
            yield answer
            seen = _latest(seen, setting, answer)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the batching limits tried so far did: promises over their limits, and the fewest sequences that still queued."""

    first: float
    """TTFT over its promise with the first limits."""
    token: float
    """TPOT or E2E over its promise with the first limits."""
    starved: int
    """The largest max_num_seqs at which waiting for a seat broke the TTFT promise."""


def _latest(seen: _Seen | None, setting: tuple[int, int], answer: Plan) -> _Seen:
    ratios = strains(answer)
    first, token = ratios.get("ttft_s", 0.0), max((v for name, v in ratios.items() if name != "ttft_s"), default=0.0)
    if seen is None:
        return _Seen(first, token, 0)
    return replace(seen, starved=max(seen.starved, setting[0])) if first > 1 else seen


def _worth_trying(setting: tuple[int, int], tried: tuple[int, int], seen: _Seen) -> bool:
    """Whether these batching limits could mend what the first ones broke.

    Limits trade one promise against the other: fewer sequences at once speed tokens up and make requests wait, a larger
    token budget does the reverse. Where neither promise has room, or both are broken, no limit helps.
    """
    slower_first = setting[0] < tried[0]
    if seen.token > 1:
        return seen.first < ROOM and slower_first and setting[0] > seen.starved and setting[1] == tried[1]
    return seen.token < ROOM and not slower_first and setting[1] > tried[1]


def _decided(design: Scenario) -> tuple[Plan, int]:
    """The design simulated until it is clear whether it keeps its promise, and the plans that took.

    One run settles what is far off; the rest is repeated until the promise lies beside the interval of what was seen, because
    a 95th percentile of one run can be a third off.
    """
    answer = plan(design, "quick")
    if design.simulation.replications is not None or strain(answer) > FAR_OFF:
        return answer, 1
    return plan(design, "decided"), 2
