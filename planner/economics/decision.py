"""The economics of one plan: what its figures say about buying, paying, powering and selling it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner import cost, demand
from planner.catalog import workloads
from planner.cost import Comparison
from planner.economics import breakeven, mix, offline, power, seats, waterfall, week
from planner.economics.sensitivity import heat_map
from planner.plan import Plan
from planner.problems import InputError
from planner.scenario import Commitment, Scenario, Workload
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK

CURVE_POINTS = 40
MOST_STEPS = 12
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Prices of a GPU-hour that a heat map shows, times the plan's."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Own fleet against one list price."""

    label: str
    usd_per_request: float
    steps: tuple[breakeven.Step, ...]
    requests_per_day: float | None
    """Smallest volume at which some fleet is cheaper; None when none is."""
    always_above_requests_per_day: float | None
    utilization: float | None
    """Share of what that fleet carries, at break-even."""
    curve: tuple[breakeven.Point, ...]


@dataclass(frozen=True, slots=True)
class WeekReport:
    """A week of demand on this plan's replicas."""

    peak_to_mean: float
    replica_requests_per_s: float
    """What one replica carries within the promise."""
    static: week.Week
    autoscaled: week.Week
    payment: mix.PaymentMix
    """The cheapest payment for the autoscaled fleet's levels."""
    offers: tuple[mix.Offer, ...]


def replica_capacity(answer: Plan) -> float:
    """Requests/s that one replica carries within its promises. Raises InputError for a plan without a capacity search."""
    if answer.load is None or not answer.load.capacity_requests_per_s:
        raise InputError("this plan has no capacity figure; plan an open loop that keeps its promise at some rate, with full effort")
    return answer.load.capacity_requests_per_s / units(answer.scenario)


def units(scenario: Scenario) -> int:
    """Equal parts that the fleet grows by: its replicas, or all pools of a disaggregated one at once."""
    return 1 if scenario.disaggregation else scenario.fleet.replicas


def break_even(
    answer: Plan, peak_to_mean: float = 1.0, labels: Sequence[str] = (), batch: bool = False, hit_rate: float | None = None
) -> tuple[BreakEven, ...]:
    """Break-even against each list price of the plan, steps and curve included.

    The volume is the mean; a replica carries capacity / `peak_to_mean` on average. `batch` compares with batch
    interfaces where they are sold. `hit_rate` is the share of prompt tokens that the API bills as cached; None takes what
    the plan's own cache hits. Spares and other costs are in every step.
    """
    fleet = cost.fleet_hour(answer.scenario)
    if fleet is None or answer.load is None:
        return ()
    s = answer.scenario
    carried = breakeven.replica_requests_per_day(replica_capacity(answer), peak_to_mean)
    request = cost.mix_of(s, answer.load.cost_load)
    if hit_rate is not None:
        request = request.at_hit_rate(hit_rate)
    found = []
    for price in cost.listed(s):
        offered = cost.batch_price(price) if batch else price
        label = price.label if price.provider else price.model_id
        if offered is None or (labels and label not in labels):
            continue
        found.append(_against(label, cost.usd_per_request(offered, request), fleet.unit_usd, carried, s))
    return tuple(found)


def _against(label: str, api_usd: float, replica_usd: float, carried: float, s: Scenario) -> BreakEven:
    spares, other = s.fleet.spares, s.price.other_usd_per_hour
    steps = tuple(breakeven.step(n, replica_usd, api_usd, carried, spares, other) for n in range(1, MOST_STEPS + 1))
    first = breakeven.break_even(steps)
    paying = next((step for step in steps if step.pays), None)
    top = max(2 * (first or carried), 3 * carried)
    volumes = [top * (i + 1) / CURVE_POINTS for i in range(CURVE_POINTS)]
    points = breakeven.curve(volumes, replica_usd, api_usd, carried, spares, other)
    used = paying.utilization_at_break_even if paying else None
    return BreakEven(label, api_usd, steps, first, breakeven.always_above(steps), used, points)


def blend_by_shape(scenario: Scenario) -> dict[str, dict[str, float]]:
    """USD per million tokens, input and output together, of each list price at the shipped shapes of traffic, nothing cached.

    One price list gives three blends to three workloads: never compare with a single number.
    """
    prices = cost.listed(scenario)
    found: dict[str, dict[str, float]] = {}
    for slug, shape in workloads.workloads().items():
        traffic = Workload.model_validate(shape.scenario_part["workload"])
        request = cost.mix_of(scenario.model_copy(update={"workload": traffic}))
        blends = cost.compare(prices, request, None)
        found[slug] = {row.label: row.blended for row in blends if row.blended is not None}
    return found


@dataclass(frozen=True, slots=True)
class HeatMap:
    """USD per million tokens, blended, by share of capacity in use (rows) and price of a GPU-hour (columns)."""

    utilizations: tuple[float, ...]
    usd_per_gpu_hour: tuple[float, ...]
    usd_per_mtok: tuple[tuple[float, ...], ...]


def heat_map_of(
    answer: Plan, utilizations: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 1.0), factors: Sequence[float] = FACTORS
) -> HeatMap | None:
    """Utilisation × price around this plan; None where it has no price to scale (free GPUs have none) or no capacity figure.

    The plan's own blend at its own utilisation fixes the price at full use: both axes act on it by plain arithmetic.
    """
    blended, hours = answer.cost.usd_per_mtok_blended, answer.cost.gpu_hours
    used = answer.load.utilization if answer.load else None
    if blended is None or not hours or not hours[0].usd or not used:
        return None
    usd = hours[0].usd
    prices = tuple(usd * factor for factor in factors)
    return HeatMap(tuple(utilizations), prices, heat_map(blended * used, usd, utilizations, prices))


def batch_job(answer: Plan, documents: float, window_s: float) -> offline.Job:
    """The plan's mean request as a job of so many documents."""
    request = cost.mix_of(answer.scenario)
    return offline.Job(documents, request.input_tokens, request.output_tokens, window_s)


def offline_of(answer: Plan, documents: float, window_s: float) -> offline.Finish:
    """The smallest fleet of this plan's replicas that ends a batch job on time, with `fleet.interruption_per_hour` on spot.

    A replica's rate is what the simulation served: give a closed loop that fills it. Raises InputError without one, or
    without a price.
    """
    s = answer.scenario
    hours = offers(s)
    if answer.load is None or s.workload.max_concurrency is None:
        raise InputError("workload.max_concurrency: a batch job needs a closed loop that keeps the replicas full")
    seen = answer.load.metrics
    rate = seen.throughput.requests_per_s / units(s)
    lost = 0.5 * seen.latency.e2e_s.mean if seen.latency.e2e_s else 0.0
    risk = s.fleet.interruption_per_hour if s.price.basis == "spot" else 0.0
    job = batch_job(answer, documents, window_s)
    return offline.fewest_replicas(
        job, rate, hours[0].usd_per_replica_hour, interruption_per_hour=risk, restart_s=s.fleet.startup_s, lost_work_s=lost
    )


def waterfall_of(answer: Plan, label: str | None = None) -> tuple[waterfall.Bar, ...]:
    """Floor to at-load to list of this plan, per request."""
    fleet = cost.fleet_hour(answer.scenario)
    if answer.load is None or fleet is None:
        return ()
    seen = answer.load.metrics.throughput
    request = cost.mix_of(answer.scenario, answer.load.cost_load)
    return waterfall.waterfall(answer.cost, fleet, request, seen.requests_per_s, seen.busy, answer.scenario.price.utilization, label)


def power_of(answer: Plan, region: str = "world") -> power.Power | None:
    """Electricity and carbon of this plan at its load."""
    if answer.load is None:
        return power.power(answer.scenario, 0.0, None, region)
    seen = answer.load.metrics.throughput
    return power.power(answer.scenario, seen.busy, seen.requests_per_s, region)


def seats_of(answer: Plan, requests_per_minute: float, activity: float, max_risk: float) -> seats.Seats:
    """Tenants that this plan's fleet can be sold to under one limit."""
    capacity = replica_capacity(answer) * units(answer.scenario)
    request = cost.mix_of(answer.scenario, answer.load.cost_load if answer.load else None)
    return seats.seats(capacity, request.tokens, requests_per_minute, activity, max_risk)


def offers(scenario: Scenario) -> tuple[mix.Offer, ...]:
    """Ways to pay for one replica: the scenario's own basis, then its commitments or else every basis with a price.

    Reserved and owned are committed; spot is interrupted as `fleet.interruption_per_hour` says. Raises InputError where
    nothing has a price.
    """
    bases = [Commitment(basis=scenario.price.basis, usd_per_gpu_hour=scenario.price.usd_per_gpu_hour)]
    bases += scenario.fleet.commitments or [
        Commitment(basis=basis) for basis in ("on_demand", "reserved_1y", "spot") if basis != scenario.price.basis
    ]
    found = []
    for commitment in bases:
        # One unit is a replica, or all replicas of both pools.
        hours = [
            (cost.hour.commitment_hour(scenario, gpu, commitment), gpus * (replicas if scenario.disaggregation else 1))
            for gpu, gpus, replicas in cost.pools(scenario)
        ]
        usd = [hour.usd * gpus for hour, gpus in hours if hour is not None]
        if len(usd) < len(hours):
            continue
        committed = commitment.basis not in ("on_demand", "spot")
        lost = scenario.fleet.interruption_per_hour if commitment.basis == "spot" else 0.0
        found.append(mix.Offer(commitment.basis, sum(usd), committed, lost))
    if not found:
        raise InputError(f"price: nobody publishes a price for {scenario.hardware.gpu}; set price.usd_per_gpu_hour")
    return tuple(found)


def week_of(
    answer: Plan,
    mean_requests_per_s: float | None = None,
    burst_cv: float = 0.0,
    max_spot_share: float = 0.5,
    api: Comparison | None = None,
) -> WeekReport:
    """`fleet.demand_curve` on this plan's replicas: static, autoscaled, and the cheapest mix of payments.

    `mean_requests_per_s` defaults to the scenario's rate, taken as the week's mean. `api` takes overflow at its list
    price. Raises InputError where there is no rate, no capacity or no price.
    """
    s = answer.scenario
    mean = mean_requests_per_s if mean_requests_per_s is not None else s.workload.request_rate
    if not mean:
        raise InputError("workload.request_rate: a week of demand needs a mean rate above 0")
    rates = week.rates_by_minute(demand.curve(s.fleet.demand_curve).tolist(), mean, burst_cv, s.workload.seed)
    capacity, fleet = replica_capacity(answer), s.fleet
    ways = offers(s)
    usd = ways[0].usd_per_replica_hour
    static = week.static_week(rates, capacity, fleet.target_utilization, fleet.spares, usd)
    scaled = week.autoscaled_week(
        rates, capacity, fleet.target_utilization, fleet.spares, usd, fleet.startup_s, fleet.min_replicas, fleet.max_replicas
    )
    api_usd = api.usd_per_request if api is not None else None
    paid = mix.cheapest_mix(rates, capacity * fleet.target_utilization, ways, api_usd, fleet.startup_s, max_spot_share)
    return WeekReport(float(rates.max() / rates.mean()), capacity, static, scaled, paid, ways)


def month(usd_per_week: float) -> float:
    """A week's bill over a month of 730 hours."""
    return usd_per_week / HOURS_PER_WEEK * HOURS_PER_MONTH


def by_hour(values: np.ndarray) -> list[float]:
    """Minute values of a week as 168 hourly means, for charts."""
    return [float(v) for v in values.reshape(HOURS_PER_WEEK, -1).mean(axis=1)]
