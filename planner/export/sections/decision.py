"""Head and decision box: what is bought, whether it holds, what it costs, until when that is true."""

from __future__ import annotations

from typing import Any

from planner import __version__
from planner.catalog.rental import dated
from planner.export.blocks import Block, Section, Table, Text, table
from planner.export.figures import ABSENT, cell, interval, show
from planner.export.subject import LATENCY_NAMES, LATENCY_UNITS, SCHEMA_VERSION, Subject
from planner.measure.bands import band
from planner.problems import InputError
from planner.units import DAY_S, HOURS_PER_MONTH

PER_THOUSAND = 1000
TOO_FULL = 0.9
"""Share of the capacity beyond which latencies are too steep for a point answer."""
BANDED = {"ttft_s": "ttft", "tpot_s": "tpot"}


def head(s: Subject) -> Table:
    """Who, when, from what: enough to make the same document again."""
    engine = s.scenario.engine
    prices = f"{s.price_dates[0]} to {s.price_dates[-1]}" if s.price_dates else "no dated price in use"
    expires = f"{s.expires}, when the oldest price in it is 90 days old" if s.expires else "with the first price that is entered"
    if s.expires and s.dated and s.expires < s.dated:
        expires = f"already past ({s.expires}): a price in it is older than 90 days"
    rows = [
        ("Status", s.cover.status),
        ("Author", s.cover.author or "________________"),
        ("Date", s.dated or "undated"),
        ("Valid until", expires),
        ("Horizon", s.cover.horizon or "not stated by the author"),
        ("Made with", f"planner {__version__}, schema {SCHEMA_VERSION}, {s.scenario.fidelity} step times"),
        ("Price data", prices),
        ("Engine assumed", f"{engine.name} {engine.version}"),
        ("Input hash", s.input_hash),
    ]
    return table("head", "This document", ("", ""), rows)


def decision(s: Subject) -> Section:
    """One screen that answers: buy what, does it hold, at what price, and what would change that."""
    blocks: list[Block] = [_verdict(s), table("decision", "Decision", ("Question", "Answer", "Detail"), _rows(s))]
    if s.scenario.notes:
        blocks.append(Text(s.scenario.notes))
    findings = [(p["severity"], p["message"], p.get("remedy") or ABSENT) for p in s.problems]
    if findings:
        blocks.append(table("findings", "Findings to read before signing", ("Weight", "Finding", "What helps"), findings))
    return Section(1, "Decision", tuple(blocks))


def _verdict(s: Subject) -> Text:
    if not s.fits:
        return Text(f"{DO_NOT} {_first(s.errors, 'the model does not fit')}", "bad")
    if s.errors:
        return Text(f"{DO_NOT} {_first(s.errors, '')}{_at_the_peak(s)}", "bad")
    if s.meets_slo is None:
        what = "no traffic was" if not s.simulated else "the busiest hour was not"
        return Text(f"Fits, but {what} simulated, so no promise is checked.", "warning")
    if not s.promises():
        return Text(f"Fits and carries {s.peak_words}; no latency is promised.", "good")
    if not s.meets_slo:
        missed = " and ".join(_missed(s)) or "the load is beyond the capacity within the promises"
        return Text(f"{DO_NOT} at {s.peak_words} it misses a promise at {s.percentile}: {missed}. {_way_out(s)}", "bad")
    used = (s.part("throughput").get("utilization") or 0.0) * s.peak_to_mean
    if used > TOO_FULL:
        return Text(
            f"Meets every promise at {s.percentile} at {s.peak_words}, but at {show(used, 'share')} of the load that it "
            "can carry: so close to saturation no single figure holds, read the ranges.",
            "warning",
        )
    thin = min((promise - (seen or 0.0)) / promise for _, promise, seen in s.promises())
    if thin < 0.1:
        return Text(
            f"Meets every promise at {s.percentile}, by {show(thin, 'share')} only: treat it as not proven until the acceptance test.",
            "warning",
        )
    refused = next((p["message"] for p in s.problems if p["code"] == "requests_failed"), None)
    if refused:
        return Text(f"Meets every promise at {s.percentile} at {s.peak_words}, but {refused}. {REFUSED}", "warning")
    return Text(f"Meets every promise at {s.percentile} at {s.peak_words}, by {show(thin, 'share')} or more.", "good")


def _missed(s: Subject) -> list[str]:
    """The promises that are missed, each with what was reached; in a busiest hour those of its figures that are over theirs."""
    if s.peak is not None:
        over = [(name, promise, seen) for name, promise, seen in s.promises() if seen is None or seen > promise]
        return [f"{LATENCY_NAMES[name].lower()} {_over(seen, promise, LATENCY_UNITS[name])}" for name, promise, seen in over]
    found = []
    for p in s.verdicts:
        if not p["kept"]:
            whose = f" of {p['to']}" if p["to"] else ""
            where = f" at p{p['percentile']}" if f"p{p['percentile']}" != s.percentile else ""
            unit = LATENCY_UNITS[p["name"]]
            reached = (
                f"never reached by over {100 - p['percentile']} % of requests"
                if p["at_s"] is None
                else _over(p["at_s"], p["limit_s"], unit)
            )
            found.append(f"{LATENCY_NAMES[p['name']].lower()}{whose}{where} {reached}")
    return found


