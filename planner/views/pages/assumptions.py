"""Assumptions: every constant with source and date, the worked example, the catalogue, and what is left out."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import lessons, presets
from planner.lessons.worked_example import Row, worked_example
from planner.plan import NOT_MODELLED
from planner.views import catalogue, components, explanations, plans, state
from planner.views.text import plain

Json = dict[str, Any]
WORKED = "beacon-405b-8xh100-fp8"


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario, "What are these numbers made of?")
    names = ["Constants of this plan", "Worked example", "Models", "GPUs", "List prices", "Quality", "Left out"]
    bodies = (_constants, _worked, catalogue.models, catalogue.gpus, catalogue.prices, catalogue.quality, _left_out)
    for tab, body in zip(st.tabs(names, key="assumptions.tab", on_change="rerun", bind="query-params"), bodies, strict=True):
        if tab.open:
            with tab:
                body(plan)


def _constants(plan: Json) -> None:
    st.markdown("Measured, published, derived, assumed, or typed in by you: every value this plan rests on.")
    kinds = sorted({row["kind"] for row in plan["provenance"]})
    wanted = st.pills("Kind", kinds, selection_mode="multi", default=kinds, key="assumptions.kinds")
    explanations.constants([row for row in plan["provenance"] if row["kind"] in (wanted or kinds)])


def _worked(plan: Json) -> None:
    st.markdown(
        "One system by hand: a 405-billion-parameter model in fp8 on eight 80 GB GPUs, at three "
        "dollars a GPU-hour. Each line can be checked with a pocket calculator."
    )
    rows = [
        {
            "quantity": r.quantity,
            "value": r.value,
            "formula": r.formula,
            "evidence": r.evidence,
            "source": " ".join(filter(None, (r.source, r.date))),
        }
        for r in _table()
    ]
    components.table(rows, "Quantity, value, formula and kind of evidence of the worked example")
    st.button("Open it as the scenario", on_click=state.adopt, args=(presets.load(WORKED),))
    with st.expander("Two measurements to repeat"):
        st.markdown(
            "The same system, one request at a time on an idle replica: the first token waits for the "
            "prompt, the rest hardly notice it; a repeated prompt is found in the cache."
        )
        for title, found in _measurements().items():
            rows = [
                {
                    "prompt": f"{m.input_tokens:,}",
                    "found in the cache": f"{m.cached_tokens:,}",
                    "TTFT": f"{m.ttft_s:.3f} s",
                    "TPOT": f"{1000 * m.tpot_s:.1f} ms",
                }
                for m in found
            ]
            st.markdown(f"**{title}**")
            components.table(rows, title)


@st.cache_resource(show_spinner=False)
def _table() -> tuple[Row, ...]:
    return worked_example(plans.quick_plan(presets.load(WORKED)))


@st.cache_resource(show_spinner=False)
def _measurements() -> dict[str, tuple[lessons.Measured, ...]]:
    scenario = presets.load("chat-70b-2xh100")
    return {"Latency against prompt length": lessons.by_prompt_length(scenario), "A prompt sent twice": lessons.repeated_prompt(scenario)}


def _left_out(plan: Json) -> None:
    st.markdown("Not modelled, so that nobody takes silence for zero:")
    for item in NOT_MODELLED:
        st.markdown(f"- {plain(item)}")
