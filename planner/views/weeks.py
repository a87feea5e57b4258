"""A plan's fleet over a week: demand, capacity, how to pay for it, and the API beside it. No streamlit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner import cost, demand
from planner.catalog.rental import BASES
from planner.cost import FleetHour
from planner.economics import breakeven, mix, operating, week
from planner.plan import deployment as deployments
from planner.scenario import Price, Scenario
from planner.units import DAY_S

Json = dict[str, Any]
SPOT_INTERRUPTIONS_PER_HOUR = 0.05
"""Assumed for spot capacity where the scenario states none."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica carries within the promise."""

    requests_per_s: float
    simulated: bool
    """From the capacity search, or from closed forms while that is under way or where a closed loop has no rate."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Demand of a week and two ways to follow it."""

    rates: np.ndarray
    """Requests/s in every minute."""
    capacity: Capacity
    hour: FleetHour
    usd_per_replica_hour: float
    static: week.Week
    scaled: week.Week


def capacity(plan: Json, scenario: Scenario) -> Capacity | None:
    """Of one replica; None where nothing is known."""
    found = plan["throughput"]["capacity_requests_per_s"]
    if found:
        return Capacity(found / (1 if scenario.disaggregation else scenario.fleet.replicas), True)
    if scenario.disaggregation is not None:
        return None
    steady = operating.best_within(deployments.of(scenario), scenario.slo.tpot_s)
    return Capacity(steady.requests_per_s, False) if steady else None


def mean_rate(plan: Json, scenario: Scenario) -> float:
    """Requests/s that the week averages: the stated rate, or what the closed loop reaches."""
    return scenario.workload.request_rate or plan["throughput"]["requests_per_s"] or 0.0


def fleet(plan: Json, scenario: Scenario) -> Fleet | None:
    """The week; None without a price, a capacity or traffic."""
    one, hour, mean = capacity(plan, scenario), cost.fleet_hour(scenario), mean_rate(plan, scenario)
    if one is None or hour is None or mean <= 0:
        return None
    f = scenario.fleet
    rates = week.rates_by_minute(list(demand.curve(f.demand_curve)), mean)
    usd = hour.unit_usd
    static = week.static_week(rates, one.requests_per_s, f.target_utilization, f.spares, usd)
    scaled = week.autoscaled_week(
        rates, one.requests_per_s, f.target_utilization, f.spares, usd, f.startup_s, f.min_replicas, f.max_replicas
    )
    return Fleet(rates, one, hour, usd, static, scaled)


def constant(found: Fleet) -> bool:
    """Demand never changes."""
    return bool(found.rates.max() - found.rates.min() < 1e-9 * found.rates.max())


def hourly(found: Fleet) -> list[dict[str, Any]]:
    """One row an hour: demand, and what the two fleets carry."""
    minutes = len(found.rates) // 168
    per_hour = found.rates.reshape(168, minutes)
    ready = found.scaled.ready.reshape(168, minutes)
    one = found.capacity.requests_per_s
    return [
        {
            "hour": h,
            "demand": float(per_hour[h].max()),
            "scaled": float(ready[h].mean() * one),
            "static": float(found.static.ready[0] * one),
        }
        for h in range(168)
    ]


def offers(scenario: Scenario) -> list[mix.Offer]:
    """What a replica costs on each basis that has a price."""
    found = []
    for basis in BASES:
        # A price typed in by hand holds for its own basis; the others are the catalogue's.
        own = basis == scenario.price.basis
        price = scenario.price if own else Price(basis=basis)
        hours = [cost.gpu_hour(gpu, price) for gpu, _, _ in cost.pools(scenario)]
        usd = sum((h.usd if h else 0.0) * gpus for h, (_, gpus, _) in zip(hours, cost.pools(scenario), strict=True))
        if all(hours):
            lost = scenario.fleet.interruption_per_hour or SPOT_INTERRUPTIONS_PER_HOUR if basis == "spot" else 0.0
            found.append(mix.Offer(basis, usd, committed=basis.startswith("reserved"), interruption_per_hour=lost))
    return found


def payment(found: Fleet, scenario: Scenario, api_usd_per_request: float | None) -> mix.PaymentMix | None:
    """The cheapest way to pay for the week; spot for at most half of the fleet."""
    ways = offers(scenario)
    if not ways:
        return None
    carried = found.capacity.requests_per_s * scenario.fleet.target_utilization
    return mix.cheapest_mix(found.rates, carried, ways, api_usd_per_request, scenario.fleet.startup_s, max_spot_share=0.5)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Own fleet and API over volume."""

    points: tuple[breakeven.Point, ...]
    first: float | None
    """Requests a day from which some fleet is cheaper."""
    always: float | None
    today: float
    """Requests a day of this plan."""


def break_even(found: Fleet, scenario: Scenario, api_usd_per_request: float) -> BreakEven:
    """Volumes up to three times today's, or three times the break-even where that is larger."""
    peak_to_mean = float(found.rates.max() / found.rates.mean())
    carried = breakeven.replica_requests_per_day(found.capacity.requests_per_s, peak_to_mean, scenario.fleet.target_utilization)
    other, spares = scenario.price.other_usd_per_hour, scenario.fleet.spares
    steps = [breakeven.step(n, found.usd_per_replica_hour, api_usd_per_request, carried, spares, other) for n in range(1, 65)]
    first = breakeven.break_even(steps)
    today = float(found.rates.mean()) * DAY_S
    most = 3 * max(today, first or 0.0, carried / 2)
    volumes = [float(v) for v in np.linspace(most / 120, most, 120)]
    points = breakeven.curve(volumes, found.usd_per_replica_hour, api_usd_per_request, carried, spares, other)
    return BreakEven(points, first, breakeven.always_above(steps), today)


def idle_usd_per_month(found: Fleet) -> float:
    """What the static fleet pays for capacity that nobody uses."""
    return found.static.usd_per_month * (1 - found.static.busy)
