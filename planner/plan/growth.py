"""The fleet that would hold a promise which this one misses: how many replicas, how many GPUs, for how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, isfinite

from planner import bounds, cost
from planner.metrics import on_average, overloaded, promises, reached
from planner.plan.deployment import Deployments
from planner.plan.knee import work
from planner.plan.load import Loaded, trace_pace
from planner.plan.system import run_once
from planner.scenario import Scenario
from planner.units import HOURS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Larger:
    """A fleet of the same replicas that is large enough for its load, by the capacity found for the present one."""

    words: str
    """`5 replicas (12 × h100-sxm, 1 spare replica included)`."""
    changes: tuple[tuple[str, int], ...]
    """(dotted path, value) of what to set."""
    gpus: int
    """GPUs paid for, spares included."""
    usd_per_month: float | None
    """None where a GPU has no price."""
    at_least: bool = False
    """It only keeps up with the load: where the promise holds was not searched, and takes more."""
    simulated: bool = False
    """It was seen to hold in a simulation of its own; else it follows from the largest load that the present fleet holds them at."""

    @property
    def remedy(self) -> str:
        """As the way out of a problem."""
        price = "" if self.usd_per_month is None else f" for ${self.usd_per_month:,.0f} a month"
        if self.at_least:
            return f"At least {self.words}{price}, only to keep up: the promise takes more."
        return f"{self.words} would hold it{price}."


def larger(scenario: Scenario, factor: float, at_least: bool = False) -> Larger:
    """The fleet that carries `factor` times what this one does; one replica more at the least."""
    grown = times(scenario, factor)
    split = grown.disaggregation
    if split is None:
        changes: tuple[tuple[str, int], ...] = (("fleet.replicas", grown.fleet.replicas),)
        what = f"{grown.fleet.replicas:,} replicas"
    else:
        prefill, decode = split.prefill.replicas, split.decode.replicas
        changes = (("disaggregation.prefill.replicas", prefill), ("disaggregation.decode.replicas", decode))
        what = f"about {prefill:,} prefill and {decode:,} decode replicas"
    by_gpu: dict[str, int] = {}
    for gpu, replica_gpus, count in cost.pools(grown):
        by_gpu[gpu] = by_gpu.get(gpu, 0) + replica_gpus * (count + grown.fleet.spares)
    bought = " + ".join(f"{count:,} × {gpu}" for gpu, count in by_gpu.items())
    spares = grown.fleet.spares
    kind = " of each kind" if split is not None else ""
    kept = f", {spares:,} spare {'replica' if spares == 1 else 'replicas'}{kind} included" if spares else ""
    bill = cost.fleet_hour(grown)
    month = None if bill is None else bill.total_usd * HOURS_PER_MONTH
    return Larger(f"{what} ({bought}{kept})", changes, sum(by_gpu.values()), month, at_least)


def times(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with `factor` times the replicas, rounded up; one more of each kind at the least."""

    def more(replicas: int) -> int:
        return max(replicas + 1, ceil(replicas * factor - 1e-9))

    split = scenario.disaggregation
    if split is None:
        return scenario.model_copy(update={"fleet": scenario.fleet.model_copy(update={"replicas": more(scenario.fleet.replicas)})})
    pools = {name: (pool := getattr(split, name)).model_copy(update={"replicas": more(pool.replicas)}) for name in ("prefill", "decode")}
    return scenario.model_copy(update={"disaggregation": split.model_copy(update=pools)})


def wanted(deployments: Deployments, scenario: Scenario, load: Loaded | None, search: bool) -> Larger | None:
    """The fleet that would hold the promises this one misses; None where they hold, or where more replicas are no cure.

    `search` simulates larger fleets where the capacity of this one cannot tell.
    """
    known = needed(load, scenario)
    if known is not None or load is None or not search:
        return known
    missed = load.overloaded or any(kept.strain > 1 for kept in load.kept)
    mute = not load.capacity_requests_per_s
    refuses = any(not isfinite(kept.at_s) for kept in load.kept) and not load.overloaded
    return tried(deployments, scenario) if missed and mute and not refuses else None


def needed(load: Loaded | None, scenario: Scenario) -> Larger | None:
    """The larger fleet by closed form; None also where its size cannot be told from the capacity.

    Rests on the largest rate at which they hold, or on what an overloaded engine serves where that was not searched.
    """
    rate = load.offered_requests_per_s if load else None
    if load is None or not rate:
        return None
    capacity, served = load.capacity_requests_per_s, load.metrics.throughput.requests_per_s
    if capacity == 0:
        return None  # see `tried`
    if load.overloaded:
        return larger(scenario, rate / (capacity or served), not capacity) if served else None
    if capacity is None or any(not isfinite(kept.at_s) for kept in load.kept):
        return None
    keeps = all(kept.strain <= 1 for kept in load.kept)
    return None if keeps and rate <= capacity else larger(scenario, rate / capacity)


TRIED = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Sizes of the fleet, times the planned one, that are simulated one after the other."""
TRIED_RUNS = 4


def tried(deployments: Deployments, scenario: Scenario) -> Larger | None:
    """The smallest of a few larger fleets that holds the promises in the simulation; None where none of them does.

    For loads whose capacity says nothing about larger fleets: clients that wait for their answers, and bursts that come as close together
    at every rate, which no single replica takes but several share.
    """
    spent = 0.0
    given = promises(scenario.slo, scenario.workload.priority_classes)
    api_s, pace = deployments[0].step_time.api_s, trace_pace(scenario)
    for factor in TRIED:
        grown = times(scenario, factor)
        runs = []
        for seed in range(TRIED_RUNS):
            timeline, _ = run_once(deployments, grown, scenario.workload.seed + seed, pace)
            spent += work(timeline, grown)
            runs.append(reached(timeline, given, api_s, scenario.simulation.mode))
            if overloaded(timeline) or spent > bounds.MAX_WORK_PER_PLAN / 2:
                break
        if len(runs) == TRIED_RUNS and all(kept.strain <= 1 for kept in on_average(runs)):
            return replace(larger(scenario, factor), simulated=True)
        if spent > bounds.MAX_WORK_PER_PLAN / 2:
            return None
    return None
