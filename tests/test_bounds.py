"""Absurd but legal questions get a right answer or a named limit, soon; work and memory are bounded before and while running."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time

import numpy as np
import pytest
from hostile import finite, one_sentence

from planner import bounds, presets, recommend
from planner.command import main
from planner.plan import plan
from planner.plan.steady import MOST_CHUNKS, prefill_alone_s, prefill_steps
from planner.problems import InputError
from planner.scenario import Scenario, parse
from planner.sweep import Axis, axis, sweep

TP8 = {"tensor_parallel_size": 8}
BIG = {"overrides": {"memory_gib": 1e9}}
ABSURD: dict[str, tuple[dict, str]] = {
    "a trillion parameters": ({"model": {"total_params": 10**12}}, "parameters_differ"),
    "a trillion parameters by hand": ({"model": {"total_params": 10**12}, "fidelity": "textbook"}, "does_not_fit"),
    "a hundred trillion parameters": ({"model": {"total_params": 10**14}, "fidelity": "textbook"}, "does_not_fit"),
    "one parameter": ({"model": {"total_params": 1}}, "parameters_differ"),
    "ten million tokens of context": ({"workload": {"input_len": 1e7}, "engine": {"max_model_len": 10**8}}, "does_not_fit"),
    "ten million tokens that fit": (
        {"hardware": BIG, "workload": {"input_len": 1e7, "output_len": 9}, "engine": {"max_model_len": 10**8}},
        "overloaded",
    ),
    "prompts and answers of nothing": ({"workload": {"input_len": 0, "output_len": 0}}, ""),
    "answers of ten million tokens": ({"workload": {"output_len": 1e7}}, ""),
    "prompts over the model's limit": ({"workload": {"input_len": 1e6, "shared_prefix_len": 9e5}, "hardware": BIG}, "requests_failed"),
    "no request ever": ({"workload": {"request_rate": 0}}, "no_traffic"),
    "a million requests a second": ({"workload": {"request_rate": 1e6}}, "overloaded"),
    "10^15 requests a second": ({"workload": {"request_rate": 1e15}}, "overloaded"),
    "a request in three years": ({"workload": {"request_rate": 1e-8}}, ""),
    "free GPUs": ({"price": {"usd_per_gpu_hour": 0}}, ""),
    "GPUs of a quadrillion dollars": ({"price": {"usd_per_gpu_hour": 1e15, "other_usd_per_hour": 1e15}}, ""),
    "100,000 seats": ({"engine": {"max_num_seqs": 100_000}, "workload": {"request_rate": 1e5}}, "overloaded"),
    "one seat": ({"engine": {"max_num_seqs": 1}}, "overloaded"),
    "100,000 replicas": ({"fleet": {"replicas": 100_000}, "workload": {"request_rate": 1e5}}, "fleet_sampled"),
    "100,000 replicas and spares": (
        {"fleet": {"replicas": 100_000, "spares": 100_000, "routing": "longest_prefix"}, "workload": {"request_rate": 1e5}},
        "fleet_sampled",
    ),
    "a byte of memory": ({"hardware": {"overrides": {"memory_gib": 1e-9}}}, "does_not_fit"),
    "10^15 GiB of memory": ({"hardware": {"overrides": {"memory_gib": 1e15}}}, ""),
    "a byte a second": ({"hardware": {"overrides": {"memory_bandwidth_gb_s": 1e-9}}}, "infeasible_slo"),
    "bandwidth without end": ({"hardware": {"overrides": {"memory_bandwidth_gb_s": 1e15}}}, ""),
    "no arithmetic to speak of": ({"hardware": {"overrides": {"bf16_dense_tflops": 1e-12}}}, "infeasible_slo"),
    "no link to speak of": ({"hardware": {"overrides": {"link_gb_s": 1e-12}}, "parallel": TP8}, "infeasible_slo"),
    "a million clients": ({"workload": {"request_rate": None, "max_concurrency": 10**6}}, "clients_left_out"),
    "a million clients, ten million requests": (
        {"workload": {"request_rate": None, "max_concurrency": 10**6, "num_prompts": 10**7}, "simulation": {"max_requests": 10**7}},
        "clients_left_out",
    ),
    "ten million requests": ({"workload": {"num_prompts": 10**7}, "simulation": {"max_requests": 10**7}}, "stopped"),
    "ten million requests as a client": (
        {"workload": {"num_prompts": 10**7, "output_len": 1}, "simulation": {"max_requests": 10**7, "mode": "benchmark"}},
        "shortened",
    ),
    "a thousand replications": ({"simulation": {"replications": 1000}}, ""),
    "sessions of ten thousand turns": ({"workload": {"turns": 10_000}}, "does_not_fit"),
    "a million prefixes": ({"workload": {"shared_prefix_len": 900, "prefix_groups": 10**6}}, ""),
    "blocks of one token": ({"engine": {"block_size": 1}, "workload": {"input_len": 1e5, "shared_prefix_len": 9e4}}, "overloaded"),
    "long sessions": ({"workload": {"turns": 50, "input_len": 2000, "num_prompts": 100_000, "request_rate": 2}}, "shortened"),
    "blocks of 4,096 tokens": ({"engine": {"block_size": 4096}}, ""),
    "a step of one token": ({"engine": {"max_num_batched_tokens": 1}}, "infeasible_slo"),
    "long prompts, a step of one token": ({"workload": {"input_len": 1e5}, "engine": {"max_num_batched_tokens": 1}}, "overloaded"),
    "a step of ten million tokens": ({"engine": {"max_num_batched_tokens": 10**7}}, "does_not_fit"),
    "no patience, endless retries": ({"workload": {"deadline_s": 1e-9, "retry_rate": 1.0}}, "overloaded"),
    "a storm of retries": ({"workload": {"deadline_s": 1.0, "retry_rate": 1.0, "request_rate": 1000}}, "overloaded"),
    "a pause of 30 million years": ({"workload": {"turns": 5, "think_time_s": 1e15}}, ""),
    "all at once": ({"workload": {"burstiness": 1e-12}}, ""),
    "like clockwork": ({"workload": {"burstiness": 1e15}}, ""),
    "a spread without measure": ({"workload": {"input_len": {"kind": "lognormal", "mean": 1000, "cv": 1e15}}}, ""),
    "64 drafts, all taken": ({"speculative": {"num_speculative_tokens": 64, "acceptance_rate": 1.0}}, ""),
    "64 drafts, none taken": ({"speculative": {"num_speculative_tokens": 64, "acceptance_rate": 0.0}}, "infeasible_slo"),
    "drafts dearer than the answer": ({"speculative": {"draft_cost": 1e15, "acceptance_rate": 0.5}}, "infeasible_slo"),
    "pools out of all proportion": ({"disaggregation": {"prefill": {"replicas": 100_000}}, "workload": {"request_rate": 100}}, ""),
    "pools that cannot talk": ({"disaggregation": {"link_gb_s": 1e-12}}, "slo_missed"),
    "a batch that is never full": ({"engine": {"batching": "static", "static_timeout_s": 1e15}}, ""),
    "reservations of 10^8 tokens": ({"engine": {"kv_allocation": "contiguous", "max_model_len": 10**8}}, "does_not_fit"),
    "no room for a token": ({"engine": {"max_model_len": 1}}, "requests_failed"),
    "hardly any share of memory": ({"engine": {"gpu_memory_utilization": 1e-6}}, "does_not_fit"),
    "a tier without end": ({"engine": {"kv_offload": [{"gib": 1e15, "gb_s": 1e-12}]}, "workload": {"shared_prefix_len": 500}}, ""),
    "a promise of nothing": ({"slo": {"ttft_s": 1e-12, "tpot_s": 1e-12}}, "infeasible_slo"),
    "a promise of anything": ({"slo": {"ttft_s": 1e15, "tpot_s": 1e15}}, ""),
    "no promise": ({"slo": {"ttft_s": None, "tpot_s": None}}, ""),
    "bought for a blink": ({"price": {"basis": "owned", "owned": {"years": 1e-12, "usd_per_gpu": 1e15}}}, ""),
    "hardly ever busy": ({"price": {"utilization": 1e-6}}, ""),
    "list prices of a quadrillion": ({"price": {"compare_to": [{"label": "x", "input": 1e15, "output": 1e15}]}}, ""),
    "committed beyond all GPUs": ({"fleet": {"commitments": [{"gpus": 10**15, "usd_per_gpu_hour": 1e15}]}}, ""),
    "1,024 ranks": ({"parallel": {"data_parallel_size": 1024}}, ""),
    "1,024-way tensors": ({"parallel": {"tensor_parallel_size": 1024}}, "illegal_parallelism"),
    "256 stages": ({"parallel": {"pipeline_parallel_size": 256}}, "illegal_parallelism"),
    "a class of nobody": ({"workload": {"priority_classes": [{"share": 0.0}, {"share": 1.0}]}}, ""),
    "a trace at full length": ({"workload": {"trace": {"name": "mooncake-conversation"}, "num_prompts": 10**7}}, "overloaded"),
}
QUICK_S, FULL_S = 30.0, 60.0
"""Processor time; a fifth of it on a machine that does nothing else."""
SMALL = {
    "MAX_STEPS_PER_RUN": 10_000,
    "MAX_WORK_PER_PLAN": 40_000,
    "MAX_REQUESTS_PER_RUN": 300,
    "MOST_REQUESTS_PER_RUN": 600,
    "MAX_KEYED_BLOCKS_PER_RUN": 100_000,
}
"""Bounds of an everyday test; the slow ones keep those of the product."""


@pytest.fixture
def _small_bounds(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(bounds, name, value)


def answered(case: dict, effort: str, within_s: float) -> dict:
    began_s = time.thread_time()
    answer = plan(parse(case), effort=effort)
    data = answer.to_dict()
    assert time.thread_time() - began_s < within_s
    finite(data)
    json.dumps(data, allow_nan=False)
    for problem in answer.problems:
        one_sentence(problem.message)
    return data


EVERY_DAY = {
    "a trillion parameters",
    "ten million tokens of context",
    "ten million tokens that fit",
    "no request ever",
    "a million requests a second",
    "free GPUs",
    "100,000 replicas",
    "a byte of memory",
    "a million clients",
    "a step of one token",
    "64 drafts, all taken",
    "a promise of nothing",
    "1,024-way tensors",
}


@pytest.mark.usefixtures("_small_bounds")
@pytest.mark.parametrize("name", [n if n in EVERY_DAY else pytest.param(n, marks=pytest.mark.slow) for n in ABSURD])
def test_absurd_questions(name):
    holds(name, cut_short=("stopped", "shortened"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ABSURD)
def test_absurd_questions_within_the_bounds_of_the_product(name):
    holds(name)


def holds(name: str, cut_short: tuple[str, ...] = ()) -> None:
    case, code = ABSURD[name]
    data = answered(case, "quick", QUICK_S)
    codes = {p["code"] for p in data["problems"]}
    assert not code or codes & {code, *cut_short}, codes
    if {p["code"] for p in data["problems"] if p["severity"] == "error"} & {"does_not_fit", "illegal_parallelism", "parameters_differ"}:
        assert data["cost"]["usd_per_mtok_output"] is None
    elif code not in ("no_traffic", "requests_failed") and not codes & {"overloaded", *cut_short}:
        assert data["latency"]["ttft_s"]["p95"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["a million requests a second", "100,000 replicas", "ten million requests", "long prompts, a step of one token"]
)
def test_absurd_questions_in_full(name):
    answered(ABSURD[name][0], "full", FULL_S)


class TestRightAnswers:
    """Where arithmetic gives the answer to an absurd question, the plan gives the same."""

    def test_a_lonely_request_costs_the_idle_time_between_two(self):
        traffic = {"request_rate": 1e-6, "num_prompts": 1000, "output_len": 5, "burstiness": 1e6}
        data = answered({"workload": traffic, "price": {"usd_per_gpu_hour": 3.6}}, "quick", QUICK_S)
        assert data["cost"]["usd_per_request"] == pytest.approx(0.001 * 1e6, rel=0.01)

    def test_free_gpus_make_free_tokens(self):
        data = answered({"price": {"usd_per_gpu_hour": 0}, "workload": {"num_prompts": 20}}, "quick", QUICK_S)
        assert data["cost"]["usd_per_mtok_output"] == 0
        assert data["cost"]["usd_per_month"] == 0

    @pytest.mark.slow
    def test_a_fleet_a_thousand_times_as_large_costs_a_thousand_times_as_much_and_serves_it(self):
        one, many = (
            answered({"fleet": {"replicas": n}, "workload": {"request_rate": 2.0 * n, "num_prompts": 200}}, "quick", QUICK_S)
            for n in (4, 4000)
        )
        assert many["cost"]["usd_per_hour"] == pytest.approx(1000 * one["cost"]["usd_per_hour"])
        assert many["cost"]["usd_per_mtok_output"] == pytest.approx(one["cost"]["usd_per_mtok_output"], rel=0.01)
        assert many["latency"]["ttft_s"]["p50"] == pytest.approx(one["latency"]["ttft_s"]["p50"], rel=0.01)

    @pytest.mark.slow
    def test_the_wait_of_a_million_clients_follows_littles_law(self):
        data = answered(ABSURD["a million clients"][0], "quick", QUICK_S)
        said = next(p["message"] for p in data["problems"] if p["code"] == "clients_left_out")
        wait_s = 1e6 / data["throughput"]["requests_per_s"]
        assert f"about {wait_s:,.0f} s" in said

    @pytest.mark.usefixtures("_small_bounds")
    def test_a_run_that_is_cut_short_is_no_overload(self):
        data = answered(ABSURD["ten million requests"][0] | {"engine": {"max_num_seqs": 256}}, "quick", QUICK_S)
        usual = answered({}, "quick", QUICK_S)
        assert "overloaded" not in {p["code"] for p in data["problems"]}
        assert data["latency"]["tpot_s"]["p50"] == pytest.approx(usual["latency"]["tpot_s"]["p50"], rel=0.05)

    def test_a_prompt_of_many_chunks_is_priced_by_a_few(self):
        from planner.plan import deployment

        replica = deployment.of(parse({"engine": {"max_num_batched_tokens": 16, "max_num_seqs": 16}, "workload": {"input_len": 64_000}}))
        prompt = 16 * (20 * MOST_CHUNKS) + 5
        steps = prefill_steps(replica.scenario, prompt)
        assert len(steps) == MOST_CHUNKS + 1
        assert sum(count * shape.chunks[0][0] for count, shape in steps) == pytest.approx(prompt)
        from planner.roofline import StepShape

        starts = range(0, prompt, 16)
        sizes = [min(16, prompt - start) for start in starts]
        one_by_one = sum(
            replica.step_time(StepShape(chunks=((n, start),), logit_rows=int(start + n >= prompt)))
            for n, start in zip(sizes, starts, strict=True)
        )
        assert prefill_alone_s(replica, prompt) == pytest.approx(one_by_one, rel=1e-3)


@pytest.mark.slow
def test_memory_of_a_plan_is_bounded():
    # VmHWM counts this program alone; a child's ru_maxrss begins at its parent's size.
    code = """
