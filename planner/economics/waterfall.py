"""From the floor price of a request to what it really costs, to the list price: what fills each gap."""

from __future__ import annotations

from dataclasses import dataclass

from planner.cost import Cost, FleetHour, Mix
from planner.units import HOUR_S, MTOK


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of the waterfall, USD per request."""

    name: str
    usd_per_request: float
    total_usd_per_request: float
    """Running total after this bar."""
    why: str


def waterfall(
    part: Cost, fleet: FleetHour, mix: Mix, requests_per_s: float, busy: float, utilization: float = 1.0, list_label: str | None = None
) -> tuple[Bar, ...]:
    """Floor → real batches → idle time → spares → everything else → at load → list.

    `busy` is the share of time in which a replica runs a step; `utilization` is `price.utilization`, taken back out of
    the floor because idle time has a bar of its own; `list_label` names the list price at the end (the
    cheapest one when None). Empty when nothing is served or no price is known.
    """
    floor = part.floor
    if requests_per_s <= 0 or floor.usd_per_mtok_input is None or floor.usd_per_mtok_output is None:
        return ()
    floor_usd = (mix.input_tokens * floor.usd_per_mtok_input + mix.output_tokens * floor.usd_per_mtok_output) / MTOK * utilization
    per_request = 1 / (HOUR_S * requests_per_s)
    busy_usd = fleet.serving_usd * busy * per_request
    steps = [
        ("floor", floor_usd, "each phase alone, at the full batch, always busy"),
        (
            "real batches",
            busy_usd - floor_usd,
            "smaller batches than the cache allows, prefill between decode steps, recomputing, cached prefixes",
        ),
        ("idle time", fleet.serving_usd * (1 - busy) * per_request, "paid hours in which no step runs"),
        ("spares", fleet.spares_usd * per_request, "replicas kept for failures"),
        ("everything else", fleet.other_usd * per_request, "price.other_usd_per_hour"),
    ]
    bars, total = [], 0.0
    for name, usd, why in steps:
        total += usd
        bars.append(Bar(name, usd, total, why))
    rows = [row for row in part.list_prices if list_label in (None, row.label)]
    if rows:
        cheapest = min(rows, key=lambda row: row.usd_per_request)
        gap = cheapest.usd_per_request - total
        why = f"{cheapest.label} charges {'more' if gap >= 0 else 'less'} than this plan costs"
        bars.append(Bar("margin to list", gap, cheapest.usd_per_request, why))
    return tuple(bars)
