"""Measured rows over a plan: what agrees, which part is off, one factor, and the acceptance test."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from planner import plan
from planner.command.measuring import add_commands
from planner.measure.bands import band
from planner.measure.check import check, load_points
from planner.measure.compare import compare
from planner.measure.deployment import as_measured, conflicts, filled
from planner.measure.predict import by_length, predicted, scenario_at
from planner.measure.report import comparison_lines
from planner.measure.rows import Row, from_csv, row
from planner.problems import InputError
from planner.scenario import Calibration, Scenario, Speculative, mean_length

SCENARIO = Scenario()
PREFILL_S, API_S, STEP_S = 1e-4, 0.05, 0.02
"""Of the little model below: per prompt token, constant, per output token."""


def figures(mean: float) -> dict[str, float]:
    return {"mean": mean, "p50": mean, "p95": 1.2 * mean, "p99": 1.4 * mean}


def little_plan(found: Row) -> dict:
    """A plan with known parts: TTFT = API + prefill + queue, the queue growing with the clients."""
    clients = found["load_value"] or 1.0
    ttft_s = API_S + PREFILL_S * found["isl_mean"] + 0.1 * (clients - 1)
    e2e_s = ttft_s + STEP_S * (found["osl_mean"] - 1)
    latency = {"ttft_s": figures(ttft_s), "tpot_s": figures(STEP_S), "e2e_s": figures(e2e_s), "queue_s": figures(0.1 * (clients - 1))}
    bands = {"tpot": [0.9 * STEP_S, 1.1 * STEP_S], "ttft": [0.85, 1.15], "throughput": [0.9, 1.1]}
    return {"latency": latency, "throughput": {"output_tokens_per_s": clients / STEP_S}, "confidence": {"bands": bands}}


def measured(prefill: float = 1.0, api_s: float = 0.0, queue: float = 1.0, decode: float = 1.0) -> list[Row]:
    """Rows that obey the little model but for the factors given."""
    rows = []
    for length, clients in ((50, 1), (500, 1), (5000, 1), (500, 8)):
        ttft_s = API_S + api_s + prefill * PREFILL_S * length + queue * 0.1 * (clients - 1)
        each_s = decode * STEP_S
        times = {"ttft_mean_ms": 1e3 * ttft_s, "tpot_mean_ms": 1e3 * each_s, "e2e_mean_ms": 1e3 * (ttft_s + 127 * each_s)}
        rows.append(
            row(
                id=f"in{length}c{clients}",
                source="test",
                isl_mean=length,
                osl_mean=128,
                load_kind="concurrency",
                load_value=clients,
                **times,
            )
        )
    return rows


def verdicts(rows: list[Row]) -> dict[str, str]:
    return {c.name: c.verdict for c in compare(rows, SCENARIO, little_plan).components}


def test_a_system_that_does_as_planned() -> None:
    found = compare(measured(), SCENARIO, little_plan)
    assert {c.name: c.verdict for c in found.components} == {"queue": "agrees", "prefill": "agrees", "api": "agrees", "decode": "agrees"}
    assert all(c.agrees for c in found.comparisons)
    assert [c.error for c in found.comparisons] == pytest.approx([0.0] * len(found.comparisons), abs=1e-9)
    assert found.calibration.factor == 1
    assert found.sentence == "12 of 12 measured figures lie in the plan's bands."


@pytest.mark.parametrize(
    ("factors", "part", "ratio"),
    [({"decode": 1.3}, "decode", 1.3), ({"prefill": 2.0}, "prefill", 2.0), ({"queue": 3.0}, "queue", 3.0), ({"api_s": 0.4}, "api", 9.0)],
)
def test_the_part_that_is_off_is_named(factors: dict, part: str, ratio: float) -> None:
    found = compare(measured(**factors), SCENARIO, little_plan)
    off = {c.name: c for c in found.components if c.verdict != "agrees"}
    assert set(off) == {part}
    assert off[part].verdict == "slower"
    assert off[part].ratio == pytest.approx(ratio, rel=0.02)
    assert f"slower than planned by a factor of {ratio:.2f}" in found.sentence


def test_a_part_that_the_plan_holds_for_nothing_is_told_in_milliseconds() -> None:
    def no_api(found: Row) -> dict:
        says = little_plan(found)
        says["latency"]["ttft_s"] = figures(says["latency"]["ttft_s"]["mean"] - API_S)
        return says

    found = compare(measured()[:3], SCENARIO, no_api)
    assert "the API's constant time is slower than planned by 50 ms" in found.sentence


def test_faster_is_off_as_well() -> None:
    assert verdicts(measured(decode=0.5))["decode"] == "faster"


def test_what_rows_cannot_tell_is_said() -> None:
    found = compare(measured()[1:2], SCENARIO, little_plan)
    parts = {c.name: c for c in found.components}
    assert {n: c.verdict for n, c in parts.items()} == {
        "queue": "not measured",
        "prefill": "not measured",
        "api": "not measured",
        "decode": "agrees",
    }
    assert "two lengths" in parts["prefill"].how
    assert "alone (concurrency 1) and under load" in parts["queue"].how


def test_one_factor_is_the_mean_of_ratios_and_builds_on_the_last_one() -> None:
    rows = measured(decode=1.2)
    assert compare(rows, SCENARIO, little_plan).calibration == Calibration(
        engine="vllm", gpu="h100-sxm", factor=1.2, n_points=4, source="test"
    )
    before = SCENARIO.model_copy(update={"calibration": Calibration(factor=0.5)})
    assert compare(rows, before, little_plan).calibration.factor == 0.6
    without = [r | {"tpot_mean_ms": None} for r in rows]
    assert compare(without, SCENARIO, little_plan).calibration is None


def test_rows_that_say_too_little_are_left_out_with_a_reason() -> None:
    partly = [*measured(), row(id="no lengths", ttft_mean_ms=5.0), row(id="no load", ttft_mean_ms=5.0, isl_mean=10, osl_mean=10)]
    found = compare(partly[-3:], SCENARIO)
    assert [name for name, _ in found.skipped] == ["no lengths", "no load"]
    assert "fill isl_mean and osl_mean" in found.skipped[0][1]
    with pytest.raises(InputError, match="no measured row could be compared: row 'no load' has no load"):
        compare(partly[-1:], SCENARIO)


def test_the_real_planner_calibrates_onto_its_own_slower_self() -> None:
    """Rows made by the planner with every step 1.25 times as long: the factor offered brings the plan onto them."""
    slow = SCENARIO.model_copy(update={"calibration": Calibration(factor=1.25)})
    rows = []
    for length, clients in ((50, 1), (2000, 1), (2000, 16)):
        aim = row(isl_mean=length, osl_mean=100, load_kind="concurrency", load_value=clients, n_requests=40)
        says = predicted(slow, aim)["latency"]
        rows.append(
            aim | {"id": f"{length}x{clients}", "ttft_mean_ms": 1e3 * says["ttft_s"]["mean"], "tpot_mean_ms": 1e3 * says["tpot_s"]["mean"]}
        )
    found = compare(rows, SCENARIO)
    assert found.calibration.factor == pytest.approx(1.25, rel=0.02)
    calibrated = SCENARIO.model_copy(update={"calibration": found.calibration})
    again = compare(rows, calibrated)
    assert max(abs(c.error) for c in again.comparisons if c.metric == "tpot") < 0.02
    assert next(c for c in again.components if c.name == "decode").verdict == "agrees"


def test_a_row_s_load_replaces_the_scenario_s() -> None:
    found = scenario_at(
        SCENARIO, row(isl_mean=100, osl_mean=20, load_kind="rate", load_value=3.0, cached_input_tokens=40, length_half_width=0.1)
    )
    workload = found.workload
    assert (workload.request_rate, workload.max_concurrency, workload.shared_prefix_len) == (3, None, 40)
    assert (mean_length(workload.input_len), mean_length(workload.output_len)) == (100, 20)
    assert found.simulation.mode == "planning", "a row of cache hits leaves out the miss that filled the cache"
    assert scenario_at(SCENARIO, row(isl_mean=100, osl_mean=20, load_kind="rate", load_value=3.0)).simulation.mode == "benchmark"
    assert scenario_at(SCENARIO, row(isl_mean=100, osl_mean=20, load_kind="offline")).workload.max_concurrency == 2000
    assert found.model_copy(update={"workload": SCENARIO.workload, "simulation": SCENARIO.simulation}) == SCENARIO


def test_predictions_by_prompt_length_for_the_plot() -> None:
    points = by_length(SCENARIO, [50, 5000], 100.0)
    assert [p["prompt_tokens"] for p in points] == [50, 5000]
    assert points[0]["ttft_s"] < points[1]["ttft_s"]
    assert all(p["ttft_low_s"] <= p["ttft_s"] <= p["ttft_high_s"] for p in points)


def test_bands_in_every_form() -> None:
    latency = {"latency": {"tpot_s": {"mean": 0.02, "p95": 0.03}, "ttft_s": {"mean": 0.5}}}
    stated = latency | {"confidence": {"bands": {"tpot": [0.015, 0.025]}}}
    assert (band(stated, "tpot").low, band(stated, "tpot").high) == pytest.approx((0.015, 0.025))
    assert band(stated, "tpot", "p95").high == pytest.approx(0.03 * 1.25)
    around_p95 = latency | {"confidence": {"bands": {"tpot": [0.027, 0.033]}}}
    assert band(around_p95, "tpot").high == pytest.approx(0.022)
    factors = latency | {"confidence": {"bands": {"ttft": [0.8, 1.3]}}}
    assert (band(factors, "ttft").low, band(factors, "ttft").high) == pytest.approx((0.4, 0.65))
    for nothing in (latency, latency | {"confidence": {"bands": None}}, latency | {"confidence": {"bands": {"tpot": ["a", 1]}}}):
        assert not band(nothing, "tpot").stated
        assert band(nothing, "tpot").high == pytest.approx(0.024)
    with pytest.raises(InputError, match="no throughput mean"):
        band(latency, "throughput")


# The acceptance test


def promised(**changes: object) -> dict:
    """A plan's JSON at its own load: 4 requests/s, 1,024 in, 256 out."""
    found = little_plan({"isl_mean": 1024.0, "osl_mean": 256.0, "load_value": 4.0})
    return found | {"scenario": SCENARIO.model_dump(mode="json")} | changes


