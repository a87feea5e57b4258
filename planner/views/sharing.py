"""Share and export: the link, the preset file, documents and tables built on click."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from planner import export, links, presets
from planner.export import launch
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views import state
from planner.views.text import plain

MAX_LINK_SHOWN = 6_000
"""Beyond this a link may be cut by chat programs; the preset file is offered instead."""


def full_link(plan: dict[str, Any], scenario: Scenario) -> str:
    """The address that opens this page with this scenario and this sight for ever."""
    return links.url(st.context.url or "", links.share(scenario, price_date(plan), floor_usd_per_mtok(plan)) | state.view())


def floor_usd_per_mtok(plan: dict[str, Any]) -> float | None:
    """What a million output tokens cost at a full batch, USD: a closed form, the same in a quick plan and a full one."""
    found: float | None = plan["cost"]["floor"]["usd_per_mtok_output"]
    return found


def price_date(plan: dict[str, Any]) -> str | None:
    """The newest date among the prices the plan uses."""
    dates = [row["date"] for row in plan["cost"]["list_prices"] if row["date"]]
    return max(dates, default=None)


DOCUMENTS = {
    "html": "Capacity plan (HTML, prints to one PDF)",
    "md": "Markdown",
    "xlsx": "Spreadsheet",
    "csv": "CSV",
    "zip": "All tables (zip)",
    "json": "JSON",
}


def body(plan: dict[str, Any], scenario: Scenario) -> None:
    """Contents of the popover."""
    link = full_link(plan, scenario)
    st.markdown("**Link** to this page and scenario")
    st.code(link, language=None, wrap_lines=False)
    if len(link) > MAX_LINK_SHOWN:
        st.caption("This link is long; the scenario file below is safer to send.")
    name = presets.slug(scenario.name or f"{scenario.model.name}-{scenario.hardware.gpu}")
    st.markdown("**Capacity plan**, made on click with its what-ifs: the download starts after some ten to thirty seconds")
    for kind, label in DOCUMENTS.items():
        if lacking := export.missing(kind):
            st.caption(plain(f"{label}: needs the package {lacking}, which this server lacks."))
            continue
        build = partial(_document, scenario, kind)
        st.download_button(
            label, data=build, file_name=f"{name}.{kind}", mime=export.KINDS[kind], on_click="ignore", width="stretch", key=f"export.{kind}"
        )
    if plan["memory"]["fits"]:
        st.markdown("**Launch command**")
        if why := launch.why_not(plan, scenario.engine.name):
            st.caption(plain(f"{launch.TITLES[scenario.engine.name]} does not serve this accelerator: {why}."))
        else:
            for command in launch.commands(plan, scenario.engine.name):
                st.code(command.text, language="bash", wrap_lines=True)
    st.markdown("**Scenario file**")
    st.download_button(
        "Download scenario",
        data=partial(presets.to_text, scenario),
        file_name=f"{name}.scenario.json",
        mime="application/json",
        on_click="ignore",
        width="stretch",
        key="export.scenario",
    )
    st.file_uploader(
        "Open a scenario or an exported plan", type=["json", "html", "md", "xlsx", "zip"], key="scenario_file", on_change=_open
    )
    for message in st.session_state.pop("file_messages", []):
        st.warning(plain(message))


@st.cache_resource(max_entries=24, show_spinner=False)
def _document(scenario: Scenario, kind: str) -> bytes:
    """The document of the full plan. Cached, because a browser may ask twice."""
    from planner import plan as planner

    return export.build(planner(scenario, effort="full"), kind)


def _open() -> None:
    file = st.session_state["scenario_file"]
    if file is None:
        return
    try:
        restored = export.read(file.getvalue(), file.name)
    except InputError as error:
        st.session_state["file_messages"] = [str(error)]
        return
    state.adopt(restored.scenario)
    state.remember(restored.scenario, restored.notes)
