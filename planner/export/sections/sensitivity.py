"""Section 8: what moves the promises and the price, and what would turn the decision over."""

from __future__ import annotations

from typing import Any

from planner.economics.sensitivity import Case, left_out
from planner.export import charts
from planner.export.blocks import Block, Chart, Section, Text, missing, table
from planner.export.extras import Outcome
from planner.export.figures import cell, show
from planner.export.subject import Subject, per_request

PER_THOUSAND = 1000
UTILIZATIONS = (0.2, 0.4, 0.6, 0.8, 1.0)
PRICE_FACTORS = (0.6, 0.8, 1.0, 1.2, 1.4)


def sensitivity(s: Subject) -> Section:
    """±20 % on each input, three futures, utilisation against GPU price, and the flips among them."""
    if not s.fits or s.errors:
        return Section(8, "Sensitivity", (missing("Sensitivity", "the plan cannot run as asked"),))
    if not s.extras.levers:
        return Section(
            8,
            "Sensitivity",
            (missing("Sensitivity", "other inputs were not simulated for it (one run takes too long, or they were left out)"), _heat(s)),
        )
    blocks: list[Block] = [_levers(s), *_tornado(s), *_resized(s), Text(_flips(s)), _cases(s), _heat(s)]
    return Section(8, "Sensitivity", tuple(blocks))


def _levers(s: Subject) -> Block:
    rows = []
    for lever in s.extras.levers:
        for at in (lever.low, lever.high):
            rows.append((lever.name, at.change, *_figures(s, at)))
    heads = ("Input", "Change", "1,000 requests", f"TTFT {s.percentile}", f"TPOT {s.percentile}", "Promises kept", "Cheaper than the API")
    note = (
        "One simulated run each on the same random numbers, set in proportion to the plan's own figures. The fleet "
        "is kept as it is: only price and volume move the cost of a request, the rest moves what people see."
    )
    return table("sensitivity", "Each input moved by 20 %", heads, rows, note)


def _figures(s: Subject, at: Outcome) -> tuple[Any, ...]:
    usd = None if at.usd_per_request is None else at.usd_per_request * PER_THOUSAND
    ttft, tpot = at.latency.get("ttft_s") or {}, at.latency.get("tpot_s") or {}
    return cell(usd, "usd"), cell(ttft.get(s.percentile), "s"), cell(tpot.get(s.percentile), "ms"), at.meets_slo, _beats_api(s, at)


def _beats_api(s: Subject, at: Outcome) -> bool | None:
    listed = [r["usd_per_request"] for r in s.part("cost").get("list_prices") or () if r.get("usd_per_request")]
    return at.usd_per_request < min(listed) if listed and at.usd_per_request is not None else None


def _used(s: Subject, at: Outcome) -> float | None:
    """Share of the tightest promise in use."""
    shares = [(at.latency.get(name) or {}).get(s.percentile) for name, _, _ in s.promises()]
    limits = [promise for _, promise, _ in s.promises()]
    known = [seen / limit for seen, limit in zip(shares, limits, strict=True) if seen is not None]
    return max(known, default=None)


def _tornado(s: Subject) -> list[Block]:
    base = next((case for case in s.extras.cases if case.name == "Base"), None)
    at_base = _used(s, base) if base else None
    if at_base is None:
        return [missing("Tornado", "no latency is promised")]
    rows: list[dict[str, Any]] = []
    for lever in s.extras.levers:
        low, high = _used(s, lever.low), _used(s, lever.high)
        if low is not None and high is not None and abs(high - low) > 1e-6:
            # A plan that tips into overload would squeeze every other bar to nothing.
            rows.append({"lever": lever.name, "low": round(min(low, 3.0), 4), "high": round(min(high, 3.0), 4), "base": round(at_base, 4)})
    rows.sort(key=lambda r: -abs(r["high"] - r["low"]))
    if not rows:
        return []
    words = f"{rows[0]['lever']} moves the tightest promise most; bars past 100 % break it." + (
        " Bars are cut at 300 %." if any(max(r["low"], r["high"]) >= 3 for r in rows) else ""
    )
    return [Chart("tornado", "What moves the tightest promise", words, charts.tornado(rows, "share of the tightest promise in use"))]


