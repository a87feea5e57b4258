"""Accuracy: how wrong the planner is where it can be checked, and a place to check what others claim."""

from __future__ import annotations

from statistics import median
from typing import Any

import streamlit as st

from planner.economics import claim as claims
from planner.problems import InputError
from planner.scenario import Scenario
from planner.validate import speculation
from planner.views import components, explanations, measured, state
from planner.views.charts import accuracy
from planner.views.text import digits, percent, plain, seconds

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
        st.tabs(names, key="accuracy.tab", on_change="rerun", bind="query-params"), (_claim, measured.tab, _speculation), strict=True
    ):
        if tab.open:
            with tab:
                body(scenario)


def _claim(scenario: Scenario) -> None:
    """Compare somebody's figure with what this deployment could do."""
    st.markdown(
        plain(
            f"Somebody measured or claims a speed for {scenario.model.name} in "
            f"{scenario.precision.weights} on {scenario.parallel.gpus} × {scenario.hardware.gpu}. Is it "
            "possible, and what does it imply?"
        )
    )
    fields = (
        ("claim.tokens_per_s", "Output tokens/s of one replica", 335.0),
        ("claim.batch", "Requests in flight", 32.0),
        ("claim.ttft_s", "TTFT, seconds", None),
        ("claim.usd_per_mtok", "or $ per M output", None),
    )
    values: dict[str, float | None] = {}
    with st.container(horizontal=True):
        for key, label, default in fields:
            values[key] = st.number_input(
                label, min_value=0.0, value=default, key=key, bind="query-params", format="%g", placeholder="not stated", width=210
            )
    try:
        verdict = claims.check(
            scenario,
            claims.Claim(
                output_tokens_per_s=values["claim.tokens_per_s"] or None,
                usd_per_mtok_output=values["claim.usd_per_mtok"] or None,
                usd_per_gpu_hour=scenario.price.usd_per_gpu_hour,
                concurrency=round(values["claim.batch"]) if values["claim.batch"] else None,
                ttft_s=values["claim.ttft_s"] or None,
            ),
        )
    except InputError as error:
        st.info(plain(error))
        return
    for finding in verdict.findings:
        st.markdown(f"- {plain(finding)}")
    if verdict.explanations:
        rows = [
            {"if": e.cause, "predicted tokens/s": digits(e.output_tokens_per_s), "times the claim": digits(e.ratio)}
            for e in verdict.explanations
        ]
        components.table(rows, "Causes that would explain the claim, nearest first")
    components.explain(
        "How this is judged",
        [
            (
                "Implied batch",
                (
                    f"{digits(verdict.implied_batch)} = {digits(verdict.output_tokens_per_s)} tokens/s × "
                    f"{seconds(verdict.floor_step_s)} to read the weights once"
                ),
                "definition",
            ),
            ("Alone", f"a lone prompt has its first token after {seconds(verdict.lone_ttft_s)}", "closed form"),
        ],
    )


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
