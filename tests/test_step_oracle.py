"""Every kind of step takes what its kernels take, added up one by one."""

from __future__ import annotations

from typing import Any

import pytest
from step_oracle import StepOracle

from planner import architecture, hardware, roofline, sharding
from planner.catalog import kernels
from planner.roofline import StepShape, StepTime
from planner.scenario import Scenario


def tp(size: int) -> dict[str, Any]:
    return {"tensor_parallel_size": size}


LEVELS = ("calibrated", "datasheet")
LLAMA_8B, LLAMA_70B, AUTO = {"name": "llama-3.1-8b"}, {"name": "llama-3.1-70b"}, {"weights": "auto"}
EXPERTS_OF_8, EXPERTS_OF_16 = ({"data_parallel_size": n, "enable_expert_parallel": True} for n in (8, 16))
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "dense": {"model": LLAMA_8B},
    "eager": {"model": LLAMA_8B, "engine": {"enforce_eager": True}},
    "eager, two ranks": {"model": LLAMA_8B, "engine": {"enforce_eager": True}, "parallel": tp(2)},
    "an old engine": {"model": LLAMA_8B, "engine": {"version": "0.6.2", "async_scheduling": False}},
    "8-bit weights and cache": {"model": LLAMA_70B, "precision": {"weights": "fp8", "kv_cache": "fp8"}, "parallel": tp(2)},
    "4-bit weights unpacked": {"model": LLAMA_70B, "precision": {"weights": "int4"}, "parallel": tp(2)},
    "8-bit integers on Ampere": {"model": LLAMA_8B, "precision": {"weights": "int8"}, "hardware": {"gpu": "a100-80-sxm"}},
    "SGLang": {"model": LLAMA_70B, "precision": {"weights": "fp8"}, "engine": {"name": "sglang"}, "parallel": tp(4)},
    "TensorRT-LLM": {
        "model": LLAMA_70B,
        "hardware": {"gpu": "b200-sxm"},
        "precision": {"weights": "nvfp4", "kv_cache": "fp8"},
        "engine": {"name": "trtllm", "version": "1.0.0"},
        "parallel": tp(4),
    },
    "TensorRT-LLM waits for its host": {
        "model": {"name": "qwen3-30b-a3b"},
        "hardware": {"gpu": "b200-sxm"},
        "engine": {"name": "trtllm", "version": "1.0.0"},
    },
    "two hosts to wait for": {
        "model": {"name": "qwen3-30b-a3b"},
        "hardware": {"gpu": "b200-sxm"},
        "engine": {"name": "trtllm", "version": "1.0.0"},
        "parallel": {"data_parallel_size": 2, "enable_expert_parallel": True},
    },
    "experts": {"model": {"name": "mixtral-8x7b"}, "parallel": tp(2)},
    "experts cut over data-parallel ranks": {"model": {"name": "mixtral-8x7b"}, "parallel": {"data_parallel_size": 4}},
    "whole experts, groups of two": {
        "model": {"name": "qwen3-235b-a22b"},
        "parallel": tp(2) | {"data_parallel_size": 4, "enable_expert_parallel": True},
    },
    "whole experts on one server": {"model": {"name": "deepseek-v3"}, "parallel": EXPERTS_OF_8},
    "whole experts on two servers": {"model": {"name": "deepseek-v3"}, "precision": AUTO, "parallel": EXPERTS_OF_16},
    "whole experts in a rack": {
        "model": {"name": "deepseek-v3"},
        "hardware": {"gpu": "gb200-nvl72"},
        "precision": AUTO,
        "parallel": {"data_parallel_size": 32, "enable_expert_parallel": True},
    },
    "experts on more servers than were timed": {
        "model": {"name": "deepseek-v3"},
        "precision": AUTO,
        "parallel": {"data_parallel_size": 128, "enable_expert_parallel": True},
    },
    "whole experts in a pipeline": {
        "model": {"name": "qwen3-30b-a3b"},
        "parallel": {"data_parallel_size": 2, "pipeline_parallel_size": 4, "enable_expert_parallel": True},
    },
    "windows and 4-bit experts": {"model": {"name": "gpt-oss-20b"}, "precision": AUTO},
    "4-bit experts, 8-bit arithmetic": {
        "model": {"name": "gpt-oss-120b"},
        "hardware": {"gpu": "b200-sxm"},
        "precision": AUTO,
        "parallel": tp(2),
    },
    "windows, 8-bit cache": {"model": {"name": "gemma-3-27b"}, "precision": {"kv_cache": "fp8"}},
    "recurrent": {"model": {"name": "qwen3-next-80b-a3b"}, "parallel": tp(4)},
    "chosen tokens": {"model": {"name": "deepseek-v3.2"}, "parallel": tp(8)},
    "chosen tokens, drafted": {
        "model": {"name": "deepseek-v3.2"},
        "parallel": tp(8),
        "speculative": {"method": "mtp", "num_speculative_tokens": 6, "acceptance_rate": 0.5},
    },
    "compressed cache": {"model": {"name": "deepseek-v4-flash"}, "precision": AUTO, "parallel": tp(4)},
    "pipeline": {"model": LLAMA_70B, "parallel": {"pipeline_parallel_size": 4}},
    "uneven pipeline": {"model": LLAMA_8B, "parallel": {"pipeline_parallel_size": 3}},
    "pipeline over two servers": {"model": {"name": "llama-3.1-405b"}, "parallel": tp(8) | {"pipeline_parallel_size": 2}},
    "sixteen ranks": {"model": {"name": "llama-3.1-405b"}, "parallel": tp(16)},
    "PCIe": {"model": LLAMA_8B, "hardware": {"gpu": "l40s"}, "parallel": tp(4)},
    "NVLink cut to PCIe": {"model": LLAMA_8B, "hardware": {"overrides": {"link_gb_s": 40}}, "parallel": tp(2)},
    "NVLink cut to PCIe 5": {"model": LLAMA_8B, "hardware": {"overrides": {"link_gb_s": 64}}, "parallel": tp(4)},
    "NVLink cut to a third": {"model": LLAMA_8B, "hardware": {"overrides": {"link_gb_s": 150}}, "parallel": tp(2)},
    "n-grams": {"model": LLAMA_8B, "speculative": {"method": "ngram", "num_speculative_tokens": 4, "acceptance_rate": 0.3}},
    "Medusa": {"model": LLAMA_8B, "speculative": {"method": "medusa", "num_speculative_tokens": 3, "acceptance_rate": 0.3}},
    "EAGLE-3": {"model": LLAMA_8B, "speculative": {"method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.6}},
    "EAGLE-3, recurrent": {
        "model": {"name": "qwen3-next-80b-a3b"},
        "parallel": tp(2) | {"pipeline_parallel_size": 2},
        "speculative": {"method": "eagle3", "num_speculative_tokens": 1, "acceptance_rate": 0.7},
    },
    "MTP": {
        "model": {"name": "deepseek-v3"},
        "precision": AUTO,
        "parallel": EXPERTS_OF_8,
        "speculative": {"method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.7},
    },
    "a small model drafts": {
        "model": LLAMA_70B,
        "precision": {"weights": "fp8"},
        "parallel": {"pipeline_parallel_size": 4},
        "speculative": {"method": "draft_model", "draft_model": "llama-3.2-1b", "num_speculative_tokens": 2, "acceptance_rate": 0.3},
    },
    "a small model with windows drafts": {
        "model": {"name": "gpt-oss-120b"},
        "precision": AUTO,
        "parallel": tp(2),
        "speculative": {"method": "draft_model", "draft_model": "gpt-oss-20b", "num_speculative_tokens": 3, "acceptance_rate": 0.3},
    },
    "a stated draft cost, windows": {
        "model": {"name": "gpt-oss-20b"},
        "precision": AUTO,
        "speculative": {"num_speculative_tokens": 2, "acceptance_rate": 0.3, "draft_cost": 0.2},
    },
    "a stated draft cost": {
        "model": LLAMA_8B,
        "parallel": {"pipeline_parallel_size": 2},
        "speculative": {"num_speculative_tokens": 3, "acceptance_rate": 0.3, "draft_cost": 0.1},
    },
}
STEPS: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = (
    (1, 900, ()),
    (7, 1300, ()),
    (600, 300, ()),
    (0, 0, ((512, 0),)),
    (0, 0, ((700, 4000), (33, 0))),
    (5, 2000, ((100, 77), (2048, 0))),
    (3, 90, ((3, 50),)),
    (256, 4000, ((64, 20_000),)),
    (2000, 100, ()),
    (2000, 100, ((8, 0),)),
)
"""(decoding sequences, context of each, chunks)."""


def deployed(scenario: Scenario, scale: float = 1.0) -> StepTime:
    arch, gpu = architecture.of(scenario.model), hardware.of(scenario.hardware)
    shard = sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware)
    found = roofline.step_time(scenario, arch, shard, gpu, scale)
    assert isinstance(found, StepTime)
    return found


@pytest.mark.parametrize("fidelity", LEVELS)
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_step_takes_what_its_kernels_take(name: str, fidelity: str) -> None:
    scenario = Scenario.model_validate(DEPLOYMENTS[name] | {"fidelity": fidelity})
    step, slow, truth = deployed(scenario), deployed(scenario, 1.7), StepOracle(scenario)
    k = scenario.speculative.num_speculative_tokens if scenario.speculative else 0
    for n, context, chunks in STEPS:
        shape = StepShape(n, n * context, n * min(context, 128), chunks, n + len(chunks), n * k)
        assert step(shape) == pytest.approx(truth(shape), rel=1e-9)
        assert slow(shape) == pytest.approx(1.7 * step(shape), rel=1e-9)
        assert sum(t.seconds for t in step.explain(shape)) == pytest.approx(step(shape), rel=1e-9)
    assert step(StepShape()) == step.decode(0) == 0


def bounds_of(name: str, shape: StepShape, **more: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for term in deployed(Scenario.model_validate(DEPLOYMENTS[name] | more)).explain(shape):
        found.setdefault(term.name, set()).add(term.bound)
    return found


@pytest.mark.parametrize("name", ["dense", "experts", "whole experts on one server", "windows and 4-bit experts"])
def test_kernels_say_what_bounds_them(name: str) -> None:
    """One token reads every weight for two operations each: memory. Thousands of tokens use each weight that often: arithmetic."""
    for fidelity in LEVELS:
        few = bounds_of(name, StepShape(1, 1000, 128, (), 1), fidelity=fidelity)
        many = bounds_of(name, StepShape(chunks=((65_536, 0),), logit_rows=1), fidelity=fidelity)
        products = set(few) & {"qkv", "o", "gate_up", "down", "experts"}
        assert products
        for product in products:
            assert few[product] == {"memory"}
            assert many[product] == {"compute"}
        assert few["lm_head"] == {"memory"}
        assert "memory" in few["attention"]
        assert many["attention"] == {"compute"}


def test_terms_name_links_launches_and_the_host() -> None:
    shape = StepShape(64, 64_000, 0, ((512, 0),), 65)
    staged = bounds_of("pipeline over two servers", shape)
    assert staged["pipeline hop"] == staged["all-reduce"] == bounds_of("uneven pipeline", shape)["pipeline wait"] == {"link"}
    assert staged["host"] == {"host"}
    assert staged["launch"] == {"launch"}
    assert bounds_of("whole experts on one server", shape)["all-to-all"] == {"link"}
    assert bounds_of("EAGLE-3", shape._replace(verify_tokens=192))["drafting"] == {"draft"}
    assert bounds_of("recurrent", shape)["recurrent state"] == {"memory"}
    assert bounds_of("recurrent", shape)["recurrent"] == {"compute"}
    assert bounds_of("dense", shape)["sampling"] == bounds_of("dense", shape)["elementwise"] == {"memory"}
    ideal = bounds_of("dense", shape, fidelity="datasheet")
    assert not set(ideal) & {"launch", "host", "sampling", "elementwise"}
    phases = {t.name: t.phase for t in deployed(Scenario.model_validate(DEPLOYMENTS["dense"])).explain(shape)}
    assert (phases["qkv"], phases["host"]) == ("step", "step")
    alone = deployed(Scenario.model_validate(DEPLOYMENTS["dense"]))
    assert {t.phase for t in alone.explain(StepShape(1, 10, 0, (), 1))} == {"decode"}
    assert {t.phase for t in alone.explain(StepShape(chunks=((9, 0),)))} == {"prefill"}


def test_the_compute_bound_batch_is_the_ratio_of_the_peaks() -> None:
    """Two operations and two bytes a weight: 989 TFLOP/s over 3.35 TB/s, once for every micro-batch and data-parallel rank."""
    h100 = 989.4e12 / 3.35e12

    def batch(**parts: Any) -> float:
        return deployed(Scenario.model_validate({"fidelity": "datasheet", **parts})).compute_bound_batch()

    assert batch(model=LLAMA_8B) == pytest.approx(h100, rel=2e-3)
    assert batch(model=LLAMA_70B, parallel=tp(4)) == pytest.approx(h100, rel=2e-3)
    assert batch(model=LLAMA_70B, parallel={"pipeline_parallel_size": 4}) == pytest.approx(4 * h100, rel=2e-3)
    assert batch(model=LLAMA_8B, parallel={"data_parallel_size": 3}) == pytest.approx(3 * h100, rel=2e-3)
    mixtral = architecture.of(Scenario.model_validate({"model": {"name": "mixtral-8x7b"}}).model)
    expert = 3 * 4096 * 14_336 * 32
    rest = mixtral.total_params - 8 * expert - 32_000 * 4096
    assert batch(model={"name": "mixtral-8x7b"}) == pytest.approx(h100 * (rest + 8 * expert) / (rest + 2 * expert), rel=2e-3)
    eight = batch(model={"name": "mixtral-8x7b"}, parallel=EXPERTS_OF_8)
    assert eight == pytest.approx(h100 * 8 * (rest + expert) / (rest + 2 * expert), rel=2e-3)


def test_what_rides_on_a_step_time() -> None:
    """The engine's time per request and the error of borrowed kernels belong to measured engines, not to the datasheet."""
    measured, ideal = (deployed(Scenario.model_validate(DEPLOYMENTS["4-bit weights unpacked"] | {"fidelity": f})) for f in LEVELS)
    host = kernels.host("vllm", Scenario().engine.version, True, "h100-sxm")
    assert (measured.api_s, ideal.api_s) == (pytest.approx(host["api_us"] * 1e-6), 0.0)
    assert measured.spread > 0
    assert ideal.spread == 0
    assert [p.code for p in measured.notes] == ["low_confidence"]
    assert ideal.notes == ()
    assert (measured.level, ideal.level) == LEVELS
    drafted = Scenario.model_validate(DEPLOYMENTS["EAGLE-3"] | {"fidelity": "datasheet"})
    assert deployed(drafted).notes == ()
