"""Compare: two to four scenarios, only what differs, ratios against the first."""

from __future__ import annotations

import streamlit as st

from planner import links
from planner.scenario import Scenario
from planner.views import comparison, components, older, plans, state, verdict
from planner.views.charts import ratios
from planner.views.text import plain

COLUMNS = ("compare.b", "compare.c", "compare.d")


def render() -> None:
    """Draw the page."""
    first = state.scenario()
    plan = components.planned(first)
    if plan is None:
        return
    components.header(plan, first, "Which of these is better?")
    _choose(first)
    scenarios = [first]
    for key in COLUMNS:
        text = st.session_state.get(key)
        if text:
            found, notes = comparison.read(text, first)
            for note in notes:
                st.warning(plain(f"{comparison.letter(len(scenarios))}: {note}"))
            scenarios.append(found)
    if len(scenarios) == 1:
        st.info("Nothing to compare with yet: pick a change above, or paste a link, a preset's name or settings into B.")
        _levers(first)
        older.against_today()
        return
    broken = [reason for s in scenarios[1:] if (reason := plans.refused(s))]
    if broken:
        for reason in broken:
            st.error(plain(reason))
        return
    answers = [plans.quick(s) for s in scenarios]
    for i in range(1, len(scenarios)):
        st.markdown(plain(comparison.sentence(i, scenarios, answers)))
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.subheader("Figures, ratios against A", anchor=False)
        components.table(
            _states(answers) + comparison.table(answers, first.slo.percentile), "Figures of each scenario with ratios against the first"
        )
        st.caption(
            plain(
                "One run each with the same random numbers, to compare like with like; ratios within 2 % of 1 are ties."
                + comparison.beside_the_plan_page(answers[0], plan, first.slo.percentile)
            )
        )
    with right:
        rows = comparison.ratios(answers, first.slo.percentile)
        if rows:
            st.subheader("Times A", anchor=False)
            components.chart(ratios.dots(rows, components.ink()), comparison.largest(rows))
    st.subheader("What differs", anchor=False)
    components.table(comparison.differences(scenarios), "Settings that differ between the scenarios")
    _links(scenarios)
    older.against_today()


def _choose(first: Scenario) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Add a change", list(comparison.WHAT_IFS), index=None, key="what_if", on_change=_add, placeholder="What if…", width=260
        )
        st.button("Keep the present scenario as a column", on_click=_keep, args=(first,))
        st.button("Clear", on_click=_clear)
    for column, key in zip(st.columns(3), COLUMNS, strict=True):
        with column:
            st.text_input(
                f"Scenario {key[-1].upper()}",
                key=key,
                bind="query-params",
                placeholder="link, preset, or hardware.gpu=h200-sxm",
                help="Settings replace those of A; several are joined with ;",
            )


@st.fragment
def _levers(first: Scenario) -> None:
    """Every usual change on its own: which helps most."""
    st.subheader("Which lever first?", anchor=False)
    if not st.toggle("Try every change on its own", key="compare.levers", bind="query-params"):
        return
    rows = []
    bar = st.progress(0.0)
    for i, (name, text) in enumerate(comparison.WHAT_IFS.items()):
        bar.progress((i + 1) / len(comparison.WHAT_IFS), name)
        changed, _ = comparison.read(text, first)
        if changed != first and not plans.refused(changed):
            rows.append(comparison.lever(name, changed, plans.quick(changed), plans.quick(first), first.slo.percentile))
    bar.empty()
    components.table(rows, "Each change on its own, as ratios against the present scenario")
    st.caption("Effects do not simply multiply: put two changes into one column, joined with ;, to see them together.")


def _put(text: str) -> None:
    free = next((key for key in COLUMNS if not st.session_state.get(key)), COLUMNS[-1])
    st.session_state[free] = text


def _add() -> None:
    if st.session_state["what_if"]:
        _put(comparison.WHAT_IFS[st.session_state["what_if"]])
        st.session_state["what_if"] = None


def _keep(scenario: Scenario) -> None:
    _put(links.url("", state.address(scenario)))


def _clear() -> None:
    for key in COLUMNS:
        st.session_state[key] = ""


def _states(answers: list[components.Json]) -> list[dict[str, str]]:
    words = [", ".join(badge.text for badge in verdict.badges(answer)) for answer in answers]
    return [{"figure": "State"} | {comparison.letter(i): word for i, word in enumerate(words)}]


def _links(scenarios: list[Scenario]) -> None:
    """Each scenario's own address, and a button that makes it the one all pages show."""
    with st.expander("A link for each scenario"):
        for i, scenario in enumerate(scenarios):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{comparison.letter(i)}**", width="content")
                st.button("Adopt", key=f"adopt.{i}", on_click=state.adopt, args=(scenario,), disabled=i == 0)
                st.code(links.url(st.context.url or "", links.share(scenario)), language=None)
