"""What moves the decision between an own fleet and an API, and what would flip it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.economics import sensitivity
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views import components, weeks
from planner.views.charts import fleet as charts
from planner.views.text import percent, plain, usd

Bars = tuple[sensitivity.Outcome, tuple[sensitivity.Bar, ...]]


def tab(found: weeks.Fleet, plan: components.Json, scenario: Scenario) -> None:
    """The tornado at once, the flips when asked for."""
    if not plan["cost"]["list_prices"]:
        st.info("Nobody lists this model, so there is nothing to decide against. Name a price under More settings, price.compare_to.")
        return
    case = sensitivity.Case(scenario, peak_to_mean=float(found.rates.max() / found.rates.mean()))
    try:
        with st.spinner("Sizing the fleet at each input, a fifth down and up…", show_time=True):
            now, bars = _tornado(case)
    except InputError as error:
        st.info(plain(error))
        return
    if not now.replicas:
        st.info("No number of replicas keeps the promise, so there is no fleet to decide about.")
        return
    saved = now.api_usd_per_month - now.own_usd_per_month
    rows = [row for bar in bars if (row := _row(bar, saved))]
    rows.sort(key=lambda row: -abs(row["high"] - row["low"]))
    cheaper = "own fleet" if now.buys else "API"
    takeaway = f"Today the {cheaper} is cheaper by {usd(abs(saved))} a month. " + _sized(now.replicas, found, scenario)
    flipped = [row["name"] for row in rows if min(row["low"], row["high"]) < 0 < max(row["low"], row["high"])]
    takeaway += f"A fifth up or down of {', '.join(flipped)} would flip it." if flipped else "No single input moved by a fifth flips it."
    if left_out := sensitivity.left_out(case, [bar.name for bar in bars]):
        takeaway += f" {left_out}"
    components.chart(charts.tornado(rows, saved, components.ink()), takeaway)
    _flips(case)


def _sized(replicas: int, found: weeks.Fleet, scenario: Scenario) -> str:
    """How many replicas this counts, and why the page's fixed fleet may have more."""
    counted = f"This counts {replicas} replica{'s' * (replicas != 1)}, the fewest that keep the promise in simulation"
    if replicas == found.static.peak_replicas:
        return f"{counted}. "
    room = percent(scenario.fleet.target_utilization)
    return f"{counted}; the fixed fleet above has {found.static.peak_replicas}, to stay below {room} busy. "


def _row(bar: sensitivity.Bar, saved: float) -> dict[str, Any] | None:
    if not (bar.low.replicas and bar.high.replicas):
        return None
    low, high = (o.api_usd_per_month - o.own_usd_per_month for o in (bar.low, bar.high))
    text = f"{bar.low_label}: {usd(low)}, {bar.high_label}: {usd(high)}"
    return {"name": bar.name, "low": low, "high": high, "text": text}


@st.cache_resource(max_entries=32, show_spinner=False)
def _tornado(case: sensitivity.Case) -> Bars:
    return sensitivity.outcome(case), tuple(sensitivity.tornado(case))


@st.fragment
def _flips(case: sensitivity.Case) -> None:
    """How far each input must move until the other choice is cheaper; one input after the other, stopped by any change."""
    held: tuple[sensitivity.Case, list[str]] | None = st.session_state.get("_flips")
    if st.button("What would flip it?", help="Moves each input up to eightfold either way; about a minute."):
        told: list[str] = []
        held = st.session_state["_flips"] = (case, told)
        slot = st.empty()
        for flip in sensitivity.flips(case):
            told.append(flip.message)
            slot.caption(plain(f"{len(told)} inputs done…"))
        slot.empty()
    if held and held[0] == case:
        for message in held[1]:
            st.markdown(f"- {plain(message)}")
