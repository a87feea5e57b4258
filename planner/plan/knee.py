"""The largest rate of the whole fleet at which every promise holds: searched on a few runs, then anchored on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite

from planner import bounds, capacity
from planner.metrics import Kept, on_average, overloaded, promises, reached, t_interval
from planner.plan.deployment import Deployment, Deployments
from planner.plan.steady import cached_tokens, decode_shape, input_tokens, output_tokens, plan_batch, prefill_rate
from planner.scenario import Scenario
from planner.scheduler import Timeline

TOLERANCE = 0.03
PROBES = 10
RUNS = 4
"""Runs behind one probe. All rates see the same ones, so they tell how latency grows with the rate better than how high it is."""
ANCHOR_RUNS = 20
"""Runs at one rate, which tell how high it is."""
NEAR = 1.5
"""Ratio of the offered rate and the one found up to which the plan's own replications are the anchor."""
LOWER, STEP_DOWN = 4, 1.3
"""Further probes below the lowest one, and how far, where the anchor lifts the whole curve above the promise."""
START = 0.8
"""First rate tried, as a share of saturation: the promise usually breaks a little below."""
USELESS_SHARE = 0.01
"""Capacity below this share of the highest rate tried: the promise breaks for another reason than load."""

USUAL_PROBES = 7
"""Rates that a search tries for the most part."""
LEAST_PROMPTS = 100
"""Requests of a run below which its percentile says nothing."""

Run = Callable[[int, float, int], Timeline]
"""(seed, rate over the offered one, requests) -> one simulation."""
Seen = Sequence[Sequence[Kept]]
"""What each run made of every promise."""


@dataclass(frozen=True, slots=True)
class Knee:
    """What a search found, requests/s of the whole fleet."""

    rate: float
    """0 where the promise holds only at a rate that no number of replicas makes useful."""
    interval: tuple[float, float] | None
    """Where it lies with 95 % by the spread of the anchor's runs; None where those were too few to tell."""
    probes: tuple[capacity.Probe, ...]
    """Every rate tried, with the worst latency over its promise."""


@dataclass(slots=True)
class _Runs:
    """Runs at any rate, as long as the bound of work allows."""

    run: Run
    scenario: Scenario
    offered: float
    api_s: float
    prompts: int
    """Requests of one run."""
    spent: float
    """Work so far."""
    few: dict[float, list[tuple[Kept, ...]]] = field(default_factory=dict)
    """What the runs behind each probe made of the promises, by rate."""
    probes: list[capacity.Probe] = field(default_factory=list)

    def kept(self, timeline: Timeline) -> tuple[Kept, ...]:
        """What a run makes of the promises."""
        load, mode = self.scenario.workload, self.scenario.simulation.mode
        return reached(timeline, promises(self.scenario.slo, load.priority_classes), self.api_s, mode)

    def watch(self, seed: int, rate: float) -> Timeline:
        """A new run at this rate. Raises `_OutOfWork` instead of running beyond the bound."""
        if self.spent > bounds.MAX_WORK_PER_PLAN:
            raise _OutOfWork
        timeline = self.run(seed, rate / self.offered, self.prompts)
        self.spent += work(timeline, self.scenario)
        return timeline

    def probe(self, rate: float) -> float:
        """The strain of a few runs at this rate, infinite when one of them is overloaded."""
        seen: list[tuple[Kept, ...]] = []
        for seed in range(RUNS):
            timeline = self.watch(seed, rate)
            if overloaded(timeline):
                break
            seen.append(self.kept(timeline))
        self.few[rate] = seen
        self.probes.append(capacity.Probe(rate, worst(seen) if len(seen) == RUNS else inf))
        return self.probes[-1].strain

    def anchor(self, rate: float) -> tuple[float, list[tuple[Kept, ...]]]:
        """The probed rate nearest to this one, and what many runs at it make of the promises.

        A run whose queue grew to its end counts with the latencies it had, as it does in the plan's own verdict: without it the mean
        would leave out the worst bursts.
        """
        _, at = min((abs(p.rate - rate), p.rate) for p in self.probes if isfinite(p.strain))
        many = list(self.few[at])
        with suppress(_OutOfWork):
            for seed in range(RUNS, ANCHOR_RUNS):
                many.append(self.kept(self.watch(seed, at)))
        return at, many


