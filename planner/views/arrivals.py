"""How requests come: at a rate, from clients that wait for their answers, both, or as a trace recorded them. One explicit choice."""

from __future__ import annotations

import streamlit as st

from planner.links.fields import leaves, write
from planner.scenario import Scenario
from planner.views import controls, state
from planner.views.widgets import Rendered, pair

KEY = "_arrivals"
CLIENTS = 32
"""Clients to begin with when somebody chooses them."""
SHOWN = {
    "Rate": controls.RATE,
    "Clients": controls.CLIENTS,
    "Both": (*controls.RATE_STATED, *controls.CLIENTS),
    "Trace": (),
}
"""Choice → its boxes."""


def choice(scenario: Scenario) -> str:
    """The choice that a scenario embodies."""
    load = scenario.workload
    if load.max_concurrency is None:
        return "Trace" if load.request_rate is None else "Rate"
    return "Clients" if load.request_rate is None else "Both"


def choose(scenario: Scenario, wanted: str) -> Scenario:
    """The scenario with requests coming another way; figures it already states are kept."""
    load = scenario.workload
    rate = (load.request_rate or 4.0) if wanted in ("Rate", "Both") else None
    clients = (load.max_concurrency or CLIENTS) if wanted in ("Clients", "Both") else None
    return scenario.model_copy(update={"workload": load.model_copy(update={"request_rate": rate, "max_concurrency": clients})})


def draw() -> Rendered:
    """The choice and its boxes."""
    here = state.scenario()
    now = st.session_state[KEY] = choice(here)
    options = [name for name in SHOWN if name != "Trace" or here.workload.trace is not None]
    st.segmented_control(
        "Requests come from",
        options,
        required=True,
        key=KEY,
        on_change=_switch,
        help="Rate: people who arrive whatever the wait (open loop). Clients: each waits for its answer before it asks again "
        "(closed loop). Both: clients that also keep to a rate. Trace: the arrivals as they were recorded.",
    )
    if now == "Trace":
        return _own_pace()
    if st.session_state.get(state.RATE) == "":
        st.session_state[state.RATE] = leaves()[state.RATE].default  # the trace has gone, and its pace with it
    return pair(SHOWN[now])


def _own_pace() -> Rendered:
    """An empty box that states in the link that there is no rate, where silence would be the usual one."""
    st.session_state[state.RATE] = ""
    usual = state.one_text(write(leaves()[state.RATE], leaves()[state.RATE].default) or "")
    st.text_input("Requests/s", value=usual, key=state.RATE, bind="query-params", placeholder="as recorded", disabled=True)
    return [state.RATE]


def _switch() -> None:
    state.adopt(choose(state.scenario(), st.session_state[KEY]))
