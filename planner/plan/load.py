"""The simulated half of a plan: replications until the promise is known, and the largest rate that keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal

from planner import bounds, capacity, traces, traffic
from planner.cost import Load
from planner.metrics import Kept, Metrics, decided, on_average, overloaded, promises, reached, settled, summarize
from planner.plan.steady import decode_shape, plan_batch, prefill_rate
from planner.plan.system import Deployments, run_once, simulated_share
from planner.scenario import Scenario
from planner.scheduler import Timeline

if TYPE_CHECKING:
    from planner.fleet.disaggregated import Transfers

Effort = Literal["quick", "decided", "full"]
"""quick: one run, no capacity search; decided: as many runs as tell whether the promise is kept; full: as many as tell by how much, and
the capacity."""

DECIDING_RUNS = 20
"""Runs after which a promise that lies inside the interval of what was seen is judged by the mean: twice as many halve nothing."""
CAPACITY_TOLERANCE = 0.03
CAPACITY_PROBES = 10
CAPACITY_RUNS = 4
"""Runs behind one probe: the percentile of a single one wanders by a tenth and more near the knee."""
SAMPLED = 0.1
"""How far the rate of a few runs may lie from the offered one by chance; beyond it something else is the matter."""
USELESS_SHARE = 0.01
"""Capacity below this share of the highest rate tried: the promise breaks for another reason than load."""
CAPACITY_START = 0.8
"""First rate tried, as a share of saturation: the promise usually breaks a little below."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the plan does under its traffic."""

    metrics: Metrics
    timelines: tuple[Timeline, ...]
    """One per replication, in the order of their seeds."""
    kept: tuple[Kept, ...]
    """What became of each promise, mean of the runs."""
    offered_requests_per_s: float | None
    """What arrives at the whole fleet; None for a closed loop."""
    capacity_requests_per_s: float | None
    """Largest rate of the whole fleet at which every promise holds at its percentile; 0 where no useful rate keeps it, None where
    none was searched or the search ran out of work before it knew."""
    utilization: float | None
    """Offered rate over that capacity."""
    probes: tuple[capacity.Probe, ...] = ()
    """Rates tried by the search, with the worst latency over its promise at each."""
    transfers: Transfers | None = None
    """What moved between the pools of a disaggregated plan in the first run."""

    @property
    def overloaded(self) -> bool:
        """More arrives than can be served: the queue grows as long as the load lasts."""
        return self.metrics.simulation.overloaded

    @property
    def cost_load(self) -> Load:
        """One second of the steady state, in the terms the bill is split by."""
        t = self.metrics.throughput
        if not t.output_tokens_per_s:
            return self._whole_runs
        # A stable fleet serves what arrives; the rate that one sample of arrivals happened to have is noise.
        drawn = self.offered_requests_per_s / t.requests_per_s if self.offered_requests_per_s and t.requests_per_s else 1.0
        sessions = self.timelines[0].expected_requests is not None
        factor = drawn if abs(drawn - 1) < SAMPLED and not self.overloaded and not sessions else 1.0
        cached = t.input_tokens_per_s * t.prefix_hit_rate
        return Load(
            duration_s=1.0,
            requests=factor * t.requests_per_s,
            input_tokens=factor * (t.input_tokens_per_s - cached),
            cached_tokens=factor * cached,
            output_tokens=factor * t.output_tokens_per_s,
            input_busy_s=sum(run.input_busy_s for run in self.timelines),
            cached_busy_s=sum(run.cached_busy_s for run in self.timelines),
            output_busy_s=sum(run.output_busy_s for run in self.timelines),
        )

    @property
    def _whole_runs(self) -> Load:
        """Ramp and drain included: for runs in which nothing finished while requests still arrived."""
        runs = self.timelines
        cached = sum(int(run.cached_tokens[run.finished].sum()) for run in runs)
        return Load(
            duration_s=sum(run.end_s for run in runs),
            requests=sum(int(run.finished.sum()) for run in runs),
            input_tokens=sum(int(run.input_tokens[run.finished].sum()) for run in runs) - cached,
            cached_tokens=cached,
            output_tokens=sum(int(run.output_tokens[run.finished].sum()) for run in runs),
            input_busy_s=sum(run.input_busy_s for run in runs),
            cached_busy_s=sum(run.cached_busy_s for run in runs),
            output_busy_s=sum(run.output_busy_s for run in runs),
        )


