"""A document opens again: today's in every format, those kept from each version, and whatever is broken in one sentence."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import export, migrate
from planner.export import restore
from planner.problems import InputError
from planner.scenario import Scenario

KEPT = Path(__file__).parent / "data" / "documents"
CARRIERS = ("json", "html", "md", "xlsx", "zip")


@pytest.fixture(scope="module")
def plan_json():
    return json.loads((KEPT / "plan-and-what-ifs.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def files(plan_json):
    document = export.document(plan_json, export.Extras())
    return {kind: export.render(document, kind) for kind in CARRIERS}


@pytest.mark.parametrize("kind", CARRIERS)
def test_every_format_restores_scenario_and_plan(kind, plan_json, files):
    found = export.read(files[kind], f"plan.{kind}")
    assert found.scenario == Scenario.model_validate(plan_json["scenario"])
    assert found.notes == ()
    for name in ("scenario", "memory", "latency", "cost", "provenance"):
        assert found.plan[name] == plan_json[name]


@pytest.mark.parametrize("path", sorted(KEPT.glob("schema-*")), ids=lambda p: p.name)
def test_documents_kept_from_each_version_open(path, plan_json):
    found = export.read(path.read_bytes(), path.name)
    assert found.scenario.name == "Chat for support staff"
    assert found.scenario.workload.shared_prefix_len == 200
    assert found.plan["cost"]["usd_per_month"] == plan_json["cost"]["usd_per_month"]
    assert export.document(found.plan, export.Extras()).sections


def test_a_document_read_back_makes_the_same_document(files):
    again = export.read(files["html"], "plan.html").plan
    for kind in CARRIERS:
        assert export.build(again, kind, export.Extras()) == files[kind]


def test_an_older_schema_is_migrated_and_says_so(monkeypatch, files):
    data = json.loads(files["json"])
    # As if version 1 had called the field otherwise and this were version 2.
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(migrate.RENAMED, 1, {"workload.qps": "workload.request_rate"})
    monkeypatch.setattr(migrate, "OLD_DEFAULTS", {})
    data["scenario"]["workload"]["qps"] = data["scenario"]["workload"].pop("request_rate")
    current, notes = migrate.document(data["scenario"])
    assert current["workload"]["request_rate"] == 2.0
    assert notes
    assert "qps" in notes[0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format_version": 99}, "newer than this planner"),
        ({"format": "planner.fleet"}, "several plans"),
        ({"scenario": 3}, "not an object"),
        ({"scenario": {"schema_version": 7}}, "newer than this planner"),
        ({"scenario": {"schema_version": "x"}}, "not a version"),
        ({"scenario": {"hardwear": {}}}, "hardware"),
    ],
)
def test_what_cannot_be_opened_says_exactly_why(change, word, files):
    data = json.loads(files["json"]) | change
    with pytest.raises(InputError, match=word):
        export.read(json.dumps(data).encode(), "plan.json")


@pytest.mark.parametrize(
    "path", ["memory.kv_pool_bytes_per_gpu", "cost.usd_per_month", "roofline.terms", "problems", "latency.ttft_s", "throughput"]
)
@pytest.mark.parametrize("value", ["x", [1], {"a": []}, True])
def test_damaged_figures_leave_the_scenario(path, value, files):
    data = json.loads(files["json"])
    *parents, last = path.split(".")
    at = data
    for key in parents:
        at = at[key]
    at[last] = value
    found = export.read(json.dumps(data).encode(), "plan.json")
    assert found.scenario.name == "Chat for support staff"
    assert found.plan is not None or "damaged" in found.notes[0]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "plan.json"),
        (b"[1]", "plan.json"),
        (b"\xff\xfe", "plan.html"),
        (b"<html></html>", "plan.html"),
        (b"# title", "plan.md"),
        (b"```json\n{", "plan.md"),
        (b"PK\x03\x04", "plan.xlsx"),
        (b"no zip", "plan.zip"),
        (b"a,b", "plan.csv"),
        (b"%PDF-1.4", "plan.pdf"),
        (b'{"scenario": {}, "memory": {"fits": NaN}}', "plan.json"),
        (b"{" * 100_000, "plan.json"),
        (b"[" * 100_000, "plan.json"),
    ],
)
def test_damaged_files_get_one_sentence(data, name):
    with pytest.raises(InputError) as told:
        export.read(data, f"/etc/../{name}")
    assert "\n" not in str(told.value)
    assert str(told.value).startswith(name)


def test_a_workbook_with_entities_or_a_bomb_is_refused(files):
    source = zipfile.ZipFile(io.BytesIO(files["xlsx"]))
    for bad in (b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a 'b'>]><sst/>", b"<" + b" " * (restore.MOST_BYTES + 1)):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in source.namelist():
                archive.writestr(name, bad if name == "xl/sharedStrings.xml" else source.read(name))
        with pytest.raises(InputError, match=r"entities|unpacks"):
            export.read(buffer.getvalue(), "plan.xlsx")


def test_too_large_a_file_is_refused_before_it_is_read():
    with pytest.raises(InputError, match="at most"):
        export.read(b" " * (restore.MOST_BYTES + 1), "plan.json")


def told(data, name):
    """Why a file is refused; nothing when it opens."""
    try:
        export.read(data, name)
    except InputError as error:
        return str(error)
    return ""


@settings(max_examples=120, deadline=None)
@given(data=st.binary(max_size=300), suffix=st.sampled_from([*CARRIERS, "csv", "txt", ""]))
def test_any_bytes_open_or_are_refused_in_one_sentence(data, suffix):
    assert "\n" not in told(data, f"x.{suffix}")


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(CARRIERS), at=st.integers(0, 10_000), put=st.binary(min_size=1, max_size=4))
def test_a_document_with_a_few_bytes_changed_opens_or_is_refused(kind, at, put):
    data = bytearray((KEPT / f"schema-1.{kind}").read_bytes())
    at = at * len(data) // 10_000
    data[at : at + len(put)] = put
    assert "\n" not in told(bytes(data), f"x.{kind}")
