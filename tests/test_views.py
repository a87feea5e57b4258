"""Every page under AppTest, in every state; hostile links; presets; what a plan that does not run must not show."""

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from planner import presets
from planner.views.controls import PATHS

PAGES = ("plan", "simulate", "compare", "recommend", "fleet", "lessons", "accuracy", "assumptions")
SHELL = """
import streamlit as st
from planner.views import components, sidebar, state
from planner.views.pages import {page}
state.open_link()
sidebar.render()
components.notes()
{page}.render()
"""
SMALL = {"workload.num_prompts": "40"}


def page(name: str, **query: str) -> AppTest:
    """One page as app.py draws it, opened by a link."""
    at = AppTest.from_string(SHELL.format(page=name), default_timeout=30)
    for key, value in {**SMALL, **query}.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception, at.exception[0].message
    return at


def texts(at: AppTest) -> str:
    """Everything the page says."""
    kinds = (at.markdown, at.caption, at.warning, at.error, at.info, at.success, at.title, at.subheader, at.metric)
    return "\n".join(str(getattr(e, "value", "")) + str(getattr(e, "label", "")) for kind in kinds for e in kind).replace("\\", "")


def specs(at: AppTest) -> list[dict]:
    """The chart specs on the page."""
    return [json.loads(chart.proto.spec) for chart in at.get("vega_lite_chart")]


def test_the_app_opens_with_a_useful_answer():
    at = AppTest.from_file("../app.py", default_timeout=30).run()
    assert not at.exception
    assert len(at.metric) == 6
    assert all(metric.value not in ("", "–") for metric in at.metric)
    assert "llama-3.1-8b in bf16 on 1 × h100-sxm" in texts(at)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_page_draws(name):
    at = page(name)
    assert at.title


@pytest.mark.parametrize("name", ["plan", *(pytest.param(p, marks=pytest.mark.slow) for p in ("simulate", "fleet"))])
def test_a_plan_that_does_not_fit_shows_the_shortfall_and_no_prices(name):
    at = page(name, **{"model.name": "llama-3.1-405b"})
    shown = texts(at)
    assert "does not fit" in shown
    assert not at.metric
    assert "$" not in shown.replace("$ per GPU-hour", "")
    assert len(specs(at)) == 1  # the memory bar
    assert at.error[0].value.startswith("llama")  # a name is no word to capitalise
    offered = [button.label.replace("\\", "") for button in at.button if (button.key or "").startswith("remedy.")]
    assert offered
    assert offered[0] not in at.error[0].value.replace("\\", "")  # ways out are buttons, told once


