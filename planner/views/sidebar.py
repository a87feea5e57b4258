"""The one sidebar: every control of `controls`, each bound to the query key of its own name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from planner import catalog, demand, presets, traces
from planner.catalog.workloads import workloads
from planner.links.fields import get, leaves
from planner.problems import InputError
from planner.scenario import FrozenJson, Scenario, parse
from planner.views import controls, state
from planner.views.controls import Control
from planner.views.text import plain

Rendered = list[str]


def render() -> Scenario:
    """Draw the sidebar and return the scenario that it holds."""
    with st.sidebar:
        _preset()
        shown = _model_and_hardware() + _traffic() + _details()
        shown += _more(state.others())
    return state.gather(shown)


def _preset() -> None:
    names = presets.all()
    st.selectbox(
        "Start from a question",
        list(names),
        index=None,
        format_func=lambda name: names[name].name,
        key="_preset",
        on_change=_adopt_preset,
        placeholder="Choose an example…",
        help="Fills in every setting below. All of them can be changed afterwards.",
    )


def _adopt_preset() -> None:
    if st.session_state["_preset"]:
        state.adopt(presets.load(st.session_state["_preset"]))
        st.session_state["_preset"] = None  # it was a starting point: the settings may change, its name would stay


def _model_and_hardware() -> Rendered:
    st.subheader("Model and hardware", anchor=False)
    here = state.scenario()
    gpu, basis = here.hardware.gpu, here.price.basis
    rental = catalog.rental_price(gpu, basis) if basis != "owned" else None
    paid = f"catalogue: {rental.usd:.2f}" if rental else "catalogue"
    source = f"Empty takes {rental.usd:.2f} ({rental.source}, {rental.date})." if rental else "Empty takes the catalogue's price."
    return [
        *_draw(controls.MODEL, options={"model.name": list(catalog.models())}),
        *_pair(controls.PRECISION),
        *_draw(controls.GPU, options={"hardware.gpu": list(catalog.gpus())}),
        *_draw(controls.SIZE),
        *_pair(controls.FLEET, placeholders={"price.usd_per_gpu_hour": (paid, source)}),
    ]


def _traffic() -> Rendered:
    st.subheader("Traffic", anchor=False)
    shapes = workloads()
    st.selectbox(
        "Shape of traffic",
        list(shapes),
        index=None,
        format_func=lambda slug: shapes[slug].title,
        key="_shape",
        on_change=_adopt_shape,
        placeholder="Fill in from…",
        label_visibility="collapsed",
        help="Lengths, arrivals and promises of measured or published traffic.",
    )
    closed = st.session_state.get(state.CLIENTS, state.scenario().workload.max_concurrency) is not None
    shown = [
        *_pair(controls.LENGTHS),
        *_pair(controls.LOAD, disabled={state.RATE} if closed else set(), placeholders={state.CLIENTS: ("open loop", "")}),
    ]
    st.subheader("Promise", anchor=False)
    return [*shown, *_pair(controls.PROMISE), *_draw(controls.PERCENTILE)]


def _adopt_shape() -> None:
    slug = st.session_state["_shape"]
    if slug:
        here = state.scenario()
        state.adopt(parse(here.model_dump() | workloads()[slug].scenario_part))
        st.session_state["_shape"] = None


def _details() -> Rendered:
    shown: Rendered = []
    with st.expander("Traffic in detail"):
        shown += _pair(controls.TRAFFIC_DETAIL, placeholders={"slo.e2e_s": ("none", "")})
        shown += _draw(
            controls.TRACE,
            options={"workload.trace.name": list(traces.index())},
            placeholders={"workload.trace.name": ("no trace: draw", "")},
        )
        st.file_uploader(
            "Or your own trace",
            type=["csv", "jsonl"],
            key="trace_file",
            on_change=_adopt_trace,
            help="Arrival, prompt and output tokens. Rows stay on this server; a link carries their hash only.",
        )
    with st.expander("Engine and batching"):
        shown += _pair(controls.ENGINE, placeholders={"engine.max_model_len": ("the model's", "")})
        shown += _pair(controls.ENGINE_SWITCHES)
    with st.expander("Speculative decoding"):
        shown += _draw(controls.SPECULATION_SWITCH)
        if st.session_state.get("speculative"):
            shown += _pair(
                controls.SPECULATION,
                placeholders={"speculative.acceptance_rate": ("measured", ""), "speculative.draft_cost": ("computed", "")},
            )
    with st.expander("Layout, spares, routing"):
        shown += _pair(controls.LAYOUT) + _draw(controls.LAYOUT_SWITCHES)
    with st.expander("Week, autoscaling, choice"):
        curves: dict[str, Any] = {
            "options": {"fleet.demand_curve": list(demand.index())},
            "placeholders": {"fleet.demand_curve": ("constant demand", "")},
        }
        shown += _draw(controls.WEEK[:1], **curves) + _pair(controls.WEEK[1:]) + _draw(controls.CHOICE)
    with st.expander("Price basis and model of time"):
        shown += _pair(controls.PRICE) + _pair(controls.LEVEL)
    with st.expander("Your own model"):
        st.text_area(
            "Paste a Hugging Face config.json",
            key="config_text",
            height=120,
            on_change=_adopt_config,
            placeholder='{"architectures": [...], "hidden_size": …}',
        )
        for message in st.session_state.pop("door_messages", []):
            st.warning(plain(message))
    return shown


def _more(paths: list[str]) -> Rendered:
    """Every other setting as text, so that nothing in a link is hidden."""
    with st.expander(f"More settings ({len(paths)} in use)" if paths else "More settings"):
        addable = [path for path in leaves() if path not in controls.PATHS and path not in paths]
        st.selectbox("Add a setting", addable, index=None, key="add_setting", on_change=_add, placeholder="Any field of a scenario…")
        for path in paths:
            leaf = leaves()[path]
            default = state.one_text(state.text_of(leaf, leaf.default) or "") if leaf.kind != "switch" else "false"
            st.text_input(path, value=default, key=path, bind="query-params", help=leaf.help or None)
    return paths


def _add() -> None:
    path = st.session_state["add_setting"]
    if path:
        st.session_state["_others"] = [*st.session_state.get("_others", []), path]
        st.session_state["add_setting"] = None


def _adopt_config() -> None:
    from planner import architecture
    from planner.links.packing import parse_object

    text = st.session_state["config_text"].strip()
    here = state.scenario()
    try:
        config = FrozenJson(parse_object(text, "a config.json")) if text else None
        model = here.model.model_copy(update={"hf_config": config, "total_params": None} | ({} if config else {"name": "llama-3.1-8b"}))
        architecture.of(model)
    except (InputError, ValueError) as error:
        st.session_state["door_messages"] = [f"This config.json cannot be used: {error}"]
        return
    state.adopt(here.model_copy(update={"model": model}))


def _adopt_trace() -> None:
    file = st.session_state["trace_file"]
    if file is None:
        return
    from planner.scenario import TraceRef

    try:
        trace = traces.upload(file.getvalue(), file.name[:100])
    except InputError as error:
        st.session_state["door_messages"] = [str(error)]
        return
    here = state.scenario()
    ref = TraceRef(name=file.name[:100], content_hash=trace.content_hash)
    state.adopt(here.model_copy(update={"workload": here.workload.model_copy(update={"trace": ref})}))


Placeholders = Mapping[str, tuple[str, str]]


def _pair(row: Iterable[Control], **details: Any) -> Rendered:
    """Controls two abreast."""
    shown: Rendered = []
    waiting = list(row)
    while waiting:
        two, waiting = waiting[:2], waiting[2:]
        for column, control in zip(st.columns(2, vertical_alignment="bottom"), two, strict=False):
            with column:
                shown += _draw([control], **details)
    return shown


def _draw(
    row: Iterable[Control],
    options: Mapping[str, list[str]] | None = None,
    placeholders: Placeholders | None = None,
    disabled: Iterable[str] = (),
) -> Rendered:
    """Draw controls and return their paths."""
    shown: Rendered = []
    for control in row:
        placeholder, note = (placeholders or {}).get(control.path, ("", ""))
        _widget(control, (options or {}).get(control.path, list(control.options)), placeholder or None, note, control.path in disabled)
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
        value = None if leaf.default is None else float(leaf.default)
        st.number_input(
            control.label,
            min_value=float(control.minimum),
            value=value,
            step=float(control.step),
            format=control.format,
            placeholder=placeholder,
            **common,
        )
