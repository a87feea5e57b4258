"""Links and presets of every version open to the same scenario for ever, and say what has moved since they were made.

`python tests/test_old_links.py` writes the folder of the current version, where it is missing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner import links, migrate, presets
from planner.problems import InputError
from planner.scenario import SCHEMA_VERSION, Scenario, parse

DATA = Path(__file__).parent / "data"
LINKS = sorted((DATA / "links").glob("v*/*.txt"))
PRESETS = sorted(path for path in (DATA / "presets").glob("v*/*.json") if not path.name.endswith(".scenario.json"))


def whole(path: Path) -> Scenario:
    """A scenario written out whole by an older version."""
    data, _ = migrate.document(json.loads(path.read_text()))
    return parse(data)


@pytest.mark.parametrize("path", LINKS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_an_old_link_opens_to_its_scenario(path):
    scenario, notes = links.decode(path.read_text().strip())
    assert scenario == whole(path.with_suffix(".json"))
    if path.parent.name == f"v{SCHEMA_VERSION}":
        assert notes == ()


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_an_old_preset_opens_to_its_scenario(path):
    scenario, notes = presets.read(path)
    assert scenario == whole(path.with_suffix(".scenario.json"))
    if path.parent.name == f"v{SCHEMA_VERSION}":
        assert notes == ()


def test_every_version_is_kept():
    for version in range(1, SCHEMA_VERSION + 1):
        assert len([p for p in LINKS if p.parent.name == f"v{version}"]) >= 20
        assert len([p for p in PRESETS if p.parent.name == f"v{version}"]) >= 10


def test_a_link_without_a_version_is_of_the_first(monkeypatch):
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(links, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(migrate, "OLD_DEFAULTS", {1: {"engine.block_size": 32}})
    old, notes = links.decode("engine.max_num_seqs=64")
    assert (old.engine.max_num_seqs, old.engine.block_size) == (64, 32)
    assert any("keeps the default it had in version 1: 32" in note for note in notes)
    assert links.decode(links.versioned(links.encode(old))) == (old, ())
    assert links.versioned({})["schema_version"] == "2"


class TestWhatMoved:
    made = parse({"price": {"as_of": "2026-11-20"}})

    def test_a_price_that_moved(self):
        said = links.moved(self.made, 1.57, 1.72, "2027-01-15")
        assert "cost $1.57" in said
        assert "now $1.72" in said
        assert "of 2027-01-15 now, of 2026-11-20 then" in said

    def test_newer_prices_that_change_nothing(self):
        assert "2026-11-20" in links.moved(self.made, 1.57, 1.571, "2027-01-15")

    def test_a_plan_that_has_no_price_any_more(self):
        assert "no price" in links.moved(self.made, 1.57, None, None)

    def test_nothing(self):
        assert links.moved(self.made, 1.57, 1.5701, "2026-11-20") == ""
        assert links.moved(Scenario(), None, 1.0, "2026-11-20") == ""

    @pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "0", "1e999", "[]"])
    def test_a_hostile_figure_is_no_figure(self, text):
        assert links.then_usd_per_mtok([text]) is None
        assert links.decode({links.THEN: text}) == (Scenario(), ())

    def test_no_figure(self):
        assert links.then_usd_per_mtok([]) is None
        assert links.then_usd_per_mtok(["1", "1.57"]) == 1.57


SHELL = """
import streamlit as st
from planner.views import components, sidebar, state
from planner.views.pages import plan
state.open_link()
sidebar.render()
components.notes()
plan.render()
"""


@pytest.mark.slow
def test_the_page_says_what_moved_until_the_scenario_is_changed():
    at = AppTest.from_string(SHELL, default_timeout=60)
    for key, value in links.share(parse({"workload": {"num_prompts": 20}}), "2026-01-01", 1.57).items():
        at.query_params[key] = value
    at.run()
    assert not at.exception
    assert [i for i in at.info if "then" in i.value or "was made" in i.value]
    assert links.THEN not in at.query_params
    at.number_input(key="engine.max_num_seqs").set_value(64).run()
    assert not [i for i in at.info if "was made" in i.value]


def made_now() -> dict[str, str]:
    """Links of the current version, by what they stand for."""
    rich = json.loads((DATA / "links.json").read_text())[0]["scenario"]
    scenarios = {f"preset-{name}": presets.load(name) for name in presets.names()} | {
        "rich": parse({**rich, "schema_version": SCHEMA_VERSION})
    }
    made = {name: links.url("http://127.0.0.1:8501/plan", links.share(s, "2026-11-20", 1.57)) for name, s in scenarios.items()}
    made["address-bar"] = links.url("http://127.0.0.1:8501/", links.versioned(links.encode(presets.load("chat-70b-2xh100"))))
    typed = {
        "typed": "engine.max_num_seqs=64&hardware.gpu=b200-sxm&parallel.tensor_parallel_size=2",
        "lengths": "workload.input_len=1155&workload.input_len.cv=1.86&workload.input_len.max=16000&workload.output_len=211",
        "closed-loop": "workload.max_concurrency=64",
        "no-promise": "slo.ttft_s=0&slo.tpot_s=0&slo.e2e_s=20",
        "speculation": "speculative=true&speculative.num_speculative_tokens=4&speculative.acceptance_rate=0.8",
        "trace": "workload.trace.name=azure-2023-conv&workload.num_prompts=2000",
        "defaults": "",
        "pools": "disaggregation=true&disaggregation.prefill.replicas=2&disaggregation.decode.parallel.tensor_parallel_size=2",
        "owned": "price.basis=owned&price.owned.years=4&fleet.spares=1",
    }
    return made | {name: f"?{query}" for name, query in typed.items()}


def write(folder: Path, kept: Path) -> None:
    """Keep the links and presets of the current version; what is kept already stays."""
    for name, link in made_now().items():
        scenario, notes = links.decode(link)
        if notes:
            raise InputError(f"{name}: {notes[0]}")
        _keep(folder / f"{name}.txt", link + "\n")
        _keep(folder / f"{name}.json", json.dumps(scenario.model_dump(mode="json"), indent=1) + "\n")
    for name in presets.names():
        _keep(kept / f"{name}.json", (presets.FOLDER / f"{name}.json").read_text())
        _keep(kept / f"{name}.scenario.json", json.dumps(presets.load(name).model_dump(mode="json"), indent=1) + "\n")


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(text)


if __name__ == "__main__":
    write(DATA / "links" / f"v{SCHEMA_VERSION}", DATA / "presets" / f"v{SCHEMA_VERSION}")