def simulated(deployments: Deployments, scenario: Scenario, effort: Effort) -> Loaded | None:
    """Run the scenario; None when no request ever arrives."""
    if scenario.workload.request_rate == 0 and scenario.workload.max_concurrency is None and scenario.workload.trace is None:
        return None
    api_s = deployments[0].step_time.api_s
    slo, mode, classes = scenario.slo, scenario.simulation.mode, scenario.workload.priority_classes
    given = promises(slo, classes)
    pace = trace_pace(scenario)

    def run(seed: int, rate_scale: float = 1.0) -> Timeline:
        return run_once(deployments, scenario, scenario.workload.seed + seed, rate_scale * pace)[0]

    most = {"quick": 1, "decided": min(DECIDING_RUNS, bounds.MAX_REPLICATIONS), "full": bounds.MAX_REPLICATIONS}[effort]
    wanted = scenario.simulation.replications or (1 if mode == "benchmark" else most)
    fixed = scenario.simulation.replications is not None
    first, transfers = run_once(deployments, scenario, scenario.workload.seed, pace)
    timelines = [first]
    while len(timelines) < wanted and affordable(timelines, scenario):
        if not fixed and (overloaded(timelines[0]) or settled(timelines, given, api_s)):
            break
        if effort == "decided" and not fixed and decided(timelines, given, api_s):
            break
        timelines.append(run(len(timelines)))
    metrics = whole_fleet(summarize(timelines, slo, mode, api_s, classes), scenario)
    offered = traffic.of(scenario.workload).request_rate
    found = search_capacity(deployments, scenario, offered, run, api_s) if effort == "full" and offered else None
    kept = on_average([reached(t, given, api_s, mode) for t in timelines])
    rate = useful_rate(found) if found else None
    if rate and offered:
        # The replications know the offered rate better than the few runs of a probe do.
        keeps = not metrics.simulation.overloaded and all(k.strain <= 1 for k in kept)
        rate = max(rate, offered) if keeps else min(rate, offered)
    return Loaded(
        metrics=metrics,
        timelines=tuple(timelines),
        kept=kept,
        offered_requests_per_s=offered,
        capacity_requests_per_s=rate,
        utilization=offered / rate if rate and offered else None,
        probes=found.probes if found else (),
        transfers=transfers,
    )


def trace_pace(scenario: Scenario) -> float:
    """Factor on the arrivals of a recorded trace that gives them the rate the scenario asks for; 1 for drawn arrivals."""
    asked, trace = scenario.workload.request_rate, scenario.workload.trace
    if trace is None or not asked:
        return 1.0
    own = traces.get(trace).request_rate
    return asked / own if isfinite(own) else 1.0


def useful_rate(found: capacity.Capacity) -> float:
    """The capacity a search found; 0 where the promise holds only at a rate that no number of replicas makes useful."""
    highest = max((probe.rate for probe in found.probes), default=0.0)
    return found.rate if found.rate > USELESS_SHARE * highest else 0.0


def affordable(timelines: list[Timeline], scenario: Scenario) -> bool:
    """Whether one more run like those before stays within the bounds of work."""
    runs = len(timelines)
    done, requests = sum(work(t, scenario) for t in timelines), sum(len(t) for t in timelines)
    grown = (runs + 1) / runs
    return done * grown <= bounds.MAX_WORK_PER_PLAN / 2 and requests * grown <= scenario.simulation.max_requests


def work(timeline: Timeline, scenario: Scenario) -> float:
    """Work behind a run, in steps: the steps themselves, one for each request, and the bookkeeping of prompts that can share a prefix."""
    traffic, engine = scenario.workload, scenario.engine
    shares = engine.enable_prefix_caching and (traffic.turns > 1 or traffic.shared_prefix_len > 0 or traffic.trace is not None)
    blocks = float(timeline.input_tokens.sum()) / engine.block_size if shares else 0.0
    return timeline.steps + len(timeline) + blocks / bounds.PREFIX_BLOCKS_PER_STEP


def whole_fleet(metrics: Metrics, scenario: Scenario) -> Metrics:
    """Rates of the whole fleet where only some of its replicas were simulated."""
    share = simulated_share(scenario)
    if share == 1:
        return metrics
    rates = ("requests_per_s", "output_tokens_per_s", "input_tokens_per_s", "goodput_requests_per_s")
    scaled = {name: getattr(metrics.throughput, name) / share for name in rates}
    return dataclasses.replace(metrics, throughput=dataclasses.replace(metrics.throughput, **scaled))


def search_capacity(
    deployments: Deployments, scenario: Scenario, offered: float, run: Callable[[int, float], Timeline], api_s: float
) -> capacity.Capacity | None:
    """Largest rate of the whole fleet that keeps every promise at its percentile, on average over a few runs.

    `run(seed, rate_scale)` simulates once. Every rate sees the same random numbers, so that only the rate differs.
    """
    given = promises(scenario.slo, scenario.workload.priority_classes)
    spent = 0.0
    tried: list[capacity.Probe] = []

    def strain(rate: float) -> float:
        nonlocal spent
        strains: list[float] = []
        for seed in range(CAPACITY_RUNS):
            if spent > bounds.MAX_WORK_PER_PLAN / 2:
                if strains:
                    break
                raise _OutOfWork
            timeline = run(seed, rate / offered)
            spent += work(timeline, scenario)
            if overloaded(timeline):
                strains = [inf]
                break
            strains.append(max((kept.strain for kept in reached(timeline, given, api_s)), default=0.0))
        tried.append(capacity.Probe(rate, sum(strains) / len(strains)))
        return tried[-1].strain

    start = CAPACITY_START * saturation_rate(deployments, scenario)
    try:
        return capacity.largest_rate(strain, start, CAPACITY_TOLERANCE, max_probes=CAPACITY_PROBES)
    except _OutOfWork:
        holding = [p.rate for p in tried if p.holds]
        breaking = [p.rate for p in tried if not p.holds]
        if not holding:
            return None
        return capacity.Capacity(max(holding), min(breaking, default=None), tuple(sorted(tried, key=lambda p: p.rate)))


class _OutOfWork(Exception):
    """The search has used its share of the bound of work: what it has found by then is the answer."""


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
