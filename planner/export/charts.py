"""Charts of a document as Vega-Lite specifications with their data inside: white ground, colours that print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

INK, GRID, ALERT = "#222222", "#dddddd", "#b3261e"
PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#4d4d4d"]
"""Okabe and Ito's, told apart by colour-blind readers and, by lightness, in grey print."""
WIDTH = 560
CONFIG = {
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": GRID,
        "domainColor": "#888888",
        "tickColor": "#888888",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "orient": "top",
        "title": None,
        "labelLimit": 0,
        "symbolStrokeWidth": 3,
    },
    "view": {"stroke": None},
    "range": {"category": PALETTE},
    "text": {"color": INK, "fontSize": 11},
}

BOUNDS = ("memory", "compute", "link", "launch")

Rows = Sequence[Mapping[str, Any]]


def memory_stack(rows: Rows) -> dict[str, Any]:
    """One bar: what holds the memory of one GPU. Rows {part, gib}, in order."""
    order = [row["part"] for row in rows]
    colours = [GRID if part == "left over" else PALETTE[i % len(PALETTE)] for i, part in enumerate(order)]
    data = [{**row, "order": i} for i, row in enumerate(rows)]
    return _chart(
        data,
        60,
        {
            "mark": {"type": "bar", "stroke": "white"},
            "encoding": {
                "x": {"field": "gib", "type": "quantitative", "stack": "zero", "title": "GiB of one GPU"},
                "color": {"field": "part", "type": "nominal", "sort": order, "scale": {"domain": order, "range": colours}},
                "order": {"field": "order", "type": "quantitative"},
            },
        },
    )


def step_bars(rows: Rows) -> dict[str, Any]:
    """Where the time of a step goes. Rows {term, ms, phase}."""
    order = [row["term"] for row in rows]
    known = [*BOUNDS, *(row["bound"] for row in rows)]
    bounds = [b for b in dict.fromkeys(known) if any(row["bound"] == b for row in rows)]
    return _chart(
        rows,
        max(80, 18 * len(set(order)) + 20),
        {
            "mark": {"type": "bar"},
            "encoding": {
                "y": {"field": "term", "type": "nominal", "sort": list(dict.fromkeys(order)), "title": None, "axis": {"labelLimit": 200}},
                "x": {"field": "ms", "type": "quantitative", "title": "ms of one decode step", "stack": "zero"},
                "color": {"field": "bound", "type": "nominal", "scale": {"domain": bounds}},
            },
        },
    )


def latency_by_load(rows: Rows, promises: Rows) -> dict[str, Any]:
    """Percentiles against load. Rows {load, metric, statistic, ms}; promises {metric, ms} as dashed rules."""
    panels = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        mine = [row for row in rows if row["metric"] == metric]
        limit = [row for row in promises if row["metric"] == metric]
        x = {
            "field": "load",
            "type": "quantitative",
            "title": "load, % of planned",
            "axis": {"values": sorted({r["load"] for r in mine})},
            "scale": {"zero": False},
        }
        y = {"field": "ms", "type": "quantitative", "title": f"{metric}, ms", "scale": {"zero": True}}
        line = {
            "data": {"values": mine},
            "mark": {"type": "line", "point": {"filled": True, "size": 40}},
            "encoding": {"x": x, "y": y, "color": {"field": "statistic", "type": "nominal", "sort": ["p50", "p95", "p99"]}},
        }
        rule = {
            "data": {"values": limit},
            "mark": {"type": "rule", "strokeDash": [6, 4], "color": ALERT, "strokeWidth": 1.5},
            "encoding": {"y": {"field": "ms", "type": "quantitative"}},
        }
        panels.append({"width": WIDTH // 2 - 60, "height": 160, "layer": [line, *([rule] if limit else [])]})
    return {"$schema": SCHEMA, "config": CONFIG, "hconcat": panels, "resolve": {"legend": {"color": "shared"}}}


def frontier(rows: Rows, here: Mapping[str, Any] | None) -> dict[str, Any]:
    """Price of an output token against speed for one user, one point a batch size. Rows {speed, usd, batch, fits}."""
    x = {"field": "speed", "type": "quantitative", "title": "output tokens/s for one user", "scale": {"zero": True}}
    y = {
        "field": "usd",
        "type": "quantitative",
        "title": "$ per million output tokens",
        "scale": {"type": "log"},
        "axis": {"values": _decades([r["usd"] for r in rows]), "format": "$,.4~g"},
    }
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line", "color": PALETTE[0], "point": {"filled": True, "color": PALETTE[0], "size": 45}},
            "encoding": {"x": x, "y": y},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 7, "dy": -6, "fontSize": 10},
            "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
        },
    ]
    if here:
        layers.append(
            {
                "data": {"values": [here]},
                "mark": {"type": "point", "shape": "diamond", "filled": True, "size": 160, "color": PALETTE[5]},
                "encoding": {"x": x, "y": y},
            }
        )
    return _chart(rows, 200, {"layer": layers})


