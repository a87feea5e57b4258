"""`plan` joins memory, step time, simulation and price; these are the promises that hold between the parts."""

import json
import math
from functools import cache

import pytest

from planner import Plan, Scenario, plan
from planner.plan import growth
from planner.plan.steady import BatchLimit, prefill_rate, steady
from planner.problems import InputError
from planner.scenario import parse

QUICK = {"workload": {"request_rate": 4.0, "input_len": 300, "output_len": 40, "num_prompts": 200}, "simulation": {"replications": 2}}


@cache
def answered(text: str, effort: str = "quick") -> Plan:
    return plan(parse(json.loads(text)), effort)  # type: ignore[arg-type]


def answer(changes: dict, effort: str = "quick") -> Plan:
    merged = json.loads(json.dumps(QUICK))
    for section, values in changes.items():
        merged[section] = {**merged.get(section, {}), **values} if isinstance(values, dict) else values
    return answered(json.dumps(merged, sort_keys=True), effort)


def no_nan(value: object, path: str = "") -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            no_nan(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            no_nan(inner, f"{path}[{i}]")
    elif isinstance(value, float):
        assert math.isfinite(value), path


CASES = {
    "one replica": {},
    "closed loop": {"workload": {"request_rate": None, "max_concurrency": 8}},
    "fleet": {"fleet": {"replicas": 3, "spares": 1}},
    "sampled fleet": {"fleet": {"replicas": 9}, "workload": {"request_rate": 30}},
    "disaggregated": {"disaggregation": {"prefill": {"replicas": 1}, "decode": {"replicas": 2}}},
    "speculation": {"speculative": {"method": "eagle3"}},
    "datasheet": {"fidelity": "datasheet"},
    "textbook": {"fidelity": "textbook"},
    "shared prefix": {"workload": {"shared_prefix_len": 256}},
    "overloaded": {"workload": {"request_rate": 500}},
    "no traffic": {"workload": {"request_rate": 0}},
    "does not fit": {"model": {"name": "llama-3.1-405b"}},
    "illegal layout": {"parallel": {"tensor_parallel_size": 3}},
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_plan_is_complete_json_without_nan(name: str) -> None:
    answered_plan = answer(CASES[name])
    d = answered_plan.to_dict()
    no_nan(d)
    assert json.loads(json.dumps(d, allow_nan=False)) == d
    assert d["scenario"] == answered_plan.scenario.model_dump(mode="json")
    reference = answer({}).to_dict()
    for part in reference:
        if isinstance(reference[part], dict) and isinstance(d[part], dict):
            assert set(reference[part]) == set(d[part]), part


@pytest.mark.parametrize("name", ["one replica", "closed loop", "fleet", "sampled fleet", "disaggregated", "speculation", "shared prefix"])
def test_prices_times_tokens_are_the_bill(name: str) -> None:
    p = answer(CASES[name])
    assert p.load is not None
    load, cost = p.load.cost_load, p.cost
    paid = sum(
        tokens / load.duration_s * (price or 0.0) / 1e6 * 3600
        for tokens, price in (
            (load.input_tokens, cost.usd_per_mtok_input),
            (load.cached_tokens, cost.usd_per_mtok_cached_input),
            (load.output_tokens, cost.usd_per_mtok_output),
        )
    )
    assert paid == pytest.approx(cost.usd_per_hour, rel=1e-9)


@pytest.mark.parametrize("name", ["one replica", "closed loop", "fleet", "disaggregated"])
def test_output_at_load_costs_at_least_its_floor(name: str) -> None:
    cost = answer(CASES[name]).cost
    assert cost.usd_per_mtok_output is not None
    assert cost.floor.usd_per_mtok_output is not None
    # Of 40 output tokens one comes with the prefill step and is paid for as input; contexts average a little differently.
    assert cost.usd_per_mtok_output >= 39 / 40 * 0.97 * cost.floor.usd_per_mtok_output


def test_a_plan_is_deterministic_and_its_seed_matters() -> None:
    one, two = plan(answer({}).scenario, "quick").to_dict(), answer({}).to_dict()
    assert one == two
    assert answer({"workload": {"seed": 1}}).to_dict()["latency"] != one["latency"]


@pytest.mark.parametrize("name", ["does not fit", "illegal layout"])
def test_what_cannot_run_has_a_reason_and_no_figures_that_mislead(name: str) -> None:
    d = answer(CASES[name]).to_dict()
    assert any(p["severity"] == "error" for p in d["problems"])
    assert d["cost"]["usd_per_hour"] > 0
    for key in ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended", "usd_per_request"):
        assert d["cost"][key] is None
    assert all(value is None for value in d["latency"].values())
    assert all(row["usd_per_mtok_output"] is None for row in d["roofline"]["batch_table"])


def test_does_not_fit_says_by_how_much_and_what_would_help() -> None:
    found = next(p for p in answer(CASES["does not fit"]).problems if p.code == "does_not_fit")
    assert "GiB" in found.message
    assert found.remedy


def test_overload_is_an_answer() -> None:
    p = answer(CASES["overloaded"], "full")
    codes = {problem.code for problem in p.problems}
    assert "overloaded" in codes
    assert p.load is not None
    assert p.load.capacity_requests_per_s is not None
    assert p.load.capacity_requests_per_s < 500
    assert p.to_dict()["throughput"]["utilization"] > 1


def test_a_missed_promise_names_the_fleet_that_would_hold_it_and_its_bill() -> None:
    p = answer(CASES["overloaded"], "full")
    assert p.load is not None
    assert p.load.capacity_requests_per_s
    fleet = p.to_dict()["larger_fleet"]
    replicas = math.ceil(500 / p.load.capacity_requests_per_s)
    assert dict(fleet["changes"]) == {"fleet.replicas": replicas}
    assert fleet["gpus"] == replicas
    assert fleet["usd_per_month"] == pytest.approx(replicas * p.to_dict()["cost"]["usd_per_month"])
    remedy = next(problem.remedy for problem in p.problems if problem.code == "overloaded")
    assert remedy == f"{replicas} replicas ({replicas} × h100-sxm) would hold it for ${fleet['usd_per_month']:,.0f} a month."


def test_without_a_capacity_the_fleet_that_keeps_up_is_not_said_to_hold_the_promise() -> None:
    d = answer(CASES["overloaded"]).to_dict()
    assert d["throughput"]["capacity_requests_per_s"] is None
    assert d["larger_fleet"]["at_least"]
    assert any("only to keep up" in p["remedy"] for p in d["problems"])
    assert answer(CASES["one replica"]).to_dict()["larger_fleet"] is None


def test_the_batch_table_counts_every_copy_of_the_cache() -> None:
    """MLA's latent is whole on every rank of tensor parallelism; data-parallel ranks hold each sequence once."""
    tp = answer({"model": {"name": "deepseek-v3"}, "precision": {"weights": "fp8"}, "hardware": {"gpu": "b200-sxm"}} | layout(tp=8))
    dp = answer({"model": {"name": "deepseek-v3"}, "precision": {"weights": "fp8"}, "hardware": {"gpu": "b200-sxm"}} | layout(dp=8))
    copies, once = (p.to_dict()["roofline"]["batch_table"][0]["kv_bytes"] for p in (tp, dp))
    assert copies == pytest.approx(8 * once)
    memory = dp.to_dict()["memory"]
    assert once == pytest.approx(memory["kv_bytes_per_token"] * 352, rel=0.01), "whole blocks of 300 + 40 tokens, one copy"


def layout(tp: int = 1, dp: int = 1) -> dict:
    return {"parallel": {"tensor_parallel_size": tp, "data_parallel_size": dp, "enable_expert_parallel": dp > 1}}


@pytest.mark.slow
def test_bursts_and_closed_loops_are_answered_by_simulating_larger_fleets() -> None:
    """One replica takes no burst at any rate, several share it; clients that wait have no rate to scale by."""
    bursts = {"request_rate": 4.0, "burstiness": 0.05, "input_len": 3000, "output_len": 10, "num_prompts": 150}
    for load, promise in (
        (bursts, {"ttft_s": 0.3}),
        ({"request_rate": None, "max_concurrency": 48, "output_len": 60}, {"tpot_s": 0.006}),
    ):
        p = answer({"workload": load, "slo": {"ttft_s": None, "tpot_s": None} | promise, "precision": {"weights": "fp8"}}, "full")
        assert p.load is not None
        assert any(kept.strain > 1 for kept in p.load.kept)
        assert not p.load.capacity_requests_per_s
        assert p.larger_fleet is not None
        remedy = next(problem.remedy for problem in p.problems if problem.code == "slo_missed")
        assert remedy == p.larger_fleet.remedy
        n = dict(p.larger_fleet.changes)["fleet.replicas"]
        grown = {
            "workload": load,
            "slo": {"ttft_s": None, "tpot_s": None} | promise,
            "precision": {"weights": "fp8"},
            "fleet": {"replicas": n},
        }
        kept = answer(grown | {"simulation": {"replications": 4}}).load
        assert kept is not None
        assert all(k.strain <= 1 for k in kept.kept)


def test_both_pools_grow() -> None:
    split = answer(CASES["disaggregated"]).scenario
    fleet = growth.larger(split.model_copy(update={"fleet": split.fleet.model_copy(update={"spares": 1})}), 2.5)
    assert dict(fleet.changes) == {"disaggregation.prefill.replicas": 3, "disaggregation.decode.replicas": 5}
    assert fleet.gpus == 4 + 6
    assert fleet.words == "about 3 prefill and 5 decode replicas (10 × h100-sxm, 1 spare replica of each kind included)"


def test_no_traffic_keeps_the_closed_forms() -> None:
    d = answer(CASES["no traffic"]).to_dict()
    assert d["roofline"]["decode_step_s"] > 0
    assert d["cost"]["floor"]["usd_per_mtok_output"] > 0
    assert d["cost"]["usd_per_mtok_output"] is None
    assert any(p["code"] == "no_traffic" for p in d["problems"])


def test_a_promise_that_one_request_alone_breaks_is_infeasible() -> None:
    p = answer({"slo": {"ttft_s": 0.001, "tpot_s": 1e-4}})
    infeasible = [problem for problem in p.problems if problem.code == "infeasible_slo"]
    assert {"slo.ttft_s", "slo.tpot_s"} <= {problem.field for problem in infeasible}
    assert any("more replicas will not help" in problem.message for problem in infeasible)


def test_capacity_is_where_the_promise_breaks() -> None:
    tight = {"slo": {"ttft_s": 0.2, "tpot_s": 0.02}}
    capacity = answer(tight, "full").load.capacity_requests_per_s  # type: ignore[union-attr]
    assert capacity is not None
    below, above = (answer({**tight, "workload": {"request_rate": capacity * share}}).to_dict() for share in (0.8, 1.4))

    def keeps(d: dict) -> bool:
        return d["latency"]["ttft_s"]["p95"] <= 0.2 and d["latency"]["tpot_s"]["p95"] <= 0.02

    assert keeps(below)
    assert not keeps(above)


def test_the_plan_batch_is_the_smallest_of_its_limits() -> None:
    assert answer({}).roofline.batch == min(answer({}).memory.cache_limited_batch, 256)  # type: ignore[union-attr]
    assert answer({"engine": {"max_num_seqs": 16}}).roofline.batch == 16  # type: ignore[union-attr]
    loop = {"workload": {"request_rate": None, "max_concurrency": 8}, "fleet": {"replicas": 2}}
    limits = answer(loop).roofline.batch_limits  # type: ignore[union-attr]
    assert (answer(loop).roofline.batch, limits[-1]) == (4, BatchLimit("clients", 4))  # type: ignore[union-attr]
    ranks = {"parallel": {"data_parallel_size": 2}, "engine": {"max_num_seqs": 16}}
    assert answer(ranks).roofline.batch == 32, "every data-parallel rank has seats of its own"  # type: ignore[union-attr]


def test_disaggregated_floors_come_from_their_own_pools() -> None:
    split = {"prefill": {"gpu": "h100-sxm"}, "decode": {"gpu": "h200-sxm"}}
    p = answer({"disaggregation": split})
    prefill, decode = p.deployments
    assert (prefill.gpu.slug, decode.gpu.slug) == ("h100-sxm", "h200-sxm")
    assert p.roofline is not None
    assert p.roofline.prefill_tokens_per_s == pytest.approx(prefill_rate(prefill, 300))
    assert p.roofline.decode_step_s == steady((decode,), 1, None).decode_step_s


def test_levels_are_ordered() -> None:
    datasheet, calibrated = answer(CASES["datasheet"]).roofline, answer({}).roofline
    assert datasheet is not None
    assert calibrated is not None
    assert datasheet.decode_step_s < calibrated.decode_step_s
    assert datasheet.prefill_s < calibrated.prefill_s


def test_every_plan_says_what_it_does_not_model_and_where_its_figures_come_from() -> None:
    d = plan(Scenario(), "quick").to_dict()
    assert d["not_modelled"]
    quantities = " ".join(row["quantity"] for row in d["provenance"])
    for word in ("memory bandwidth", "parameters", "USD" if "USD" in quantities else "on_demand"):
        assert word in quantities
    assert all(row["source"] for row in d["provenance"])


def test_latency_by_class_is_there_with_classes_and_null_without() -> None:
    classes = [{"share": 0.3, "priority": -1}, {"share": 0.7, "priority": 0, "slo": {"ttft_s": 5.0}}]
    found = answer({"workload": {"request_rate": 2.0, "num_prompts": 100, "priority_classes": classes}}).to_dict()["latency_by_class"]
    assert [row["priority"] for row in found] == [-1, 0]
    assert sum(row["share"] for row in found) == pytest.approx(1.0)
    assert {"mean", "p50", "p95", "p99"} <= set(found[0]["ttft_s"])
    assert found[1]["tpot_s"]["p50"] > 0
    assert answer({}).to_dict()["latency_by_class"] is None


@pytest.mark.slow
def test_the_promise_of_one_class_bounds_the_rate_of_all() -> None:
    """Those who are served last are promised what the first get: the capacity is theirs, and the plan names them."""

    def answered(slo: dict[str, float] | None) -> Plan:
        classes = [{"share": 0.8, "priority": 0}, {"share": 0.2, "priority": 5, "slo": slo}]
        traffic = {"request_rate": 17.0, "num_prompts": 200, "priority_classes": classes}
        return plan(parse({"workload": traffic, "engine": {"max_num_seqs": 48}, "simulation": {"replications": 1}}), "full")

    alike, strict = answered(None), answered({"ttft_s": 0.15, "tpot_s": None})
    assert alike.load is not None
    assert strict.load is not None
    assert strict.load.capacity_requests_per_s < 0.95 * alike.load.capacity_requests_per_s
    assert {k.promise.to for k in alike.load.kept} == {""}
    assert {k.promise.to for k in strict.load.kept} == {"", "priority 5"}
    (missed,) = (p.message for p in strict.problems if p.code == "slo_missed")
    assert "TTFT of priority 5" in missed
    assert not [p for p in alike.problems if "of priority" in p.message]


def test_a_quantised_checkpoint_planned_in_16_bits_is_told_so_and_offered_as_published() -> None:
    def answered(weights: str) -> Plan:
        model = {"model": {"name": "gpt-oss-120b"}, "precision": {"weights": weights}, "workload": {"num_prompts": 20}}
        return plan(parse(model), "quick")

    unpacked = answered("bf16")
    problems = {p.code: p for p in unpacked.problems}
    assert not unpacked.fits
    assert "published in mxfp4" in problems["unpacked_checkpoint"].message
    assert problems["does_not_fit"].remedy.startswith("Take the weights as the checkpoint has them, in mxfp4 (1 × h100-sxm a replica)")
    published = answered("auto")
    assert published.fits
    assert "unpacked_checkpoint" not in {p.code for p in published.problems}


def test_a_plan_that_refuses_every_request_is_in_error() -> None:
    def severity(max_model_len: int) -> str:
        traffic = {"input_len": {"kind": "uniform", "mean": 100, "half_width": 0.5}, "num_prompts": 50, "output_len": 10}
        found = plan(parse({"engine": {"max_model_len": max_model_len}, "workload": traffic}), "quick").problems
        return next(p.severity for p in found if p.code == "requests_failed")

    assert severity(10) == "error"
    assert severity(100) == "warning"


def test_rows_beyond_the_compute_bound_batch_are_flagged_by_hand_arithmetic_too() -> None:
    found = plan(parse({"fidelity": "textbook", "workload": {"num_prompts": 20}}), "quick").roofline
    assert found is not None
    assert {row.bound for row in found.batch_table if row.batch > found.compute_bound_batch} == {"compute"}
    assert {row.bound for row in found.batch_table if row.batch <= found.compute_bound_batch} == {"memory"}


def test_a_cap_that_moves_the_stated_mean_is_mentioned() -> None:
    def codes(most: int) -> set[str]:
        lengths = {"kind": "lognormal", "mean": 1155, "cv": 1.86, "max": most}
        return {p.code for p in plan(parse({"workload": {"input_len": lengths, "num_prompts": 20}}), "quick").problems}

    assert "capped" in codes(16_000)
    assert "capped" not in codes(100_000)


def test_hand_arithmetic_quotes_the_acceptance_length_in_closed_form() -> None:
    speculative = {"method": "eagle3", "num_speculative_tokens": 4, "acceptance_rate": 0.8}
    found = plan(parse({"fidelity": "textbook", "speculative": speculative, "workload": {"num_prompts": 20}}), "quick")
    assert found.load is not None
    assert found.load.metrics.throughput.acceptance_length == pytest.approx((1 - 0.8**5) / (1 - 0.8))


def test_a_pool_that_does_not_fit_is_what_the_plan_shows() -> None:
    split = {"prefill": {"gpu": "h100-sxm", "replicas": 1}, "decode": {"gpu": "h200-sxm", "replicas": 1}}
    split["prefill"]["parallel"], split["decode"]["parallel"] = {"tensor_parallel_size": 1}, {"tensor_parallel_size": 2}
    found = plan(parse({"model": {"name": "llama-3.1-70b"}, "disaggregation": split, "workload": {"num_prompts": 20}}), "quick")
    assert not found.fits
    assert found.to_dict()["memory"]["fits"] is False
    assert "does_not_fit" in {p.code for p in found.problems}


def test_every_source_has_a_date_unless_it_is_the_user_or_arithmetic() -> None:
    found = plan(parse({"workload": {"num_prompts": 20}, "parallel": {"pipeline_parallel_size": 2}}), "quick").provenance
    kinds = {row.quantity.split(":")[0] for row in found}
    assert {"kernels", "host", "memory", "kernels not measured"} <= kinds
    undated = {row.quantity for row in found if row.date is None and row.kind != "user"}
    assert undated <= {"memory: weights"}, "weights are counted from the configuration, dated on its own line"
    measured = [row for row in found if row.quantity.startswith("kernels: ")]
    assert all(row.kind == "measured" and "kernels, median error" in row.source for row in measured)


def test_the_json_says_what_became_of_each_promise_with_refused_requests_as_misses() -> None:
    lengths = {"kind": "uniform", "mean": 100, "half_width": 0.5}
    engine, traffic = {"max_model_len": 130}, {"input_len": lengths, "num_prompts": 100, "output_len": 10, "request_rate": 1.0}
    refused = plan(parse({"engine": engine, "workload": traffic}), "quick").to_dict()
    assert refused["latency"]["ttft_s"]["p95"] < 1.0, "of those that were served"
    assert [(p["name"], p["limit_s"], p["at_s"], p["kept"]) for p in refused["promises"]] == [
        ("ttft_s", 1.0, None, False),
        ("tpot_s", 0.05, None, False),
    ]
    served = plan(parse({"workload": traffic}), "quick").to_dict()
    assert all(p["kept"] and p["at_s"] < p["limit_s"] for p in served["promises"])


@pytest.mark.parametrize("wrong", [None, "chat-70b-2xh100", {"fleet": {"replicas": 0}}])
def test_what_is_no_scenario_is_refused_in_a_sentence(wrong):
    with pytest.raises(InputError):
        plan(wrong, effort="quick")


def test_an_unknown_effort_names_the_known_ones():
    with pytest.raises(InputError, match="use quick or decided or full"):
        plan(Scenario(), effort="banana")
