"""The simulated system against the closed forms it must agree with: what its pool holds, and how it starts."""

import pytest

from planner import workload
from planner.plan import deployment
from planner.plan.system import replica
from planner.scenario import parse
from planner.scheduler.blocks import allocate, publish


def seated(scenario) -> int:
    """Sequences of the planned length that the simulated pool holds at once."""
    built = replica(deployment.of(scenario))
    source = workload.Source(workload.requests(scenario.workload), block_size=scenario.engine.block_size if built.kv.prefix else 0)
    n = 0
    while source.peek() < float("inf"):
        request = source.next()
        request.prompt_tokens = request.input_tokens
        if allocate(built.kv, built.limits, request, 0.0) is None:
            return n
        request.computed_tokens = request.prompt_tokens
        publish(built.kv, request, 0.0)
        n += 1
    raise AssertionError("the traffic ended before the pool was full")


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-120b", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"workload": {"shared_prefix_len": 3000}},
        {"workload": {"shared_prefix_len": 6000, "prefix_groups": 4}},
        {"engine": {"kv_allocation": "contiguous", "max_model_len": 16384}},
        {"engine": {"kv_allocation": "contiguous", "max_model_len": 16384}, "workload": {"shared_prefix_len": 6000}},
        {"parallel": {"tensor_parallel_size": 1, "data_parallel_size": 2}, "hardware": {"gpu": "h200-sxm"}},
    ],
    ids=["alone", "prefix", "groups", "contiguous", "contiguous with prefix", "data parallel"],
)
def test_the_simulated_pool_holds_the_cache_limited_batch(model: str, changes: dict) -> None:
    base = {
        "model": {"name": model},
        "precision": {"weights": "mxfp4" if "oss" in model else "fp8"},
        "parallel": {"tensor_parallel_size": 2},
        "workload": {"input_len": 8000, "output_len": 1, "num_prompts": 20000},
    }
    scenario = parse({k: {**base.get(k, {}), **changes.get(k, {})} for k in {*base, *changes}})
    expected = deployment.of(scenario).memory.cache_limited_batch
    assert expected > 2
    assert seated(scenario) == pytest.approx(expected, rel=0.03, abs=1)