def cost_by_volume(rows: Rows, marks: Rows) -> dict[str, Any]:
    """Monthly bill against volume: own fleet with its steps, the API's line. Rows {volume, usd, who}; marks {volume, label}."""
    x = {"field": "volume", "type": "quantitative", "title": "requests per day", "axis": {"format": "~s"}}
    y = {"field": "usd", "type": "quantitative", "title": "$ per month", "axis": {"format": "$,.3~s"}}
    line = {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": {"field": "who", "type": "nominal", "sort": None}}}
    rule = {
        "data": {"values": list(marks)},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": INK},
        "encoding": {"x": {"field": "volume", "type": "quantitative"}},
    }
    label = {
        "data": {"values": list(marks)},
        "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 4, "y": 4, "fontSize": 10},
        "encoding": {"x": {"field": "volume", "type": "quantitative"}, "text": {"field": "label", "type": "nominal"}},
    }
    return _chart(rows, 200, {"layer": [line, rule, label] if marks else [line]})


def tornado(rows: Rows, title: str) -> dict[str, Any]:
    """Share of the tightest promise in use as each input moves. Rows {lever, low, high, base}; the longest bar first."""
    order = [row["lever"] for row in rows]
    long = [
        {"lever": r["lever"], "from": r["base"], "to": r[end], "end": words}
        for r in rows
        for end, words in (("low", "input −20 %"), ("high", "input +20 %"))
    ]
    bars = {
        "data": {"values": long},
        "mark": {"type": "bar", "height": {"band": 0.65}},
        "encoding": {
            "y": {"field": "lever", "type": "nominal", "sort": order, "title": None},
            "x": {"field": "from", "type": "quantitative", "title": title, "axis": {"format": ".0%"}, "scale": {"zero": False}},
            "x2": {"field": "to"},
            "color": {"field": "end", "type": "nominal", "sort": ["input −20 %", "input +20 %"]},
        },
    }
    limit = {
        "data": {"values": [{"at": 1}]},
        "mark": {"type": "rule", "strokeDash": [6, 4], "color": ALERT},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
    }
    return {"$schema": SCHEMA, "config": CONFIG, "width": WIDTH - 120, "height": 26 * len(order) + 10, "layer": [bars, limit]}


def demand_week(rows: Rows, capacity: float | None) -> dict[str, Any]:
    """Requests/s over a week against what the fleet carries. Rows {hour, rate}."""
    x = {"field": "hour", "type": "quantitative", "title": "hour of the week", "axis": {"values": list(range(0, 169, 24))}}
    y = {"field": "rate", "type": "quantitative", "title": "requests/s"}
    area = {"mark": {"type": "area", "color": PALETTE[4], "opacity": 0.7, "line": {"color": PALETTE[0]}}, "encoding": {"x": x, "y": y}}
    if capacity is None:
        return _chart(rows, 150, area)
    rule = {
        "data": {"values": [{"rate": capacity}]},
        "mark": {"type": "rule", "strokeDash": [6, 4], "color": ALERT},
        "encoding": {"y": {"field": "rate", "type": "quantitative"}},
    }
    return _chart(rows, 150, {"layer": [area, rule]})


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


def _chart(rows: Rows, height: int, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"$schema": SCHEMA, "config": CONFIG, "width": WIDTH, "height": height, "data": {"values": list(rows)}, **body}


def _decades(values: Sequence[float]) -> list[float]:
    """1-3-10 ticks around positive values: a log axis' own minor grid is noise."""
    known = [v for v in values if v > 0]
    if not known:
        return [1.0]
    ticks = [m * 10.0**e for e in range(-6, 9) for m in (1, 3)]
    return [t for t in ticks if min(known) / 3 <= t <= max(known) * 3]
