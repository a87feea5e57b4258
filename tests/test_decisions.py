"""The deciding commands, in process: what they print, JSON everywhere, one line for wrong input."""

import json
from pathlib import Path

import pytest

from planner.command import main

SETTINGS = {
    "workload.num_prompts": 60,
    "workload.input_len": 600,
    "workload.output_len": 40,
    "workload.request_rate": 4,
    "simulation.mode": "benchmark",
    "price.usd_per_gpu_hour": 2.5,
}
SMALL = [part for path, value in SETTINGS.items() for part in ("--set", f"{path}={value}")]
PRESET = "chat-70b-2xh100"


def run(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_sweep_as_table_and_json(capsys: pytest.CaptureFixture) -> None:
    arguments = ["sweep", PRESET, *SMALL, "--axis", "workload.request_rate=1,4"]
    assert "workload.request_rate" in run(capsys, *arguments).splitlines()[0]
    rows = json.loads(run(capsys, *arguments, "--json"))["rows"]
    assert [row["workload.request_rate"] for row in rows] == [1, 4]


@pytest.mark.slow
def test_recommend_ranks_and_explains(capsys: pytest.CaptureFixture) -> None:
    arguments = ["recommend", PRESET, *SMALL, "--gpus", "h100-sxm", "--tensor-parallel", "1,2", "--no-speculation", "--no-split"]
    printed = run(capsys, *arguments, "--exclusions")
    assert "h100-sxm TP2, fp8 weights" in printed
    assert "does not fit: short" in printed
    answer = json.loads(run(capsys, *arguments, "--price", "h100-sxm=1.25", "--json"))
    best = answer["options"][0]
    assert best["usd_per_month"] == pytest.approx(1.25 * 730 * best["gpus"])
    assert best["scenario"]["parallel"]["tensor_parallel_size"] == 2


def test_frontier_and_its_cheapest_point(capsys: pytest.CaptureFixture) -> None:
    points = json.loads(run(capsys, "frontier", PRESET, *SMALL, "--json"))
    assert any(p["on_frontier"] for p in points)
    (one,) = json.loads(run(capsys, "frontier", PRESET, *SMALL, "--at", "20", "--json"))
    assert one["tokens_per_s_per_user"] >= 20
    assert main(["frontier", PRESET, *SMALL, "--at", "1e6"]) == 2


@pytest.mark.slow
def test_breakeven_week_seats_sensitivity(capsys: pytest.CaptureFixture) -> None:
    api = ["--set", 'price.compare_to=[{"label": "api", "input": 0.55, "output": 2.19}]']
    answer = json.loads(run(capsys, "breakeven", PRESET, *SMALL, *api, "--peak-to-mean", "3", "--region", "france", "--json"))
    assert answer["break_even"][0]["label"] == "api"
    assert answer["power"]["grid"]["region"] == "france"
    assert answer["waterfall"][0]["name"] == "floor"
    cells = answer["heat_map"]["usd_per_mtok"]
    assert cells[0][0] == pytest.approx(cells[-1][0] * 10)
    assert cells[0][2] == pytest.approx(cells[0][0] * 2)
    assert "api" in run(capsys, "breakeven", PRESET, *SMALL, *api)
    week = json.loads(
        run(capsys, "week", PRESET, *SMALL, *api, "--set", "fleet.demand_curve=azure-2024-code", "--overflow", "api", "--json")
    )
    assert week["peak_to_mean"] == pytest.approx(3.5, abs=0.1)
    assert len(week["autoscaled"]["replicas_by_hour"]) == 168
    assert "cheapest payment" in run(capsys, "week", PRESET, *SMALL, *api)
    assert main(["week", PRESET, *SMALL, *api, "--overflow", "nobody"]) == 2
    capsys.readouterr()
    assert "tenants" in run(capsys, "seats", PRESET, *SMALL, "--requests-per-minute", "6")
    moved = json.loads(run(capsys, "sensitivity", PRESET, *SMALL, *api, "--no-flips", "--json"))
    assert {bar["name"] for bar in moved["tornado"]} >= {"GPU price", "volume", "list price"}


@pytest.mark.slow
def test_batch_job_and_levers(capsys: pytest.CaptureFixture) -> None:
    loop = [*SMALL, "--set", "workload.max_concurrency=64", "--set", "workload.request_rate=null"]
    night = json.loads(run(capsys, "batch", PRESET, *loop, "--documents", "1e6", "--hours", "8", "--json"))
    assert night["finish"]["on_time"]
    assert night["job"]["input_tokens_per_s"] == pytest.approx(1e6 * 600 / 28_800)
    assert min(night["api_usd"].values()) > 0
    assert main(["batch", PRESET, *SMALL, "--documents", "1e6", "--hours", "8"]) == 2
    assert main(["batch", PRESET, *loop, "--documents", "0", "--hours", "8"]) == 2
    capsys.readouterr()
    rows = json.loads(run(capsys, "levers", PRESET, *SMALL, "--json"))
    assert rows[0]["levers"] == []
    assert {row["levers"][0] for row in rows[1:]} >= {"fp8 KV", "int4 weights", "prefix cache off"}


@pytest.mark.slow
def test_week_from_a_file(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text("\n".join(["1"] * 84 + ["3"] * 84))
    week = json.loads(run(capsys, "week", PRESET, *SMALL, "--curve", str(file), "--json"))
    assert week["peak_to_mean"] == pytest.approx(1.5, abs=0.01)


def test_blend_depends_on_the_shape_of_traffic(capsys: pytest.CaptureFixture) -> None:
    api = ["--set", 'price.compare_to=[{"label": "api", "input": 0.55, "cached_input": 0.14, "output": 2.19}]']
    answer = json.loads(run(capsys, "breakeven", PRESET, *SMALL, *api, "--hit-rate", "0.563", "--json"))
    shapes = {slug: blends["api"] for slug, blends in answer["blend_by_shape"].items()}
    assert shapes["code-completion"] == pytest.approx(0.57, abs=0.01)
    assert shapes["chat"] == pytest.approx(0.80, abs=0.01)
    assert shapes["reasoning"] == pytest.approx(1.39, abs=0.03)
    cached = answer["break_even"][0]["usd_per_request"]
    assert cached == pytest.approx((600 * (0.437 * 0.55 + 0.563 * 0.14) + 40 * 2.19) / 1e6)


def test_claim_without_a_scenario(capsys: pytest.CaptureFixture) -> None:
    arguments = [
        "claim",
        "--model",
        "llama-3.3-70b",
        "--gpu",
        "h100-sxm",
        "--weights",
        "fp8",
        "--usd-per-mtok",
        "6.54",
        "--usd-per-gpu-hour",
        "2",
    ]
    assert "imply a batch of 1.8" in run(capsys, *arguments)
    assert json.loads(run(capsys, *arguments, "--json"))["fits"] is False


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", PRESET, "--axis", "nothing"],
        ["sweep", PRESET, "--axis", "workload.request_rat=1,2"],
        ["recommend", PRESET, "--price", "h100-sxm"],
        ["claim", "--model", "llama-3.3-70b"],
        ["seats", PRESET],
        ["breakeven", PRESET, *SMALL, "--region", "atlantis"],
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
