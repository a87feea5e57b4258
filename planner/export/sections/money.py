"""Sections 6 and 7: the bill, its unit costs, the electricity behind it, and the list prices it replaces."""

from __future__ import annotations

from typing import Any

from planner import catalog, cost
from planner.catalog.rental import BASES, dated
from planner.economics import breakeven
from planner.economics.power import power
from planner.export import charts
from planner.export.blocks import Block, Chart, Section, missing, table
from planner.export.figures import ABSENT, cell, show
from planner.export.subject import Subject, per_request
from planner.units import DAY_S, HOURS_PER_MONTH

SHOWN_LIST_PRICES, SHOWN_BREAK_EVENS = 20, 8
PER_THOUSAND = 1000
CHART_POINTS = 60

LOW_AND_HIGH = "Low and high are the cheapest and dearest published price of a GPU-hour on this basis."


def costs(s: Subject) -> Section:
    """The month's bill low, middle and high, by commitment, per unit at this load and at full, with power and capital."""
    blocks: list[Block] = [_bill(s)]
    if s.fits and not s.errors:
        blocks.append(_units(s))
    blocks += [_week(s), _commitments(s), _power(s), _capital(s)]
    return Section(6, "Cost", tuple(blocks))


def _bill(s: Subject) -> Block:
    part = s.part("cost")
    if part.get("usd_per_month") is None:
        return missing("Bill", "nobody publishes a price for this GPU on this basis; set price.usd_per_gpu_hour")
    low, mid, high = s.monthly_range
    fleet = cost.fleet_hour(s.scenario)
    rows: list[tuple[Any, ...]] = [
        ("Whole fleet", cell(low, "usd"), cell(mid, "usd"), cell(high, "usd"), f"{s.gpus_paid} GPUs, {HOURS_PER_MONTH} h")
    ]
    # The catalogue's prices may have moved since an older plan was made; its parts are shown only when they still add up.
    if fleet is not None and mid and abs(fleet.total_usd * HOURS_PER_MONTH / mid - 1) < 1e-6:
        for name, usd in (
            ("of it serving", fleet.serving_usd),
            ("of it spares", fleet.spares_usd),
            ("of it everything else", fleet.other_usd),
        ):
            rows.append((name, None, cell(usd * HOURS_PER_MONTH, "usd"), None, "price.other_usd_per_hour" if name.endswith("else") else ""))
    busy = s.part("throughput").get("busy")
    if busy is not None and fleet is not None:
        idle = fleet.serving_usd * (1 - busy) * HOURS_PER_MONTH
        rows.append(
            ("paid while no step runs", None, cell(idle, "usd"), None, f"{show(1 - busy, 'share')} of serving time at {s.load_words}")
        )
    heads = ("Per month", "Low", "Planned", "High", "Note")
    own = s.scenario.price.usd_per_gpu_hour is not None
    spread = "Your own price of a GPU-hour has no low and high." if own else LOW_AND_HIGH
    note = f"{spread} People are not counted: put them into price.other_usd_per_hour."
    return table("bill", "Bill", heads, rows, note)


def _units(s: Subject) -> Block:
    part, throughput = s.part("cost"), s.part("throughput")
    hour = part.get("usd_per_hour")
    capacity = throughput.get("capacity_requests_per_s")
    full = per_request(hour, capacity)
    scale = full / part["usd_per_request"] if full and part.get("usd_per_request") else None
    rows = []
    for name, key in (
        ("1,000 requests", "usd_per_request"),
        ("million input tokens", "usd_per_mtok_input"),
        ("million cached input tokens", "usd_per_mtok_cached_input"),
        ("million output tokens", "usd_per_mtok_output"),
        ("million tokens of any kind", "usd_per_mtok_blended"),
    ):
        value = part.get(key)
        times = PER_THOUSAND if key == "usd_per_request" else 1
        floor = (part.get("floor") or {}).get(key)
        at_load = None if value is None else value * times
        at_full = None if at_load is None or scale is None else at_load * scale
        rows.append((name, cell(at_load, "usd"), cell(at_full, "usd"), cell(floor, "usd")))
    note = (
        f"At {s.load_words}: the whole bill over the tokens served. At full: the same mix at the largest rate that keeps the promises. "
        "Floor: serving GPUs only, always busy with one phase, so it never covers a real bill."
    )
    return table("unit-costs", "Unit costs", ("Dollars per", f"At {s.load_words}", "At full", "Floor"), rows, note)


def _week(s: Subject) -> Block:
    if not s.extras.week:
        why = "the load is the same at every hour" if s.scenario.fleet.demand_curve is None else "its fleets were not worked out for it"
        return missing("Following the week's demand", why)
    rows = []
    for w in s.extras.week:
        replicas = (cell(w.mean_replicas, "number"), cell(w.peak_replicas, "count"))
        rows.append((w.name, *replicas, cell(w.missed_share, "share"), cell(w.usd_per_month, "usd"), w.note))
    heads = ("Fleet", "Replicas, mean", "at the peak", "Requests beyond what is ready", "Month", "Note")
    return table("week-bills", "Following the week's demand", heads, rows)


