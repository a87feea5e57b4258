"""What the fleet costs in an hour: the price of a GPU-hour on its basis, times the GPUs paid for."""

from __future__ import annotations

from dataclasses import dataclass

from planner import catalog
from planner.catalog import tco
from planner.scenario import Commitment, Owned, Price, Scenario
from planner.units import HOURS_PER_MONTH

MONTHS_PER_YEAR = 12


@dataclass(frozen=True, slots=True)
class GpuHour:
    """The price of one GPU-hour and where it comes from."""

    gpu: str
    basis: str
    usd: float
    low: float
    high: float
    kind: str
    """user, published, assumed (another part's discount) or derived (owned hardware)."""
    source: str
    date: str | None
    """Date of the newest observation; None for a price the user gave."""


def gpu_hour(gpu: str, price: Price) -> GpuHour | None:
    """One GPU-hour at the scenario's price or the catalogue's; None where nobody publishes a price on that basis."""
    if price.usd_per_gpu_hour is not None:
        usd = price.usd_per_gpu_hour
        return GpuHour(gpu, price.basis, usd, usd, usd, "user", "price.usd_per_gpu_hour", None)
    if price.basis == "owned":
        return _owned_hour(gpu, price.owned)
    found = catalog.rental_price(gpu, price.basis)
    if found is None:
        return None
    return GpuHour(gpu, price.basis, found.usd, found.low, found.high, found.kind, found.source, found.date)


def _owned_hour(gpu: str, owned: Owned | None) -> GpuHour | None:
    if owned is not None:
        usd = owned_usd_per_gpu_hour(owned)
        return GpuHour(gpu, "owned", usd, usd, usd, "user", "price.owned", None)
    bought = tco.capex(gpu)
    if bought is None:
        return None
    typical = owned_usd_per_gpu_hour(Owned(usd_per_gpu=bought.usd_per_gpu, power_kw=bought.power_kw))
    # Server prices in the sources are street or analyst figures, good to about 30 %.
    low, high = (owned_usd_per_gpu_hour(Owned(usd_per_gpu=bought.usd_per_gpu * f, power_kw=bought.power_kw)) for f in (0.7, 1.3))
    return GpuHour(gpu, "owned", typical, low, high, "derived", f"{bought.source} ({bought.kind})", bought.date)


def owned_usd_per_gpu_hour(owned: Owned, busy: float = 1.0, idle_power_share: float | None = None) -> float:
    """Cost of keeping one owned GPU for an hour, USD.

    Straight-line depreciation without residual value, interest on the average balance, space and cooling by the
    kilowatt, operations as a share of capital, and energy that falls to `idle_power_share` of the load when not `busy`.
    A price per *useful* hour is this over the utilisation; at-load prices do that division by themselves.
    """
    idle = tco.default("idle_power_fraction") if idle_power_share is None else idle_power_share
    capital = owned.usd_per_gpu / (owned.years * MONTHS_PER_YEAR) + owned.usd_per_gpu * owned.interest_rate / 2 / MONTHS_PER_YEAR
    space = owned.power_kw * owned.colocation_usd_per_kw_month
    operations = owned.usd_per_gpu * owned.opex_share_per_year / MONTHS_PER_YEAR
    energy = owned.power_kw * (idle + (1 - idle) * busy) * owned.pue * HOURS_PER_MONTH * owned.usd_per_kwh
    return (capital + space + operations + energy) / HOURS_PER_MONTH


def pools(scenario: Scenario) -> tuple[tuple[str, int, int], ...]:
    """(GPU slug, GPUs of one replica, replicas) of each pool that takes traffic: one, or prefill and decode."""
    split = scenario.disaggregation
    if split is None:
        return ((scenario.hardware.gpu, scenario.parallel.gpus, scenario.fleet.replicas),)
    return tuple((pool.gpu, pool.parallel.gpus, pool.replicas) for pool in (split.prefill, split.decode))


@dataclass(frozen=True, slots=True)
class FleetHour:
    """What one hour of the whole fleet costs, USD, part by part."""

    serving_usd: float
    """GPUs that take traffic."""
    spares_usd: float
    """GPUs kept idle for failure cover: `fleet.spares` replicas of every pool."""
    other_usd: float
    replica_usd: tuple[float, ...]
    """GPUs of one replica of each pool."""
    gpus: int
    """GPUs paid for, spares included."""
    units: int = 1
    """Equal parts that a fleet grows by: its replicas; a disaggregated one grows by all its pools at once and is one part."""

    @property
    def unit_usd(self) -> float:
        """GPUs in service of one unit."""
        return self.serving_usd / self.units

    @property
    def total_usd(self) -> float:
        """The fleet's bill for an hour."""
        return self.serving_usd + self.spares_usd + self.other_usd


def fleet_hour(scenario: Scenario) -> FleetHour | None:
    """The fleet's hourly bill with commitments, or None where a GPU has no price."""
    replica_usd, serving, spares, gpus = [], 0.0, 0.0, 0
    # A commitment to a number of GPUs is bought once, whichever pools they serve in.
    committed = [c.gpus for c in scenario.fleet.commitments]
    for gpu, replica_gpus, replicas in pools(scenario):
        count = replica_gpus * (replicas + scenario.fleet.spares)
        usd = _mixed_gpu_hour_usd(scenario, gpu, count, committed)
        if usd is None:
            return None
        replica_usd.append(replica_gpus * usd)
        serving += replicas * replica_gpus * usd
        spares += scenario.fleet.spares * replica_gpus * usd
        gpus += count
    units = 1 if scenario.disaggregation else scenario.fleet.replicas
    return FleetHour(serving, spares, scenario.price.other_usd_per_hour, tuple(replica_usd), gpus, units)


def gpu_hours(scenario: Scenario) -> tuple[GpuHour, ...]:
    """Every GPU-hour price in use: of each pool on `price.basis` and on each commitment's; unknown ones are left out."""
    found = []
    for gpu in dict.fromkeys(gpu for gpu, _, _ in pools(scenario)):
        found += [gpu_hour(gpu, scenario.price), *(commitment_hour(scenario, gpu, c) for c in scenario.fleet.commitments)]
    return tuple(dict.fromkeys(h for h in found if h is not None))


def commitment_hour(scenario: Scenario, gpu: str, commitment: Commitment) -> GpuHour | None:
    """The price of a GPU-hour under one commitment."""
    own = {"basis": commitment.basis, "usd_per_gpu_hour": commitment.usd_per_gpu_hour}
    return gpu_hour(gpu, scenario.price.model_copy(update=own))


def _mixed_gpu_hour_usd(scenario: Scenario, gpu: str, count: int, committed: list[int | None]) -> float | None:
    """Average price of a GPU-hour when commitments pay for part of `count` GPUs and `price.basis` for the rest.

    `committed` is what is left of each commitment that counts GPUs; what this pool takes is taken off.
    """
    left, total = float(count), 0.0
    for i, commitment in enumerate(scenario.fleet.commitments):
        available = committed[i]
        taken = min(left, (commitment.share or 0.0) * count if available is None else available)
        if available is not None:
            committed[i] = available - int(taken)
        price = commitment_hour(scenario, gpu, commitment)
        if price is None:
            return None
        total, left = total + taken * price.usd, left - taken
    rest = gpu_hour(gpu, scenario.price)
    if left > 0 and rest is None:
        return None
    return (total + left * (rest.usd if rest else 0.0)) / count