from planner.plan import plan
from planner.scenario import parse
plan(parse({"workload": {"num_prompts": 10**7, "turns": 3, "output_len": 3}, "simulation": {"max_requests": 10**7}}), effort="quick")
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    environment = {**os.environ, "PYTHONPATH": str(presets.FOLDER.parent)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(run.stdout) / 1024 < 200  # MB, of which the interpreter and numpy take 60


class TestSearches:
    def test_a_sweep_counts_its_points_before_it_makes_them(self):
        huge = Axis("workload.request_rate", tuple(float(i + 1) for i in range(4000)))
        with pytest.raises(InputError, match="16,000,000"):
            sweep(Scenario(), [huge, Axis("engine.max_num_seqs", huge.values)])
        with pytest.raises(InputError, match="2 to 4,096"):
            axis("workload.request_rate=1:9:1000000000")

    def test_a_search_ends_at_its_bound_with_every_design_accounted_for(self, monkeypatch):
        monkeypatch.setattr(bounds, "MAX_WORK_PER_SEARCH", 0)
        hopeless = parse({"slo": {"ttft_s": 0.02, "tpot_s": 0.0075}, "workload": {"request_rate": 3, "num_prompts": 50}})
        space = recommend.Space(gpus=("h100-sxm",), tensor_parallel_sizes=(1, 2), speculative=(None,), disaggregation=(None,))
        found = recommend.best(hopeless, space)
        assert found.simulated <= 40
        assert sum(e.candidates for e in found.exclusions) + len(found.options) == found.considered
        if not found.options:
            assert "not simulated" in {e.stage for e in found.exclusions} or found.simulated == 0


def test_a_self_hoster_changes_a_bound_by_environment(monkeypatch, capsys):
    monkeypatch.setenv("PLANNER_MAX_STEPS_PER_RUN", "1234")
    assert runpy.run_path(bounds.__file__)["MAX_STEPS_PER_RUN"] == 1234
    for wrong in ("-1", "many", "9" * 30):
        monkeypatch.setenv("PLANNER_MAX_STEPS_PER_RUN", wrong)
        assert runpy.run_path(bounds.__file__)["MAX_STEPS_PER_RUN"] == bounds.MAX_STEPS_PER_RUN
        told = capsys.readouterr().err
        assert "PLANNER_MAX_STEPS_PER_RUN" in told
        assert told.count("\n") == 1


def test_a_bound_that_is_reached_is_named_with_its_variable(capsys, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_STEPS_PER_RUN", 500)
    assert main(["plan", "chat-70b-2xh100", "--quick"]) == 0
    assert "500 steps" in capsys.readouterr().out


def test_draws_stay_whole_numbers():
    from planner.scenario import Lengths
    from planner.workload import draw_lengths

    drawn = draw_lengths(np.random.default_rng(0), Lengths(kind="lognormal", mean=1e8, cv=1e15), 10_000)
    assert drawn.min() >= 1
    assert drawn.max() <= 10**8
