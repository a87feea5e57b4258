"""Parts that several pages share: notes, header, cards, problems, charts with their alternatives, explanations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner import links
from planner.scenario import Scenario, set_path
from planner.views import doors, plans, state, verdict
from planner.views.charts import Ink, Rows, Spec, legend_columns, memory
from planner.views.text import MISSING, cell, gibibytes, plain
from planner.views.words import TERMS, spoken

Json = dict[str, Any]
WELCOME = "Does it fit, how long do people wait, what does a token cost? Change anything on the left, or start from a question."
_NAME = re.compile(r"[a-z]+[-.\w]*\d")
"""A catalogue name at the start of a sentence."""
ROWS_SHOWN = 24
"""Longer tables scroll."""


def ink() -> Ink:
    """Chart colours of the theme in use."""
    return Ink.of(st.context.theme.type == "dark")


def notes() -> None:
    """What of the link could not be used, in one box above the answer; gone after the next change."""
    found = [plain(note) for note in st.session_state.get("_notes", ())]
    if found:
        told = found[0] if len(found) == 1 else "\n".join(("Parts of this link were not used:\n", *(f"- {note}" for note in found)))
        st.warning(told, icon=":material/link_off:")


def header(plan: Json, scenario: Scenario, question: str = "") -> None:
    """Headline, badges and the Share-and-export popover; other pages than Plan lead with their question, then name the plan."""
    st.title(plain(question or verdict.title(plan, scenario)), anchor=False)
    if question:
        st.caption(plain(verdict.title(plan, scenario) + (f" · {scenario.name}" if scenario.name else "")))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for badge in verdict.badges(plan):
            st.badge(badge.text, color=badge.colour, icon=badge.icon)
        st.space("stretch")
        share(plan, scenario)
    if moved := since_the_link(plan, scenario):
        st.info(plain(moved), icon=":material/history:")
    if scenario.name and not question:
        st.caption(f"**{plain(scenario.name)}** {plain(scenario.notes)}")
    elif scenario == Scenario() and not question:
        st.caption(WELCOME)


def since_the_link(plan: Json, scenario: Scenario) -> str:
    """What has changed behind the link that opened this session, until its scenario is changed."""
    from planner.views import sharing

    opened, then = st.session_state.get("_then", (None, None))
    return links.moved(scenario, then, sharing.floor_usd_per_mtok(plan), sharing.price_date(plan)) if opened == scenario else ""


def share(plan: Json, scenario: Scenario) -> None:
    """Link, preset and downloads; files are built when they are asked for."""
    from planner.views import sharing

    popover = st.popover("Share and export", icon=":material/ios_share:", key="share", on_change="rerun")
    if popover.open:
        with popover:
            sharing.body(plan, scenario)


@dataclass(frozen=True, slots=True)
class Card:
    """One figure above the fold."""

    label: str
    """In our own words: screen readers hear it as it is written."""
    value: str
    below: str = ""
    help: str = ""


def cards(row: Sequence[Card]) -> None:
    """Equal cards that reflow on narrow screens."""
    with st.grid(len(row), min_column_width=150):
        for card in row:
            st.metric(
                card.label,
                plain(card.value),
                delta=plain(card.below) or None,
                delta_color="off",
                delta_arrow="off",
                help=plain(card.help) or None,
                border=True,
                height="stretch",
            )


def problems(plan: Json, folded: bool = False) -> None:
    """Errors and warnings with their way out in the open, assumptions folded away; all of them where the page asks something else."""
    shown = {"error": st.error, "warning": st.warning}
    loud = [p for p in plan["problems"] if p["severity"] in shown]
    quiet = [p for p in plan["problems"] if p["severity"] not in shown]
    for problem in [] if folded else loud:
        shown[problem["severity"]](plain(sentence(problem)))
    counts = [(len(loud) * folded, "warning"), (len(quiet), "assumption")]
    if told := [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count]:
        with st.expander(f"{' and '.join(told)} behind these figures"):
            for problem in [*loud, *quiet] if folded else quiet:
                st.markdown(f"- {plain(sentence(problem))}")


def sentence(problem: Json, way_out: bool = True) -> str:
    """A problem and its way out as sentences, in the sidebar's words. A name such as llama-3.1-8b keeps its small letter."""
    parts = [spoken(problem[part].strip()).rstrip(".") for part in ("message", "remedy")[: 1 + way_out]]
    return " ".join(f"{part if _NAME.match(part) else part[:1].upper() + part[1:]}." for part in parts if part)


