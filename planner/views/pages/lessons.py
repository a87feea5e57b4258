"""Lessons: eight stops and five broken systems, on the scenario at hand."""

from __future__ import annotations

import streamlit as st

from planner import lessons
from planner.views import components, state, stops
from planner.views.charts import simple
from planner.views.text import digits, plain, seconds, usd

BROKEN = "broken"
NAMES = {key: stop.title for key, stop in stops.STOPS.items()} | {BROKEN: "9. Five broken systems"}


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    st.title("How does serving work?", anchor=False)
    st.caption(
        plain(
            f"Eight stops, each with one control and one sentence, and five broken systems, computed for {scenario.model.name} on "
            f"{scenario.hardware.gpu} as set in the sidebar."
        )
    )
    titles = list(NAMES.values())
    keys = list(NAMES)
    chosen = st.segmented_control(
        "Stop", keys, default=keys[0], required=True, key="lesson", bind="query-params", label_visibility="collapsed"
    )
    here = keys.index(chosen) if chosen in keys else 0
    if keys[here] == BROKEN:
        _broken()
    else:
        stops.draw(stops.STOPS[keys[here]], scenario)
    with st.container(horizontal=True):
        st.button("Previous stop", disabled=here == 0, on_click=_go, args=(keys[here - 1],))
        st.button(
            f"Next: {titles[here + 1]}" if here + 1 < len(keys) else "End of the line",
            disabled=here + 1 == len(keys),
            on_click=_go,
            args=(keys[(here + 1) % len(keys)],),
            type="primary",
        )


def _go(key: str) -> None:
    st.session_state["lesson"] = key


def _broken() -> None:
    st.subheader("9. Five broken systems", anchor=False)
    st.markdown("Each leaves one idea out. The same traffic runs through the system without it and with it.")
    found = {lesson.slug: lesson for lesson in lessons.broken_systems()}
    slug = st.selectbox("System", list(found), format_func=lambda s: found[s].title, key="lesson.system")
    lesson = found[slug]
    st.markdown(plain(lesson.idea))
    with st.spinner("Running both systems…"):
        figures = _run(slug)
    for figure in figures:
        rows = [
            {"name": name, "value": value, "text": _shown(value, figure.unit)}
            for name, value in (("without", figure.broken), ("with", figure.sound))
        ]
        gain = (
            f"{digits(max(figure.ratio, 1 / figure.ratio))} times {'more' if figure.ratio > 1 else 'less'}"
            if 0 < figure.ratio < 1e6
            else ""
        )
        st.markdown(f"**{plain(figure.name)}**")
        components.chart(
            simple.bars(rows, figure.unit or figure.name, components.ink(), chosen="with"),
            f"{_shown(figure.broken, figure.unit)} without, {_shown(figure.sound, figure.unit)} with it{': ' + gain if gain else ''}.",
        )
    if lesson.note:
        st.caption(plain(lesson.note))
    left, right = lesson.scenarios()
    with st.container(horizontal=True):
        st.button("Open the broken system", on_click=state.adopt, args=(left,))
        st.button("Open the sound one", on_click=state.adopt, args=(right,))


@st.cache_resource(max_entries=16, show_spinner=False)
def _run(slug: str) -> tuple[lessons.Figure, ...]:
    return next(lesson for lesson in lessons.broken_systems() if lesson.slug == slug).run()


def _shown(value: float, unit: str) -> str:
    return seconds(value) if unit == "s" else usd(value) if unit.startswith("USD") else f"{digits(value)} {unit}".strip()