STATES = {
    "overloaded": {"workload.request_rate": "400"},
    "closed loop": {"workload.max_concurrency": "8"},
    "no traffic": {"workload.request_rate": "0"},
    "no promise": {"slo.ttft_s": "0", "slo.tpot_s": "0"},
    "spread": {"workload.input_len.cv": "1.5", "workload.output_len.cv": "1"},
    "distribution": {"workload.input_len": '{"kind":"percentiles","points":[[0,10],[1,4000]]}'},
    "speculation": {"speculative": "true"},
    "unlisted price": {"hardware.gpu": "gaudi3"},
    "trace elsewhere": {"workload.trace.name": "mine", "workload.trace.content_hash": "ab" * 32},
    "impossible layout": {"model.name": "llama-3.1-8b", "parallel.tensor_parallel_size": "7"},
    "own curve": {"fleet.demand_curve": ",".join(str(1 + h % 24) for h in range(168))},
    "own price": {"price.compare_to": '[{"label":"![x](//h/y)","input":1,"output":2}]'},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("state", STATES)
def test_every_page_stands_every_state(name, state):
    page(name, **STATES[state])


@pytest.mark.slow
@pytest.mark.parametrize("preset", [name for name in presets.names() if name != "agents-growing-context"])
def test_every_preset_opens_by_its_link(preset):
    at = AppTest.from_string(SHELL.format(page="plan"), default_timeout=60)
    at.query_params["preset"] = preset
    at.run()
    assert not at.exception
    assert presets.load(preset).name in texts(at)


@pytest.mark.slow
def test_a_preset_fills_in_every_control():
    at = page("plan")
    at.selectbox(key="_preset").set_value("beacon-405b-8xh100-fp8").run()
    assert not at.exception
    assert at.session_state["model.name"] == "llama-3.1-405b"
    assert at.session_state["parallel.tensor_parallel_size"] == 8
    assert at.session_state["workload.max_concurrency"] == 64
    assert at.session_state["_scenario"] == presets.load("beacon-405b-8xh100-fp8")
    assert at.session_state["model.total_params"] == "405000000000"


def test_moving_a_control_changes_the_scenario_and_nothing_else():
    at = page("plan")
    before = at.session_state["_scenario"]
    at.number_input(key="engine.max_num_seqs").set_value(64).run()
    assert not at.exception
    after = at.session_state["_scenario"]
    assert after.engine.max_num_seqs == 64
    assert after.model_copy(update={"engine": before.engine}) == before


def test_a_hostile_link_gives_plain_notes_and_a_working_page():
    at = page("plan", **{"hardware.gpu": "![a](//host/x)", "engine.max_num_seqs": "7.5", "zz": "<b>", "workload.request_rate": "nan"})
    assert len(at.warning) == 1  # one box, however much is wrong with the link: the answer stays in sight
    assert at.warning[0].value.count("\n- ") == 4
    assert "![a](" not in at.warning[0].value
    assert "<b>" not in at.warning[0].value
    assert len(at.metric) == 6
    at.number_input(key="fleet.replicas").set_value(2).run()
    assert not at.warning  # notes go with the first change


@pytest.mark.slow
def test_a_setting_without_a_control_is_shown_as_text_and_kept():
    at = page("plan", **{"hardware.overrides.memory_gib": "141"})
    assert at.text_input(key="hardware.overrides.memory_gib").value == "141"
    assert at.session_state["_scenario"].hardware.overrides.memory_gib == 141
    at.selectbox(key="add_setting").set_value("workload.seed").run()
    at.text_input(key="workload.seed").set_value("7").run()
    assert at.session_state["_scenario"].workload.seed == 7


@pytest.mark.slow
def test_the_address_of_a_preset_is_rewritten_to_readable_keys():
    at = page("plan", preset="chat-70b-2xh100")
    assert at.query_params["model.name"] in ("llama-3.3-70b", ["llama-3.3-70b"])
    assert "preset" not in at.query_params


@pytest.mark.slow
def test_compare_says_what_changed_and_lists_only_differences():
    at = page("compare", **{"compare.b": "precision.weights=fp8", "compare.c": "nonsense"})
    shown = texts(at)
    assert "B changes Weights bf16 → fp8" in shown
    assert "neither a preset" in shown
    differences = at.table[-1].value
    assert list(differences["setting"]) == ["Weights"]


def test_every_control_is_a_field_and_has_a_label():
    from planner.links.fields import leaves
    from planner.views import controls

    assert set(leaves()) >= PATHS
    assert all(control.label and control.help for control in (*controls.MAIN, *controls.DETAIL))


def test_pages_stay_small(request):
    root = request.path.parent.parent
    assert len((root / "app.py").read_text().splitlines()) <= 60
    for file in (root / "planner" / "views" / "pages").glob("*.py"):
        assert len(file.read_text().splitlines()) <= 150, file.name
    for file in (root / "planner" / "views").rglob("*.py"):
        source = file.read_text()
        assert "unsafe_allow_html" not in source
        assert "st.html(" not in source


def test_half_busy_time_doubles_the_price_of_a_token():
    said = texts(page("lessons", lesson="price"))
    full, half = re.search(r"and \$([\d.]+) in a batch of \d+; at 50 % busy that is \$([\d.]+)\. Price", said).groups()
    assert float(half) == pytest.approx(2 * float(full), rel=0.02)


def test_a_pasted_config_is_not_called_by_the_name_of_the_model_before():
    at = page("plan")
    at.text_area(key="config_text").set_value(CONFIG).run()
    assert "your own qwen2 in bf16" in texts(at)
    assert "llama-3.1-8b" not in texts(at)
    at.text_area(key="config_text").set_value("").run()
    assert "llama-3.1-8b in bf16" in texts(at)


CONFIG = json.dumps(
    {
        "model_type": "qwen2",
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    }
)
