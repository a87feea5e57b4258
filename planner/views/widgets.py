"""One control drawn: bound to the query key of its own name, and safe against values that its options do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from planner.links.fields import get, leaves
from planner.views import state
from planner.views.controls import Control
from planner.views.text import plain

Rendered = list[str]
Placeholders = Mapping[str, tuple[str, str]]
"""{path: (what an empty box shows, a note in its help)}."""


def pair(row: Iterable[Control], **details: Any) -> Rendered:
    """Controls two abreast."""
    shown: Rendered = []
    waiting = list(row)
    while waiting:
        two, waiting = waiting[:2], waiting[2:]
        for column, control in zip(st.columns(2, vertical_alignment="bottom"), two, strict=False):
            with column:
                shown += draw([control], **details)
    return shown


def draw(
    row: Iterable[Control],
    options: Mapping[str, list[str]] | None = None,
    placeholders: Placeholders | None = None,
    disabled: Iterable[str] = (),
) -> Rendered:
    """Draw controls and return their paths."""
    shown: Rendered = []
    for control in row:
        placeholder, note = (placeholders or {}).get(control.path, ("", ""))
        _widget(control, (options or {}).get(control.path, list(control.choices)), placeholder or None, note, control.path in disabled)
        shown.append(control.path)
    return shown


def _widget(control: Control, options: list[Any], placeholder: str | None, note: str, disabled: bool) -> None:
    leaf = leaves()[control.path]
    now = state.value_of(leaf, state.scenario())
    common: dict[str, Any] = {
        "key": control.path,
        "bind": "query-params",
        "help": f"{plain(note)} {control.help}".strip(),
        "disabled": disabled,
    }
    if control.kind in ("select", "segments", "steps") and now is not None and now not in options:
        options = sorted([*options, now]) if control.kind == "steps" else [*options, now]
    if control.kind == "select" and leaf.kind == "numbers" and isinstance(get(state.scenario(), leaf), tuple):
        st.text_input(control.label, **common)  # 168 values of one's own
    elif control.kind == "select":
        start = options.index(leaf.default) if leaf.default in options else None
        st.selectbox(control.label, options, index=start, placeholder=placeholder or "Choose", **common)
    elif control.kind == "segments":
        st.segmented_control(control.label, options, default=leaf.default, required=True, **common)
    elif control.kind == "steps":
        st.select_slider(control.label, options, value=leaf.default, **common)
    elif control.kind == "toggle":
        st.toggle(control.label, value=bool(leaf.default), **common)
    elif control.kind == "several":
        st.pills(control.label, list(dict.fromkeys([*options, *now])), selection_mode="multi", default=list(leaf.default), **common)
    elif control.kind == "length" and isinstance(now, str):
        st.text_input(control.label, value=state.one_text(state.text_of(leaf, leaf.default) or ""), **common)
    elif control.kind == "whole":
        st.number_input(
            control.label, min_value=int(control.minimum), value=leaf.default, step=int(control.step), placeholder=placeholder, **common
        )
    else:
        value = None if leaf.default is None or control.stated else float(leaf.default)
        st.number_input(
            control.label,
            min_value=float(control.minimum),
            value=value,
            step=float(control.step),
            format=control.format,
            placeholder=placeholder,
            **common,
        )
