"""Lines and bars for lessons and small multiples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.views.charts import ORANGE, SERIES, SHAPES, Ink, Rows, Spec, base, categories, decades, room, x


def lines(
    rows: Rows,
    across: str,
    up: str,
    ink: Ink,
    *,
    series: Sequence[str] = (),
    at: Any = None,
    log_x: bool = False,
    log_y: bool = False,
    format_y: str = "~s",
    height: int = 300,
) -> Spec:
    """Rows of {x, y, series} as lines with a mark per series; `at` is a vertical line where the control stands."""
    names = list(series) or list(dict.fromkeys(r.get("series", "") for r in rows))
    xs, ys = [r["x"] for r in rows], [r["y"] for r in rows]
    scale_x: Spec = {"type": "log" if log_x else "linear", "domain": [min(xs), max(xs)], "nice": False}
    top, low = max(ys) * (1.5 if log_y else 1.1), min(ys) / 1.5 if log_y else 0
    scale_y: Spec = {"type": "log" if log_y else "linear", "domain": [low, top or 1], "nice": False}
    axis_x: Spec = {"grid": False, "format": "~s"} | ({"values": _doubling(min(xs), max(xs))} if log_x else {"tickMinStep": 1})
    axis_y: Spec = {"format": format_y} | ({"values": decades(low, top)} if log_y else {"tickCount": 5})
    channel_x, channel_y = x("x", across, scale=scale_x, axis=axis_x), x("y", up, scale=scale_y, axis=axis_y)
    shape = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": names, "range": [SHAPES[i % len(SHAPES)] for i in range(len(names))]},
    }
    colour = {"field": "series", "type": "nominal", "scale": categories(names)}
    legend: Spec = {"title": None} if len(names) > 1 else {}
    tooltip = [
        {"field": "series", "title": "Line"},
        {"field": "x", "title": across, "format": ".4~g"},
        {"field": "y", "title": up, "format": ".3~s"},
    ]
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"x": channel_x, "y": channel_y, "color": colour | ({"legend": legend} if legend else {"legend": None})},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
            "encoding": {
                "x": channel_x,
                "y": channel_y,
                "color": colour,
                "shape": shape | ({} if legend else {"legend": None}),
                "tooltip": tooltip,
            },
        },
    ]
    if at is not None:
        layers.append({"mark": {"type": "rule", "strokeDash": [4, 3], "color": ink.text}, "encoding": {"x": {"datum": at}}})
    return base(rows, height, ink) | {"layer": layers}


def bars(rows: Rows, up: str, ink: Ink, *, chosen: str = "", height: int | None = None) -> Spec:
    """Rows of {name, value, text} as horizontal bars; the chosen one stands out."""
    top = max([1e-12, *(r["value"] for r in rows)])
    names = [r["name"] for r in rows]
    marked = [dict(r) | {"chosen": "chosen" if r["name"] == chosen else "other"} for r in rows]
    down = x("name", None, "nominal", sort=names, axis={"labelOverlap": False})
    across = x("value", up, stack=None, scale=room(top, 90), axis={"tickCount": 5, "format": "~s"})
    return base(marked, height or 60 + 34 * len(rows), ink) | {
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.65}},
                "encoding": {
                    "y": down,
                    "x": across,
                    "color": {
                        "field": "chosen",
                        "type": "nominal",
                        "legend": None,
                        "scale": {"domain": ["chosen", "other"], "range": [ORANGE, SERIES[0]]},
                    },
                    "tooltip": [{"field": "name", "title": "Which"}, {"field": "text", "title": up}],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": ink.text},
                "encoding": {"y": down, "x": across, "text": {"field": "text"}},
            },
        ]
    }


def stacked(rows: Rows, up: str, parts: Sequence[str], ink: Ink, colours: Sequence[str] = SERIES) -> Spec:
    """Rows of {name, part, value, text}: one stacked bar a name."""
    names = list(dict.fromkeys(r["name"] for r in rows))
    ordered = [dict(r) | {"order": list(parts).index(r["part"])} for r in rows]
    totals: dict[str, float] = {}
    for r in rows:
        totals[r["name"]] = totals.get(r["name"], 0.0) + r["value"]
    return base(ordered, 108 + 34 * len(names), ink) | {
        "mark": {"type": "bar", "height": {"band": 0.65}, "stroke": ink.paper, "strokeWidth": 0.5},
        "encoding": {
            "y": x("name", None, "nominal", sort=names, axis={"labelOverlap": False}),
            "x": x(
                "value",
                up,
                stack="zero",
                scale={"domain": [0, max([1e-12, *totals.values()]) * 1.05], "nice": False},
                axis={"tickCount": 6, "format": "~s"},
            ),
            "order": {"field": "order"},
            "color": {"field": "part", "type": "nominal", "scale": categories(parts, colours)},
            "tooltip": [{"field": "name", "title": "Which"}, {"field": "part", "title": "Part"}, {"field": "text", "title": up}],
        },
    }


def _doubling(low: float, high: float) -> list[float]:
    ticks, value = [], 1.0
    while value <= high:
        ticks += [value] if value >= low else []
        value *= 2 if high / max(low, 1e-9) < 3000 else 4
    return ticks
