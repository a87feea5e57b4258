"""The fleet that would hold a promise which this one misses: how many replicas, how many GPUs, for how much."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from planner import cost
from planner.plan.load import Loaded
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

    @property
    def remedy(self) -> str:
        """As the way out of a problem."""
        price = "" if self.usd_per_month is None else f" for ${self.usd_per_month:,.0f} a month"
        if self.at_least:
            return f"At least {self.words}{price}, only to keep up: the promise takes more."
        return f"{self.words} would hold it{price}."


def larger(scenario: Scenario, factor: float, at_least: bool = False) -> Larger:
    """The fleet that carries `factor` times what this one does; one replica more at the least."""
    split = scenario.disaggregation
    if split is None:
        replicas = max(scenario.fleet.replicas + 1, ceil(scenario.fleet.replicas * factor - 1e-9))
        grown = scenario.model_copy(update={"fleet": scenario.fleet.model_copy(update={"replicas": replicas})})
        changes: tuple[tuple[str, int], ...] = (("fleet.replicas", replicas),)
        what = f"{replicas:,} replicas"
    else:
        prefill, decode = (max(pool.replicas + 1, ceil(pool.replicas * factor - 1e-9)) for pool in (split.prefill, split.decode))
        pools = {
            "prefill": split.prefill.model_copy(update={"replicas": prefill}),
            "decode": split.decode.model_copy(update={"replicas": decode}),
        }
        grown = scenario.model_copy(update={"disaggregation": split.model_copy(update=pools)})
        changes = (("disaggregation.prefill.replicas", prefill), ("disaggregation.decode.replicas", decode))
        what = f"about {prefill:,} prefill and {decode:,} decode replicas"
    by_gpu: dict[str, int] = {}
    for gpu, replica_gpus, count in cost.pools(grown):
        by_gpu[gpu] = by_gpu.get(gpu, 0) + replica_gpus * (count + grown.fleet.spares)
    bought = " + ".join(f"{count:,} × {gpu}" for gpu, count in by_gpu.items())
    spares = grown.fleet.spares
    kept = f", {spares:,} spare {'replica' if spares == 1 else 'replicas'} included" if spares else ""
    bill = cost.fleet_hour(grown)
    month = None if bill is None else bill.total_usd * HOURS_PER_MONTH
    return Larger(f"{what} ({bought}{kept})", changes, sum(by_gpu.values()), month, at_least)


def needed(load: Loaded | None, scenario: Scenario) -> Larger | None:
    """The fleet that would hold the promises this one misses; None where they hold, or where more replicas are no cure.

    Rests on the largest rate at which they hold, or on what an overloaded engine serves where that was not searched.
    """
    rate = load.offered_requests_per_s if load else None
    if load is None or not rate:
        return None
    capacity, served = load.capacity_requests_per_s, load.metrics.throughput.requests_per_s
    if capacity == 0:
        return None
    if load.overloaded:
        return larger(scenario, rate / (capacity or served), not capacity) if served else None
    if capacity is None or any(not isfinite(kept.at_s) for kept in load.kept):
        return None
    keeps = all(kept.strain <= 1 for kept in load.kept)
    return None if keeps and rate <= capacity else larger(scenario, rate / capacity)
