"""A fleet over a week and over volume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.views.charts import AXIS_TIME, BLUE, GREEN, ORANGE, RED, Ink, Rows, Spec, base, categories, decades, room, x

DAYS = "['Mon','Tue','Wed','Thu','Fri','Sat','Sun'][floor(datum.value / 24) % 7]"


def week(rows: Rows, ink: Ink) -> Spec:
    """Demand as an area, the capacity of a static and of an autoscaled fleet as lines."""
    top = max([1e-9, *(max(r["demand"], r["static"], r["scaled"]) for r in rows)]) * 1.08
    across = x(
        "hour",
        None,
        scale={"domain": [0, 168], "nice": False},
        axis={"values": [12 + 24 * d for d in range(7)], "labelExpr": DAYS, "grid": False},
    )
    scale = {"domain": [0, top], "nice": False}
    names, colours = ("demand", "fixed fleet carries", "autoscaled fleet carries"), (BLUE, RED, GREEN)
    colour = {"type": "nominal", "scale": {"domain": list(names), "range": list(colours)}}

    def line(field: str, name: str, dash: list[int]) -> Spec:
        return {
            "mark": {"type": "line", "interpolate": "step", "strokeWidth": 2, "strokeDash": dash},
            "encoding": {"x": across, "y": x(field, "requests per second", scale=scale), "color": colour | {"datum": name}},
        }

    area = {
        "mark": {"type": "area", "opacity": 0.35, "line": True},
        "encoding": {
            "x": across,
            "y": x("demand", "requests per second", scale=scale),
            "color": colour | {"datum": names[0]},
            "tooltip": [{"field": "hour", "title": "Hour of the week"}, {"field": "demand", "title": "Requests/s", "format": ".3~g"}],
        },
    }
    return base(rows, 290, ink) | {"layer": [area, line("static", names[1], [6, 3]), line("scaled", names[2], [1, 0])]}


def break_even(rows: Rows, marks: Rows, ink: Ink) -> Spec:
    """Monthly bill against volume: the fleet climbs in steps, the API in a line. `marks` are {volume, label}."""
    most = max(r["volume"] for r in rows)
    top = max(max(r["own"], r["api"]) for r in rows) * 1.05
    across = x("volume", "requests per day", scale={"domain": [0, most], "nice": False}, axis={"format": "~s", "grid": False})
    scale, axis = {"domain": [0, top], "nice": False}, {"format": "$~s"}
    colour = {"type": "nominal", "scale": {"domain": ["own fleet", "API"], "range": [BLUE, ORANGE]}}
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
            "encoding": {"x": across, "y": x("own", "$ per month", scale=scale, axis=axis), "color": colour | {"datum": "own fleet"}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "strokeDash": [6, 3]},
            "encoding": {"x": across, "y": x("api", "$ per month", scale=scale, axis=axis), "color": colour | {"datum": "API"}},
        },
    ]
    once: dict[str, Any] = {"values": [{}]}  # over the rows a word would be drawn once for each, on top of itself
    for i, mark in enumerate(marks):
        layers += [
            {
                "data": once,
                "mark": {"type": "rule", "strokeDash": [3, 3], "color": ink.faint},
                "encoding": {"x": {"datum": mark["volume"]}},
            },
            {
                "data": once,
                "mark": {"type": "text", "align": "left", "dx": 4, "color": ink.text},
                "encoding": {"x": {"datum": mark["volume"]}, "y": {"value": 12 + 16 * i}, "text": {"value": mark["label"]}},
            },
        ]
    return base(rows, 300, ink) | {"layer": layers}


def waterfall(bars: Rows, ink: Ink) -> Spec:
    """Steps from the floor to the list price; `bars` are {name, low, high, usd, text, kind}."""
    names = [b["name"] for b in bars]
    low, high = min(0.0, *(b["low"] for b in bars)), max(b["high"] for b in bars)
    kinds: dict[str, Any] = {"domain": ["adds", "takes off", "total"], "range": [ORANGE, GREEN, BLUE]}
    down = x("name", None, "nominal", sort=names, axis={"labelOverlap": False})
    span = room(high, 70, low)
    return base(bars, 108 + 32 * len(names), ink) | {
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.6}},
                "encoding": {
                    "y": down,
                    "x": x("low", "$ per 1,000 requests", scale=span, axis={"format": "$~g", "tickCount": 6}),
                    "x2": {"field": "high"},
                    "color": {"field": "kind", "type": "nominal", "scale": kinds},
                    "tooltip": [
                        {"field": "name", "title": "Part"},
                        {"field": "text", "title": "$ per 1,000 requests"},
                        {"field": "why", "title": "Why"},
                    ],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": ink.text},
                "encoding": {"y": down, "x": x("high", "$ per 1,000 requests", scale=span), "text": {"field": "text"}},
            },
        ]
    }


def tornado(rows: Rows, today: float, ink: Ink) -> Spec:
    """Monthly saving of the own fleet when each input moves; left of zero the API is cheaper. Rows are {name, low, high, text}."""
    names = [row["name"] for row in rows]
    ends = [today, 0.0, *(row[end] for row in rows for end in ("low", "high"))]
    pad = 0.08 * (max(ends) - min(ends) or 1.0)
    span = {"domain": [min(ends) - pad, max(ends) + pad], "nice": False}
    down = x("name", None, "nominal", sort=names, axis={"labelOverlap": False})
    across = x("low", "$ a month that the own fleet saves", scale=span, axis={"format": "$~s", "tickCount": 6})
    dots = {"domain": ["a fifth less", "a fifth more"], "range": [GREEN, ORANGE]}
    shapes = {"domain": dots["domain"], "range": ["circle", "square"]}
    ends_of = [
        {"name": row["name"], "usd": row[end], "move": move, "text": row["text"]}
        for row in rows
        for end, move in zip(("low", "high"), dots["domain"], strict=True)
    ]
    return base(rows, 108 + 32 * len(names), ink) | {
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 8, "opacity": 0.35, "color": BLUE},
                "encoding": {"y": down, "x": across, "x2": {"field": "high"}},
            },
            {
                "data": {"values": ends_of},
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {
                    "y": down,
                    "x": {"field": "usd", "type": "quantitative"},
                    "color": {"field": "move", "type": "nominal", "scale": dots},
                    "shape": {"field": "move", "type": "nominal", "scale": shapes},
                    "tooltip": [{"field": "name", "title": "Input"}, {"field": "text", "title": "Saves a month"}],
                },
            },
            {"mark": {"type": "rule", "strokeDash": [4, 3], "color": ink.text}, "encoding": {"x": {"datum": today}}},
            {"mark": {"type": "rule", "strokeWidth": 2, "color": RED}, "encoding": {"x": {"datum": 0}}},
        ]
    }


def drill(rows: Rows, events_s: Sequence[float], promise_s: float | None, ink: Ink) -> Spec:
    """First tokens over a run on a log axis, a line a drill; dashes are moments at which a replica was asked for. Rows are {t, s, who}."""
    names = list(dict.fromkeys(row["who"] for row in rows))
    values = [row["s"] for row in rows] + ([promise_s] if promise_s else [])
    low, high = (min(values) / 1.5, max(values) * 1.5) if values else (0.1, 1.0)
    across = x("t", "seconds into the run", axis={"grid": False}, scale={"domain": [0, max([1.0, *(r["t"] for r in rows)])], "nice": False})
    up = x(
        "s",
        "first token, p95",
        scale={"type": "log", "domain": [low, high], "nice": False},
        axis={"values": decades(low, high), **AXIS_TIME},
    )
    dashes = {"domain": names, "range": [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]][: len(names)]}
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-after"},
            "encoding": {
                "x": across,
                "y": up,
                "color": {"field": "who", "type": "nominal", "scale": categories(names)},
                "strokeDash": {"field": "who", "type": "nominal", "scale": dashes},
                "tooltip": [
                    {"field": "who", "title": "Drill"},
                    {"field": "t", "title": "s into the run", "format": ".3~g"},
                    {"field": "s", "title": "first token p95, s", "format": ".3~g"},
                ],
            },
        }
    ]
    layers += [
        {"mark": {"type": "rule", "strokeDash": [3, 3], "color": ink.faint}, "encoding": {"x": {"datum": event, "type": "quantitative"}}}
        for event in events_s
    ]
    if promise_s:
        layers.append(
            {"mark": {"type": "rule", "color": RED, "strokeWidth": 2}, "encoding": {"y": {"datum": promise_s, "type": "quantitative"}}}
        )
    return base(rows, 300, ink) | {"layer": layers}