def cannot_run(plan: Json, scenario: Scenario) -> None:
    """No prices and no latencies for a plan that does not run: what is missing, and the nearest change."""
    offered = any(remedy["fits"] for remedy in plan["memory"].get("remedies") or [])
    for problem in plan["problems"]:
        if problem["severity"] == "error":
            # Ways out that stand below as buttons are not told twice.
            st.error(plain(sentence(problem, way_out=not offered)))
    remedies(plan, scenario)
    st.caption("Recommend, in the menu above, looks for the cheapest fleet on which it fits and keeps the promise.")
    if plan["memory"]["fits"] is None:
        layouts(scenario)
    if plan["memory"]["fits"] is not None:
        chart(memory.bar(plan, ink()), memory.takeaway(plan))
        memory_terms(plan)


def memory_terms(plan: Json) -> None:
    """The memory budget of one GPU, term by term."""
    terms = [(TERMS.get(t["name"], t["name"]), t) for t in plan["memory"].get("terms") or []]
    explain("Memory of one GPU", [(f"{name}: {gibibytes(t['bytes'])}", t["formula"], t["source"]) for name, t in terms])


def remedies(plan: Json, scenario: Scenario) -> None:
    """The nearest changes that fit, each adopted with one click."""
    found = [r for r in plan["memory"].get("remedies") or [] if r["fits"]]
    if not found:
        return
    st.markdown("**Nearest changes that fit**")
    with st.container(horizontal=True):
        for i, remedy in enumerate(found[:4]):
            st.button(
                plain(remedy["message"][:1].upper() + remedy["message"][1:]),
                key=f"remedy.{i}",
                on_click=_adopt_changes,
                args=(scenario, ((remedy["field"], remedy["value"]), *remedy.get("also", ()))),
            )


def layouts(scenario: Scenario) -> None:
    """Splits that are possible and fit, in place of one that is not."""
    path = "parallel.tensor_parallel_size"
    sizes = [size for size in (1, 2, 4, 8, 16) if plans.replica(set_path(scenario, path, size))]
    if not sizes:
        return
    st.markdown("**Splits that work**")
    with st.container(horizontal=True):
        for size in sizes:
            label = f"{size} GPU{'s' if size > 1 else ''} per replica"
            st.button(label, key=f"layout.{size}", on_click=_adopt_changes, args=(scenario, ((path, size),)))


def _adopt_changes(scenario: Scenario, changes: tuple[tuple[str, object], ...]) -> None:
    for path, value in changes:
        scenario = set_path(scenario, path, value)
    state.adopt(scenario)


def chart(spec: Spec, takeaway: str, key: str | None = None, on_select: Callable[[], None] | None = None) -> None:
    """A chart with its takeaway as the text alternative and as a caption under it."""
    import pyarrow as pa

    # Rows go as an Arrow table: Streamlit would make a data frame of them first, which takes most of a chart's time.
    rows = pa.Table.from_pylist(spec["data"]["values"])
    drawing = {part: value for part, value in spec.items() if part != "data"}
    drawing["config"]["legend"]["columns"] = legend_columns(drawing)
    picking: dict[str, Any] = {} if on_select is None else {"on_select": on_select, "selection_mode": "pick"}
    st.vega_lite_chart(rows, drawing, width="stretch", alt=takeaway, key=key, **picking)
    st.caption(plain(takeaway))


def table(rows: Rows, alt: str) -> None:
    """Rows that screen readers can walk: short tables wrap and print whole, and stand as cards on a phone where they have six columns or
    more; longer ones scroll, sort and can be searched."""
    import pandas as pd

    filled = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) not in (None, "", MISSING) for row in rows)
    ]
    if len(rows) > ROWS_SHOWN:
        st.dataframe(pd.DataFrame([dict(row) for row in rows])[filled], hide_index=True, width="stretch", alt=alt, placeholder=MISSING)
        return
    cells = [{plain(name): plain(cell(row.get(name))) for name in filled} for row in rows]
    st.table(pd.DataFrame(cells), border="horizontal", hide_index=True, alt=alt)


def explain(title: str, lines: Sequence[tuple[str, str, str]]) -> None:
    """An expander of (quantity, formula with the values in it, source and date)."""
    with st.expander(title, icon=":material/function:"):
        for quantity, formula, source in lines:
            st.markdown(f"**{plain(quantity)}**")
            st.code(formula, language=None, wrap_lines=True)
            if source:
                st.caption(plain(source))


def planned(scenario: Scenario) -> Json | None:
    """The best plan there is by now, or None after saying why there is none."""
    reason = plans.refused(scenario)
    if reason:
        st.title("This scenario cannot be planned yet", anchor=False)
        st.error(plain(reason))
        if scenario.workload.trace is not None and scenario.workload.trace.content_hash:
            st.file_uploader(
                "The trace that this link was made with",
                type=["csv", "jsonl"],
                key="trace_again",
                on_change=doors.trace,
                args=("trace_again",),
            )
            for message in st.session_state.pop("door_messages", []):
                st.warning(plain(message))
        return None
    return plans.best(scenario)[0]


def estimate(scenario: Scenario) -> None:
    """Says that figures are a first estimate, while the full plan is computed."""
    if not plans.best(scenario)[1]:
        plans.refine(scenario)
