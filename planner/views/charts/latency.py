"""Waiting: percentiles beside the promise, and how they grow with load."""

from __future__ import annotations

from typing import Any

from planner.views.charts import AXIS_TIME, BLUE, ORANGE, RED, Ink, Rows, Spec, base, decades, x
from planner.views.text import seconds

METRICS = (
    ("ttft_s", "first token"),
    ("tpot_s", "next tokens"),
    ("itl_s", "every gap"),
    ("e2e_s", "whole answer"),
    ("queue_s", "in the queue"),
)
POINTS = ("p50", "p90", "p95", "p99")


def rows(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per metric and percentile, milliseconds."""
    found = []
    for key, name in METRICS:
        values = plan["latency"].get(key) or {}
        for point in POINTS:
            value = values.get(point)
            if value and value > 0:
                found.append({"metric": name, "point": point, "ms": value * 1e3, "text": seconds(value)})
    return found


def percentiles(plan: dict[str, Any], ink: Ink) -> Spec:
    """A dot per percentile and metric on a log axis, with the promise as a red line."""
    data = rows(plan)
    names = [name for key, name in METRICS if any(r["metric"] == name for r in data)]
    slo = plan["scenario"]["slo"]
    promised = [
        {"metric": name, "ms": slo[key] * 1e3, "text": seconds(slo[key])} for key, name in METRICS if slo.get(key) and name in names
    ]
    values = [r["ms"] for r in [*data, *promised]] or [1.0]
    low, high = min(values) / 1.6, max(values) * 1.6
    across = x(
        "ms",
        None,
        scale={"type": "log", "domain": [low, high], "nice": False},
        axis={
            "values": decades(low, high),
            "labelExpr": "datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' s' : format(datum.value, '~g') + ' ms'",
        },
    )
    down = x("metric", None, "nominal", sort=names)
    dots = {"domain": list(POINTS), "range": ["circle", "square", "triangle-up", "diamond"]}
    return base(data, 60 + 44 * max(len(names), 1), ink) | {
        "layer": [
            {
                "mark": {"type": "rule", "color": ink.faint},
                "encoding": {
                    "y": down,
                    "x": {"aggregate": "min", "field": "ms", "type": "quantitative"},
                    "x2": {"aggregate": "max", "field": "ms"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {
                    "y": down,
                    "x": across,
                    "shape": {"field": "point", "type": "nominal", "scale": dots},
                    "color": {
                        "field": "point",
                        "type": "nominal",
                        "scale": {"domain": list(POINTS), "range": ["#56B4E9", "#009E73", "#0072B2", "#E69F00"]},
                    },
                    "tooltip": [
                        {"field": "metric", "title": "Metric"},
                        {"field": "point", "title": "Percentile"},
                        {"field": "text", "title": "Value"},
                    ],
                },
            },
            {
                "data": {"values": promised},
                "mark": {"type": "tick", "thickness": 3, "size": 30, "color": RED},
                "encoding": {
                    "y": down,
                    "x": across,
                    "tooltip": [{"field": "metric", "title": "Promise on"}, {"field": "text", "title": "at most"}],
                },
            },
        ]
    }


def against_load(points: Rows, promise_s: float | None, title: str, ink: Ink) -> Spec:
    """Bands of a latency against load: `points` are {load, p50, p90, p99} in seconds; a log axis, or the saturated end hides the rest."""
    data = [dict(p) for p in points if p["p50"] and p["p50"] > 0]
    values = [v for p in data for v in (p["p50"], p["p99"])] + ([promise_s] if promise_s else [])
    low, high = (min(values) / 1.5, max(values) * 1.5) if values else (0.1, 1.0)
    up: dict[str, Any] = {
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"values": decades(low, high), **AXIS_TIME},
    }
    loads = [p["load"] for p in data] or [1.0]
    across = x("load", "requests per second", scale={"domain": [0, max(loads) * 1.03], "nice": False}, axis={"grid": False})
    layers: list[Spec] = [
        {
            "mark": {"type": "area", "opacity": 0.18, "color": BLUE},
            "encoding": {"x": across, "y": x("p50", title, **up), "y2": {"field": "p99"}},
        },
        {
            "mark": {"type": "area", "opacity": 0.28, "color": BLUE},
            "encoding": {"x": across, "y": x("p50", title, **up), "y2": {"field": "p90"}},
        },
        {"mark": {"type": "line", "color": BLUE, "point": True, "strokeWidth": 2}, "encoding": {"x": across, "y": x("p50", title, **up)}},
        {
            "mark": {"type": "line", "color": ORANGE, "point": {"shape": "diamond", "size": 60, "color": ORANGE}, "strokeDash": [5, 3]},
            "encoding": {"x": across, "y": x("p99", title, **up)},
        },
    ]
    if promise_s:
        layers.append(
            {
                "data": {"values": [{"y": promise_s}]},
                "mark": {"type": "rule", "color": RED, "strokeWidth": 2, "strokeDash": [2, 2]},
                "encoding": {"y": x("y", title, **up)},
            }
        )
    return base(data, 260, ink) | {"layer": layers}
