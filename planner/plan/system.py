"""The whole system of a scenario – one replica, a fleet, or two pools – built from deployments and run once."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from planner import bounds, traffic
from planner.kv_cache import KvCache, tiers_of
from planner.metrics import piling_up
from planner.plan import sessions
from planner.plan.deployment import Deployment, Deployments
from planner.plan.pool import pool_blocks, shares_blocks
from planner.plan.sample import Sample, simulated_share, source
from planner.scenario import Scenario
from planner.scheduler import POLICIES, Replica, Timeline, limits_of, simulate
from planner.units import GB

if TYPE_CHECKING:
    from planner.fleet.disaggregated import Transfers


REFINEMENTS = 2
"""Times that a run is made again from another steady state."""
REFINED = 0.1
"""Error of the time from turn to turn that is left alone."""


def run_once(deployments: Deployments, scenario: Scenario, seed: int, rate_scale: float = 1.0) -> tuple[Timeline, Transfers | None]:
    """One simulated run of the fleet, or of the part of it that stands for the whole; with what moved between pools, if there are two.

    A planning run of sessions begins in the steady state that a closed form expects; where the answers then take another time, it is
    run again from the state that this time leads to – unless sessions pile up, which no time is long enough for.
    """
    w, share = scenario.workload, simulated_share(scenario)
    sample = Sample(deployments, scenario, seed, share, rate_scale * share)
    if not sessions.begins_steady(scenario):
        return _run(sample)
    rate = None if w.request_rate is None else w.request_rate * rate_scale * share
    turn_s = sessions.turn_s(deployments, scenario, rate, sample.clients, sample.replicas)
    for _ in range(REFINEMENTS):
        timeline, transfers = _run(sample.turning(turn_s))
        seen_s = w.think_time_s + answer_s(timeline)
        if piling_up([timeline]) or not abs(seen_s - turn_s) > REFINED * turn_s:
            return timeline, transfers
        turn_s = seen_s
    return _run(sample.turning(turn_s))


def answer_s(timeline: Timeline) -> float:
    """Mean time of an answer after the warm-up, s; NaN where none ended."""
    late = timeline.finished & (timeline.arrival_s >= np.median(timeline.arrival_s)) if len(timeline) else timeline.finished
    return float((timeline.finish_s - timeline.arrival_s)[late].mean()) if late.any() else math.nan


def _run(sample: Sample) -> tuple[Timeline, Transfers | None]:
    scenario = sample.scenario
    split, clients = scenario.disaggregation, source(sample)

    def warm(replicas: list[Replica], prompts_only: bool = False) -> list[Replica]:
        pools, grown = [r.kv for r in replicas], workload_growth(scenario)
        sessions.fill(pools, clients.requests, scenario.fleet.routing, grown, sample.each_turn_s or 0.0, prompts_only)
        return replicas

    def told(timeline: Timeline) -> Timeline:
        expected = clients.requests.expected_requests
        return dataclasses.replace(timeline, session_turns=scenario.workload.turns, expected_requests=expected)

    built = [[replica(deployment) for _ in range(n)] for deployment, n in zip(sample.deployments, sample.replicas, strict=True)]
    if split is not None:
        from planner.fleet.disaggregated import Link
        from planner.fleet.disaggregated import simulate as simulate_pools

        prefills, decodes = built
        arch, kv = sample.deployments[-1].architecture, scenario.precision.kv_cache
        link = Link(f"{split.link_gb_s:g} GB/s per replica", split.link_gb_s * GB)

        def moved_bytes(tokens: int) -> float:
            return arch.kv_bytes(tokens, kv)

        run = simulate_pools(clients, warm(prefills, True), decodes, moved_bytes, link, scenario.fleet.routing, bounds.MAX_STEPS_PER_RUN)
        return told(run.timeline), run.transfers
    (warmed,) = (warm(replicas) for replicas in built)
    if len(warmed) == 1:
        return told(simulate(clients, warmed[0], bounds.MAX_STEPS_PER_RUN)), None
    from planner.fleet import simulate as simulate_fleet

    build = iter(warmed).__next__
    fleet = simulate_fleet(clients, build, len(warmed), routing=scenario.fleet.routing, max_steps=bounds.MAX_STEPS_PER_RUN)
    return told(fleet.timeline), None


def workload_growth(scenario: Scenario) -> float:
    """Tokens by which a session grows each turn, mean."""
    means = traffic.of(scenario.workload)
    return 2 * (means.reusable_tokens - means.shared_tokens) / max(1, scenario.workload.turns - 1)


def replica(deployment: Deployment) -> Replica:
    """A fresh, empty replica of the deployment."""
    s, memory = deployment.scenario, deployment.memory
    engine, ranks = s.engine, s.parallel.data_parallel_size
    limits = limits_of(
        engine, memory.max_model_len, deployment.architecture.window, deployment.profile.num_speculative_tokens, s.workload.max_output_len
    )
    # The ranks of a data-parallel replica step together; their limits add up.
    limits = dataclasses.replace(
        limits, max_num_seqs=limits.max_num_seqs * ranks, max_num_batched_tokens=limits.max_num_batched_tokens * ranks
    )
    kv = KvCache(
        pool_blocks(deployment),
        engine.block_size,
        prefix=shares_blocks(engine),
        ttl_s=engine.prefix_cache_ttl_s,
        tiers=tiers_of(engine.kv_offload, max(1.0, memory.kv_bytes_per_token) * engine.block_size),
    )
    return Replica(deployment.step_time, limits, kv, POLICIES[engine.batching])
