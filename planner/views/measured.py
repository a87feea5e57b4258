"""Predictions beside measured rows: how far off, where, and row by row."""

from __future__ import annotations

from statistics import median
from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.validate import Point, measured_points
from planner.views import components
from planner.views.charts import accuracy
from planner.views.text import digits, percent, plain, seconds

METRICS = {"throughput": "output tokens/s", "TPOT": "TPOT, s", "TTFT": "TTFT, s", "whole answer": "whole answer, s"}
KEYS = {"throughput": "throughput", "TPOT": "tpot", "TTFT": "ttft", "whole answer": "e2e"}
GROUPS = {"GPU family": "family", "kind of model": "model_class", "engine": "engine", "load": "regime", "precision": "precision"}
MOST_DRAWN = 700


def tab(scenario: Scenario) -> None:
    """Draw the tab."""
    try:
        points = measured_points()
    except OSError:
        st.info("The measured rows are not part of this installation.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric = (
            st.segmented_control("Figure", list(METRICS), default="throughput", required=True, key="accuracy.metric", bind="query-params")
            or "throughput"
        )
        group = st.selectbox("Grouped by", list(GROUPS), key="accuracy.group", bind="query-params", width=220)
    rows = [p for p in points if p.metric == KEYS[metric]]
    if not rows:
        st.info("No shipped row measures this figure.")
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        components.chart(accuracy.against_measured([drawn(p) for p in rows[:MOST_DRAWN]], METRICS[metric], components.ink()), told(rows))
    with right:
        field = GROUPS[group]
        components.table([score(name, [p for p in rows if getattr(p, field) == name]) for name in names(rows, field)], f"Errors by {group}")
    wanted = st.text_input("Look up a row", key="accuracy.find", placeholder="llama h100")
    words = wanted.lower().split()
    found = [p for p in rows if all(word in f"{p.model} {p.gpu} {p.engine} {p.precision} {p.load}".lower() for word in words)]
    components.table(
        [listed(p, metric) for p in sorted(found, key=lambda p: abs(p.error))[:400]],
        "Measured rows beside the prediction, with source and date",
    )
    st.caption(
        plain("Every row of the shipped table that can be modelled, our misses included. A throughput is the total of all GPUs of the row.")
    )


def told(points: list[Point]) -> str:
    """The errors in one sentence."""
    errors = sorted(abs(p.error) for p in points)
    close = sum(e <= 0.25 for e in errors) / len(errors)
    return f"{len(points):,} rows: half of them are within {percent(median(errors))}, {percent(close)} within 25 % (the dashes)."


def drawn(p: Point) -> dict[str, Any]:
    """A point of the chart."""
    return {
        "measured": p.measured,
        "predicted": p.predicted,
        "kind": p.model_class,
        "name": f"{p.model} on {p.gpus} × {p.gpu}, {p.engine}, {p.load}",
    }


def names(points: list[Point], field: str) -> list[str]:
    """Groups, the largest first."""
    counts: dict[str, int] = {}
    for p in points:
        counts[getattr(p, field)] = counts.get(getattr(p, field), 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def score(name: str, points: list[Point]) -> dict[str, Any]:
    """One group's errors."""
    errors = [p.error for p in points]
    return {
        "group": name or "not stated",
        "rows": len(points),
        "median error": percent(median(map(abs, errors))),
        "bias": percent(median(errors)),
    }


def listed(p: Point, metric: str) -> dict[str, Any]:
    """One row of the table."""
    show = digits if metric == "throughput" else seconds
    return {
        "model": p.model,
        "GPU": f"{p.gpus} × {p.gpu}",
        "engine": p.engine,
        "precision": p.precision,
        "load": p.load,
        "measured": show(p.measured),
        "predicted": show(p.predicted),
        "error": percent(p.error),
        "datasheet says": show(p.datasheet),
        "date": p.date,
        "source": p.source,
    }
