"""Sections 2 and 3: the traffic that is planned for, and what is promised to it."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from planner import demand as curves
from planner.export import charts
from planner.export.blocks import Block, Chart, Section, Text, missing, table
from planner.export.figures import cell, show
from planner.export.subject import LATENCY_NAMES, LATENCY_UNITS, Subject
from planner.scenario import Length, Lengths, mean_length
from planner.units import DAY_S

PROBABILITIES = (0.5, 0.9, 0.95, 0.99)


def demand(s: Subject) -> Section:
    """Volume, shape, lengths and classes, each with where it came from."""
    w, fleet = s.scenario.workload, s.scenario.fleet
    served = s.part("throughput").get("requests_per_s")
    rate = w.request_rate if w.trace is None and w.max_concurrency is None else served
    rows: list[tuple[Any, Any, Any]] = []
    if w.max_concurrency is not None:
        rows.append(
            ("Clients at once", cell(w.max_concurrency, "count"), "closed loop: each sends its next request when the last one ends")
        )
    if w.trace is not None:
        rows.append(("Trace", w.trace.name or "uploaded", f"replayed; content hash {w.trace.content_hash or 'of the shipped file'}"))
    varying = s.peak_to_mean != 1.0
    rows.append(
        ("Requests per second", cell(rate, "requests_s"), "mean of the week" if varying else "at every hour: no demand curve was given")
    )
    rows.append(
        ("Requests per day", cell(None if rate is None else rate * DAY_S, "requests_day"), "mean day" if varying else "around the clock")
    )
    if varying:
        peak = None if rate is None else rate * s.peak_to_mean
        rows.append(("Requests per second, busiest hour", cell(peak, "requests_s"), "what the fleet has to hold"))
        rows.append(("Peak over mean, hour by hour", cell(s.peak_to_mean, "times"), "of the week below"))
    rows.append(
        (
            "Burstiness of arrivals",
            cell(1 / math.sqrt(w.burstiness), "number"),
            "coefficient of variation of the gaps; 1 is Poisson, larger is burstier",
        )
    )
    rows.append(("Thinking share of the output", cell(w.thinking_share, "share"), "tokens before the answer begins"))
    rows.append(("Shared prefix", cell(w.shared_prefix_len, "tokens"), f"{w.prefix_groups:,} different ones"))
    rows.append(("Turns of a session", cell(w.turns, "count"), f"mean pause {show(w.think_time_s, 's')} between turns"))
    hit = s.part("throughput").get("prefix_hit_rate")
    rows.append(("Prompt tokens found in the cache", cell(hit, "share"), "an output of the simulation, not an assumption"))
    rows.append(("Growth", "not stated", "plan again before the load passes the capacity in section 4"))
    blocks: list[Block] = [table("demand", "Demand", ("Quantity", "Value", "Note"), rows), _lengths(s)]
    blocks.append(_classes(s))
    if fleet.demand_curve is not None:
        blocks.append(_week_chart(s, rate))
    else:
        blocks.append(missing("Week of demand", "the load is the same at every hour (fleet.demand_curve is empty)"))
    return Section(2, "Demand", tuple(blocks))


def _lengths(s: Subject) -> Any:
    w = s.scenario.workload
    rows = []
    for name, length in (("Prompt", w.input_len), ("Output", w.output_len)):
        at = quantiles(length)
        source = (
            "replayed from the trace"
            if w.trace is not None
            else f"{length.kind} distribution"
            if isinstance(length, Lengths)
            else "one fixed length"
        )
        cut = f", cut at {w.max_output_len:,}" if name == "Output" and w.max_output_len else ""
        rows.append((name, cell(mean_length(length), "tokens"), *(cell(v, "tokens") for v in at), source + cut))
    heads = ("Tokens", "Mean", *(f"p{p * 100:g}" for p in PROBABILITIES), "Source")
    return table(
        "lengths", "Lengths", heads, rows, "Prompts hold the shared prefix; with several turns they count the new tokens of a turn."
    )


def quantiles(length: Length) -> list[float]:
    """Tokens at 50, 90, 95 and 99 %, in closed form."""
    if not isinstance(length, Lengths):
        return [float(length)] * len(PROBABILITIES)
    mean = length.mean or 0.0
    if length.kind == "lognormal":
        sigma = math.sqrt(math.log1p((length.cv or 0.0) ** 2))
        normal = statistics.NormalDist()
        found = [math.exp(math.log(mean) - sigma**2 / 2 + sigma * normal.inv_cdf(p)) for p in PROBABILITIES]
    elif length.kind == "uniform":
        found = [mean * (1 + (length.half_width or 0.0) * (2 * p - 1)) for p in PROBABILITIES]
    elif length.kind == "percentiles":
        at, tokens = zip(*(length.points or ()), strict=True)
        found = [float(v) for v in np.interp(PROBABILITIES, at, tokens)]
    elif length.kind == "empirical":
        found = [float(v) for v in np.quantile(np.array(length.values or ()), PROBABILITIES)]
    else:
        found = [mean] * len(PROBABILITIES)
    return [min(v, length.max) if length.max else v for v in found]


def _classes(s: Subject) -> Block:
    classes = s.scenario.workload.priority_classes
    if not classes:
        return missing("Classes of traffic", "all requests are of one class")
    rows = []
    for number, c in enumerate(classes, 1):
        slo = c.slo or s.scenario.slo
        rows.append(
            (
                f"class {number}",
                cell(c.share, "share"),
                cell(c.priority, "count"),
                cell(slo.ttft_s, "s"),
                cell(slo.tpot_s, "ms"),
                f"p{slo.percentile}",
            )
        )
    return table("classes", "Classes of traffic", ("Class", "Share", "Priority (lower first)", "TTFT", "TPOT", "At"), rows)


def _week_chart(s: Subject, rate: float | None) -> Block:
    hours = curves.curve(s.scenario.fleet.demand_curve)
    rates = [{"hour": h, "rate": round(float(v) * (rate or 1.0), 6)} for h, v in enumerate(hours)]
    capacity = s.part("throughput").get("capacity_requests_per_s")
    words = f"The busiest hour asks for {show(float(hours.max()), 'times')} the mean" + (
        f"; the dashed line is the capacity of {show(capacity, 'requests_s')}." if capacity else "."
    )
    return Chart("week", "A week of demand against capacity", words, charts.demand_week(rates, capacity))


def promises(s: Subject) -> Section:
    """Each promise with its percentile, the prediction, its uncertainty and the margin."""
    if not s.promises():
        return Section(3, "Promises", (Text("No latency is promised: all of the slo section is null."),))
    if not s.simulated:
        return Section(3, "Promises", (missing("Promises", "nothing was simulated to hold them against"),))
    loads = [(s.load_words, s.latency)] if s.peak_to_mean == 1.0 else [(s.load_words, s.latency), (s.peak_words, s.at_peak)]
    rows = []
    for words, seen_at in loads:
        for name, promise, _ in s.promises():
            unit, seen = LATENCY_UNITS[name], seen_at(name)
            if words == s.peak_words != s.load_words and s.peak is None:
                seen = None
            low, high = (s.part("latency").get(name) or {}).get(f"{s.percentile}_ci") or (None, None)
            if words != s.load_words:
                low = high = None
            margin = None if seen is None else (promise - seen) / promise
            kept = s.kept.get(name) if words == s.load_words else None if seen is None else seen <= promise
            figures = (cell(promise, unit), cell(seen, unit), cell(low, unit), cell(high, unit), cell(margin, "share"))
            rows.append((LATENCY_NAMES[name], s.percentile, words, *figures, kept))
    heads = ("Promise", "Percentile", "Load", "Promised", "Predicted", "95 % from", "to", "Margin", "Kept")
    throughput = s.part("throughput")
    offered, attained = throughput.get("requests_per_s"), throughput.get("goodput_requests_per_s")
    share = attained / offered if attained is not None and offered else None
    text = f"At {s.load_words} {show(share, 'share')} of requests see every promise kept; failed and unfinished ones count as misses."
    if s.part("simulation").get("stable") is False:
        text += " The simulated runs did not settle at this load: the interval is to be read, not the middle."
    first = s.latency("ttft_answer_s")
    if s.scenario.workload.thinking_share and first is not None:
        text += f" The answer itself begins after thinking, {show(first, 's')} at {s.percentile}."
    blocks: tuple[Block, ...] = (table("promises", "Promises", heads, rows), Text(text), *_by_class(s))
    return Section(3, "Promises", blocks)


def _by_class(s: Subject) -> tuple[Block, ...]:
    """What each class of traffic sees at the plan's load, against its own promise."""
    seen = s.plan.get("latency_by_class") or ()
    kept = {(p["name"], p["to"]): p["kept"] for p in s.verdicts}
    rows = []
    for number, (row, c) in enumerate(zip(seen, s.scenario.workload.priority_classes, strict=False), 1):
        slo = c.slo or s.scenario.slo
        for name, words in LATENCY_NAMES.items():
            promise, value = getattr(slo, name), (row.get(name) or {}).get(f"p{slo.percentile}")
            if promise is not None and value is not None:
                unit, verdict = LATENCY_UNITS[name], kept.get((name, f"priority {c.priority}" if c.slo else ""))
                rows.append((f"class {number}", words, f"p{slo.percentile}", cell(promise, unit), cell(value, unit), verdict))
    if not rows:
        return ()
    heads = ("Class", "Promise", "Percentile", "Promised", "Predicted", "Kept")
    return (table("promises-by-class", f"Promises by class at {s.load_words}", heads, rows),)