def _over(seen: float | None, promise: float, unit: str) -> str:
    """A broken promise beside what was promised; a miss by less than is shown would read like a promise kept."""
    limit = show(promise, unit)
    return f"just over {limit}" if show(seen, unit) == limit else f"{show(seen, unit)} against {limit}"


REFUSED = "They count as late; few enough of them keep a percentile and still fail their users."
DO_NOT = "Do not buy this as it is:"


def _way_out(s: Subject) -> str:
    """What would hold the promises that this fleet misses."""
    if s.larger_fleet is not None:
        return s.larger_fleet.remedy[:1].upper() + s.larger_fleet.remedy[1:]
    said = next((p.get("remedy") for p in s.problems if p["code"] == "slo_missed" and p.get("remedy")), None)
    return said or "It needs more replicas, a faster layout, or another promise."


def _at_the_peak(s: Subject) -> str:
    """What the busiest hour needs, where that is another load than the one that the plan's own findings speak of."""
    return f" At the busiest hour {s.larger_fleet.remedy}" if s.peak_to_mean != 1.0 and s.larger_fleet is not None else ""


def _first(problems: list[Any], otherwise: str) -> str:
    if not problems:
        return otherwise
    worst = problems[0]
    return f"{worst['message']}. {worst.get('remedy') or ''}".strip()


def _rows(s: Subject) -> list[tuple[Any, Any, Any]]:
    cost, memory = s.part("cost"), s.part("memory")
    a = s.part("architecture")
    rows: list[tuple[Any, Any, Any]] = [
        (
            "Buy" if s.to_buy else "As planned, not to be bought",
            s.purchase,
            f"{show(s.gpus_paid, 'count')} GPU{'s' * (s.gpus_paid != 1)} paid for, spares included",
        ),
        *_instead(s),
        (
            "To serve",
            a.get("name") or s.scenario.model.name,
            (
                f"{show(a.get('total_params'), 'billion')} parameters, {s.scenario.precision.weights} weights, "
                f"{s.scenario.precision.kv_cache} KV cache"
            ),
        ),
        ("Does it fit", s.fits, _fit_detail(s)),
    ]
    for name, promise, seen in s.promises():
        unit = LATENCY_UNITS[name]
        detail = f"promised {show(promise, unit)}; not simulated"
        if seen is not None:
            kept = s.kept.get(name) if s.peak is None else seen <= promise
            detail = f"at {s.peak_words}; promised {show(promise, unit)}; kept: {show(kept)}, "
            detail += f"margin {show((promise - seen) / promise, 'share')}{_range(s, name, seen)}"
        rows.append((f"{LATENCY_NAMES[name]}, {s.percentile}", cell(seen, unit), detail))
    batch = s.part("throughput").get("mean_batch")
    if batch is not None:
        held = f"batch {show(batch)} of {show(memory.get('cache_limited_batch'), 'count')} that the cache holds"
        rows.append(("What gives first", binding(s), held))
    low, mid, high = s.monthly_range
    rows.append(("Cost per month", cell(mid, "usd"), _price_detail(s, low, high)))
    if s.fits and not s.errors:
        unit_cost = cost.get("usd_per_request")
        rows.append(
            (
                "Cost per 1,000 requests",
                cell(_times(unit_cost, PER_THOUSAND), "usd"),
                f"at {s.load_words} around the clock, idle time included",
            )
        )
        clients = s.scenario.workload.max_concurrency
        if clients and mid is not None:
            rows.append(("Cost per client and month", cell(mid / clients, "usd"), f"of {clients:,} clients at once"))
        tokens = [f"{show(cost.get(key), 'usd')} {word}" for key, word in TOKEN_PRICES if cost.get(key) is not None]
        rows.append(
            (
                "Cost per million tokens",
                cell(cost.get("usd_per_mtok_blended"), "usd"),
                f"blended; {', '.join(tokens)}{_output_range(s)}" if tokens else ABSENT,
            )
        )
        rows += _api_rows(s)
    confidence = s.part("confidence")
    grade = confidence.get("grade") if s.fits else None
    rows.append(("Confidence", grade or "not graded", "A measured neighbour, B same family, C extrapolated (section 9)"))
    return rows


