"""Owned hardware as data: capital cost, power and the shares that turn them into a price per hour."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.gpus import gpu

TCO_FILE = Path(__file__).with_name("tco.json")
SERVER_WATTS_PER_TDP_WATT = 1.8
"""Wall power of an 8-GPU server over the TDP of its GPUs, where no server figure is published (H100 1.82, B200 1.79)."""


@dataclass(frozen=True, slots=True)
class Capex:
    """What one GPU costs to buy with its share of the server."""

    usd_per_gpu: float
    power_kw: float
    source: str
    date: str
    kind: str


@cache
def tables() -> dict[str, Any]:
    """The file as it stands: all-in rates, server capex, defaults with low, typical and high, worked examples."""
    return json.loads(TCO_FILE.read_text(encoding="utf-8"))


@cache
def capex(slug: str) -> Capex | None:
    """Purchase price and wall power of one GPU, or None where nobody publishes a server price."""
    for row in tables()["server_capex"]["rows"]:
        if row["gpu"] == slug and not isinstance(row["usd_per_server"], list):
            tdp_w = gpu(slug).tdp_w
            power_kw = row["server_kw"] / row["gpus"] if row["server_kw"] else (tdp_w or 0) / 1000 * SERVER_WATTS_PER_TDP_WATT
            return Capex(row["usd_per_server"] / row["gpus"], power_kw, row["source"], row["date"], row["kind"])
    return None


def default(name: str, level: str = "typical") -> float:
    """One of the file's defaults: pue, idle_power_fraction, power_usd_per_kwh … at low, typical or high."""
    return float(tables()["defaults"][name][level])