def _resized(s: Subject) -> list[Block]:
    bars = s.extras.resized
    if not bars:
        return [missing("Bill of a fleet sized again", "the load is no rate of requests, or sizing it many times takes too long")]
    rows = []
    for b in bars:
        for change, replicas, own, api in (
            (b.low_change, b.low_replicas, b.low_usd_per_month, b.low_api_usd_per_month),
            (b.high_change, b.high_replicas, b.high_usd_per_month, b.high_api_usd_per_month),
        ):
            cheaper = None if own is None or api is None else own < api
            shown = cell(replicas, "count") if replicas else "none is enough"
            rows.append((b.name, change, shown, cell(own, "usd"), cell(api, "usd"), cheaper))
    heads = ("Input", "Change", "Replicas needed", "Month, own fleet", "Month, cheapest API", "Own fleet cheaper")
    note = (
        f"Here the fleet is sized again for the promises at {s.peak_words}, spares kept. Single runs: close to a step, "
        "one replica more or less is a toss-up."
    )
    note = " ".join(filter(None, (note, left_out(Case(s.scenario, s.peak_to_mean), [bar.name for bar in bars]))))
    return [table("resized", "Bill of a fleet sized again", heads, rows, note)]


def _flips(s: Subject) -> str:
    base = next((case for case in s.extras.cases if case.name == "Base"), None)
    if base is None:
        return "No base case was simulated."
    own, api = base.meets_slo, _beats_api(s, base)
    found = []
    for lever in s.extras.levers:
        for at in (lever.low, lever.high):
            if at.meets_slo is not None and own is not None and at.meets_slo != own:
                found.append(f"{at.change} {'keeps' if at.meets_slo else 'breaks'} the promises")
            cheaper = _beats_api(s, at)
            if cheaper is not None and api is not None and cheaper != api:
                found.append(f"{at.change} makes the {'fleet' if cheaper else 'API'} the cheaper choice")
    found += _list_price_flips(s, base)
    if not found:
        return "What would turn the decision over: none of these moves does alone."
    return f"What would turn the decision over: {'; '.join(dict.fromkeys(found))}."


def _list_price_flips(s: Subject, base: Outcome) -> list[str]:
    listed = [r["usd_per_request"] for r in s.part("cost").get("list_prices") or () if r.get("usd_per_request")]
    if not listed or not base.usd_per_request:
        return []
    ratio = min(listed) / base.usd_per_request
    if ratio < 1 <= ratio * 1.2:
        return ["list prices 20 % higher make the fleet the cheaper choice"]
    return ["list prices 20 % lower make the API the cheaper choice"] if ratio * 0.8 < 1 <= ratio else []


def _cases(s: Subject) -> Block:
    rows = [(case.name, case.change, cell(case.usd_per_month, "usd"), *_figures(s, case)) for case in s.extras.cases]
    heads = (
        "Future",
        "What changes",
        "Month",
        "1,000 requests",
        f"TTFT {s.percentile}",
        f"TPOT {s.percentile}",
        "Promises kept",
        "Cheaper than the API",
    )
    return table("cases", "Three futures", heads, rows)


def _heat(s: Subject) -> Block:
    """Closed form: dollars follow the price, requests follow the use of the capacity."""
    part, capacity = s.part("cost"), s.part("throughput").get("capacity_requests_per_s")
    full = per_request(part.get("usd_per_hour"), capacity)
    hours = part.get("gpu_hours") or ()
    if full is None or not hours:
        return missing("Utilisation against GPU price", "no capacity was searched for, or no price is known")
    other = s.scenario.price.other_usd_per_hour / part["usd_per_hour"] if part["usd_per_hour"] else 0.0
    heads = (
        "Use of capacity",
        *(f"{show(hours[0]['usd'] * f, 'usd')}/GPU-h" if len(hours) == 1 else f"price × {f:g}" for f in PRICE_FACTORS),
    )
    rows = []
    for u in UTILIZATIONS:
        costs = (full / u * (other + (1 - other) * f) * PER_THOUSAND for f in PRICE_FACTORS)
        rows.append((cell(u, "share"), *(cell(c, "usd") for c in costs)))
    cheapest = min((r["usd_per_request"] for r in part.get("list_prices") or () if r.get("usd_per_request")), default=None)
    note = "Dollars per 1,000 requests." + (f" The cheapest list price is {show(cheapest * PER_THOUSAND, 'usd')}." if cheapest else "")
    return table("heat-map", "Utilisation against GPU price", heads, rows, note)
