"""Share and export: the link, the preset file, documents and tables built on click."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import links, presets
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views import state
from planner.views.text import plain

MAX_LINK_SHOWN = 6_000
"""Beyond this a link may be cut by chat programs; the preset file is offered instead."""


def full_link(scenario: Scenario, price_date: str | None) -> str:
    """The address that opens this page with this scenario for ever."""
    return links.url(st.context.url or "", links.share(scenario, price_date))


def price_date(plan: dict[str, Any]) -> str | None:
    """The newest date among the prices the plan uses."""
    dates = [row["date"] for row in plan["cost"]["list_prices"] if row["date"]]
    return max(dates, default=None)


def body(plan: dict[str, Any], scenario: Scenario) -> None:
    """Contents of the popover."""
    link = full_link(scenario, price_date(plan))
    st.markdown("**Link** to this page and scenario")
    st.code(link, language=None, wrap_lines=False)
    if len(link) > MAX_LINK_SHOWN:
        st.caption("This link is long; the scenario file below is safer to send.")
    st.markdown("**Scenario file**")
    name = presets.slug(scenario.name or "scenario")
    st.download_button(
        "Download scenario",
        data=lambda: presets.to_text(scenario),
        file_name=f"{name}.json",
        mime="application/json",
        on_click="ignore",
        width="stretch",
    )
    st.file_uploader("Open a scenario or plan file", type=["json"], key="scenario_file", on_change=_open)
    for message in st.session_state.pop("file_messages", []):
        st.warning(plain(message))


def _open() -> None:
    file = st.session_state["scenario_file"]
    if file is None:
        return
    try:
        found, notes = presets.from_text(file.getvalue(), "This file")
    except InputError as error:
        st.session_state["file_messages"] = [str(error)]
        return
    state.adopt(found)
    state.remember(found, notes)
