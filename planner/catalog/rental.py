"""Rental prices as data: dated observations by provider and basis, and the one typical price a plan starts from."""

import csv
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, get_args

from planner.catalog import lookup
from planner.catalog.gpus import gpus
from planner.problems import InputError
from planner.scenario import Basis

RENTAL_FILE = Path(__file__).with_name("rental_prices.csv")
BASES = tuple(basis for basis in get_args(Basis) if basis != "owned")
"""Ways to rent."""
STALE_AFTER_DAYS = 90
REFERENCE_GPU = "h100-sxm"
"""The one part quoted on every basis; its discounts stand in where another part has no quote."""


@dataclass(frozen=True, slots=True)
class RentalRow:
    """One observed price."""

    gpu: str
    provider: str
    segment: str
    """hyperscaler, neocloud, marketplace or index."""
    basis: str
    """on_demand, reserved_1y, reserved_3y, spot; capacity_block and blended_index are kept for reading only."""
    usd_per_gpu_hour: float
    gpu_count: int
    sku: str
    region: str
    date: str
    """ISO date, or its first parts where the source says no more."""
    date_kind: str
    source: str
    excluded: str
    """Why the row takes no part in low, typical and high; empty when it does."""
    note: str


@dataclass(frozen=True, slots=True)
class RentalPrice:
    """The price of one GPU-hour on one basis, with its spread over providers."""

    gpu: str
    basis: str
    usd: float
    """Typical price, USD per GPU-hour."""
    low: float
    """Cheapest provider."""
    high: float
    """Dearest provider."""
    date: str
    """Date of the newest observation behind it."""
    source: str
    kind: str
    """published (observed or quoted) or assumed (another part's discount applied)."""


@cache
def _rows() -> dict[str, tuple[RentalRow, ...]]:
    by_gpu: dict[str, list[RentalRow]] = {}
    with RENTAL_FILE.open(encoding="utf-8", newline="") as file:
        for raw in csv.DictReader(file):
            cells: dict[str, Any] = raw | {"usd_per_gpu_hour": float(raw["usd_per_gpu_hour"]), "gpu_count": int(raw["gpu_count"])}
            by_gpu.setdefault(raw["gpu"], []).append(RentalRow(**cells))
    return {gpu: tuple(rows) for gpu, rows in by_gpu.items()}


def rental_prices(gpu: str | None = None, basis: str | None = None) -> tuple[RentalRow, ...]:
    """Every observation, of this GPU and on this basis where they are named. Raises InputError for an unknown GPU."""
    if gpu is not None:
        lookup.row(gpus(), gpu, "hardware.gpu", "")
    rows = chain.from_iterable(_rows().values()) if gpu is None else _rows().get(gpu, ())
    return tuple(r for r in rows if basis is None or r.basis == basis)


@cache
def rental_price(gpu: str, basis: str = "on_demand") -> RentalPrice | None:
    """The typical price of one GPU-hour, or None where nobody publishes one.

    On demand: median over neoclouds of each provider's cheapest row (over all providers when fewer than two neoclouds
    quote). Spot: the same over all providers. Reserved: the newest quote. A basis without a quote takes the reference
    part's discount off this part's on-demand price and says so (`kind` "assumed").
    """
    if basis not in BASES:
        raise InputError(f"price.basis: {basis!r} is not a rental basis; use one of {', '.join(BASES)}")
    rows = [r for r in rental_prices(gpu, basis) if not r.excluded]
    if not rows:
        return _assumed(gpu, basis)
    if basis.startswith("reserved"):
        newest = max(rows, key=lambda r: r.date)
        usd, quoted = newest.usd_per_gpu_hour, f"{newest.provider}, {newest.source}"
        spread = [r.usd_per_gpu_hour for r in rows]
    else:
        neoclouds = _cheapest_by_provider([r for r in rows if r.segment == "neocloud"]) if basis == "on_demand" else {}
        quotes = neoclouds if len(neoclouds) >= 2 else _cheapest_by_provider(rows)
        kind = "neoclouds" if quotes is neoclouds else "providers"
        usd, quoted = median(quotes.values()), f"median of {len(quotes)} {kind}, observed {_span(rows)}"
        spread = list(_cheapest_by_provider(rows).values())
    newest_date = max(r.date for r in rows)
    return RentalPrice(gpu, basis, usd, min(spread), max(spread), newest_date, quoted, "published")


def _assumed(gpu: str, basis: str) -> RentalPrice | None:
    here = rental_price(gpu) if basis != "on_demand" else None
    reference, discounted = rental_price(REFERENCE_GPU), rental_price(REFERENCE_GPU, basis) if here else None
    if here is None or reference is None or discounted is None:
        return None
    share = discounted.usd / reference.usd
    source = f"{share:.0%} of its on-demand price, the discount seen on {REFERENCE_GPU}"
    return RentalPrice(gpu, basis, here.usd * share, here.low * share, here.high * share, discounted.date, source, "assumed")


def _cheapest_by_provider(rows: list[RentalRow]) -> dict[str, float]:
    cheapest: dict[str, float] = {}
    for r in rows:
        cheapest[r.provider] = min(r.usd_per_gpu_hour, cheapest.get(r.provider, r.usd_per_gpu_hour))
    return cheapest


def _span(rows: list[RentalRow]) -> str:
    first, last = min(r.date for r in rows), max(r.date for r in rows)
    return first if first == last else f"{first} to {last}"


def today() -> date:
    """The calendar's day, against which prices age."""
    return date.today()


def is_stale(day: str | None, at: date | None = None) -> bool:
    """Whether a price of that day is too old to be quoted as it is; never for one without a date, which is the user's own."""
    try:
        return bool(day) and age_days(day or "", at or today()) > STALE_AFTER_DAYS
    except ValueError:  # a plan read back may say anything
        return True


def dated(day: str | None, undated: str = "") -> str:
    """The day of a price as people see it: with a word of warning when it is stale."""
    return f"{day} (stale)" if is_stale(day) else day or undated


def age_days(text: str, today: date) -> int:
    """Days since a data date; a date known only to its month or year counts from the start of it."""
    year, month, day, *_ = (*(int(part) for part in text.split("-")), 1, 1)
    return (today - date(year, month, day)).days
