"""The command line: exit statuses, one line for wrong input, the same numbers in every form."""

import io
import json
import sys
from pathlib import Path

import pytest

from planner.command import inputs, main, parser

QUICK = ["--quick", "--set", "workload.num_prompts=60"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "no-such-preset"],
        ["plan", "no-such-file.json"],
        ["plan", "chat-70b-2xh100", "--set", "engine.max_num_seqs"],
        ["plan", "chat-70b-2xh100", "--set", "engine.max_num_seq=3"],
        ["plan", "chat-70b-2xh100", "--set", "hardware.gpu=h1000"],
        ["plan", "chat-70b-2xh100", "--set", "model.name=lama"],
        ["plan", "../presets/x"],
        ["plan"],
        ["nothing"],
        ["compare", "chat-70b-2xh100"],
        ["plan", "chat-70b-2xh100", "--what"],
    ],
)
def test_wrong_input_is_status_2_and_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, err = run(capsys, *words)
    assert status == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "text", ['{"model": {"nam": "x"}}', "not json", "[]", '{"workload": {"request_rate": NaN}}', "", '{"a":' * 5000, "\x00"]
)
def test_bad_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    status, _, err = run(capsys, "plan", "-", "--json")
    assert status == 2
    assert len(err.strip().splitlines()) == 1


def test_a_scenario_comes_from_a_name_a_file_a_plan_a_link_or_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, by_name, _ = run(capsys, "plan", "chat-70b-2xh100", "--json", *QUICK)
    scenario = json.loads(by_name)["scenario"]
    as_file, as_plan = tmp_path / "scenario.json", tmp_path / "plan.json"
    as_file.write_text(json.dumps(scenario))
    as_plan.write_text(by_name)
    assert run(capsys, "plan", str(as_file), "--json", "--quick")[1] == by_name
    assert run(capsys, "plan", str(as_plan), "--json", "--quick")[1] == by_name
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(scenario)))
    assert run(capsys, "plan", "-", "--json", "--quick")[1] == by_name
    _, by_link, notes = run(capsys, "plan", "http://host/?preset=chat-70b-2xh100&workload.num_prompts=60", "--json", "--quick")
    assert by_link == by_name
    assert notes == ""


def test_the_terminal_answer_names_the_verdict_and_the_price(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "plan", "chat-70b-2xh100", *QUICK)
    for word in ("Fits", "TTFT p95", "per million output tokens", "per month"):
        assert word in out
    _, out, _ = run(capsys, "plan", "chat-70b-2xh100", *QUICK, "--set", "parallel.tensor_parallel_size=1")
    assert "does not fit" in out
    assert "per million" not in out


def test_compare_gives_ratios_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "compare", "beacon-405b-8xh100-fp8", "beacon-405b-8xh100-int4", *QUICK)
    assert status == 0
    step = next(line for line in out.splitlines() if line.startswith("decode step"))
    assert "×0.50" in step
    batch = next(line for line in out.splitlines() if line.startswith("decode step, each at its own batch"))
    assert " at 64 (×0.50)" in batch


@pytest.mark.parametrize("words", [["presets"], ["gpus", "h100"], ["models", "llama"], ["prices", "h200"]])
def test_listings_print_tables_and_json(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status, out, _ = run(capsys, *words)
    assert status == 0
    assert out.strip()
    assert json.loads(run(capsys, *words, "--json")[1])


def test_the_commands_of_the_readme_name_what_there_is() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    commands = [
        line.removeprefix("python -m planner ").split(" #")[0].split()
        for line in readme.splitlines()
        if line.startswith("python -m planner ")
    ]
    assert len(commands) > 5
    for words in commands:
        arguments = parser().parse_args(words)
        given = getattr(arguments, "scenario", None) or []
        for name in [given] if isinstance(given, str) else given:
            inputs.scenario(name, arguments.set)


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    assert "recommend" in out


def test_every_listed_field_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "fields", "--json")
    rows = json.loads(out)
    assert status == 0
    assert {"slo.ttft_s", "model.name", "workload.input_len", "speculative"} <= {row["field"] for row in rows}
    for row in rows:
        if not row["field"].startswith(("disaggregation.", "workload.input_len.", "workload.output_len.", "workload.trace.")):
            inputs.scenario("chat-70b-2xh100", [f"{row['field']}={row['default']}"])


@pytest.mark.parametrize("change", ["model=llama-3.1-405b", "model.slug=llama-3.1-405b"])
def test_a_section_that_is_not_a_field_names_its_fields(capsys: pytest.CaptureFixture[str], change: str) -> None:
    status, _, err = run(capsys, "plan", "chat-70b-2xh100", "--set", change)
    assert status == 2
    assert "total_params" in err


def test_a_misspelt_scenario_is_told_before_the_others_are_planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    monkeypatch.setattr(sys.modules["planner.plan"], "plan", lambda scenario, **_: planned.append(scenario))
    status, _, err = run(capsys, "compare", "chat-70b-2xh100", "no-such-preset")
    assert (status, planned) == (2, [])
    assert "no-such-preset" in err


def test_a_yes_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "compare", "chat-70b-2xh100", "chat-70b-2xh100", *QUICK)
    (fits,) = [line for line in out.splitlines() if line.startswith("fits")]
    assert fits.split() == ["fits", "yes", "yes"]
