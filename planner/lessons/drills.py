"""Drills: the scenario's own fleet when a replica is lost, when spot capacity is taken away, and when demand follows a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from planner import demand, fleet, workload
from planner.metrics import meets, ttft_s
from planner.plan import deployment
from planner.plan.system import replica, trace_of
from planner.problems import InputError
from planner.scenario import Scenario
from planner.units import HOUR_S


@dataclass(frozen=True, slots=True)
class Drill:
    """What clients saw."""

    label: str
    run: fleet.FleetRun
    ttft_p95_s: float
    """Over requests that got a first token; infinite when none did."""
    kept: float
    """Share of requests that kept every promise; unfinished ones did not."""

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
    span_s = _span_s(scenario)
    moments = fleet.interruptions(np.random.default_rng(seed), f.replicas, f.interruption_per_hour, hours * HOUR_S)
    losses = [moment * span_s / (hours * HOUR_S) for moment in moments]
    return _drill(scenario, f"{len(losses)} interruptions", f.spares, losses)


def autoscaled(scenario: Scenario, capacity_requests_per_s: float, interval_s: float = HOUR_S) -> Drill:
    """Replicas that follow `fleet.demand_curve`, each hour of it lasting `interval_s`; one replica carries `capacity_requests_per_s`."""
    f = scenario.fleet
    scaling = fleet.Autoscaling(capacity_requests_per_s, f.target_utilization, f.min_replicas, f.max_replicas)
    return _drill(scenario, "autoscaled", f.spares, (), scaling, demand.curve(f.demand_curve), interval_s)


def _requests(scenario: Scenario) -> workload.Requests:
    if scenario.disaggregation is not None:
        raise InputError("a drill runs replicas behind one router; set disaggregation to null")
    rates = deployment.of(scenario).profile.acceptance_rates
    return workload.requests(scenario.workload, acceptance_rates=rates, trace=trace_of(scenario))


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
    )
    seen = ttft_s(run.timeline, deployed.step_time.api_s)
    seen = seen[np.isfinite(seen)]
    p95_s = float(np.percentile(seen, 95)) if len(seen) else inf
    return Drill(label, run, p95_s, float(meets(run.timeline, scenario.slo, deployed.step_time.api_s).mean()))
