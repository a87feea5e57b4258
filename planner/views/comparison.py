"""Two to four scenarios side by side: what differs, ratios against the first, the change in one sentence. No streamlit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from planner import links, presets
from planner.links.fields import Texts
from planner.scenario import Scenario
from planner.views import verdict
from planner.views.text import compact, digits, percent, seconds, usd
from planner.views.words import labels

Json = dict[str, Any]
TIE = 0.02
"""Ratios closer to 1 than this are a tie: runs of different scenarios differ by as much through chance."""

WHAT_IFS = {
    "Weights in fp8": "precision.weights=fp8",
    "Weights in int4": "precision.weights=int4",
    "KV cache in fp8": "precision.kv_cache=fp8",
    "H200 instead": "hardware.gpu=h200-sxm; price.usd_per_gpu_hour=",
    "B200 instead": "hardware.gpu=b200-sxm; price.usd_per_gpu_hour=",
    "MI300X instead": "hardware.gpu=mi300x; price.usd_per_gpu_hour=",
    "Speculation with EAGLE-3": "speculative=true",
    "No prefix caching": "engine.enable_prefix_caching=false",
    "Prefill first": "engine.batching=prefill_first",
    "Static batching": "engine.batching=static",
    "Small token budget": "engine.max_num_batched_tokens=2048",
}
"""Changes that people ask for most, as link text on top of the first scenario."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the comparison."""

    name: str
    path: tuple[str, ...]
    show: Any
    less_is_better: bool | None


def figures(percentile: int) -> tuple[Figure, ...]:
    """What is compared, at the promised percentile."""
    point = f"p{percentile}"
    return (
        Figure("$ per M output tokens", ("cost", "usd_per_mtok_output"), usd, True),
        Figure("$ per M input tokens", ("cost", "usd_per_mtok_input"), usd, True),
        Figure("$ per M, blended", ("cost", "usd_per_mtok_blended"), usd, True),
        Figure("$ per month", ("cost", "usd_per_month"), usd, True),
        Figure(f"TTFT {point}", ("latency", "ttft_s", point), seconds, True),
        Figure(f"TPOT {point}", ("latency", "tpot_s", point), seconds, True),
        Figure(f"Whole answer {point}", ("latency", "e2e_s", point), seconds, True),
        Figure("Output tokens/s", ("throughput", "output_tokens_per_s"), compact, False),
        Figure("Capacity, requests/s", ("throughput", "capacity_requests_per_s"), digits, False),
        Figure("Time with work to do", ("throughput", "busy"), percent, None),
        Figure("Mean batch", ("throughput", "mean_batch"), digits, None),
        Figure("Cache-limited batch", ("memory", "cache_limited_batch"), compact, False),
        Figure("Decode step", ("roofline", "decode_step_s"), seconds, True),
        Figure("Prefill tokens/s", ("roofline", "prefill_tokens_per_s"), compact, False),
    )


def read(text: str, first: Scenario) -> tuple[Scenario, links.Notes]:
    """A column's text: a link (with ?), a preset's name, or settings that replace those of the first scenario."""
    text = text.strip()
    if "?" in text or "://" in text:
        return links.decode(text)
    if text in presets.names():
        return presets.load(text), ()
    changes: dict[str, list[str]] = parse_qs(text.replace("; ", "&").replace(";", "&")[: links.MAX_LINK_CHARACTERS], keep_blank_values=True)
    if "=" not in text or not changes:
        return first, (f"{text[:60]!r} is neither a preset, a link, nor settings such as hardware.gpu=h200-sxm",)
    return links.decode(links.versioned({**links.encode(first), **changes}))


def value(plan: Json, figure: Figure) -> float | None:
    """The figure in a plan; None where a part is missing or the plan does not run."""
    if not verdict.runs(plan) and figure.path[0] != "memory":
        return None
    found: Any = plan
    for part in figure.path:
        found = found.get(part) if isinstance(found, dict) else None
    return float(found) if found is not None else None


def differences(scenarios: Sequence[Scenario]) -> list[dict[str, str]]:
    """Settings in which any two differ, one row each."""
    queries: list[Mapping[str, Texts]] = [links.encode(s) for s in scenarios]
    paths = dict.fromkeys(path for query in queries for path in query if path not in ("name", "notes"))
    rows = []
    for path in paths:
        values = [query.get(path, default_text(path)) for query in queries]
        if any(v != values[0] for v in values):
            name = labels().get(path, path)
            rows.append({"setting": name} | {letter(i): v if isinstance(v, str) else ", ".join(v) for i, v in enumerate(values)})
    return rows


def default_text(path: str) -> Texts:
    """What a setting holds when a link leaves it out."""
    from planner.links.fields import leaves, write

    leaf = leaves()[path]
    return "none" if leaf.default is None else write(leaf, leaf.default) or "none"


