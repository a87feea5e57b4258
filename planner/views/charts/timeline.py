"""A run of the simulator: steps, load over time, distributions, slow requests."""

from __future__ import annotations

from planner.views.charts import AXIS_TIME, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, Ink, Rows, Spec, base, decades, room, x

KINDS = ("decode only", "decode and prompt chunk", "prompt only")
KIND_COLOURS = (BLUE, ORANGE, PURPLE)


TIME = "seconds into the run"
"""A layer that left the title of a shared axis out would take it from the others too."""


def steps(rows: Rows, arrivals: Rows, ink: Ink) -> Spec:
    """Each step as a block: as wide as it took, as high as the sequences that decoded in it. Ticks below are arrivals."""
    low, high = rows[0]["start"], rows[-1]["end"]
    tallest = max(1, *(r["sequences"] for r in rows))
    across = x("start", TIME, scale={"domain": [low, high], "nice": False}, axis={"format": ".2f", "grid": False})
    return base(rows, 240, ink) | {
        "layer": [
            {
                "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
                "mark": {"type": "rect", "stroke": ink.paper, "strokeWidth": 0.5},
                "encoding": {
                    "x": across,
                    "x2": {"field": "end"},
                    "y": x(
                        "zero",
                        "sequences decoding",
                        scale={"domain": [-0.12 * tallest, tallest * 1.05], "nice": False},
                        axis={"tickMinStep": 1},
                    ),
                    "y2": {"field": "top"},
                    "color": {"field": "kind", "type": "nominal", "scale": {"domain": list(KINDS), "range": list(KIND_COLOURS)}},
                    "tooltip": [
                        {"field": "kind", "title": "Step"},
                        {"field": "took", "title": "took"},
                        {"field": "sequences", "title": "decoding"},
                        {"field": "chunk", "title": "prompt tokens"},
                        {"field": "waiting", "title": "waiting"},
                    ],
                },
                "transform": [{"calculate": "0", "as": "zero"}, {"calculate": f"max(datum.sequences, {tallest} * 0.04)", "as": "top"}],
            },
            {
                "data": {"values": [dict(a) for a in arrivals if low <= a["t"] <= high]},
                "mark": {"type": "point", "shape": "triangle-up", "filled": True, "color": GREEN, "size": 50, "opacity": 1},
                "encoding": {
                    "x": x("t", TIME),
                    "y": {"datum": -0.06 * tallest},
                    "tooltip": [{"field": "t", "title": "arrival, s", "format": ".3f"}],
                },
            },
        ]
    }


def over_time(rows: Rows, at_s: float, ink: Ink) -> Spec:
    """Queue, batch and cache in three strips over one time axis; the line is the chosen moment."""
    names, colours = ("waiting in the queue", "decoding", "KV cache used, %"), (RED, BLUE, ORANGE)
    last = max(r["t"] for r in rows)
    strips = []
    for i, (name, colour) in enumerate(zip(names, colours, strict=True)):
        final = i == len(names) - 1
        across = x(
            "t",
            TIME if final else None,
            scale={"domain": [0, last], "nice": False},
            axis={"grid": False, "labels": final, "ticks": final},
        )
        top = max([1.0, *(r["value"] for r in rows if r["what"] == name)])
        strips.append(
            {
                "height": 62,
                "width": "container",
                "title": {"text": name, "anchor": "start", "fontSize": 12, "fontWeight": "normal", "color": ink.text, "offset": 4},
                "layer": [
                    {
                        "transform": [{"filter": f"datum.what == '{name}'"}],
                        "mark": {
                            "type": "area",
                            "line": {"color": colour, "strokeWidth": 1.2},
                            "color": colour,
                            "opacity": 0.35,
                            "interpolate": "step-after",
                        },
                        "encoding": {
                            "x": across,
                            "y": x("value", None, scale={"domain": [0, top * 1.08], "nice": False}, axis={"tickCount": 3}),
                            "tooltip": [{"field": "t", "title": "s", "format": ".2f"}, {"field": "value", "title": name, "format": ".3~g"}],
                        },
                    },
                    {
                        "data": {"values": [{"t": at_s}]},
                        "mark": {"type": "rule", "strokeDash": [3, 3], "color": ink.text},
                        "encoding": {"x": x("t", TIME if final else None)},
                    },
                ],
            }
        )
    spec = base(rows, 0, ink)
    del spec["height"]
    return spec | {"vconcat": strips, "spacing": 8, "autosize": {"type": "fit-x", "contains": "padding"}}


def distribution(rows: Rows, promise_s: float | None, percentile: int, title: str, ink: Ink) -> Spec:
    """Share of requests answered within a time; dashed lines are the promise and its percentile."""
    values = [r["s"] for r in rows] + ([promise_s] if promise_s else [])
    low, high = min(values) / 1.3, max(values) * 1.3
    across = x("s", title, scale={"type": "log", "domain": [low, high], "nice": False}, axis={"values": decades(low, high), **AXIS_TIME})
    up = x("share", "% of requests within", scale={"domain": [0, 100]}, axis={"values": [0, 25, 50, 75, 90, 100]})
    layers: list[Spec] = [
        {
            "mark": {"type": "line", "color": BLUE, "interpolate": "step-after", "strokeWidth": 2},
            "encoding": {
                "x": across,
                "y": up,
                "tooltip": [
                    {"field": "s", "title": "seconds", "format": ".3~g"},
                    {"field": "share", "title": "% of requests", "format": ".3~g"},
                ],
            },
        },
        {
            "data": {"values": [{"share": percentile}]},
            "mark": {"type": "rule", "color": ink.faint, "strokeDash": [3, 3]},
            "encoding": {"y": up},
        },
    ]
    if promise_s:
        layers.append(
            {
                "data": {"values": [{"s": promise_s}]},
                "mark": {"type": "rule", "color": RED, "strokeWidth": 2, "strokeDash": [5, 3]},
                "encoding": {"x": across},
            }
        )
    return base(rows, 230, ink) | {"layer": layers}


def waterfall(rows: Rows, ink: Ink) -> Spec:
    """The slowest requests, each split into queue, prompt and output, with its reason beside it."""
    names = list(dict.fromkeys(r["request"] for r in rows))
    totals: dict[str, float] = {}
    for r in rows:
        totals[r["request"]] = totals.get(r["request"], 0.0) + r["s"]
    reasons = [{"request": n, "s": totals[n], "reason": next(r["reason"] for r in rows if r["request"] == n)} for n in names]
    longest = max(totals.values())
    down = x("request", None, "nominal", sort=names, axis={"labelOverlap": False})
    across = x("s", "seconds since arrival", stack="zero", scale=room(longest, 330), axis={"tickCount": 8})
    parts = {"domain": ["queue", "prompt", "output"], "range": [RED, ORANGE, SKY]}
    return base(rows, 70 + 24 * len(names), ink) | {
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.7}, "stroke": ink.paper, "strokeWidth": 0.5},
                "encoding": {
                    "y": down,
                    "x": across,
                    "order": {"field": "order"},
                    "color": {"field": "part", "type": "nominal", "scale": parts},
                    "tooltip": [
                        {"field": "request", "title": "Request"},
                        {"field": "part", "title": "Part"},
                        {"field": "time", "title": "Time"},
                        {"field": "reason", "title": "Why"},
                    ],
                },
            },
            {
                "data": {"values": reasons},
                "mark": {"type": "text", "align": "left", "dx": 6, "color": ink.text, "limit": {"expr": "min(420, width * 0.6)"}},
                "encoding": {"y": down, "x": {"field": "s", "type": "quantitative"}, "text": {"field": "reason"}},
            },
        ]
    }
