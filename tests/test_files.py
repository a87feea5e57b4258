"""Files that are none, have no end or hold anything: each door says so in one line, soon, whatever the command."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import pytest
from hostile import one_sentence

from planner import export, files, presets
from planner.command import main
from planner.links.packing import parse_json
from planner.measure import rows as measured_rows
from planner.measure.check import check
from planner.problems import InputError
from planner.validate import rows as validate_rows

COMMANDS = (
    ("plan", "{}"),
    ("diff", "{}", "{}"),
    ("fleet", "{}"),
    ("launch", "{}"),
    ("validate", "{}"),
    ("import", "{}"),
    ("check", "{}", "{}"),
    ("prefixes", "{}"),
    ("measure", "--base-url", "http://127.0.0.1:9", "--model", "m", "--plan", "{}"),
)
ENDINGS = ("json", "html", "csv")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


KINDS = {
    "a pipe that nobody fills": make_pipe,
    "a link to itself": make_loop,
    "a folder": Path.mkdir,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "nothing at all": lambda path: path.write_bytes(b""),
    "UTF-16": lambda path: path.write_bytes("{}".encode("utf-16")),
    "deep nesting": lambda path: path.write_text('{"a":' * 100_000),
    "a number of ten thousand digits": lambda path: path.write_text('{"workload": {"seed": ' + "9" * 10_000 + "}}"),
}


SAID = {
    "a pipe that nobody fills": "a device or a pipe",
    "a folder": "Is a directory",
    "a device without end": "a device or a pipe",
    "a link to itself": "symbolic links",
}
EVERY_DAY = ("a pipe that nobody fills", "UTF-16")


@pytest.mark.parametrize("kind", EVERY_DAY)
def test_what_is_no_usable_file_is_one_line(kind, tmp_path):
    refused(kind, ("json",), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_usable_file_is_one_line_whatever_its_ending(kind, tmp_path):
    refused(kind, ENDINGS, tmp_path)


def refused(kind: str, endings: tuple[str, ...], tmp_path: Path) -> None:
    for ending in endings:
        path = tmp_path / f"x.{ending}"
        KINDS[kind](path)
        for words in COMMANDS:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main([word.format(path) for word in words])
            assert status == 2, (words, ending)
            one_sentence(err.getvalue().removesuffix("\n"))
            assert SAID.get(kind, "") in err.getvalue(), (words, ending)
            for phrase in ("codec", "set_int_max_str_digits", "char 0", "unicode"):
                assert phrase not in err.getvalue(), (words, ending)


def test_names_that_no_file_has():
    for name in ("a\0b.json", "x" * 5000 + ".json", "\ud800.json"):
        for words in COMMANDS[:2]:
            err = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
                assert main([word.format(name) for word in words]) == 2
            one_sentence(err.getvalue().removesuffix("\n"))


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"name": "mine"}\r\n')
    assert presets.read(path)[0].name == "mine"
    assert export.read(path.read_bytes(), path.name).scenario.name == "mine"


def test_a_key_that_is_given_twice_is_refused():
    with pytest.raises(InputError, match="'request_rate' is given twice"):
        presets.from_text('{"workload": {"request_rate": 1, "request_rate": 2}}')


def test_memory_that_runs_out_is_one_line(monkeypatch, capsys):
    def hungry(*_):
        raise MemoryError

    monkeypatch.setattr("planner.command.catalogue.show_gpus", hungry)
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err == "this needs more memory than there is; ask for less, or on a larger machine\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("{", "line 1"),
        ("[NaN]", "NaN is no number"),
        ("[" * 9999, "too deep"),
        ("9" * 500, "500 digits"),
        (b"\xff", "UTF-8"),
    ],
)
def test_json_is_refused_in_words(text, said):
    with pytest.raises(ValueError, match=said):
        files.from_json(text, numbers_only=True)
    if isinstance(text, str):
        with pytest.raises(ValueError, match="it is not a list in JSON"):
            parse_json(text, "a list")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(("9.5", '"9,5"'), "tpot_mean_ms.* '9,5'|figure '9,5'"), (("source", "model"), "the column model twice"), ((",", ";"), "columns")],
)
def test_careless_tables_of_measured_rows_say_what_to_do(wrong, said):
    table = (
        "id,source,engine,model,gpu,n_gpu,load_kind,load_value,isl_mean,osl_mean,tpot_mean_ms\n"
        "a,here,vllm,meta-llama/Llama-3.1-8B,H100,1,concurrency,16,1024,128,9.5\n"
    ).replace(*wrong)
    for read in (lambda text: validate_rows.table(io.StringIO(text), "mine.csv"), lambda text: measured_rows.from_csv(text, "mine.csv")):
        with pytest.raises(InputError, match=said) as refused:
            read(table)
        one_sentence(str(refused.value))
        assert "could not convert" not in str(refused.value)


@pytest.mark.parametrize(("change", "said"), [("=5", "has no field"), ("fleet.replicas", "has no value")])
def test_a_change_without_field_or_value_says_how_to_write_one(change, said, capsys):
    assert main(["plan", "chat-70b-2xh100", "--set", change]) == 2
    err = capsys.readouterr().err
    assert said in err
    one_sentence(err.removesuffix("\n"))


@pytest.mark.parametrize("wrong", ["\ud800", 1e308, 1e-300])
def test_a_plan_of_impossible_figures_is_read_for_its_scenario_alone(wrong):
    saved = json.loads((Path(__file__).parent / "data" / "documents" / "schema-1.json").read_text())
    assert export.read(json.dumps(saved).encode(), "plan.json").plan
    saved["latency"]["e2e_s"]["p95"] = wrong
    found = export.read(json.dumps(saved).encode(), "plan.json")
    assert found.plan is None
    assert "only its scenario is restored" in found.notes[-1]


@pytest.mark.parametrize(
    "damage", [{"acceptance": 1e300}, {"acceptance": [5]}, {"latency": 7}, {"latency": {"ttft_s": "x"}}, {"throughput": []}]
)
def test_a_damaged_plan_is_checked_against_in_words(damage):
    saved = json.loads((Path(__file__).parent / "data" / "documents" / "schema-1.json").read_text())
    with pytest.raises(InputError) as refused:
        check(saved | damage, [measured_rows.row(id="a", load_kind="rate", load_value=4.0, tpot_mean_ms=9.5)])
    one_sentence(str(refused.value))
