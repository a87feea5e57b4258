"""Electricity and carbon of a fleet."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner import cost
from planner.catalog import gpu, lookup, tco
from planner.scenario import Scenario
from planner.units import HOURS_PER_MONTH

GRID_FILE = Path(tco.__file__).with_name("grid_carbon.csv")


@dataclass(frozen=True, slots=True)
class Grid:
    """Carbon of a kilowatt-hour somewhere."""

    region: str
    kg_co2e_per_kwh: float
    year: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Power:
    """What a fleet draws."""

    kw: float
    """Mean wall power with cooling."""
    peak_kw: float
    """Wall power with cooling when every GPU is busy."""
    kwh_per_month: float
    kg_co2e_per_month: float
    kg_co2e_per_thousand_requests: float | None
    grid: Grid
    basis: str
    """Where the power of a GPU came from."""


@cache
def grids() -> dict[str, Grid]:
    """Carbon intensity by region."""
    with GRID_FILE.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    return {r["region"]: Grid(r["region"], float(r["kg_co2e_per_kwh"]), r["year"], r["source"], r["date"]) for r in table}


def grid(region: str) -> Grid:
    """The row of a region. Raises InputError naming the nearest."""
    return lookup.row(grids(), region, "region", "Use world when yours is missing.")


def gpu_kw(slug: str) -> tuple[float, str] | None:
    """Wall power of one busy GPU with its share of the server, without cooling, and where it comes from; None if unknown."""
    bought = tco.capex(slug)
    if bought is not None:
        return bought.power_kw, bought.source
    tdp_w = gpu(slug).tdp_w
    if tdp_w is None:
        return None
    return tdp_w / 1000 * tco.SERVER_WATTS_PER_TDP_WATT, f"TDP × {tco.SERVER_WATTS_PER_TDP_WATT}, the ratio of published servers"


def power(scenario: Scenario, busy: float, requests_per_s: float | None = None, region: str = "world") -> Power | None:
    """The fleet's electricity at this share of busy time; spares idle. None where a GPU's power is unknown.

    PUE and idle power are the catalogue's defaults unless `price.owned` names a PUE and a power of its own.
    """
    owned = scenario.price.owned
    pue = owned.pue if owned else tco.default("pue")
    idle = tco.default("idle_power_fraction")
    mean_kw, full_kw, basis = 0.0, 0.0, []
    for slug, replica_gpus, replicas in cost.pools(scenario):
        known = (owned.power_kw, "price.owned") if owned else gpu_kw(slug)
        if known is None:
            return None
        each, source = known
        serving, spares = replica_gpus * replicas, replica_gpus * scenario.fleet.spares
        mean_kw += each * (serving * (idle + (1 - idle) * busy) + spares * idle) * pue
        full_kw += each * (serving + spares) * pue
        basis.append(f"{slug}: {each:.2f} kW per GPU ({source})")
    where = grid(region)
    kwh = mean_kw * HOURS_PER_MONTH
    carbon = kwh * where.kg_co2e_per_kwh
    requests = requests_per_s * HOURS_PER_MONTH * 3600 if requests_per_s else None
    return Power(mean_kw, full_kw, kwh, carbon, carbon / requests * 1000 if requests else None, where, "; ".join(dict.fromkeys(basis)))
