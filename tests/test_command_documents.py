"""diff, fleet and launch on the command line, and documents as scenarios."""

import json
from pathlib import Path

import pytest

from planner.command import main
from planner.scenario import Scenario

KEPT = Path(__file__).parent / "data" / "documents"


def told(capsys, *arguments):
    status = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("kind", ["html", "md", "xlsx", "zip", "json"])
def test_diff_reads_documents_of_every_format(capsys, kind):
    status, out, _ = told(capsys, "diff", KEPT / "schema-1.json", KEPT / f"schema-1.{kind}")
    assert (status, out.strip()) == (0, "Nothing changed.")


def test_diff_names_what_changed(capsys, tmp_path):
    plan = json.loads((KEPT / "schema-1.json").read_text("utf-8"))
    plan["cost"]["usd_per_month"] *= 2
    plan["scenario"]["price"]["usd_per_gpu_hour"] = 5.0
    (tmp_path / "later.json").write_text(json.dumps(plan), "utf-8")
    status, out, _ = told(capsys, "diff", KEPT / "schema-1.html", tmp_path / "later.json", "--json")
    found = json.loads(out)
    assert status == 0
    assert "(+100%)" in found["sentence"]
    assert found["inputs"][0]["name"] == "price.usd_per_gpu_hour"


def test_fleet_adds_plans_up(capsys, tmp_path):
    status, out, _ = told(capsys, "fleet", KEPT / "schema-1.json", KEPT / "schema-1.md", "--title", "Both")
    assert status == 0
    assert out.startswith("# Both")
    target = tmp_path / "both.xlsx"
    assert told(capsys, "fleet", KEPT / "schema-1.json", KEPT / "schema-1.html", "--out", target)[0] == 0
    assert target.read_bytes().startswith(b"PK")


def test_launch_prints_commands_manifest_and_tests(capsys):
    quick = ("--set", "workload.num_prompts=20", "--set", "workload.output_len=10")
    status, out, _ = told(capsys, "launch", "chat-70b-2xh100", "--engine", "sglang", *quick)
    assert status == 0
    assert out.startswith("python -m sglang.launch_server")
    assert 'kind: "HorizontalPodAutoscaler"' in told(capsys, "launch", "chat-70b-2xh100", "--kubernetes", *quick)[1]
    tests = json.loads(told(capsys, "launch", "chat-70b-2xh100", "--test", "--json", *quick)[1])
    assert [t["client"] for t in tests] == ["vllm bench serve", "guidellm", "aiperf"]


def test_what_does_not_fit_is_not_launched(capsys):
    status, out, err = told(
        capsys, "launch", "chat-70b-2xh100", "--set", "parallel.tensor_parallel_size=1", "--set", "precision.weights=bf16"
    )
    assert (status, out) == (2, "")
    assert "does not fit" in err
    assert len(err.strip().splitlines()) == 1


def test_a_document_is_a_scenario_anywhere(capsys):
    from planner.command import inputs

    for kind in ("html", "md", "xlsx", "zip"):
        found = inputs.scenario(str(KEPT / f"schema-1.{kind}"))
        assert isinstance(found, Scenario)
        assert found.name == "Chat for support staff"


@pytest.mark.parametrize("name", ["missing.html", "missing.json"])
def test_a_missing_file_is_one_line(capsys, name):
    status, _, err = told(capsys, "diff", name, KEPT / "schema-1.json")
    assert status == 2
    assert len(err.strip().splitlines()) == 1
