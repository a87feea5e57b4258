"""Predictions against measurements."""

from __future__ import annotations

from planner.views.charts import BLUE, GREEN, ORANGE, Ink, Rows, Spec, base, decades, x


def against_measured(rows: Rows, title: str, ink: Ink) -> Spec:
    """Predicted against measured on equal log axes: on the line they agree, between the dashes within 25 %.

    Rows are {measured, predicted, kind, name}.
    """
    values = [v for r in rows for v in (r["measured"], r["predicted"])]
    low, high = min(values) / 1.3, max(values) * 1.3
    wide = high / low > 100
    ticks = [t for t in decades(low, high) if not wide or f"{t:e}"[0] == "1"]
    kinds = list(dict.fromkeys(r["kind"] for r in rows))
    log = {"type": "log", "domain": [low, high], "nice": False}
    across, up = (
        x("measured", f"measured {title}", scale=log, axis={"values": ticks, "format": "~s"}),
        x("predicted", f"predicted {title}", scale=log, axis={"values": ticks, "format": "~s"}),
    )
    ends = [low, high]

    def line(factor: float, dash: list[int]) -> Spec:
        return {
            "data": {"values": [{"measured": e, "predicted": e * factor} for e in ends]},
            "mark": {"type": "line", "strokeDash": dash, "color": ink.faint, "clip": True},
            "encoding": {"x": across, "y": up},
        }

    return base(rows, 340, ink) | {
        "layer": [
            line(1.0, [1, 0]),
            line(1.25, [4, 4]),
            line(0.8, [4, 4]),
            {
                "mark": {"type": "point", "filled": True, "size": 70 if len(rows) < 60 else 28, "opacity": 0.9 if len(rows) < 60 else 0.55},
                "encoding": {
                    "x": across,
                    "y": up,
                    "color": {"field": "kind", "type": "nominal", "scale": {"domain": kinds, "range": [BLUE, ORANGE, GREEN][: len(kinds)]}},
                    "shape": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": kinds, "range": ["circle", "square", "triangle-up"][: len(kinds)]},
                    },
                    "tooltip": [
                        {"field": "name", "title": "Which"},
                        {"field": "measured", "format": ".3~g"},
                        {"field": "predicted", "format": ".3~g"},
                        {"field": "kind", "title": "Standing"},
                    ],
                },
            },
        ]
    }
