"""TTFT and TPOT against prompt length, measured points beside the planner's prediction."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from planner.measure.records import Request, distribution
from planner.problems import InputError

Predict = Callable[[list[int], float], list[dict[str, Any]]]
"""(prompt tokens, output tokens) → for each length prompt_tokens, ttft_s, tpot_s and their low and high."""

METRICS = {"ttft_s": "Time to first token (s)", "tpot_s": "Time per output token (s)"}


def is_chart(path: Path) -> bool:
    """The path asks for a picture."""
    return path.suffix.lower() in (".svg", ".html") or path.name.lower().endswith(".vl.json")


def chart_data(requests: Sequence[Request], predict: Predict | None = None) -> dict[str, Any]:
    """What the plots show: `points` (one a whole answer sent alone), `medians` by length, `predicted` where a plan is given."""
    whole = [r for r in requests if r.experiment == "lengths" and r.ok and r.prompt_tokens]
    points = [
        {"prompt_tokens": r.prompt_tokens, "ttft_s": r.ttft_s, "tpot_s": r.tpot_s, "target_prompt_tokens": r.target_prompt_tokens}
        for r in whole
    ]
    medians = []
    for length in sorted({r.target_prompt_tokens for r in whole}):
        group = [r for r in whole if r.target_prompt_tokens == length]
        medians.append(
            {
                "prompt_tokens": distribution([float(r.prompt_tokens or 0) for r in group])["p50"],
                "ttft_s": distribution([r.ttft_s for r in group if r.ttft_s is not None])["p50"],
                "tpot_s": distribution([r.tpot_s for r in group if r.tpot_s is not None])["p50"],
                "n": len(group),
            }
        )
    predicted: list[dict[str, Any]] = []
    if predict is not None and medians:
        output_tokens = distribution([float(r.output_tokens) for r in whole if r.output_tokens])["p50"] or 1.0
        predicted = predict([round(m["prompt_tokens"]) for m in medians if m["prompt_tokens"]], float(output_tokens))
    return {"points": points, "medians": medians, "predicted": predicted}


def vega(data: dict[str, Any]) -> dict[str, Any]:
    """A Vega-Lite specification of both plots: dots are requests, the line joins medians, band and dashes are the plan's."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": {"text": "Measured against prompt length", "subtitle": _takeaway(data)},
        "vconcat": [_plot(data, name, title) for name, title in METRICS.items()],
        "config": {"view": {"stroke": None}, "font": "sans-serif"},
    }


def _plot(data: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    x = {"field": "prompt_tokens", "type": "quantitative", "scale": {"type": "log"}, "title": "Prompt tokens"}
    y = {"field": name, "type": "quantitative", "title": title, "scale": {"zero": True}}
    low, high = name.replace("_s", "_low_s"), name.replace("_s", "_high_s")
    layers: list[dict[str, Any]] = []
    if any(row.get(low) is not None for row in data["predicted"]):
        band = {"x": x, "y": {"field": low, "type": "quantitative", "title": title}, "y2": {"field": high}}
        layers.append(
            {"data": {"values": data["predicted"]}, "mark": {"type": "area", "color": "#d58a00", "opacity": 0.2}, "encoding": band}
        )
    if data["predicted"]:
        line = {"type": "line", "color": "#b36b00", "strokeDash": [6, 4], "point": {"shape": "square", "color": "#b36b00"}}
        layers.append({"data": {"values": data["predicted"]}, "mark": line, "encoding": {"x": x, "y": y}})
    layers.append({"data": {"values": data["points"]}, "mark": {"type": "point", "color": "#1f6fb4"}, "encoding": {"x": x, "y": y}})
    layers.append({"data": {"values": data["medians"]}, "mark": {"type": "line", "color": "#1f6fb4"}, "encoding": {"x": x, "y": y}})
    return {"width": 520, "height": 220, "layer": layers}


def _takeaway(data: dict[str, Any]) -> str:
    medians = [m for m in data["medians"] if m["ttft_s"] is not None]
    if not medians:
        return "No whole answer was measured."
    first, last = medians[0], medians[-1]
    told = f"TTFT {first['ttft_s']:.3g} s at {first['prompt_tokens']:,.0f} tokens"
    if last is not first:
        told += f", {last['ttft_s']:.3g} s at {last['prompt_tokens']:,.0f}"
    return told + ("; dashes and band: the plan." if data["predicted"] else ".")


def render(path: Path, data: dict[str, Any]) -> str:
    """The plots in the format of the path's suffix: a Vega-Lite file, an SVG, or one HTML page that needs no network."""
    spec = vega(data)
    if path.name.lower().endswith(".vl.json"):
        return json.dumps(spec, indent=1) + "\n"
    try:
        import vl_convert
    except ImportError:
        raise InputError(f"{str(path)!r} needs vl-convert-python, which is not installed; choose a path ending in .vl.json") from None
    svg = vl_convert.vegalite_to_svg(spec)
    if path.suffix.lower() == ".svg":
        return svg
    head = '<meta charset="utf-8"><title>Measured against prompt length</title>'
    return f'<!doctype html><html lang="en">{head}<body><figure role="img">{svg}</figure></body></html>\n'
