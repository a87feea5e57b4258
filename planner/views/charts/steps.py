"""One step: its roofline, its terms, and what batching does to it."""

from __future__ import annotations

from typing import Any

from planner.views.charts import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, Ink, Rows, Spec, base, categories, decades, room, x
from planner.views.text import compact, seconds, usd

BOUNDS = ("memory", "compute", "link", "launch", "host", "draft")
BOUND_COLOURS = (BLUE, ORANGE, GREEN, "#8C8C8C", PURPLE, SKY)


def terms(plan: dict[str, Any], phase: str, ink: Ink) -> Spec:
    """Where the time of a step goes, longest kernel first, coloured by what binds it."""
    rows = term_rows(plan, phase)
    totals = {row["name"]: row["total"] for row in rows}
    names, longest = list(totals), max([1e-9, *totals.values()])
    labels = [{"name": name, "ms": ms, "label": seconds(ms / 1e3)} for name, ms in totals.items()]
    down = x("name", None, "nominal", sort=names, axis={"labelOverlap": False})
    across = x("ms", "milliseconds", stack="zero", scale=room(longest, 60), axis={"tickCount": 6})
    bars = {
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "y": down,
            "x": across,
            "color": {"field": "bound", "type": "nominal", "scale": bounds_scale(rows)},
            "tooltip": [{"field": "name", "title": "Kernel"}, {"field": "time", "title": "Time"}, {"field": "bound", "title": "Bound by"}],
        },
    }
    text = {
        "data": {"values": labels},
        "mark": {"type": "text", "align": "left", "dx": 4, "color": ink.text},
        "encoding": {"y": down, "x": {"field": "ms", "type": "quantitative"}, "text": {"field": "label"}},
    }
    return base(rows, 70 + 26 * max(len(names), 1), ink) | {"layer": [bars, text]}


def bounds_scale(rows: Rows) -> Spec:
    """Colours of the bounds that occur, each always the same."""
    seen = [bound for bound in BOUNDS if any(row["bound"] == bound for row in rows)]
    return categories(seen, [BOUND_COLOURS[BOUNDS.index(bound)] for bound in seen] or BOUND_COLOURS)