def _instead(s: Subject) -> list[tuple[Any, Any, Any]]:
    """The fleet that would hold the promises, with its bill; nothing where this one may be bought or none is known."""
    fleet = s.larger_fleet
    if fleet is None:
        return []
    what = "What would keep up at least" if fleet.at_least else "What would hold the promises"
    bill = "no price is known for this GPU" if fleet.usd_per_month is None else f"{show(fleet.usd_per_month, 'usd')} a month"
    by = "the load that one replica serves" if fleet.at_least else "the largest load that one replica holds them at"
    return [(what, fleet.words, f"{bill}, {'as simulated' if fleet.simulated else f'by {by}'}")]


def _output_range(s: Subject) -> str:
    usd = (s.part("confidence").get("bands") or {}).get("usd")
    return f" ({interval(usd[0], usd[1], 'usd')} with the model's error)" if usd else ""


def _range(s: Subject, name: str, seen: float | None) -> str:
    """The plan's band around a latency, as the end of a sentence; nothing where none is stated."""
    if seen is None or name not in BANDED:
        return ""
    try:
        stated = band(s.plan, BANDED[name], s.percentile)
    except InputError:
        return ""
    if not stated.stated or not stated.mean:
        return ""
    low, high = (seen * end / stated.mean for end in (stated.low, stated.high))
    return f"; {interval(low, high, LATENCY_UNITS[name])} with the model's error"


def _price_detail(s: Subject, low: float | None, high: float | None) -> str:
    hours = s.part("cost").get("gpu_hours") or ()
    if not hours:
        return "no price is known for this GPU on this basis"
    prices = " and ".join(
        f"{show(h['usd'], 'usd')} per GPU-hour, {h['basis'].replace('_', ' ')}" + (", your own price" if h["kind"] == "user" else "")
        for h in hours
    )
    spread = f"; {interval(low, high, 'usd')} from the cheapest to the dearest provider" if low != high else ""
    return f"{HOURS_PER_MONTH} h at {prices}{spread}"


TOKEN_PRICES = (("usd_per_mtok_input", "input"), ("usd_per_mtok_cached_input", "cached input"), ("usd_per_mtok_output", "output"))


def _fit_detail(s: Subject) -> str:
    memory = s.part("memory")
    if not memory or memory.get("kv_pool_bytes_per_gpu") is None:
        return "the layout is not possible, so no memory was counted"
    if not s.fits:
        return f"short {show(memory.get('shortfall_bytes_per_gpu'), 'gib')} per GPU"
    return f"KV pool {show(memory['kv_pool_bytes_per_gpu'], 'gib')} per GPU, {show(memory['kv_pool_tokens'], 'tokens')} per replica"


def _api_rows(s: Subject) -> list[tuple[Any, Any, Any]]:
    listed = [row for row in s.part("cost").get("list_prices") or () if row.get("usd_per_request")]
    if not listed:
        return [("API instead", "no list price to compare with", ABSENT)]
    cheapest = min(listed, key=lambda row: row["usd_per_request"])
    month = _times(cheapest["usd_per_request"], s.requests_per_month)
    volume = (s.part("cost").get("break_even_requests_per_day") or {}).get(cheapest["label"]) or {}
    planned = _times(s.requests_per_s, DAY_S)
    return [
        (
            "API instead",
            cell(month, "usd"),
            f"a month of the same requests at the cheapest list price, {cheapest['label']}{_of_date(cheapest)}{_beside(s, month)}",
        ),
        (
            "Break-even with it",
            cell(volume.get("at_hit_rate"), "requests_day"),
            f"from there on the API costs more than this fleet's bill; this plan has {show(planned, 'requests_day')}",
        ),
    ]


def _beside(s: Subject, api_usd_per_month: float | None) -> str:
    """Which of the two is cheaper at the planned load, and by how much."""
    own = s.part("cost").get("usd_per_month")
    if not own or api_usd_per_month is None:
        return ""
    return f"; {show(abs(api_usd_per_month - own), 'usd')} a month {'less' if api_usd_per_month < own else 'more'} than this fleet"


def _of_date(price: Any) -> str:
    return f" of {dated(price['date'], '')}" if price.get("date") else ", your own figure" if not price.get("provider") else ", undated"


def binding(s: Subject) -> str:
    """What limits this plan, in words."""
    if not s.fits:
        return "memory"
    codes = [p["code"] for p in s.problems]
    throughput, memory = s.part("throughput"), s.part("memory")
    if "overloaded" in codes:
        return "throughput: more arrives than can be served"
    if "preemptions" in codes or (throughput.get("kv_utilization") or 0) > 0.9:
        return "KV cache"
    promises = [(seen / promise, name) for name, promise, seen in s.promises() if seen is not None]
    if promises:
        used, name = max(promises)
        return f"{LATENCY_NAMES[name].lower()}: {show(used, 'share')} of the promise is used"
    seats = s.scenario.engine.max_num_seqs
    return "max_num_seqs" if seats < (memory.get("cache_limited_batch") or 0) else "KV cache"


def _times(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor
