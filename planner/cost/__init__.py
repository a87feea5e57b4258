"""Prices and throughput to dollars: per hour, per month, per million tokens, per request, beside list prices.

Definitions: the floor is one phase alone on a busy machine; the at-load price splits the whole bill, idle time and
spares included, over the tokens served; blended is all dollars over all tokens. A month has 730 hours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from planner import traffic
from planner.catalog import rental
from planner.catalog.rental import STALE_AFTER_DAYS, is_stale
from planner.cost.hour import FleetHour, GpuHour, fleet_hour, gpu_hour, gpu_hours, owned_usd_per_gpu_hour, pools
from planner.cost.market import Comparison, Mix, batch_price, break_even, compare, listed, requests_per_day_to_break_even, usd_per_request
from planner.cost.tokens import Load, TokenPrices, at_load_prices, floor_usd_per_mtok
from planner.problems import Problem
from planner.scenario import Scenario
from planner.units import HOUR_S, HOURS_PER_MONTH

__all__ = [
    "Comparison",
    "Cost",
    "FleetHour",
    "Floor",
    "GpuHour",
    "Load",
    "Mix",
    "TokenPrices",
    "at_load_prices",
    "batch_price",
    "break_even",
    "compare",
    "cost",
    "fleet_hour",
    "floor_usd_per_mtok",
    "gpu_hour",
    "gpu_hours",
    "listed",
    "mix_of",
    "owned_usd_per_gpu_hour",
    "pools",
    "problems",
    "requests_per_day_to_break_even",
    "usd_per_request",
]


@dataclass(frozen=True, slots=True)
class Floor:
    """Lower bounds, USD per million tokens: serving GPUs only, always busy with one phase."""

    usd_per_mtok_input: float | None
    usd_per_mtok_output: float | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The plan's `cost` part. None where a GPU has no known price, nothing was served, or the plan cannot run."""

    usd_per_hour: float | None
    """The whole fleet: GPUs in service, spares, everything else."""
    usd_per_month: float | None
    usd_per_mtok_input: float | None
    """Prompt tokens computed, at load."""
    usd_per_mtok_cached_input: float | None
    usd_per_mtok_output: float | None
    usd_per_mtok_blended: float | None
    usd_per_request: float | None
    floor: Floor
    list_prices: tuple[Comparison, ...]
    break_even_requests_per_day: dict[str, dict[str, float | None]]
    gpu_hours: tuple[GpuHour, ...]
    """The prices of a GPU-hour in use, with spread, source and date."""
    gpus: int
    """GPUs paid for, spares included."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of this part."""
        return asdict(self)


def cost(
    scenario: Scenario,
    decode_tokens_per_s: float | None = None,
    prefill_tokens_per_s: float | None = None,
    load: Load | None = None,
) -> Cost:
    """Every dollar of a plan.

    `decode_tokens_per_s` and `prefill_tokens_per_s` are one replica's rates with one phase alone (of the decode and the
    prefill pool when disaggregated); `load` is what the fleet served. Leave them out for a plan that cannot run: the
    bill and the list prices stay, the token prices are withheld.
    """
    hours = gpu_hours(scenario)
    fleet = fleet_hour(scenario)
    mix = mix_of(scenario, load)
    prices = listed(scenario)
    if fleet is None:
        empty = Floor(None, None)
        return Cost(None, None, None, None, None, None, None, empty, compare(prices, mix, None), {}, hours, _paid_gpus(scenario))
    bill = fleet.total_usd
    at_load = at_load_prices(bill, load) if load else TokenPrices(None, None, None, None)
    served = load.requests / load.duration_s if load and load.duration_s > 0 else 0.0
    utilization = scenario.price.utilization
    return Cost(
        usd_per_hour=bill,
        usd_per_month=bill * HOURS_PER_MONTH,
        usd_per_mtok_input=at_load.input,
        usd_per_mtok_cached_input=at_load.cached_input,
        usd_per_mtok_output=at_load.output,
        usd_per_mtok_blended=at_load.blended,
        usd_per_request=bill / HOUR_S / served if served > 0 else None,
        floor=Floor(
            floor_usd_per_mtok(fleet.replica_usd[0], prefill_tokens_per_s or 0.0, utilization),
            floor_usd_per_mtok(fleet.replica_usd[-1], decode_tokens_per_s or 0.0, utilization),
        ),
        list_prices=compare(prices, mix, at_load.blended),
        break_even_requests_per_day=break_even(prices, mix, bill) if load else {},
        gpu_hours=hours,
        gpus=fleet.gpus,
    )


def mix_of(scenario: Scenario, load: Load | None = None) -> Mix:
    """Mean tokens of one request: what was served, else what the workload asks for with nothing cached."""
    if load is not None and load.requests > 0:
        return Mix(load.input_tokens / load.requests, load.cached_tokens / load.requests, load.output_tokens / load.requests)
    means = traffic.of(scenario.workload)
    return Mix(means.input_tokens, 0.0, means.output_tokens)


def _paid_gpus(scenario: Scenario) -> int:
    return sum(gpus * (replicas + scenario.fleet.spares) for _, gpus, replicas in pools(scenario))


def problems(scenario: Scenario, part: Cost, today: date | None = None) -> tuple[Problem, ...]:
    """What the reader of these prices has to know: missing, assumed or stale ones. `today` defaults to the calendar's."""
    today = today or rental.today()
    found = []
    if part.usd_per_hour is None:
        names = ", ".join(sorted({gpu for gpu, _, _ in pools(scenario)} - {h.gpu for h in part.gpu_hours}))
        found.append(
            Problem(
                "no_price",
                "warning",
                "price.usd_per_gpu_hour",
                f"Nobody publishes a price for {names} on basis {scenario.price.basis}, so no dollar figure is shown.",
                "Set price.usd_per_gpu_hour.",
            )
        )
    for hour in part.gpu_hours:
        if hour.kind == "assumed":
            message = f"No {hour.basis} price is published for {hour.gpu}: ${hour.usd:.2f} per GPU-hour is {hour.source}."
            found.append(Problem("assumed_price", "info", "price.usd_per_gpu_hour", message, "Set the price you were quoted."))
    stale = {f"{h.gpu} {h.basis} (${h.usd:.2f} per GPU-hour, {h.date})" for h in part.gpu_hours if is_stale(h.date, today)}
    stale |= {f"{row.label} ({row.date})" for row in part.list_prices if is_stale(row.date, today)}
    if stale:
        message = f"Prices older than {STALE_AFTER_DAYS} days: {'; '.join(sorted(stale))}."
        found.append(Problem("stale_price", "warning", "price.usd_per_gpu_hour", message, "Check them, or set prices of your own."))
    return tuple(found)
