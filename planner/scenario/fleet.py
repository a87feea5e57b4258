"""What is bought and what it costs: fleet, commitments, prices, quality limits."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from planner.scenario.base import NonNegative, NonNegativeInt, Part, Positive, PositiveShare, Share, Slug
from planner.scenario.deployment import KvPrecision, WeightPrecision

Basis = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "owned"]
Routing = Literal["round_robin", "least_loaded", "sticky", "longest_prefix"]


class Commitment(Part):
    """Some of the GPUs paid for in a way of their own."""

    basis: Basis = "reserved_1y"
    """How these GPUs are paid for."""
    share: Share | None = None
    """Share of the peak fleet."""
    gpus: NonNegativeInt | None = None
    """Number of GPUs, instead of a share."""
    usd_per_gpu_hour: NonNegative | None = None
    """Price, USD per GPU-hour; null means the catalogue's for this basis."""


class Fleet(Part):
    """How many replicas there are over time, and how they are routed to and paid for."""

    replicas: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Replicas that take traffic."""
    spares: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Idle replicas paid for failure cover (N+1 is 1)."""
    routing: Routing = "round_robin"
    """How the router picks a replica."""
    target_utilization: PositiveShare = 0.7
    """Share of capacity that autoscaling aims at."""
    startup_s: NonNegative = 120.0
    """Time from asking for a replica to its first request, s."""
    min_replicas: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Autoscaling floor."""
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Autoscaling ceiling; null means no ceiling."""
    demand_curve: Slug | Annotated[tuple[NonNegative, ...], Field(min_length=1, max_length=168)] | None = None
    """A named week or 168 hourly shares; null means constant demand."""
    commitments: Annotated[tuple[Commitment, ...], Field(max_length=100)] = ()
    """How the fleet is paid for; empty means all on `price.basis`."""
    interruption_per_hour: Share = 0.0
    """Chance that one spot replica is taken away within an hour."""


class Owned(Part):
    """Inputs of the cost of GPUs that are bought, not rented."""

    usd_per_gpu: NonNegative = 31_250.0
    """Capital cost per GPU, its share of server and network included, USD."""
    years: Positive = 5.0
    """Depreciation, years."""
    interest_rate: Share = 0.08
    """Cost of capital per year."""
    power_kw: NonNegative = 1.28
    """Wall power per GPU at load, kW."""
    pue: Annotated[float, Field(ge=1, le=5)] = 1.3
    """Power usage effectiveness."""
    usd_per_kwh: NonNegative = 0.08
    """Electricity, USD per kWh."""
    colocation_usd_per_kw_month: NonNegative = 150.0
    """Space and cooling, USD per kW and month."""
    opex_share_per_year: Share = 0.08
    """Operations and maintenance as a share of capital per year."""


class CustomPrice(Part):
    """An API's prices as the user knows them, USD per million tokens."""

    label: Slug = "custom"
    """Name shown in tables."""
    input: NonNegative = 0.0
    """USD per million input tokens."""
    cached_input: NonNegative | None = None
    """USD per million cached input tokens; null means the input price."""
    cache_write: NonNegative | None = None
    """USD per million tokens written to the cache; null means the input price."""
    output: NonNegative = 0.0
    """USD per million output tokens."""


def _a_day(text: str) -> str:
    try:
        if len(text) == 10 and text.isascii() and date.fromisoformat(text):
            return text
    except ValueError:
        pass
    raise ValueError("it should be a day such as 2026-11-30")


class Price(Part):
    """What the GPUs cost, and what that is compared with."""

    usd_per_gpu_hour: NonNegative | None = None
    """USD per GPU-hour; null means the catalogue's for this GPU and basis."""
    basis: Basis = "on_demand"
    """How the GPUs are paid for."""
    owned: Owned | None = None
    """Inputs of the owned basis; null means the catalogue's defaults for this GPU."""
    other_usd_per_hour: NonNegative = 0.0
    """Everything else of the fleet (CPU hosts, network, people), USD per hour."""
    utilization: PositiveShare = 1.0
    """Share of paid time that is busy; divides the floor price only."""
    compare_to: Annotated[tuple[Slug | CustomPrice, ...], Field(max_length=100)] = ()
    """`provider:model` list prices or prices of your own; empty means the hosts of this model."""
    as_of: Annotated[str, AfterValidator(_a_day)] | None = None
    """Date of the price data a link was made with; shown when it differs from today's data."""


class Quality(Part):
    """Precisions that a recommendation may choose."""

    allowed_weight_precisions: Annotated[tuple[WeightPrecision, ...], Field(max_length=20)] = ("bf16", "fp8")
    """What `recommend` may choose for weights."""
    allowed_kv_precisions: Annotated[tuple[KvPrecision, ...], Field(max_length=20)] = ("bf16", "fp8")
    """What `recommend` may choose for the KV cache."""
