"""What the planner says about one case, in the terms of the measured table."""

from __future__ import annotations

import numpy as np

from planner import scheduler
from planner.kv_cache import KvCache
from planner.plan import deployment
from planner.scenario import Scenario
from planner.workload import Source, requests


def predict(scenario: Scenario) -> dict[str, float]:
    """Predicted metrics by name, SI."""
    d = deployment.of(scenario)
    replicas = scenario.fleet.replicas
    work = scenario.workload
    if replicas > 1:
        changes = {"num_prompts": max(1, work.num_prompts // replicas)}
        if work.max_concurrency:
            changes["max_concurrency"] = max(1, work.max_concurrency // replicas)
        if work.request_rate:
            changes["request_rate"] = work.request_rate / replicas
        work = work.model_copy(update=changes)
    limits = scheduler.limits_of(
        scenario.engine.model_copy(
            update={
                "max_num_seqs": scenario.engine.max_num_seqs * scenario.parallel.data_parallel_size,
                "max_num_batched_tokens": scenario.engine.max_num_batched_tokens * scenario.parallel.data_parallel_size,
            }
        ),
        window=d.architecture.window,
        num_speculative_tokens=d.profile.num_speculative_tokens,
    )
    blocks = d.memory.kv_pool_tokens // scenario.engine.block_size
    kv = KvCache(blocks, scenario.engine.block_size, scenario.engine.enable_prefix_caching)
    policy = scheduler.POLICIES[scenario.engine.batching]
    replica = scheduler.Replica(d.step_time, limits, kv, policy, record_steps=False)
    reqs = requests(work, acceptance_rates=d.profile.acceptance_rates)
    source = Source(
        reqs, block_size=scenario.engine.block_size if scenario.engine.enable_prefix_caching else 0, max_concurrency=work.max_concurrency
    )
    t = scheduler.simulate(source, replica)
    done = t.finished & (t.output_tokens > 1)
    if not done.any():
        return {"reason": 0.0}
    api = d.step_time.api_s
    ttft = t.first_token_s[done] - t.arrival_s[done] + api
    e2e = t.finish_s[done] - t.arrival_s[done] + api
    tpot = (e2e - ttft) / (t.output_tokens[done] - 1)
    wall = t.finish_s[done].max() - t.arrival_s[done].min()
    return {
        "tpot": float(tpot.mean()),
        "ttft": float(ttft.mean()),
        "ttft_p50": float(np.median(ttft)),
        "e2e": float(e2e.mean()),
        "throughput": float(t.output_tokens[done].sum() / wall * replicas),
        "_preempt": float(t.preemptions.sum()),
    }