def _commitments(s: Subject) -> Block:
    rows = []
    for slug, replica_gpus, replicas in cost.pools(s.scenario):
        gpus = replica_gpus * (replicas + s.scenario.fleet.spares)
        for basis in BASES:
            price = catalog.rental_price(slug, basis)
            if price is None:
                continue
            month = [p * gpus * HOURS_PER_MONTH for p in (price.low, price.usd, price.high)]
            rows.append(
                (
                    f"{gpus} × {slug}",
                    basis.replace("_", " "),
                    cell(price.usd, "usd"),
                    *(cell(m, "usd") for m in month),
                    price.kind,
                    dated(price.date),
                    price.source,
                )
            )
    if not rows:
        return missing("Cost by commitment", "no rental price of this GPU is published")
    for c in s.scenario.fleet.commitments:
        words = f"{show(c.share, 'share')} of the fleet" if c.share is not None else f"{show(c.gpus, 'count')} GPUs"
        rows.append(
            (words, c.basis.replace("_", " "), cell(c.usd_per_gpu_hour, "usd"), None, None, None, "planned", None, "fleet.commitments")
        )
    heads = ("GPUs", "Commitment", "$ per GPU-hour", "Month, low", "Month, typical", "Month, high", "Kind", "Date", "Source")
    return table("commitments", "The same GPUs by commitment", heads, rows, wide=True)


def _power(s: Subject) -> Block:
    busy, served = s.part("throughput").get("busy"), s.requests_per_s
    drawn = power(s.scenario, 1.0 if busy is None else busy, served)
    if drawn is None:
        return missing("Power and carbon", "the power of this GPU is unknown")
    owned = s.scenario.price.owned
    usd = drawn.kwh_per_month * owned.usd_per_kwh if owned else None
    rows = [
        ("Mean power with cooling", cell(drawn.kw, "kw"), drawn.basis),
        ("Power with every GPU busy", cell(drawn.peak_kw, "kw"), ""),
        (
            "Energy of a month",
            cell(drawn.kwh_per_month, "kwh"),
            "" if usd is None else f"{show(usd, 'usd')} at {show(owned.usd_per_kwh if owned else None, 'usd')} per kWh, in the bill",
        ),
        (
            "Carbon of a month",
            cell(drawn.kg_co2e_per_month, "kg"),
            f"{drawn.grid.kg_co2e_per_kwh} kg per kWh, {drawn.grid.region} {drawn.grid.year}: {drawn.grid.source}",
        ),
        ("Carbon of 1,000 requests", cell(drawn.kg_co2e_per_thousand_requests, "number"), "kg CO2e"),
    ]
    return table("power", "Power and carbon", ("Quantity", "Value", "Basis"), rows)


def _capital(s: Subject) -> Block:
    owned = s.scenario.price.owned
    if s.scenario.price.basis != "owned" or owned is None:
        return missing("Owned hardware", f"these GPUs are priced {s.scenario.price.basis.replace('_', ' ')}")
    rows = [
        ("Capital per GPU", cell(owned.usd_per_gpu, "usd"), f"written off over {owned.years:g} years without residual value"),
        ("Capital of the fleet", cell(owned.usd_per_gpu * s.gpus_paid, "usd"), ""),
        ("Cost of capital", cell(owned.interest_rate, "share"), "per year"),
        ("Hosting", cell(owned.colocation_usd_per_kw_month, "usd"), "per kW and month"),
        ("Operations", cell(owned.opex_share_per_year, "share"), "of capital per year"),
    ]
    return table("capital", "Owned hardware", ("Quantity", "Value", "Note"), rows)


def against_list_prices(s: Subject) -> Section:
    """Providers' prices for the same requests, the volume from which the fleet is cheaper, and the savings to sign."""
    if not s.fits or s.errors:
        return Section(7, "Against list prices", (missing("Comparison", "a plan that cannot run as asked has no price per request"),))
    rows = sorted((r for r in s.part("cost").get("list_prices") or () if r.get("usd_per_request")), key=lambda r: r["usd_per_request"])
    if not rows:
        return Section(
            7, "Against list prices", (missing("Comparison", "no list price of this model is known; name one in price.compare_to"),)
        )
    blocks: list[Block] = [_prices(s, rows), _break_even(s, rows), *_volume_chart(s, rows[0])]
    return Section(7, "Against list prices", tuple(blocks))


