"""The largest rate of the whole fleet at which every promise holds: searched on a few runs, then anchored on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite

from planner import bounds, capacity, traffic
from planner.metrics import Kept, on_average, overloaded, promises, reached, t_interval
from planner.plan.deployment import Deployments
from planner.plan.steady import decode_shape, plan_batch, prefill_rate
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


def knee(deployments: Deployments, scenario: Scenario, run: Run, offered: float, replications: Sequence[Timeline]) -> Knee | None:
    """Search; None where the bound of work ended it before anything was known. `replications` are the plan's runs at `offered`.

    A few runs know the shape of strain over rate, because every rate sees the same random numbers, but not its height: one burst of
    long prompts among four runs moves the crossing by a third. So the curve is stretched to meet what many runs say at one rate near
    the crossing. At the offered rate those are the runs behind the plan's own verdict, which the capacity then cannot contradict.
    """
    api_s = deployments[0].step_time.api_s
    given, mode = promises(scenario.slo, scenario.workload.priority_classes), scenario.simulation.mode
    few: dict[float, list[tuple[Kept, ...]]] = {}  # by rate
    probes: list[capacity.Probe] = []
    spent = sum(work(t, scenario) for t in replications)
    start = START * saturation_rate(deployments, scenario)
    # Runs are shortened until a whole search of them can be afforded: at a rate, time passes in steps hardly longer than a lone one's.
    prompts, replicas = scenario.workload.num_prompts, scenario.fleet.replicas
    work_of_run = (bounds.MAX_WORK_PER_PLAN - spent) / (RUNS * USUAL_PROBES)
    arrivals_per_step = start / replicas * deployments[-1].step_time(decode_shape(deployments[-1], 1))
    if 0 < arrivals_per_step < inf:
        prompts = min(prompts, max(LEAST_PROMPTS, int(work_of_run / (1 + 1 / arrivals_per_step))))

    def watch(seed: int, rate: float) -> tuple[Kept, ...] | None:
        """What a run makes of the promises; None when it is overloaded."""
        nonlocal spent
        if spent > bounds.MAX_WORK_PER_PLAN:
            raise _OutOfWork
        timeline = run(seed, rate / offered, prompts)
        spent += work(timeline, scenario)
        return None if overloaded(timeline) else reached(timeline, given, api_s, mode)

    def probe(rate: float) -> float:
        seen: list[tuple[Kept, ...]] = []
        for seed in range(RUNS):
            kept = watch(seed, rate)
            if kept is None:
                break
            seen.append(kept)
        few[rate] = seen
        probes.append(capacity.Probe(rate, worst(seen) if len(seen) == RUNS else inf))
        return probes[-1].strain

    ended = False
    with suppress(_OutOfWork):
        capacity.largest_rate(probe, start, TOLERANCE, max_probes=PROBES)
        ended = True
    rate = capacity.crossing(probes)
    if rate is None:
        return Knee(0.0, None, stretched(probes, 1.0)) if ended else None
    many = [reached(t, given, api_s, mode) for t in replications]
    at = offered
    if not (len(many) >= RUNS and rate / NEAR < offered < rate * NEAR and isfinite(worst(many)) and not overloaded(*replications)):
        _, at = min((abs(p.rate - rate), p.rate) for p in probes if isfinite(p.strain))
        many = list(few[at])
        with suppress(_OutOfWork):
            for seed in range(RUNS, ANCHOR_RUNS):
                if (kept := watch(seed, at)) is not None:
                    many.append(kept)
    height, few_there = worst(many), capacity.strain_at(probes, at) or worst(many[:RUNS])
    stretch = height / few_there if few_there and isfinite(height) and isfinite(few_there) else 1.0
    with suppress(_OutOfWork):
        while capacity.crossing(stretched(probes, stretch)) is None and len(probes) < PROBES + LOWER:
            probe(min(p.rate for p in probes) / STEP_DOWN)
    if capacity.crossing(stretched(probes, stretch)) is None and len(probes) < PROBES + LOWER:
        stretch = 1.0  # the bound of work came before a rate that holds for all runs: what the few say is the best there is
    curve = stretched(probes, stretch)
    rate = capacity.crossing(curve) or 0.0
    if rate <= USELESS_SHARE * curve[-1].rate:
        return Knee(0.0, None, curve)
    each = [worst([seen]) for seen in many]
    around = t_interval(each) if height and all(map(isfinite, each)) else None
    if around is None:
        return Knee(rate, None, curve)
    low, high = (capacity.crossing(stretched(curve, end / height)) for end in reversed(around))
    return Knee(rate, (low or curve[0].rate, high or rate), curve)


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
    means = traffic.of(scenario.workload)
    cached = means.reusable_tokens if prefill.scenario.engine.enable_prefix_caching else 0.0
    prompt = max(1, round(means.input_tokens - cached))
    step_s = decode.step_time(decode_shape(decode, batch))
    prefill_s = prompt / prefill_rate(prefill, prompt)
    decode_s = means.output_tokens / decode.profile.acceptance_length * step_s / batch
    if split is not None:
        return min(split.prefill.replicas / prefill_s, split.decode.replicas / decode_s)
    return scenario.fleet.replicas / (prefill_s + decode_s)


class _OutOfWork(Exception):
    """The search has used its share of the bound of work: what it has found by then is the answer."""
