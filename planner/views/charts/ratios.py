"""Scenarios against the first one."""

from __future__ import annotations

from planner.views.charts import BLUE, GREEN, ORANGE, SHAPES, Ink, Rows, Spec, base, x

WHO = ("B", "C", "D")


def dots(rows: Rows, ink: Ink) -> Spec:
    """Ratio of each figure to the first scenario's, on a log axis around 1."""
    names = list(dict.fromkeys(r["figure"] for r in rows))
    who = [letter for letter in WHO if any(r["who"] == letter for r in rows)]
    spread = max(1.25, *(max(r["ratio"], 1 / r["ratio"]) for r in rows)) * 1.15
    ticks = [t for t in (0.01, 0.03, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 30, 100) if 1 / spread <= t <= spread]
    across = x(
        "ratio", "times A", scale={"type": "log", "domain": [1 / spread, spread], "nice": False}, axis={"values": ticks, "format": "~g"}
    )
    down = x("figure", None, "nominal", sort=names, axis={"labelOverlap": False})
    return base(rows, 70 + 26 * len(names), ink) | {
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [4, 3], "color": ink.text}, "encoding": {"x": {"datum": 1}}},
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {
                    "y": down,
                    "x": across,
                    "color": {"field": "who", "type": "nominal", "scale": {"domain": who, "range": [BLUE, ORANGE, GREEN][: len(who)]}},
                    "shape": {
                        "field": "who",
                        "type": "nominal",
                        "scale": {"domain": who, "range": list(SHAPES[: len(who)])},
                    },
                    "tooltip": [
                        {"field": "who", "title": "Scenario"},
                        {"field": "figure", "title": "Figure"},
                        {"field": "text", "title": "times A"},
                    ],
                },
            },
        ]
    }
