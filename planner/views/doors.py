"""Callbacks that bring something into the scenario: a preset, a shape of traffic, a config.json, a trace, one more setting."""

from __future__ import annotations

import streamlit as st

from planner import presets, traces
from planner.catalog.workloads import workloads
from planner.problems import InputError
from planner.scenario import FrozenJson, TraceRef, parse
from planner.views import state


def preset() -> None:
    if st.session_state["_preset"]:
        state.adopt(presets.load(st.session_state["_preset"]))
        st.session_state["_preset"] = None  # it was a starting point: the settings may change, its name would stay


def shape() -> None:
    slug = st.session_state["_shape"]
    if slug:
        here = state.scenario()
        state.adopt(parse(here.model_dump() | workloads()[slug].scenario_part))
        st.session_state["_shape"] = None


def setting() -> None:
    path = st.session_state["add_setting"]
    if path:
        st.session_state["_others"] = [*st.session_state.get("_others", []), path]
        st.session_state["add_setting"] = None


def _label(config: dict[str, object]) -> str:
    """What to call the model of a pasted config.json: where it came from, if it says so, or its kind."""
    said = str(config.get("_name_or_path") or "").strip("/ ").rpartition("/")[2]
    return (said or f"your own {config.get('model_type') or 'model'}")[:80]


def config() -> None:
    from planner import architecture
    from planner.links.packing import parse_object

    text = st.session_state["config_text"].strip()
    here = state.scenario()
    try:
        config = FrozenJson(parse_object(text, "a config.json")) if text else None
        # Its own label: the catalogue's name would put another model's title and list prices beside these figures.
        name = _label(config.value) if config else "llama-3.1-8b"
        model = here.model.model_copy(update={"hf_config": config, "total_params": None, "name": name})
        architecture.of(model)
    except (InputError, ValueError) as error:
        st.session_state["door_messages"] = [f"This config.json cannot be used: {error}"]
        return
    state.adopt(here.model_copy(update={"model": model}))


def trace(key: str = "trace_file") -> None:
    """Take an uploaded trace; the scenario carries its name and hash only."""
    file = st.session_state[key]
    if file is None:
        return
    try:
        found = traces.upload(file.getvalue(), file.name[:100])
    except InputError as error:
        st.session_state["door_messages"] = [str(error)]
        return
    here = state.scenario()
    wanted = here.workload.trace
    if key != "trace_file" and wanted is not None and found.content_hash != wanted.content_hash:
        st.session_state["door_messages"] = [
            f"{file.name[:100]} is not the trace of this link: its hash is {(found.content_hash or '')[:12]}…"
        ]
        return
    ref = TraceRef(name=file.name[:100], content_hash=found.content_hash) if key == "trace_file" else wanted
    state.adopt(here.model_copy(update={"workload": here.workload.model_copy(update={"trace": ref})}))
