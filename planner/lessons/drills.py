"""Drills: the scenario's own fleet when a replica is lost, when spot capacity is taken away, and when demand follows a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from planner import bounds, demand, fleet, workload
from planner.metrics import e2e_s, meets, ttft_s
from planner.plan import deployment
from planner.plan.sample import trace_of
from planner.plan.system import replica
from planner.problems import InputError
from planner.scenario import Scenario
from planner.units import HOUR_S

MOST_REPLICAS = 256
"""Replicas of one drill: each is simulated by itself."""
MOST_REPLICA_HOURS = 100_000
"""Replica-hours whose interruptions one drill packs together."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The requests of one part of a drill."""

    name: str
    """before the first replica was asked for, during a start-up, or after."""
    requests: int
    ttft_p95_s: float | None
    """Over requests that got a first token; None when none did."""
    e2e_p95_s: float | None
    """Over requests that finished; None when none did."""
    kept: float | None
    """Share of requests that kept every promise; None without requests."""


@dataclass(frozen=True, slots=True)
class Drill:
    """What clients saw."""

    label: str
    run: fleet.FleetRun
    ttft_p95_s: float
    """Over requests that got a first token; infinite when none did."""
    kept: float
    """Share of requests that kept every promise; unfinished ones did not."""
    phases: tuple[Phase, ...] = ()
    """Before, during and after; those without requests left out. One phase, before, when no replica was ever asked for."""

    @property
    def replicas(self) -> int:
        """Most replicas paid for at once."""
        spans = self.run.spans
        return max((sum(s.asked_s <= at.asked_s < s.gone_s for s in spans) for at in spans), default=0)

    @property
    def rerouted(self) -> int:
        """Requests that lost their replica and started again."""
        return self.run.rerouted


def replica_loss(scenario: Scenario, at_share: float = 0.4) -> tuple[Drill, ...]:
    """The fleet as it is, the same losing a replica `at_share` of the way through the arrivals, and the same with one spare more.

    All three meet the same traffic. Raises InputError for two pools, which have no common router.
    """
    lost_s = at_share * _span_s(scenario)
    spares = scenario.fleet.spares
    return (
        _drill(scenario, "nothing happens", spares, ()),
        _drill(scenario, f"a replica is lost, {spares} spare" + ("s" if spares != 1 else ""), spares, (lost_s,)),
        _drill(scenario, "a replica is lost, one more spare", spares + 1, (lost_s,)),
    )


def spot_interruptions(scenario: Scenario, hours: float, seed: int = 0) -> Drill:
    """The fleet through as many interruptions as `fleet.interruption_per_hour` brings in `hours`, all within the scenario's arrivals."""
    f = scenario.fleet
    if not 0 < hours * f.replicas <= MOST_REPLICA_HOURS:
        raise InputError(
            f"{hours:g} hours of {f.replicas} replicas are out of range; take more than 0, at most {MOST_REPLICA_HOURS:,} together"
        )
    span_s = _span_s(scenario)
    moments = fleet.interruptions(np.random.default_rng(seed), f.replicas, f.interruption_per_hour, hours * HOUR_S)
    losses = [moment * span_s / (hours * HOUR_S) for moment in moments]
    return _drill(scenario, f"{len(losses)} interruptions", f.spares, losses)


def autoscaled(scenario: Scenario, capacity_requests_per_s: float, interval_s: float = HOUR_S) -> Drill:
    """Replicas that follow `fleet.demand_curve`, each hour of it lasting `interval_s`; one replica carries `capacity_requests_per_s`."""
    f = scenario.fleet
    scaling = fleet.Autoscaling(capacity_requests_per_s, f.target_utilization, f.min_replicas, f.max_replicas)
    return _drill(scenario, "autoscaled", f.spares, (), scaling, demand.curve(f.demand_curve), interval_s)


def undisturbed(scenario: Scenario) -> Drill:
    """The fleet as it is when nothing happens to it."""
    return _drill(scenario, "nothing happens", scenario.fleet.spares, ())


def fixed_on_demand(scenario: Scenario, interval_s: float = HOUR_S) -> Drill:
    """`fleet.replicas` replicas, neither more nor fewer, under `fleet.demand_curve`: what autoscaling is to be compared with."""
    f = scenario.fleet
    label = f"{f.replicas} replica{'s' if f.replicas != 1 else ''}"
    return _drill(scenario, label, f.spares, (), None, demand.curve(f.demand_curve), interval_s)