def result(factor: float = 1.0, **changes: object) -> Row:
    says = promised()
    times = {f"{n}_{s}_ms": 1e3 * factor * says["latency"][f"{n}_s"][s] for n in ("ttft", "tpot", "e2e") for s in ("mean", "p95")}
    base = {"id": "r", "isl_mean": 1024, "osl_mean": 256, "load_kind": "rate", "load_value": 4.0, "out_tok_s_total": 200 / factor}
    return row(**(base | times | changes))


def test_a_result_inside_every_band_passes() -> None:
    found = check(promised(), [result()])
    assert found.passed
    assert {v.status for v in found.verdicts} == {"pass"}
    assert [(v.metric, v.statistic) for v in found.verdicts] == [
        ("ttft", "mean"),
        ("ttft", "p95"),
        ("tpot", "mean"),
        ("tpot", "p95"),
        ("e2e", "mean"),
        ("e2e", "p95"),
        ("throughput", "mean"),
    ]
    assert found.sentence == "7 of 7 measured bands passed."


def test_a_slower_result_fails_each_band_it_leaves() -> None:
    found = check(promised(), [result(1.12)])
    assert not found.passed
    assert {(v.metric, v.status) for v in found.verdicts} == {("ttft", "pass"), ("tpot", "fail"), ("e2e", "fail"), ("throughput", "fail")}
    assert found.sentence.startswith("2 of 7 measured bands passed: tpot mean failed")


