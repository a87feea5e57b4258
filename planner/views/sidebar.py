"""The one sidebar: every control of `controls`, each bound to the query key of its own name."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import catalog, demand, presets, traces
from planner.catalog.rental import dated
from planner.catalog.workloads import workloads
from planner.links.fields import leaves
from planner.scenario import Scenario
from planner.views import arrivals, controls, doors, state, words
from planner.views.text import plain
from planner.views.widgets import Rendered, draw, pair


def render() -> Scenario:
    """Draw the sidebar and return the scenario that it holds."""
    with st.sidebar:
        _preset()
        shown = _model_and_hardware() + _traffic() + _details()
        shown += _more(state.others())
        _meanings()
    return state.gather(shown)


def _preset() -> None:
    names = presets.all()
    st.selectbox(
        "Start from a question",
        list(names),
        index=None,
        format_func=lambda name: names[name].name,
        key="_preset",
        on_change=doors.preset,
        placeholder="Choose an example…",
        help="Fills in every setting below. All of them can be changed afterwards.",
    )


def _model_and_hardware() -> Rendered:
    st.subheader("Model and hardware", anchor=False)
    here = state.scenario()
    gpu, basis = here.hardware.gpu, here.price.basis
    rental = catalog.rental_price(gpu, basis) if basis != "owned" else None
    paid = f"catalogue: {rental.usd:.2f}" if rental else "catalogue"
    source = f"Empty takes {rental.usd:.2f} ({rental.source}, {dated(rental.date)})." if rental else "Empty takes the catalogue's price."
    return [
        *draw(controls.MODEL, options={"model.name": list(catalog.models())}),
        *pair(controls.PRECISION),
        *draw(controls.GPU, options={"hardware.gpu": list(catalog.gpus())}),
        *draw(controls.SIZE),
        *pair(controls.FLEET, placeholders={"price.usd_per_gpu_hour": (paid, source)}),
    ]


def _traffic() -> Rendered:
    st.subheader("Traffic", anchor=False)
    shapes = workloads()
    st.selectbox(
        "Measured traffic",
        list(shapes),
        index=None,
        format_func=lambda slug: shapes[slug].title,
        key="_shape",
        on_change=doors.shape,
        placeholder="Fill in from…",
        help="Lengths, arrivals and promises of measured or published traffic.",
    )
    shown = [*pair(controls.LENGTHS), *arrivals.draw()]
    st.subheader("Promise to users", anchor=False)
    return [*shown, *pair(controls.PROMISE), *draw(controls.PERCENTILE)]


def _details() -> Rendered:
    shown: Rendered = []
    with st.expander("Traffic in detail"):
        shown += pair(controls.TRAFFIC_DETAIL, placeholders={"slo.e2e_s": ("none", "")})
        shown += draw(
            controls.TRACE,
            options={"workload.trace.name": list(traces.index())},
            placeholders={"workload.trace.name": ("no trace: draw", "")},
        )
        st.file_uploader(
            "Or your own trace",
            type=["csv", "jsonl"],
            key="trace_file",
            on_change=doors.trace,
            help="Arrival, prompt and output tokens. Rows stay on this server; a link carries their hash only.",
        )
    with st.expander("Engine and batching"):
        shown += pair(controls.ENGINE, placeholders={"engine.max_model_len": ("the model's", "")})
        shown += pair(controls.ENGINE_SWITCHES)
    with st.expander("Speculative decoding"):
        shown += draw(controls.SPECULATION_SWITCH)
        if st.session_state.get("speculative"):
            shown += pair(
                controls.SPECULATION,
                placeholders={"speculative.acceptance_rate": ("measured", ""), "speculative.draft_cost": ("computed", "")},
            )
    with st.expander("Layout, spares, routing"):
        shown += pair(controls.LAYOUT) + draw(controls.LAYOUT_SWITCHES)
    with st.expander("Week, autoscaling, choice"):
        curves: dict[str, Any] = {
            "options": {"fleet.demand_curve": list(demand.index())},
            "placeholders": {"fleet.demand_curve": ("constant demand", "")},
        }
        shown += draw(controls.WEEK[:1], **curves) + pair(controls.WEEK[1:]) + draw(controls.CHOICE)
    with st.expander("Price basis and model of time"):
        shown += pair(controls.PRICE) + pair(controls.LEVEL)
    with st.expander("Your own model"):
        st.text_area(
            "Paste a Hugging Face config.json",
            key="config_text",
            height=120,
            on_change=doors.config,
            placeholder='{"architectures": [...], "hidden_size": …}',
        )
        for message in st.session_state.pop("door_messages", []):
            st.warning(plain(message))
    return shown


def _more(paths: list[str]) -> Rendered:
    """Every other setting as text, so that nothing in a link is hidden."""
    with st.expander(f"More settings ({len(paths)} in use)" if paths else "More settings"):
        addable = [path for path in leaves() if path not in controls.PATHS and path not in paths]
        st.selectbox(
            "Add a setting", addable, index=None, key="add_setting", on_change=doors.setting, placeholder="Any field of a scenario…"
        )
        for path in paths:
            leaf = leaves()[path]
            default = state.one_text(state.text_of(leaf, leaf.default) or "") if leaf.kind != "switch" else "false"
            st.text_input(path, value=default, key=path, bind="query-params", help=leaf.help or None)
    return paths


def _meanings() -> None:
    """Words and settings explained in the open, for those who do not hover."""
    folded = st.expander("What the words mean", key="meanings", on_change="rerun")
    if folded.open:
        with folded:
            for word, meaning in words.GLOSSARY.items():
                st.markdown(f"**{plain(word)}** {plain(meaning)}")
            st.markdown("**The settings**")
            for control in (*controls.MAIN, *controls.DETAIL):
                st.markdown(f"**{control.label}** {control.help}")
