"""Old prices say so wherever they appear; newer ones are fetched only when asked for, and a failed fetch costs nothing."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from planner import export
from planner.catalog import list_prices, rental
from planner.command import main
from planner.plan import plan
from planner.problems import InputError
from planner.scenario import parse

SMALL = {"workload": {"num_prompts": 20, "output_len": 20}}
LATER = datetime(2027, 6, 1, tzinfo=UTC)


@pytest.fixture
def _next_summer(monkeypatch):
    monkeypatch.setattr(rental, "today", lambda: LATER.date())


def test_the_ninetieth_day_is_the_last():
    assert not rental.is_stale("2026-11-20", date(2027, 2, 18))
    assert rental.is_stale("2026-11-20", date(2027, 2, 19))
    assert not rental.is_stale(None)
    assert not rental.is_stale("")
    assert rental.dated(None, "yours") == "yours"


@pytest.mark.usefixtures("_next_summer")
def test_a_plan_names_its_stale_prices():
    problem = next(p for p in plan(parse(SMALL), effort="quick").problems if p.code == "stale_price")
    assert "h100-sxm on_demand" in problem.message
    assert "older than 90 days" in problem.message


def test_a_price_of_the_users_own_never_ages(monkeypatch):
    monkeypatch.setattr(rental, "today", lambda: LATER.date())
    own = {"price": {"usd_per_gpu_hour": 2.0, "compare_to": [{"label": "ours", "input": 1, "output": 2}]}}
    assert "stale_price" not in {p.code for p in plan(parse(SMALL | own), effort="quick").problems}


@pytest.mark.usefixtures("_next_summer")
@pytest.mark.parametrize("kind", ["html", "md", "csv"])
def test_documents_mark_them(kind):
    answer = plan(parse(SMALL), effort="quick")
    text = export.build(answer, kind, export.Extras()).decode()
    priced = [p.date for p in answer.cost.list_prices]
    assert priced
    assert text.count("(stale)") >= len(priced)


@pytest.mark.usefixtures("_next_summer")
def test_the_command_line_marks_them(capsys):
    assert main(["prices", "h100-sxm"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("h100-sxm")]
    assert lines
    assert all(line.endswith("(stale)") for line in lines)


@pytest.mark.slow
@pytest.mark.usefixtures("_next_summer")
@pytest.mark.parametrize(
    ("page", "tab"),
    [
        ("plan", ""),
        ("fleet", "GPU prices"),
        ("fleet", "Own fleet or API"),
        ("assumptions", "List prices"),
        ("assumptions", "Constants of this plan"),
    ],
)
def test_pages_mark_them(page, tab):
    shell = f"""
import streamlit as st
from planner.views import components, sidebar, state
from planner.views.pages import {page}
state.open_link()
sidebar.render()
components.notes()
{page}.render()
"""
    at = AppTest.from_string(shell, default_timeout=60)
    at.query_params["workload.num_prompts"] = "20"
    if tab:
        at.session_state[f"{page}.tab"] = tab
    at.run()
    assert not at.exception, at.exception[0].message
    # A table gives dates in a column of their own, or at the end of its sources.
    frames = [frame.value for frame in (*at.dataframe, *at.table)]
    cells = [str(cell).replace("\\", "") for frame in frames for cell in frame.get("date", frame.get("source", ()))]
    dates = [found[0] for cell in cells if (found := re.findall(r"\b20\d\d-\d\d.*$", cell))]
    said = [e.value for kind in (at.caption, at.markdown, at.warning, at.info) for e in kind]
    assert any("stale" in text for text in (*dates, *said))
    if tab != "Constants of this plan":
        assert not [d for d in dates if d < "2027-03" and "stale" not in d]


def fake_library(price: float):
    rows = [r for r in list_prices.rows() if r.source.startswith("genai-prices")][:3]

    class Model:
        def __init__(self, row):
            self.id, self._row = row.model_id, row

        def get_prices(self, at, context):
            return SimpleNamespace(
                input_mtok=price, output_mtok=2 * price, cache_read_mtok=None, cache_write_mtok=None, cache_write_1h_mtok=None
            )

    return SimpleNamespace(providers=[SimpleNamespace(id=r.provider, models=[Model(r)], pricing_urls=[]) for r in rows])


@pytest.fixture
def updated(monkeypatch, tmp_path):
    path = tmp_path / "list_prices.updated.csv"
    monkeypatch.setattr(list_prices, "UPDATED_FILE", path)
    list_prices.rows.cache_clear()
    yield path
    for cached in (list_prices.rows, list_prices.hosts, list_prices.find):
        cached.cache_clear()


def test_an_update_is_stored_dated_and_used(updated):
    moved = list_prices.refresh(LATER, lambda: fake_library(123.0), updated)
    assert moved
    assert {r.date for r in moved} == {"2027-06-01"}
    assert {r.input for r in list_prices.rows() if r.label in {m.label for m in moved}} == {123.0}


@pytest.mark.parametrize(
    "fetch",
    [
        lambda: (_ for _ in ()).throw(OSError("no route to host")),
        lambda: (_ for _ in ()).throw(TimeoutError()),
        lambda: SimpleNamespace(providers=[]),
        lambda: {"html": "<html>captive portal</html>"},
        lambda: None,
    ],
)
def test_a_failed_update_keeps_the_old_prices(updated, fetch):
    before = list_prices.rows()
    with pytest.raises(InputError, match="the old ones stay"):
        list_prices.refresh(LATER, fetch, updated)
    assert list_prices.rows() == before
    assert not updated.exists()


def test_an_update_that_cannot_be_stored_keeps_the_old_prices(updated):
    before = list_prices.rows()
    with pytest.raises(InputError, match="cannot be stored"):
        list_prices.refresh(LATER, lambda: fake_library(1.0), updated.parent / "nowhere" / "x.csv")
    assert list_prices.rows() == before


def test_a_damaged_update_is_not_read(updated):
    before = list_prices.rows()
    list_prices.rows.cache_clear()
    updated.write_text("model,provider\nx")
    assert list_prices.rows() == before


def test_nothing_is_fetched_unless_asked(updated, monkeypatch, capsys):
    monkeypatch.setattr(list_prices, "refresh", lambda *_: pytest.fail("fetched"))
    assert main(["prices"]) == 0
    assert "list price of" in capsys.readouterr().out
    plan(parse(SMALL), effort="quick")


def test_every_price_that_ships_is_dated():
    assert all(r.date for r in list_prices.rows())
    table = csv.DictReader(io.StringIO(rental.RENTAL_FILE.read_text()))
    assert all(row["date"] for row in table)
