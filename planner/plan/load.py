"""The simulated half of a plan: replications until the promise is known, and the largest rate that keeps it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Literal

from planner import bounds, capacity, traces, traffic
from planner.cost import Load
from planner.metrics import Kept, Metrics, decided, on_average, overloaded, promises, reached, settled, summarize
from planner.plan.deployment import Deployments
from planner.plan.knee import knee, work
from planner.plan.sample import simulated_share
from planner.plan.system import run_once
from planner.scenario import Scenario
from planner.scheduler import Timeline

if TYPE_CHECKING:
    from planner.fleet.disaggregated import Transfers

Effort = Literal["quick", "decided", "full"]
"""quick: one run, no capacity search; decided: as many runs as tell whether the promise is kept; full: as many as tell by how much, and
the capacity."""

DECIDING_RUNS = 20
"""Runs after which a promise that lies inside the interval of what was seen is judged by the mean: twice as many halve nothing."""
SAMPLED = 0.1
"""How far the rate of a few runs may lie from the offered one by chance; beyond it something else is the matter."""


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
    capacity_interval: tuple[float, float] | None
    """Where that capacity lies with 95 %, by the spread of the runs: not counting the error of step times."""
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

    def run(seed: int, rate_scale: float = 1.0, num_prompts: int = scenario.workload.num_prompts) -> Timeline:
        load = scenario.workload.model_copy(update={"num_prompts": num_prompts})
        shortened = scenario.model_copy(update={"workload": load})
        return run_once(deployments, shortened, load.seed + seed, rate_scale * pace)[0]

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
    if scenario.fidelity == "textbook":  # hand arithmetic quotes the closed form, not what answers of a finite length make of it
        seen = dataclasses.replace(metrics.throughput, acceptance_length=deployments[-1].profile.acceptance_length)
        metrics = dataclasses.replace(metrics, throughput=seen)
    offered = traffic.of(scenario.workload).request_rate
    found = knee(deployments, scenario, run, offered, timelines) if effort == "full" and offered else None
    kept = on_average([reached(t, given, api_s, mode) for t in timelines])
    rate = found.rate if found else None
    return Loaded(
        metrics=metrics,
        timelines=tuple(timelines),
        kept=kept,
        offered_requests_per_s=offered,
        capacity_requests_per_s=rate,
        capacity_interval=found.interval if found else None,
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


def affordable(timelines: list[Timeline], scenario: Scenario) -> bool:
    """Whether one more run like those before stays within the bounds of work."""
    runs = len(timelines)
    done, requests = sum(work(t, scenario) for t in timelines), sum(len(t) for t in timelines)
    grown = (runs + 1) / runs
    return done * grown <= bounds.MAX_WORK_PER_PLAN / 2 and requests * grown <= scenario.simulation.max_requests


def whole_fleet(metrics: Metrics, scenario: Scenario) -> Metrics:
    """Rates of the whole fleet where only some of its replicas were simulated."""
    share = simulated_share(scenario)
    if share == 1:
        return metrics
    rates = ("requests_per_s", "output_tokens_per_s", "input_tokens_per_s", "goodput_requests_per_s")
    scaled = {name: getattr(metrics.throughput, name) / share for name in rates}
    return dataclasses.replace(metrics, throughput=dataclasses.replace(metrics.throughput, **scaled))