def knee(deployments: Deployments, scenario: Scenario, run: Run, offered: float, replications: Sequence[Timeline]) -> Knee | None:
    """Search; None where the bound of work ended it before anything was known. `replications` are the plan's runs at `offered`.

    A few runs know the shape of strain over rate, because every rate sees the same random numbers, but not its height: one burst of
    long prompts among four runs moves the crossing by a third. So the curve is stretched to meet what many runs say at one rate near
    the crossing. At the offered rate those are the runs behind the plan's own verdict, which the capacity then cannot contradict.
    """
    start = START * saturation_rate(deployments, scenario)
    spent = sum(work(t, scenario) for t in replications)
    prompts = affordable_prompts(deployments[-1], scenario, start, bounds.MAX_WORK_PER_PLAN - spent)
    runs = _Runs(run, scenario, offered, deployments[0].step_time.api_s, prompts, spent)
    probes, ended = runs.probes, False
    with suppress(_OutOfWork):
        capacity.largest_rate(runs.probe, start, TOLERANCE, max_probes=PROBES)
        ended = True
    rate = capacity.crossing(probes)
    if rate is None:
        return Knee(0.0, None, stretched(probes, 1.0)) if ended else None
    at, many = offered, [runs.kept(t) for t in replications]
    if not (len(many) >= RUNS and rate / NEAR < offered < rate * NEAR and isfinite(worst(many)) and not overloaded(*replications)):
        at, many = runs.anchor(rate)
    height, few_there = worst(many), capacity.strain_at(probes, at) or worst(many[:RUNS])
    stretch = height / few_there if few_there and isfinite(height) and isfinite(few_there) else 1.0
    with suppress(_OutOfWork):
        while capacity.crossing(stretched(probes, stretch)) is None and len(probes) < PROBES + LOWER:
            runs.probe(min(p.rate for p in probes) / STEP_DOWN)
    if capacity.crossing(stretched(probes, stretch)) is None and len(probes) < PROBES + LOWER:
        stretch = 1.0  # the bound of work came before a rate that holds for all runs: what the few say is the best there is
    return _found(stretched(probes, stretch), many, height)


def _found(curve: tuple[capacity.Probe, ...], many: Seen, height: float) -> Knee:
    """Where the curve crosses the promise, and between which rates it may by the spread of the many runs that it was stretched to."""
    rate = capacity.crossing(curve) or 0.0
    if rate <= USELESS_SHARE * curve[-1].rate:
        return Knee(0.0, None, curve)
    each = [worst([seen]) for seen in many]
    around = t_interval(each) if height and all(map(isfinite, each)) else None
    if around is None:
        return Knee(rate, None, curve)
    low, high = (capacity.crossing(stretched(curve, end / height)) for end in reversed(around))
    return Knee(rate, (low or curve[0].rate, high or rate), curve)


def affordable_prompts(decode: Deployment, scenario: Scenario, rate: float, most_work: float) -> int:
    """Requests of a run of which a whole search can be afforded: at a rate, time passes in steps hardly longer than a lone request's."""
    prompts, work_of_run = scenario.workload.num_prompts, most_work / (RUNS * USUAL_PROBES)
    arrivals_per_step = rate / scenario.fleet.replicas * decode.step_time(decode_shape(decode, 1))
    if not 0 < arrivals_per_step < inf:
        return prompts
    return min(prompts, max(LEAST_PROMPTS, int(work_of_run / (1 + 1 / arrivals_per_step))))


def stretched(probes: Sequence[capacity.Probe], by: float) -> tuple[capacity.Probe, ...]:
    """The curve with every strain multiplied, in order of rate."""
    return tuple(sorted((capacity.Probe(p.rate, p.strain * by) for p in probes), key=lambda p: p.rate))


def worst(seen: Seen) -> float:
    """The largest strain among the promises, each by its mean over the runs; 0 where nothing is promised."""
    return max((kept.strain for kept in on_average(seen)), default=0.0)


def work(timeline: Timeline, scenario: Scenario) -> float:
    """Work behind a run, in steps: the steps themselves, one for each request, and the bookkeeping of prompts that can share a prefix."""
    load, engine = scenario.workload, scenario.engine
    shares = engine.enable_prefix_caching and (load.turns > 1 or load.shared_prefix_len > 0 or load.trace is not None)
    blocks = float(timeline.input_tokens.sum()) / engine.block_size if shares else 0.0
    return timeline.steps + len(timeline) + blocks / bounds.PREFIX_BLOCKS_PER_STEP


def saturation_rate(deployments: Deployments, scenario: Scenario) -> float:
    """Closed-form guess of the fleet's largest rate: a request costs the prefill of what no cache holds and its share of full steps."""
    prefill, decode = deployments[0], deployments[-1]
    split = scenario.disaggregation
    batch = max(1, plan_batch(decode, 1))
    prompt = max(1, round(input_tokens(scenario) - cached_tokens(prefill.scenario)))
    step_s = decode.step_time(decode_shape(decode, batch))
    prefill_s = prompt / prefill_rate(prefill, prompt)
    decode_s = output_tokens(scenario) / decode.profile.acceptance_length * step_s / batch
    if split is not None:
        return min(split.prefill.replicas / prefill_s, split.decode.replicas / decode_s)
    return scenario.fleet.replicas / (prefill_s + decode_s)


class _OutOfWork(Exception):
    """The search has used its share of the bound of work: what it has found by then is the answer."""
