"""An exported plan of some time ago against the same scenario planned now: what moved since."""

from __future__ import annotations

import time

import streamlit as st

from planner import export
from planner.export.diff import Change, diff
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views import components, plans, state
from planner.views.text import digits, plain
from planner.views.words import spoken

PRICE = "Cost per M output tokens"


@st.fragment
def against_today() -> None:
    """Take the file, plan its scenario anew, say what changed."""
    state.show_adopted()
    st.subheader("An older plan, against today", anchor=False)
    file = st.file_uploader(
        "An exported plan", type=["json", "html", "md", "xlsx", "zip"], key="older_plan", help="As downloaded under Share and export."
    )
    if file is None:
        return
    try:
        restored = export.read(file.getvalue(), file.name)
    except InputError as error:
        st.error(plain(error))
        return
    if restored.plan is None:
        st.warning("This file holds a scenario without figures, so there is nothing to compare. Open it under Share and export.")
        return
    if reason := plans.refused(restored.scenario):
        st.error(plain(reason))
        return
    for note in restored.notes:
        st.caption(plain(note))
    found = diff(restored.plan, _today(restored.scenario))
    price = next((change for change in found.figures if change.name == PRICE), None)
    then = f"A million output tokens cost {price.before} then, {price.after} now. " if price else ""
    st.markdown(plain(then + spoken(found.sentence)))
    for title, changes in (("Figures", found.figures), ("Data behind them", found.data)):
        if changes:
            components.table([_row(change) for change in changes], f"{title} that changed since the plan was exported")
    findings = [{"finding": f, "is": "new"} for f in found.findings_new] + [{"finding": f, "is": "gone"} for f in found.findings_gone]
    if findings:
        components.table(findings, "Findings that came or went")
    st.button("Adopt its scenario", on_click=state.adopt, args=(restored.scenario,))


def _row(change: Change) -> dict[str, str]:
    return {
        "what": change.name,
        "then": change.before.replace("null", ""),
        "now": change.after.replace("null", ""),
        "times": f"×{digits(change.ratio)}" if change.ratio is not None else "",
    }


def _today(scenario: Scenario) -> components.Json:
    """The full plan, from the process beside the dashboard; the page stays alive while it is made."""
    slot, started = st.empty(), time.monotonic()
    while not plans.refiner().ask(scenario):
        slot.caption(f"Planning the same scenario with today's data… {time.monotonic() - started:.0f} s")
        time.sleep(0.25)
    slot.empty()
    return plans.best(scenario)[0]