def letter(i: int) -> str:
    """A, B, C, D."""
    return "ABCD"[i]


def table(plans: Sequence[Json], percentile: int) -> list[dict[str, str]]:
    """Values with ratios against the first."""
    rows = []
    for figure in figures(percentile):
        values = [value(plan, figure) for plan in plans]
        if any(v is not None for v in values):
            cells = {letter(i): figure.show(v) + ratio_text(v, values[0], i) for i, v in enumerate(values)}
            rows.append({"figure": figure.name} | cells)
    return rows


def ratio_text(mine: float | None, first: float | None, i: int) -> str:
    """(×0.82), (tie) or nothing."""
    if i == 0 or not mine or not first:
        return ""
    return "  (tie)" if abs(mine / first - 1) < TIE else f"  (×{digits(mine / first)})"


def ratios(plans: Sequence[Json], percentile: int) -> list[dict[str, Any]]:
    """Rows for the chart: {figure, who, ratio}, figures where less or more is better only."""
    rows = []
    for figure in figures(percentile):
        first = value(plans[0], figure)
        for i, plan in enumerate(plans[1:], start=1):
            mine = value(plan, figure)
            if first and mine and figure.less_is_better is not None:
                rows.append({"figure": figure.name, "who": letter(i), "ratio": mine / first, "text": f"×{digits(mine / first)}"})
    return rows


def beside_the_plan_page(shown: Json, best: Json, percentile: int) -> str:
    """Why A's figures differ here from those of the Plan page, with those figures; empty while they are the same."""
    promised = [f for f in figures(percentile) if f.path[0] == "latency" or f.name == "$ per M output tokens"]
    pairs = [(f, value(shown, f), value(best, f)) for f in promised]
    other = [f"{f.name} {f.show(there)}" for f, here, there in pairs if here and there and f.show(here) != f.show(there)]
    return f" The Plan page repeats the run and takes the mean, so A reads {', '.join(other)} there." if other else ""


def largest(rows: Sequence[Mapping[str, Any]]) -> str:
    """The chart of ratios in one sentence: what moved most."""
    most = max(rows, key=lambda row: abs(math.log(row["ratio"])))
    if abs(most["ratio"] - 1) < TIE:
        return "No figure differs by more than chance."
    return f"What moves most is {most['figure']} of {most['who']}, {most['text']}. Left of the line is less than A, right of it more."


def sentence(i: int, scenarios: Sequence[Scenario], plans: Sequence[Json]) -> str:
    """What changed and what it did."""
    changed = [f"{row['setting']} {row['A']} → {row[letter(1)]}" for row in differences([scenarios[0], scenarios[i]])]
    what = "; ".join(changed[:4]) + (f" and {len(changed) - 4} more settings" if len(changed) > 4 else "")
    if not changed:
        return f"{letter(i)} is the same scenario as A."
    plan, first = plans[i], plans[0]
    if plan["memory"]["fits"] is not True:
        return f"{letter(i)} changes {what}: it does not run."
    if not verdict.runs(first):
        return f"{letter(i)} changes {what}: it runs, A does not."
    point = scenarios[0].slo.percentile
    key = ("$ per M output tokens", f"TTFT p{point}", f"TPOT p{point}", "Output tokens/s", "Cache-limited batch")
    compared = [(figure, old, mine) for figure in figures(point) if (mine := value(plan, figure)) and (old := value(first, figure))]
    moved = [f"{f.name} {f.show(old)} → {f.show(mine)}" for f, old, mine in compared if f.name in key and abs(mine / old - 1) >= TIE]
    same = [f.name for f, old, mine in compared if f.name in key and abs(mine / old - 1) < TIE]
    effects = ", ".join(moved) + (f"; {', '.join(same)} unchanged" if moved and same else "") or "no figure moves"
    kept = verdict.promise_kept(plan)
    return f"{letter(i)} changes {what}: {effects}{'. It ' + verdict.as_verb(kept) if kept else ''}."


def lever(name: str, changed: Scenario, plan: Json, first: Json, point: int) -> dict[str, str]:
    """One change alone, as ratios against the first scenario."""
    row = {"change": name, "state": ", ".join(badge.text for badge in verdict.badges(plan))}
    wanted = {
        f"TTFT p{point}": "TTFT",
        f"TPOT p{point}": "TPOT",
        "$ per M output tokens": "$ / M output",
        "Cache-limited batch": "sequences that fit",
    }
    for figure in figures(point):
        if figure.name in wanted:
            mine, old = value(plan, figure), value(first, figure)
            row[wanted[figure.name]] = ("tie" if abs(mine / old - 1) < TIE else f"×{digits(mine / old)}") if mine and old else "–"
    return row
