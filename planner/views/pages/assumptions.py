"""Assumptions: every constant with source and date, the worked example, the catalogue, and what is left out."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import catalog, lessons, presets
from planner.catalog.quality import quality_rows
from planner.lessons.worked_example import Row, worked_example
from planner.plan import NOT_MODELLED
from planner.views import components, plans, state
from planner.views.text import compact, digits, plain, usd

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
    bodies = (_constants, _worked, _models, _gpus, _prices, _quality, _left_out)
    for tab, body in zip(st.tabs(names, key="assumptions.tab", on_change="rerun"), bodies, strict=True):
        if tab.open:
            with tab:
                body(plan)


def _constants(plan: Json) -> None:
    st.markdown("Measured, published, derived, assumed, or typed in by you: every value this plan rests on.")
    kinds = sorted({row["kind"] for row in plan["provenance"]})
    wanted = st.pills("Kind", kinds, selection_mode="multi", default=kinds, key="assumptions.kinds")
    rows = [
        {**row, "value": digits(row["value"]) if isinstance(row["value"], (int, float)) else str(row["value"])}
        for row in plan["provenance"]
        if row["kind"] in (wanted or kinds)
    ]
    components.table(rows, "Constants with value, unit, kind, source and date")


def _worked(plan: Json) -> None:
    st.markdown(
        "One system by hand: a 405-billion-parameter model in fp8 on eight 80 GB GPUs, at three dollars a GPU-hour. Each line can be checked with a pocket calculator."
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
            "The same system, one request at a time on an idle replica: the first token waits for the prompt, the rest hardly notice it; a repeated prompt is found in the cache."
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


def _models(plan: Json) -> None:
    arch = plan["architecture"]
    st.markdown(
        plain(
            f"This plan: {arch['name']}, {compact(arch['total_params'])} parameters of which {compact(arch['active_params'])} touch a token, {compact(arch['kv_bytes_per_token'])} bytes of 16-bit cache per token. Counted from {arch['source']}."
        )
    )
    for note in arch.get("notes") or []:
        st.caption(plain(note))
    rows = [
        {"model": row.slug, "parameters": compact(row.total_params), "license": row.license, "released": row.released}
        for row in catalog.models().values()
    ]
    components.table(rows, "Models of the catalogue")


def _gpus(plan: Json) -> None:
    rows = [
        {"GPU": slug, "name": row.name, "memory, GB": row.memory_gb, "bandwidth, GB/s": row.memory_bandwidth_gb_s, "16-bit dense, TFLOP/s": row.dense_tflops.get("bf16"),
         "fp8 dense, TFLOP/s": row.dense_tflops.get("fp8"), "confidence": row.confidence, "checked": row.verified_date}
        for slug, row in catalog.gpus().items()
    ]  # fmt: skip
    components.table(rows, "Accelerators of the catalogue with memory, bandwidth and dense peaks")


def _prices(plan: Json) -> None:
    from planner.catalog import list_prices

    st.caption(
        "A fixed snapshot, so that documents and links do not change by the hour. `python -m planner prices --update` fetches newer ones when you ask for it."
    )
    rows = [
        {
            "price": p.label,
            "$ in": usd(p.input),
            "$ cached": usd(p.cached_input),
            "$ out": usd(p.output),
            "date": p.date,
            "source": p.source,
        }
        for p in list_prices.rows()
    ]
    wanted = st.text_input("Filter", key="assumptions.price", placeholder="llama-3.3-70b")
    components.table([r for r in rows if wanted.lower() in r["price"].lower()][:400] or rows[:1], "List prices, dollars per million tokens")


def _quality(plan: Json) -> None:
    st.markdown("What fewer bits cost in answers is not computed here; these are published recoveries of the original's score.")
    components.table(
        [
            {
                "model": r.model,
                "precision": r.precision,
                "method": r.method,
                "benchmark": r.benchmark,
                "recovery, %": r.recovery_percent,
                "kind": r.kind,
                "date": r.date,
                "source": r.source,
            }
            for r in quality_rows()
        ],
        "Published quality recoveries of quantised models",
    )


def _left_out(plan: Json) -> None:
    st.markdown("Not modelled, so that nobody takes silence for zero:")
    for item in NOT_MODELLED:
        st.markdown(f"- {plain(item)}")