def test_a_better_result_passes_with_a_note() -> None:
    found = check(promised(), [result(0.5)])
    assert found.passed
    assert {v.note for v in found.verdicts} == {"better than the band"}


def test_what_was_not_measured_is_neither_pass_nor_fail() -> None:
    found = check(promised(), [result(ttft_p95_ms=None, tpot_p95_ms=None, e2e_p95_ms=None)])
    assert found.passed
    assert found.sentence == "4 of 4 measured bands passed; 3 bands were not measured."
    nothing = check(promised(), [row(id="r", load_kind="rate", load_value=4.0, req_s=4.0)])
    assert not nothing.passed


def test_failed_requests_fail_the_test() -> None:
    found = check(promised(), [result(n_failed=3)])
    assert not found.passed
    assert found.verdicts[-1].metric == "failed requests"


def test_results_at_another_load_are_refused_with_both_loads() -> None:
    with pytest.raises(
        InputError, match=r"no result was measured at a load of the plan \(rate 4 with 1,024 in and 256 out\); the results are at rate 9"
    ):
        check(promised(), [result(load_value=9.0)])
    with pytest.raises(InputError, match="at rate 4 with 4,096 in"):
        check(promised(), [result(isl_mean=4096)])


def test_load_points_of_an_acceptance_part() -> None:
    points = [
        {"name": "half", "request_rate": 2.0, "bands": {"ttft_s": [0.1, 0.3], "tpot_p95_s": {"low": 0.01, "high": 0.03}}},
        {"name": "peak", "max_concurrency": 16, "input_len": 500, "bands": {"output_tokens_per_s throughput": [100, 200]}},
    ]
    found = list(load_points(promised(acceptance=points)))
    assert [(p.name, p.load_kind, p.load_value, p.input_len) for p in found] == [
        ("half", "rate", 2, 1024),
        ("peak", "concurrency", 16, 500),
    ]
    assert found[0].bands == (("ttft", "mean", 0.1, 0.3), ("tpot", "p95", 0.01, 0.03))
    checked = check(promised(acceptance={"version": 1, "points": points}), [result(load_value=2.0)])
    assert [v.status for v in checked.verdicts] == ["fail", "pass", "not measured"]


