"""One scenario for every page, held by the sidebar's widgets and the address bar alike.

A widget's key, its query key and the scenario's dotted path are one string, so Streamlit's own binding keeps the address in
step. In front of it stands one canonicalising step, because that binding takes malformed values in silence.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import streamlit as st

from planner import links
from planner.links.fields import Leaf, Texts, get, leaves, write
from planner.scenario import Lengths, Scenario
from planner.views.controls import PATHS

VIEW_KEYS = frozenset(
    {
        *(f"{page}.tab" for page in ("plan", "simulate", "fleet", "accuracy", "assumptions")),
        *(f"compare.{column}" for column in ("b", "c", "d", "levers")),
        *(f"claim.{field}" for field in ("batch", "tokens_per_s", "ttft_s", "usd_per_mtok")),
        *(f"lesson.{control}" for control in ("acceptance", "batch", "busy", "longest", "prompt", "shared", "tp", "weights")),
        *("lesson", "simulate.at_s", "simulate.by", "recommend.gpus", "accuracy.group", "accuracy.metric"),
        *("fleet.api", "fleet.drill", "fleet.overflow", "fleet.region"),
        (SEARCHING := "recommend.searching"),
    }
)
"""Query keys of single pages: what they show, not part of the scenario. `SEARCHING` stands in the address while a search runs, so that
a page that outlives its server knows of it."""
RATE = "workload.request_rate"


def open_link() -> None:
    """First run of a session: rewrite the address so that every widget can read it, and keep what could not be used as notes."""
    raw = {key: st.query_params.get_all(key) for key in st.query_params}
    ours = {key: texts for key, texts in raw.items() if key not in VIEW_KEYS}
    if "_scenario" not in st.session_state:
        scenario, notes = links.decode(ours)
        remember(scenario, notes)
        # A link that is not used at all says nothing about what has moved since.
        unused = any(note.startswith(links.UNUSED) for note in notes)
        st.session_state["_then"] = (scenario, None if unused else links.then_usd_per_mtok(ours.get(links.THEN, ())))
        canonical = address(scenario) | {key: texts for key, texts in raw.items() if key in VIEW_KEYS}
        if {key: [t] if isinstance(t, str) else list(t) for key, t in canonical.items()} != raw:
            st.query_params.from_dict(canonical)
            st.rerun()
    elif unknown := [key for key in ours if key not in leaves() and key != "schema_version"]:
        # Back to an address from before the rewriting (`?preset=…`): the widgets are bound now, so they are assigned.
        scenario, notes = links.decode(ours)
        adopt(scenario)
        remember(scenario, notes)
        for key in unknown:
            del st.query_params[key]


def address(scenario: Scenario) -> links.Query:
    """The scenario as the widgets write it into the address bar: the speculation toggle states itself."""
    switch: links.Query = {"speculative": "true"} if scenario.speculative is not None else {}
    return links.versioned(links.encode(scenario) | switch)


def view() -> links.Query:
    """What the page in sight shows of itself (tab, moment, columns), for a link that opens to the same sight."""
    return {key: st.query_params.get_all(key) for key in st.query_params if key in VIEW_KEYS - {SEARCHING}}


def scenario() -> Scenario:
    """The scenario that every page shows."""
    found: Scenario = st.session_state["_scenario"]
    return found


def remember(scenario: Scenario, notes: links.Notes = ()) -> None:
    """Set the scenario of this run, and the notes about what could not be used of it."""
    st.session_state["_scenario"], st.session_state["_notes"] = scenario, notes


def gather(rendered: Collection[str]) -> Scenario:
    """The scenario that the rendered widgets hold. A widget's limits live in the browser only, so it is read as a link is."""
    query = {path: text_of(leaves()[path], st.session_state.get(path)) for path in rendered}
    query.setdefault(RATE, "")  # no box for a rate is no rate
    st.session_state["_drawn"] = frozenset(rendered)
    found, notes = links.decode(links.versioned({path: text for path, text in query.items() if text is not None}))
    if notes or found != st.session_state["_scenario"]:
        remember(found, notes)
    return found


def adopt(scenario: Scenario) -> None:
    """Make `scenario` the one that every page shows: every widget and through it the address bar. For use in callbacks."""
    query = address(scenario)
    st.session_state["_others"] = [path for path in query if path not in PATHS]
    for path in PATHS:
        st.session_state[path] = value_of(leaves()[path], scenario)
    for path in st.session_state["_others"]:
        st.session_state[path] = one_text(query[path])
    # A box that is about to appear does not write its value into the address by itself; one that is there does, and alone may.
    drawn = st.session_state.get("_drawn", ())
    st.session_state["_adopted"] = True
    st.query_params.update({path: texts for path, texts in query.items() if path in leaves() and path not in drawn})
    remember(scenario)


def show_adopted() -> None:
    """At the start of a fragment with a button that adopts: its click runs the fragment alone, which would leave all else as it was."""
    if "_adopted" in st.session_state:
        st.rerun()


def others() -> list[str]:
    """Settings in use that have no control of their own: from the scenario, the address bar, or added by hand."""
    if st.session_state.pop("_adopted", False):
        return list(st.session_state["_others"])  # the address may still hold what the adopted scenario has done away with
    held = [*st.session_state.get("_others", []), *(key for key in st.query_params if key in leaves()), *address(scenario())]
    st.session_state["_others"] = list(dict.fromkeys(path for path in held if path not in PATHS))
    return st.session_state["_others"]


def text_of(leaf: Leaf, value: Any) -> Texts | None:
    """A widget's value as link text; None when it says nothing."""
    if value is None:
        return None
    if isinstance(value, str):
        return value
    if leaf.kind == "switch":
        return str(value).lower()
    return write(leaf, tuple(value) if isinstance(value, list) else value)


def value_of(leaf: Leaf, scenario: Scenario) -> Any:
    """The value that a control of this leaf holds."""
    value = get(scenario, leaf)
    if leaf.kind == "switch":
        return value is not None
    if value == "":
        return None
    if value is None and leaf.default is not None:
        return leaf.default if leaf.path == RATE else type(leaf.default)(leaf.null)
    if leaf.kind == "choices":
        return list(value)
    return one_text(write(leaf, value)) if isinstance(value, Lengths | tuple) else value


def one_text(texts: Texts) -> str:
    """Link text of one box, lists of choices with commas."""
    return texts if isinstance(texts, str) else ",".join(texts)