def _prices(s: Subject, rows: list[dict[str, Any]]) -> Block:
    own = s.part("cost").get("usd_per_request")
    body = []
    for r in rows[:SHOWN_LIST_PRICES]:
        body.append(
            (
                r["label"],
                cell(r["input"], "usd"),
                cell(r.get("cached_input"), "usd"),
                cell(r["output"], "usd"),
                cell(r.get("batch_output"), "usd"),
                cell(r.get("blended"), "usd"),
                cell(r["usd_per_request"] * PER_THOUSAND, "usd"),
                cell(own / r["usd_per_request"] if own else None, "times"),
                dated(r.get("date"), ABSENT),
                r.get("pricing_url") or r.get("source") or ABSENT,
            )
        )
    heads = (
        "Provider and model",
        "In",
        "Cached in",
        "Out",
        "Batch out",
        "Blended",
        "1,000 requests",
        "This plan over it",
        "Date",
        "Source",
    )
    left = f" {len(rows) - SHOWN_LIST_PRICES} dearer ones are left out." if len(rows) > SHOWN_LIST_PRICES else ""
    note = (
        "Dollars per million tokens; blended and per 1,000 requests at this plan's token mix and hit rate. This "
        f"plan: {show(own * PER_THOUSAND if own else None, 'usd')} per 1,000 requests.{left}"
    )
    return table("list-prices", "List prices for the same requests", heads, body, note, wide=True)


def _break_even(s: Subject, rows: list[dict[str, Any]]) -> Block:
    volumes = s.part("cost").get("break_even_requests_per_day") or {}
    served = s.requests_per_s or 0.0
    capacity = s.part("throughput").get("capacity_requests_per_s")
    month, body = s.part("cost").get("usd_per_month"), []
    for r in rows[:SHOWN_BREAK_EVENS]:
        at = volumes.get(r["label"]) or {}
        bill = r["usd_per_request"] * s.requests_per_month if s.requests_per_month else None
        saving = bill - month if bill is not None and month is not None else None
        needed = at.get("at_hit_rate")
        use = needed * s.peak_to_mean / (capacity * DAY_S) if needed and capacity else None
        body.append(
            (
                r["label"],
                cell(at.get("uncached"), "requests_day"),
                cell(needed, "requests_day"),
                cell(use, "share"),
                cell(bill, "usd"),
                cell(saving, "usd"),
                needed is not None and served * DAY_S >= needed,
            )
        )
    heads = (
        "Against",
        "Break-even, nothing cached",
        "Break-even at the hit rate",
        "Fleet's use there",
        "API bill of a month",
        "Saved by this plan",
        "Cheaper than it",
    )
    note = (
        f"The {min(len(rows), SHOWN_BREAK_EVENS)} cheapest. Break-even: the volume whose API bill equals this "
        "fleet's. Use above 100 % means that this fleet cannot carry that volume within its promises."
    )
    return table("break-even", "Break-even and savings", heads, body, note)


def _volume_chart(s: Subject, cheapest: dict[str, Any]) -> list[Block]:
    scenario, capacity = s.scenario, s.part("throughput").get("capacity_requests_per_s")
    fleet = cost.fleet_hour(scenario)
    if fleet is None or not capacity or scenario.disaggregation is not None:
        return [missing("Chart of cost against volume", "it needs a price and a capacity of one kind of replica")]
    per_replica = breakeven.replica_requests_per_day(capacity / scenario.fleet.replicas, s.peak_to_mean)
    api = cheapest["usd_per_request"]
    first = breakeven.step(1, fleet.replica_usd[0], api, per_replica, scenario.fleet.spares, fleet.other_usd)
    planned = (s.requests_per_s or 0.0) * DAY_S
    widest = max(2 * planned, 4 * per_replica, min(1.3 * first.break_even_requests_per_day, 20 * per_replica))
    volumes = [widest * i / CHART_POINTS for i in range(1, CHART_POINTS + 1)]
    points = breakeven.curve(volumes, fleet.replica_usd[0], api, per_replica, scenario.fleet.spares, fleet.other_usd)
    own_name, api_name = "own fleet, replicas added as needed", f"API at {cheapest['label'].partition(':')[0]}"
    rows, before = [], None
    for p in points:
        # A second point at the same volume draws the step of one more replica upright.
        if before is not None and before != p.own_usd_per_month:
            rows.append({"volume": round(p.requests_per_day), "usd": round(before, 2), "who": own_name})
        rows.append({"volume": round(p.requests_per_day), "usd": round(p.own_usd_per_month, 2), "who": own_name})
        before = p.own_usd_per_month
    rows += [{"volume": round(p.requests_per_day), "usd": round(p.api_usd_per_month, 2), "who": api_name} for p in points]
    steps = [breakeven.step(n, fleet.replica_usd[0], api, per_replica, scenario.fleet.spares, fleet.other_usd) for n in range(1, 65)]
    paying = breakeven.break_even(steps)
    use = next((st.utilization_at_break_even for st in steps if st.pays), None)
    if paying is None:
        words = (
            "The fleet is dearer than the cheapest API at every volume up to 64 replicas: its cost per request at "
            "full use is above the list price."
        )
    else:
        words = (
            f"The fleet is cheaper than the cheapest API from {show(paying, 'requests_day')} on, at {show(use, 'share')} of its capacity."
        )
    marks = [{"volume": round(planned), "label": "planned"}]
    return [Chart("volume-chart", "Cost against volume", words, charts.cost_by_volume(rows, marks))]