def term_rows(plan: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    """The terms of a phase, one row per kernel and bound, the longest ten kernels, longest first."""
    phases = (phase, "step") if phase == "decode" else (phase,)
    found = [t for t in plan["roofline"]["terms"] if t["phase"] in phases and t["seconds"] > 0]
    totals: dict[str, float] = {}
    for t in found:
        totals[t["name"]] = totals.get(t["name"], 0.0) + t["seconds"]
    longest = sorted(totals, key=lambda name: -totals[name])[:10]
    ordered = sorted((t for t in found if t["name"] in longest), key=lambda t: (longest.index(t["name"]), -t["seconds"]))
    return [
        {"name": t["name"], "ms": t["seconds"] * 1e3, "total": totals[t["name"]] * 1e3, "bound": t["bound"], "time": seconds(t["seconds"])}
        for t in ordered
    ]


def batch_curve(plan: dict[str, Any], ink: Ink) -> Spec:
    """Price of a million output tokens against the batch; hollow where the cache cannot hold it."""
    rows = [
        {
            "batch": r["batch"],
            "usd": r["usd_per_mtok_output"],
            "state": "fits" if r["fits"] else "does not fit",
            "label": usd(r["usd_per_mtok_output"]),
            "tps": compact(r["decode_tokens_per_s"]),
        }
        for r in plan["roofline"]["batch_table"]
        if r["usd_per_mtok_output"]
    ]
    if not rows:
        return base(rows, 80, ink) | {"mark": "point"}
    batches, prices = [r["batch"] for r in rows], [r["usd"] for r in rows]
    scale_x = x(
        "batch",
        "sequences in the batch",
        scale={"type": "log", "domain": [min(batches) * 0.8, max(batches) * 1.6]},
        axis={"values": sorted(set(batches)), "grid": False},
    )
    scale_y = x(
        "usd",
        "$ per M output tokens (floor)",
        scale={"type": "log", "domain": [min(prices) / 2, max(prices) * 2]},
        axis={"values": decades(min(prices) / 2, max(prices) * 2), "format": "$~g"},
    )
    states = {"domain": ["fits", "does not fit"], "range": ["circle", "cross"]}
    return base(rows, 280, ink) | {
        "encoding": {"x": scale_x, "y": scale_y},
        "layer": [
            {"mark": {"type": "line", "color": ink.faint, "strokeDash": [3, 3]}},
            {
                "mark": {"type": "point", "size": 90, "filled": True},
                "encoding": {
                    "shape": {"field": "state", "type": "nominal", "scale": states},
                    "color": {"field": "state", "type": "nominal", "scale": {"domain": states["domain"], "range": [BLUE, RED]}},
                    "tooltip": [
                        {"field": "batch", "title": "Batch"},
                        {"field": "label", "title": "$ per M output"},
                        {"field": "tps", "title": "tokens/s"},
                    ],
                },
            },
            {"mark": {"type": "text", "align": "left", "dx": 8, "dy": -8, "color": ink.text}, "encoding": {"text": {"field": "label"}}},
        ],
    }


def roofline(points: Rows, peak_flops: float, bandwidth: float, ink: Ink) -> Spec:
    """FLOP per byte against FLOP per second of one GPU: `points` are {name, intensity, flops}."""
    ridge = peak_flops / bandwidth
    low = min([0.5, *(p["intensity"] / 2 for p in points)])
    high = max([ridge * 20, *(p["intensity"] * 2 for p in points)])
    roof = [{"intensity": v, "flops": min(v * bandwidth, peak_flops)} for v in (low, ridge, high)]
    floor = min([low * bandwidth, *(p["flops"] / 2 for p in points)])
    ticks = [t for t in decades(low, high) if str(t)[0] == "1" or t in (0.1, 0.01)]
    across = x(
        "intensity",
        "FLOP per byte moved",
        scale={"type": "log", "domain": [low, high], "nice": False},
        axis={"values": ticks, "format": "~s"},
    )
    up = x(
        "flops",
        "FLOP/s per GPU",
        scale={"type": "log", "domain": [floor, peak_flops * 2], "nice": False},
        axis={"values": [10.0**p for p in range(6, 17)], "format": "~s"},
    )
    marks = [dict(p) for p in points]
    return base(roof, 300, ink) | {
        "layer": [
            {"mark": {"type": "line", "color": ink.faint, "strokeWidth": 2}, "encoding": {"x": across, "y": up}},
            {
                "data": {"values": [{"intensity": ridge, "flops": peak_flops, "label": f"ridge {compact(ridge)}"}]},
                "layer": [
                    {"mark": {"type": "rule", "strokeDash": [4, 4], "color": ink.faint}, "encoding": {"x": across}},
                    {
                        "mark": {"type": "text", "align": "right", "dx": -6, "dy": -10, "color": ink.faint},
                        "encoding": {"x": across, "y": up, "text": {"field": "label"}},
                    },
                ],
            },
            {
                "data": {"values": marks},
                "layer": [
                    {
                        "mark": {"type": "point", "filled": True, "size": 120, "opacity": 1},
                        "encoding": {
                            "x": across,
                            "y": up,
                            "shape": {
                                "field": "phase",
                                "type": "nominal",
                                "scale": {"domain": ["decode", "prefill"], "range": ["circle", "square"]},
                            },
                            "color": {
                                "field": "phase",
                                "type": "nominal",
                                "scale": {"domain": ["decode", "prefill"], "range": [BLUE, ORANGE]},
                            },
                            "tooltip": [
                                {"field": "name", "title": "Step"},
                                {"field": "intensity", "title": "FLOP per byte", "format": ".3~s"},
                                {"field": "flops", "title": "FLOP/s", "format": ".3~s"},
                            ],
                        },
                    },
                    {
                        "mark": {"type": "text", "align": "right", "dx": -10, "dy": -8, "color": ink.text},
                        "encoding": {"x": across, "y": up, "text": {"field": "name"}},
                    },
                ],
            },
        ]
    }
