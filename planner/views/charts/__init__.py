"""Charts as plain Vega-Lite specs: pure functions from rows to a dict, drawn by `draw` with the ink of the theme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]

BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"
"""Okabe and Ito's colours, told apart by every kind of colour vision; shapes repeat what they say."""
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW)
SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down", "stroke")


AXIS_TIME = {"labelExpr": "datum.value < 1 ? format(datum.value * 1000, '~g') + ' ms' : format(datum.value, '~g') + ' s'"}
"""Seconds on an axis, with the unit that suits each tick."""
PHONE_PX = 340
"""Width of a chart on a phone. Vega lays a legend out before it knows how wide the chart has become, so it must fit there."""
LABEL_LIMIT = {"expr": "width < 330 ? 110 : 180"}


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours that follow the theme: Vega's own text and rules stay black on dark."""

    text: str
    faint: str
    grid: str
    paper: str
    background: float
    """Opacity of points that stand behind the others."""

    @staticmethod
    def of(dark: bool) -> Ink:
        """The ink for a theme."""
        return Ink("#E6EAEF", "#9AA6B4", "#2C3642", "#12161C", 0.55) if dark else Ink("#1B2430", "#5B6875", "#E3E8ED", "#FFFFFF", 0.4)


def base(rows: Rows, height: int, ink: Ink, **rest: Any) -> Spec:
    """What every chart shares. Height includes axes and legend."""
    return {
        "data": {"values": [dict(row) for row in rows]},
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": {
            "axis": {
                "labelColor": ink.faint,
                "titleColor": ink.faint,
                "gridColor": ink.grid,
                "domainColor": ink.grid,
                "tickColor": ink.grid,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "labelLimit": LABEL_LIMIT,
            },
            "legend": {
                "labelColor": ink.text,
                "titleColor": ink.faint,
                "orient": "top",
                "title": None,
                "labelFontSize": 12,
                "labelLimit": 240,
                "symbolLimit": 12,
            },
            "view": {"stroke": None},
            "text": {"color": ink.text, "fontSize": 12},
            "rule": {"color": ink.text},
        },
        **rest,
    }


def x(field: str, title: str | None, kind: str = "quantitative", **rest: Any) -> Spec:
    """A position channel."""
    return {"field": field, "type": kind, "title": title, **rest}


def legend_columns(spec: Any) -> int:
    """Entries of the longest legend that stand in a row of a phone's width; 0 puts all of them in one."""
    names = max(_domains(spec), key=lambda found: sum(map(len, found)), default=[])
    widths = [6.5 * len(name) + 28 for name in names]
    return 0 if sum(widths) <= PHONE_PX else max(1, int(PHONE_PX / (sum(widths) / len(widths))))


def _domains(spec: Any) -> Iterator[list[str]]:
    """Names on the colours of a spec."""
    for key, part in spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, list) else ():
        if key == "color" and isinstance(part, dict) and part.get("legend", {}) is not None:
            yield [str(name) for name in part.get("scale", {}).get("domain", ())]
        elif key != "data":
            yield from _domains(part)


def room(top: float, pixels: int, low: float = 0.0) -> Spec:
    """A scale from `low` that leaves `pixels` beyond `top` for the words after the longest bar, however narrow the screen."""
    return {
        "domain": [low, top],
        "domainMax": {"expr": f"{low} + {top - low} * width / max(width - {pixels}, width / 3)"},
        "nice": False,
    }


def categories(names: Sequence[str], colours: Sequence[str] = SERIES) -> Spec:
    """A fixed scale, so that a name keeps its colour from chart to chart."""
    return {"domain": list(names), "range": [colours[i % len(colours)] for i in range(len(names))]}


def shapes(names: Sequence[str]) -> Spec:
    """A fixed scale of shapes that repeats what the colours say."""
    return {"domain": list(names), "range": [SHAPES[i % len(SHAPES)] for i in range(len(names))]}


def decades(low: float, high: float) -> list[float]:
    """1-3-10 ticks of a log axis: the automatic minor grid is noise."""
    ticks, power = [], -9
    while 10.0**power <= high:
        ticks += [v for v in (10.0**power, 3 * 10.0**power) if low <= v <= high]
        power += 1
    return ticks