def arrivals_s(scenario: Scenario) -> float:
    """Time over which the scenario's requests arrive at its mean rate, s."""
    return _span_s(scenario)


def _requests(scenario: Scenario) -> workload.Requests:
    if scenario.disaggregation is not None:
        raise InputError("a drill runs replicas behind one router; set disaggregation to null")
    if scenario.fleet.replicas + scenario.fleet.spares > MOST_REPLICAS:
        raise InputError(f"a drill simulates every replica; set fleet.replicas and fleet.spares to at most {MOST_REPLICAS} together")
    deployed = deployment.of(scenario)
    if not deployed.memory.fits:
        raise InputError("a drill needs a replica that fits in memory; `plan` says what is short and what would help")
    rates = deployed.profile.acceptance_rates
    traffic = scenario.workload
    traffic = traffic.model_copy(update={"num_prompts": min(traffic.num_prompts, bounds.MOST_REQUESTS_PER_RUN)})
    return workload.requests(traffic, acceptance_rates=rates, trace=trace_of(scenario))


def _span_s(scenario: Scenario) -> float:
    """Time over which sessions start, s; a closed loop starts them all at once, so its drills happen at the start."""
    return float(_requests(scenario).session_start_s[-1])


def _drill(
    scenario: Scenario,
    label: str,
    spares: int,
    losses: Sequence[float],
    scaling: fleet.Autoscaling | None = None,
    curve: np.ndarray | None = None,
    interval_s: float = HOUR_S,
) -> Drill:
    deployed = deployment.of(scenario)
    columns, engine, traffic = _requests(scenario), scenario.engine, scenario.workload
    if curve is not None:
        columns = replace(columns, session_start_s=demand.follow(columns.session_start_s, curve, interval_s))
    source = workload.Source(
        columns,
        block_size=engine.block_size if engine.enable_prefix_caching else 0,
        max_concurrency=traffic.max_concurrency,
        priority_classes=traffic.priority_classes,
        deadline_s=traffic.deadline_s,
        retry_rate=traffic.retry_rate,
        seed=traffic.seed,
    )
    f = scenario.fleet
    run = fleet.simulate(
        source,
        lambda: replica(deployed),
        f.min_replicas if scaling else f.replicas,
        spares,
        f.routing,
        f.startup_s,
        losses,
        scaling,
        bounds.MAX_STEPS_PER_RUN,
    )
    api_s = deployed.step_time.api_s
    p95_s = _p95(ttft_s(run.timeline, api_s))
    kept = float(meets(run.timeline, scenario.slo, api_s).mean())
    return Drill(label, run, inf if p95_s is None else p95_s, kept, _phases(run, scenario, api_s))


def _phases(run: fleet.FleetRun, scenario: Scenario, api_s: float) -> tuple[Phase, ...]:
    """The requests before, during and after start-ups: during means in flight when a replica was asked for, or arrived before it served."""
    timeline = run.timeline
    starts = [(s.asked_s, min(s.ready_s, s.gone_s)) for s in run.spans if s.ready_s > s.asked_s or s.asked_s > 0]
    first_s = min((asked_s for asked_s, _ in starts), default=inf)
    gone_s = np.where(np.isfinite(timeline.finish_s), timeline.finish_s, inf)
    during = np.zeros(len(timeline), dtype=bool)
    for asked_s, ready_s in starts:
        during |= (timeline.arrival_s < ready_s) & (gone_s >= asked_s)
    before = ~during & (timeline.arrival_s < first_s)
    found = []
    for name, who in (("before", before), ("during", during), ("after", ~before & ~during)):
        part = timeline.only(who)
        if len(part):
            kept = float(meets(part, scenario.slo, api_s).mean())
            found.append(Phase(name, len(part), _p95(ttft_s(part, api_s)), _p95(e2e_s(part, api_s)), kept))
    return tuple(found)


def _p95(values: np.ndarray) -> float | None:
    """95th percentile of what is finite."""
    seen = values[np.isfinite(values)]
    return float(np.percentile(seen, 95)) if len(seen) else None
