"""Somebody's figure against what this deployment could do."""

from __future__ import annotations

import streamlit as st

from planner.economics import claim as claims
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views import components
from planner.views.text import digits, plain, seconds

CLAIM = {
    "claim.tokens_per_s": "Output tokens/s of one replica",
    "claim.usd_per_mtok": "or $ per M output",
    "claim.batch": "Requests in flight",
    "claim.ttft_s": "First token (TTFT), seconds",
}
EXAMPLE = {"claim.tokens_per_s": 335.0, "claim.batch": 32.0}


def _example() -> None:
    st.session_state.update(EXAMPLE)


def tab(scenario: Scenario) -> None:
    """Compare somebody's figure with what this deployment could do."""
    st.markdown(
        plain(
            f"Somebody measured or claims a speed for {scenario.model.name} in "
            f"{scenario.precision.weights} on {scenario.parallel.gpus} × {scenario.hardware.gpu}. Is it "
            "possible, and what does it imply?"
        )
    )
    values: dict[str, float | None] = {}
    with st.container(horizontal=True):
        for key, label in CLAIM.items():
            values[key] = st.number_input(
                label, min_value=0.0, value=None, key=key, bind="query-params", format="%g", placeholder="not stated", width=210
            )
    if not any(values.values()):
        st.info("Type in what is claimed: a speed or a price, and as much of the rest as is stated.")
        st.button("Try an example: 335 tokens/s with 32 requests in flight", on_click=_example)
        return
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
