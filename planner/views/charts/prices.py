"""Dollars: cost against speed, this plan beside list prices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from planner.catalog.rental import dated
from planner.views.charts import BLUE, ORANGE, Ink, Rows, Spec, base, categories, decades, room, shapes, x
from planner.views.text import usd

MIX = "$ per M tokens, blended"


def frontier(points: Rows, here: dict[str, Any] | None, ink: Ink) -> Spec:
    """$ per M output against tokens per second and user. `points` are {gpu, tp, batch, speed, usd, edge}; `here` is this plan.

    Points on the edge (nothing is both cheaper and faster) are solid. A click on a point adopts it.
    """
    data = [dict(p) for p in points]
    gpus = list(dict.fromkeys(p["gpu"] for p in data))
    speeds, prices = [p["speed"] for p in data] or [1.0], [p["usd"] for p in data] or [1.0]
    low, high = min(prices) / 1.6, max(prices) * 1.6
    across = x(
        "speed",
        "tokens per second and user (right is faster)",
        scale={"type": "log", "domain": [min(speeds) / 1.2, max(speeds) * 1.2], "nice": False},
        axis={"values": [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], "format": "~g"},
    )
    up = x(
        "usd",
        "$ per M output tokens",
        scale={"type": "log", "domain": [low, high], "nice": False},
        axis={"values": decades(low, high), "format": "$~g"},
    )
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.edge"}],
            "mark": {"type": "line", "color": ink.faint, "strokeDash": [3, 3]},
            "encoding": {"x": across, "y": up, "order": {"field": "speed"}},
        },
        {
            "params": [{"name": "pick", "select": {"type": "point", "on": "click", "fields": ["gpu", "tp", "batch"]}}],
            "mark": {"type": "point", "filled": True, "size": 64, "cursor": "pointer"},
            "encoding": {
                "x": across,
                "y": up,
                "color": {"field": "gpu", "type": "nominal", "scale": categories(gpus)},
                "shape": {"field": "gpu", "type": "nominal", "scale": shapes(gpus)},
                "opacity": {"condition": {"test": "datum.edge", "value": 1}, "value": ink.background},
                "tooltip": [
                    {"field": "gpu", "title": "GPU"},
                    {"field": "tp", "title": "GPUs per replica"},
                    {"field": "batch", "title": "Batch"},
                    {"field": "speed", "title": "tokens/s and user", "format": ".3~g"},
                    {"field": "usd", "title": "$ per M output", "format": ".3~g"},
                ],
            },
        },
    ]
    if here:
        own = {"values": [here]}
        # The words stand where there is room: left of the point, or right of it near the left end of the axis.
        left = math.log(max(here["speed"], 1e-9) / min(speeds)) > 0.3 * math.log(max(speeds) / min(speeds) or 1.0)
        aside = {"align": "right", "dx": -12} if left else {"align": "left", "dx": 12}
        layers += [
            {
                "data": own,
                "mark": {"type": "point", "shape": "cross", "filled": True, "size": 260, "color": ink.text, "opacity": 0.85},
                "encoding": {"x": across, "y": up},
            },
            {
                "data": own,
                "mark": {"type": "text", **aside, "dy": -10, "fontWeight": "bold", "color": ink.text},
                "encoding": {"x": across, "y": up, "text": {"value": "this plan"}},
            },
        ]
    return base(data, 320, ink) | {"layer": layers}


def short(labels: Sequence[str]) -> dict[str, str]:
    """Labels of list prices as they stand beside a bar: the provider alone where it lists one price, as all of them are of one model."""
    providers = [label.partition(":")[0] for label in labels]
    return {label: provider if providers.count(provider) == 1 else label for label, provider in zip(labels, providers, strict=True)}


def beside_list(plan: dict[str, Any], ink: Ink) -> Spec:
    """Blended $ per M tokens of this plan and of list prices, cheapest first."""
    own = plan["cost"]["usd_per_mtok_blended"] or 0.0
    listed = [p for p in plan["cost"]["list_prices"] if p["blended"]]
    data: list[dict[str, Any]] = (
        [{"who": "this plan", "usd": own, "model": "this plan", "kind": "this plan", "text": usd(own), "date": "at this load"}]
        if own
        else []
    )
    names = short([p["label"] for p in listed])
    data += [
        {
            "who": names[p["label"]],
            "model": p["label"],
            "usd": p["blended"],
            "kind": "list price",
            "text": usd(p["blended"]),
            "date": dated(p["date"], "yours"),
        }
        for p in listed
    ]
    data.sort(key=lambda row: row["usd"])
    down = x("who", None, "nominal", sort=[row["who"] for row in data], axis={"labelOverlap": False})
    return base(data, 70 + 28 * max(len(data), 1), ink) | {
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.65}},
                "encoding": {
                    "y": down,
                    "x": x(
                        "usd",
                        MIX,
                        stack=None,
                        scale=room(max([1e-9, *(p["blended"] for p in listed), own]), 60),
                        axis={"format": "$~g", "tickCount": 6, "labelBound": True},
                    ),
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": ["this plan", "list price"], "range": [ORANGE, BLUE]},
                    },
                    "tooltip": [
                        {"field": "model", "title": "Price"},
                        {"field": "text", "title": "Blended"},
                        {"field": "date", "title": "As of"},
                    ],
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": ink.text},
                "encoding": {"y": down, "x": x("usd", MIX), "text": {"field": "text"}},
            },
        ]
    }
