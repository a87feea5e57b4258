"""Links to absurd but legal questions open on every page: an answer or a named limit, no exception, no figure that is none."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest
from test_bounds import SMALL

from planner import bounds

PAGES = ("plan", "simulate", "fleet", "compare", "recommend", "assumptions", "accuracy", "lessons")
LINKS = {
    "a trillion parameters": {"model.total_params": "1000000000000"},
    "ten million tokens of context": {
        "workload.input_len": "10000000",
        "engine.max_model_len": "100000000",
        "hardware.overrides.memory_gib": "1000000",
    },
    "no request ever": {"workload.request_rate": "0"},
    "a million requests a second": {"workload.request_rate": "1000000"},
    "free GPUs": {"price.usd_per_gpu_hour": "0"},
}
SHELL = """
import streamlit as st
from planner.views import components, sidebar, state
from planner.views.pages import {page}
state.open_link()
sidebar.render()
components.notes()
{page}.render()
"""
NO_FIGURE = re.compile(r"(?<![\w-])\$?-?(nan|inf|infinity|NaN|Infinity|∞)(?![\w-])")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("link", LINKS)
def test_the_page_answers_or_says_why_not(link: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(bounds, name, value)
    at = AppTest.from_string(SHELL.format(page=page), default_timeout=90)
    for key, value in LINKS[link].items():
        at.query_params[key] = value
    at.run()
    assert not at.exception, at.exception
    said = [m.value for kind in (at.markdown, at.caption, at.info, at.warning, at.error, at.success) for m in kind]
    said += [str(m.value) for m in at.metric] + [str(m.delta) for m in at.metric]
    assert said
    assert not [text for text in said if NO_FIGURE.search(text)]