@pytest.mark.parametrize(
    ("plan_json", "told"),
    [
        ({}, "has no scenario"),
        (promised(acceptance=[{"bands": {}}]), "acceptance point 1 has no load"),
        (promised(acceptance=[{"request_rate": 1.0, "bands": {"ttft": "x"}}]), "acceptance point 1, band 'ttft', is 'x'"),
        (promised(acceptance=[3]), "acceptance point 1 has no bands"),
        ({"scenario": SCENARIO.model_dump(mode="json"), "latency": {}}, "nothing to check"),
    ],
)
def test_plans_without_promises_are_one_sentence(plan_json: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        check(plan_json, [result()])


def command(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    arguments = parser.parse_args([str(word) for word in words])
    return arguments.run(arguments)


def test_check_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(promised()))
    (tmp_path / "good.json").write_text(json.dumps({"rows": [result()]}))
    (tmp_path / "slow.json").write_text(json.dumps({"rows": [result(1.5)]}))
    assert command("check", tmp_path / "plan.json", tmp_path / "good.json") == 0
    assert "7 of 7 measured bands passed." in capsys.readouterr().out
    assert command("check", tmp_path / "plan.json", tmp_path / "slow.json", "--json") == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_import_and_calibrate_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A vLLM result of one client, laid over a scenario: the written scenario carries the factor."""
    vllm = {
        "backend": "vllm",
        "completed": 10,
        "duration": 20.0,
        "total_input_tokens": 5000,
        "total_output_tokens": 1000,
        "request_rate": "inf",
    }
    vllm |= {"max_concurrency": 1, "mean_ttft_ms": 30.0, "mean_tpot_ms": 12.0, "model_id": "meta-llama/Llama-3.1-8B-Instruct"}
    (tmp_path / "result.json").write_text(json.dumps(vllm))
    (tmp_path / "scenario.json").write_text(json.dumps(SCENARIO.model_dump(mode="json")))
    out, rows_csv = tmp_path / "calibrated.json", tmp_path / "rows.csv"
    words = ("import", tmp_path / "result.json", "--plan", tmp_path / "scenario.json", "--calibrate", out, "--out", rows_csv)
    assert command(*words) == 0
    printed = capsys.readouterr().out
    assert "One factor on step time" in printed
    calibrated = Scenario.model_validate_json(out.read_text())
    says = plan(
        calibrated.model_copy(update={"workload": scenario_at(SCENARIO, from_csv(rows_csv.read_text())[0]).workload}), effort="quick"
    )
    assert says.to_dict()["latency"]["tpot_s"]["mean"] == pytest.approx(0.012, rel=0.02)
    (found,) = from_csv(rows_csv.read_text())
    assert (found["gpu"], found["tp"], found["engine"]) == ("h100-sxm", 1, "vLLM")


def test_metrics_text_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parent / "data" / "prometheus" / "vllm.txt"
    assert command("import", page) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["workload"] == {"input_len": 512, "output_len": 256, "shared_prefix_len": pytest.approx(512 * 2480 / 339968)}
    with pytest.raises(InputError, match="import it alone"):
        command("import", page, page)
    with pytest.raises(InputError, match="--calibrate needs --plan"):
        command("import", Path(__file__).parent / "data" / "benchmarks" / "guidellm.json", "--calibrate", tmp_path / "x.json")


def of(**stated: object) -> Row:
    """One client alone, 500 in and 128 out, of a server that states these columns."""
    times = {"ttft_mean_ms": 100.0, "tpot_mean_ms": 20.0}
    return row(
        **({"id": "r", "source": "test", "isl_mean": 500, "osl_mean": 128, "load_kind": "concurrency", "load_value": 1} | times | stated)
    )


PLAN_70B = Scenario.model_validate(
    {"model": {"name": "llama-3.3-70b"}, "precision": {"weights": "fp8"}, "parallel": {"tensor_parallel_size": 2}, "fleet": {"replicas": 3}}
)


@pytest.mark.parametrize(
    ("stated", "changed"),
    [
        (
            {"model": "meta-llama/Llama-3.1-8B-Instruct", "tp": 1},
            {"model.name": "llama-3.1-8b", "parallel.tensor_parallel_size": 1, "precision.weights": "auto"},
        ),
        ({"tp": 4, "pp": 2}, {"parallel.tensor_parallel_size": 4, "parallel.pipeline_parallel_size": 2}),
        ({"weight_precision": "bf16"}, {"precision.weights": "bf16"}),
        ({"kv_precision": "fp8"}, {"precision.kv_cache": "fp8"}),
        ({"n_gpu": 2}, {"fleet.replicas": 1}),
        # Nothing to change: the same model by another name, another release of the same shape, what the plan says itself.
        ({"model": "nvidia/Llama-3.3-70B-Instruct-FP8", "tp": 2, "weight_precision": "FP8", "gpu": "NVIDIA H100 80GB HBM3"}, {}),
        ({"model": "meta-llama/Llama-3.1-70B-Instruct", "engine": "vLLM", "kv_precision": "auto"}, {}),
        ({"model": "chat", "spec_decode": "none (not stated)", "n_gpu": 6}, {}),
    ],
)
def test_a_row_is_laid_over_the_deployment_that_it_states(stated: dict, changed: dict) -> None:
    found, told = as_measured(PLAN_70B, of(**stated))
    wanted = PLAN_70B.model_dump(mode="json")
    for path, value in changed.items():
        part, field = path.split(".")
        wanted[part][field] = value
    assert found == Scenario.model_validate(wanted)
    assert bool(told) == bool(changed)
    assert scenario_at(PLAN_70B, of(**stated)).parallel == found.parallel
    assert bool(conflicts(PLAN_70B, of(**stated))) == bool(changed)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"gpu": "A100-SXM4-80GB"}, "is of GPU A100-SXM4-80GB, the plan of h100-sxm"),
        ({"gpu": "no such part"}, "is of GPU no such part"),
        ({"engine": "SGLang"}, "is of engine SGLang, the plan of vllm"),
        ({"engine": "tgi"}, "is of engine tgi"),
        ({"model": "someone/unheard-of-9b-chat"}, "the catalogue does not know"),
        ({"weight_precision": "fp6"}, "has weights in 'fp6'"),
        ({"spec_decode": "unknown-3"}, "measured with speculation .* the plan has none"),
        ({"spec_decode": "eagle3"}, "measured with speculation .eagle3., the plan has none"),
        ({"disagg": "True"}, "is of disaggregated pools"),
        ({"tp": 3}, "cannot be planned|TP3|illegal|heads"),
    ],
)
def test_a_row_of_another_server_is_left_out_with_a_reason(stated: dict, told: str) -> None:
    with pytest.raises(InputError, match=f"no measured row could be compared: .*({told})"):
        compare([of(**stated)], PLAN_70B)


def test_rows_of_another_model_calibrate_against_their_own_plan() -> None:
    """What the 8B server does is predicted for the 8B server: its rows move no factor of a plan of 70B."""
    small = of(model="meta-llama/Llama-3.1-8B-Instruct", tp=1, weight_precision="fp8", n_gpu=1)
    says = predicted(PLAN_70B, small)["latency"]
    exact = small | {"ttft_mean_ms": 1e3 * says["ttft_s"]["mean"], "tpot_mean_ms": 1e3 * says["tpot_s"]["mean"]}
    found = compare([exact], PLAN_70B)
    assert found.calibration.factor == pytest.approx(1.0, abs=0.01)
    assert found.notes == ("row 'r' is of llama-3.1-8b, TP1, 1 replica (the plan: llama-3.3-70b, TP2, 3); it is laid over a plan of that.",)
    assert found.notes[0] in comparison_lines(found.to_dict())


def test_a_speculative_row_brings_its_own_acceptance() -> None:
    plan_of = SCENARIO.model_copy(update={"speculative": Speculative(method="eagle3", num_speculative_tokens=3, acceptance_rate=0.9)})
    measured_at = of(spec_decode="unknown-2", notes="acceptance by position 0.700, 0.500; 1 requests failed")
    assert as_measured(plan_of, measured_at)[0].speculative.acceptance_rates == (0.7, 0.5)
    length = as_measured(plan_of, of(spec_decode="eagle3", notes="acceptance length 2.50"))[0].speculative.acceptance_rates
    assert 1 + sum(length) == pytest.approx(2.5, abs=1e-3)
    assert as_measured(plan_of, of(spec_decode="none"))[0].speculative is None
    assert as_measured(plan_of, of())[0] == plan_of
    with pytest.raises(InputError, match=r"measured with speculation .mtp., the plan has eagle3"):
        as_measured(plan_of, of(spec_decode="mtp-1"))


def test_what_a_plan_knows_fills_only_rows_of_its_own_deployment() -> None:
    own, other = filled([of(), of(model="meta-llama/Llama-3.1-8B-Instruct", tp=1)], {"engine_version": "0.21"}, PLAN_70B)
    assert (own["tp"], own["n_gpu"], own["weight_precision"], own["gpu"]) == (2, 6, "fp8", "h100-sxm")
    assert (other["tp"], other["n_gpu"], other["weight_precision"], other["gpu"]) == (1, None, None, "h100-sxm")
    assert {own["engine_version"], other["engine_version"]} == {"0.21"}
    foreign = of(gpu="b200-sxm")
    assert filled([foreign], {}, PLAN_70B) == [foreign]


def test_the_acceptance_test_takes_no_result_of_another_deployment() -> None:
    with pytest.raises(InputError, match=r"no result is of the plan's own deployment \(and 1 more\): row 'a' is of GPU B200"):
        check(promised(), [result(id="a", gpu="B200"), result(id="b", model="meta-llama/Llama-3.3-70B-Instruct")])
    mixed = check(promised(), [result(id="b", tp=8), result()])
    assert mixed.passed
    assert "1 results are of another deployment: row 'b' is of TP8 (the plan: TP1)" in mixed.sentence
