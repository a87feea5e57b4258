"""Accuracy: how wrong the planner is where it can be checked, and a place to check what others claim."""

from __future__ import annotations

from statistics import median
from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.validate import speculation
from planner.views import claim, components, explanations, measured, state
from planner.views.charts import accuracy
from planner.views.text import digits, percent

Json = dict[str, Any]


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario, "How wrong may these numbers be?")
    explanations.confidence(plan)
    names = ["Check a claim", "Against measured rows", "Speculation against published speed-ups"]
    for tab, body in zip(
        st.tabs(names, key="accuracy.tab", on_change="rerun", bind="query-params"), (claim.tab, measured.tab, _speculation), strict=True
    ):
        if tab.open:
            with tab:
                body(scenario)


def _speculation(scenario: Scenario) -> None:
    found = _speedups()
    rows = [
        {"measured": float(s.published), "predicted": s.predicted, "kind": s.standing, "name": f"{s.target}, {s.method}, batch {s.batch}"}
        for s in found
        if s.predicted is not None and s.error is not None
    ]
    errors = [abs(s.error) for s in found if s.error is not None and s.standing == "comparable"]
    left, right = st.columns([3, 2], gap="large")
    with left:
        components.chart(
            accuracy.against_measured(rows, "speed-up", components.ink()),
            (
                f"Where the source states what decides it, the median error is {percent(median(errors))} over "
                f"{len(errors)} rows; dashes are ± 25 %."
            ),
        )
    with right:
        st.markdown(
            "The published rows that can be compared state model, method, batch and acceptance. Where "
            "the acceptance had to be assumed, the error is the assumption's."
        )
    components.table(
        [
            {
                "target": s.target,
                "method": s.method,
                "batch": s.batch,
                "k": s.k,
                "published": s.published,
                "predicted": digits(s.predicted),
                "error": percent(s.error),
                "standing": s.standing,
                "why": s.why,
                "date": s.date,
                "source": s.source,
            }
            for s in found
        ],
        "Published speed-ups of speculation beside the planner's",
    )


@st.cache_resource(show_spinner="Predicting every published row…")
def _speedups() -> tuple[speculation.Speedup, ...]:
    return speculation.speedups()
