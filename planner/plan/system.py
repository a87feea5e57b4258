"""The whole system of a scenario – one replica, a fleet, or two pools – built from deployments and run once."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from planner import bounds, traces, traffic, workload
from planner.kv_cache import KvCache, tiers_of
from planner.metrics import piling_up
from planner.plan import sessions
from planner.plan.deployment import Deployment
from planner.plan.pool import pool_blocks, shares_blocks
from planner.plan.steady import decode_shape, output_tokens, plan_batch
from planner.scenario import Scenario
from planner.scheduler import POLICIES, Replica, Timeline, limits_of, simulate
from planner.units import GB

if TYPE_CHECKING:
    from planner.fleet.disaggregated import Transfers

Deployments = tuple[Deployment, ...]
"""One, or the prefill and the decode deployment of a disaggregated plan."""


def simulated_share(scenario: Scenario) -> float:
    """Share of the fleet that is simulated: large fleets are represented by some of their replicas and those replicas' traffic."""
    return min(1.0, bounds.MAX_SIMULATED_REPLICAS / most_replicas(scenario))


def most_replicas(scenario: Scenario) -> int:
    """Replicas of the fleet, or of the larger pool."""
    split = scenario.disaggregation
    return scenario.fleet.replicas if split is None else max(split.prefill.replicas, split.decode.replicas)


def run_once(deployments: Deployments, scenario: Scenario, seed: int, rate_scale: float = 1.0) -> tuple[Timeline, Transfers | None]:
    """One simulated run of the fleet, or of the part of it that stands for the whole; with what moved between pools, if there are two.

    A planning run of sessions begins in the steady state that a closed form expects; where the answers then take another time, it is
    run again from the state that this time leads to – unless sessions pile up, which no time is long enough for.
    """
    share = simulated_share(scenario)
    if not sessions.begins_steady(scenario):
        return _run(deployments, scenario, seed, rate_scale, share, None)
    w = scenario.workload
    clients = None if w.max_concurrency is None else max(1, round(w.max_concurrency * share))
    rate = None if w.request_rate is None else w.request_rate * rate_scale * share
    turn_s = sessions.turn_s(deployments, scenario, rate, clients, simulated_replicas(scenario, share))
    for _ in range(REFINEMENTS):
        timeline, transfers = _run(deployments, scenario, seed, rate_scale, share, turn_s)
        seen_s = w.think_time_s + answer_s(timeline)
        if piling_up([timeline]) or not abs(seen_s - turn_s) > REFINED * turn_s:
            return timeline, transfers
        turn_s = seen_s
    return _run(deployments, scenario, seed, rate_scale, share, turn_s)


REFINEMENTS = 2
REFINED = 0.1
"""Error of the time from turn to turn that is left alone."""


def answer_s(timeline: Timeline) -> float:
    """Mean time of an answer after the warm-up, s; NaN where none ended."""
    late = timeline.finished & (timeline.arrival_s >= np.median(timeline.arrival_s)) if len(timeline) else timeline.finished
    return float((timeline.finish_s - timeline.arrival_s)[late].mean()) if late.any() else math.nan


def _run(
    deployments: Deployments, scenario: Scenario, seed: int, rate_scale: float, share: float, each_turn_s: float | None
) -> tuple[Timeline, Transfers | None]:
    split = scenario.disaggregation
    source = _source(deployments, scenario, seed, rate_scale * share, share, each_turn_s)

    def warm(replicas: list[Replica], prompts_only: bool = False) -> list[Replica]:
        grown = workload_growth(scenario)
        sessions.fill([r.kv for r in replicas], source.requests, scenario.fleet.routing, grown, each_turn_s or 0.0, prompts_only)
        return replicas

    def told(timeline: Timeline) -> Timeline:
        expected = source.requests.expected_requests
        return dataclasses.replace(timeline, session_turns=scenario.workload.turns, expected_requests=expected)

    if split is not None:
        from planner.fleet.disaggregated import Link
        from planner.fleet.disaggregated import simulate as simulate_pools

        prefill, decode = deployments
        arch, kv = decode.architecture, scenario.precision.kv_cache
        link = Link(f"{split.link_gb_s:g} GB/s per replica", split.link_gb_s * GB)
        prefills, decodes = (
            [replica(d) for _ in range(_count(pool.replicas, share))] for d, pool in ((prefill, split.prefill), (decode, split.decode))
        )

        def moved_bytes(tokens: int) -> float:
            return arch.kv_bytes(tokens, kv)

        run = simulate_pools(source, warm(prefills, True), decodes, moved_bytes, link, scenario.fleet.routing, bounds.MAX_STEPS_PER_RUN)
        return told(run.timeline), run.transfers
    replicas = _count(scenario.fleet.replicas, share)
    warmed = warm([replica(deployments[0]) for _ in range(replicas)])
    if replicas == 1:
        return told(simulate(source, warmed[0], bounds.MAX_STEPS_PER_RUN)), None
    from planner.fleet import simulate as simulate_fleet

    build = iter(warmed).__next__
    fleet = simulate_fleet(source, build, replicas, routing=scenario.fleet.routing, max_steps=bounds.MAX_STEPS_PER_RUN)
    return told(fleet.timeline), None


def _count(replicas: int, share: float) -> int:
    return max(1, round(replicas * share))


def workload_growth(scenario: Scenario) -> float:
    """Tokens by which a session grows each turn, mean."""
    means = traffic.of(scenario.workload)
    return 2 * (means.reusable_tokens - means.shared_tokens) / max(1, scenario.workload.turns - 1)


def _source(
    deployments: Deployments, scenario: Scenario, seed: int, rate_scale: float, share: float, each_turn_s: float | None
) -> workload.Source:
    """The clients of one run; `each_turn_s` from turn to turn where it begins with sessions under way."""
    wanted, engine = scenario.workload, deployments[0].scenario.engine
    clients = None if wanted.max_concurrency is None else max(1, round(wanted.max_concurrency * share))
    prompts = _prompts(deployments, scenario, rate_scale, share, clients, each_turn_s)
    prompts = min(prompts, bounds.MOST_REQUESTS_PER_RUN, scenario.simulation.max_requests)
    longest = deployments[0].memory.max_model_len
    rates, trace = deployments[-1].profile.acceptance_rates, trace_of(scenario)

    def drawn(prompts: int) -> workload.Requests:
        sized = wanted.model_copy(update={"num_prompts": prompts, "max_concurrency": clients})
        return workload.requests(sized, seed, rate_scale, rates, trace, each_turn_s, longest)

    requests = drawn(prompts)
    block_size = engine.block_size if shares_blocks(engine) else 0
    affordable = keyed_requests(requests, block_size, longest)
    if affordable < len(requests):
        requests = drawn(affordable if each_turn_s is None else max(1, prompts * affordable // len(requests)))
    return workload.Source(
        requests,
        block_size=block_size,
        longest_keyed=longest,
        max_concurrency=clients,
        priority_classes=wanted.priority_classes,
        deadline_s=wanted.deadline_s,
        retry_rate=wanted.retry_rate,
        seed=seed,
    )


def simulated_replicas(scenario: Scenario, share: float) -> tuple[int, ...]:
    """Simulated replicas of each deployment."""
    split = scenario.disaggregation
    whole = (scenario.fleet.replicas,) if split is None else (split.prefill.replicas, split.decode.replicas)
    return tuple(_count(n, share) for n in whole)


def _prompts(
    deployments: Deployments, scenario: Scenario, rate_scale: float, share: float, clients: int | None, each_turn_s: float | None
) -> int:
    """Requests that a run should have: what a benchmark client sends, or enough for a steady state."""
    prompts = scenario.workload.num_prompts
    if scenario.simulation.mode == "benchmark":
        return prompts
    return max(prompts * _count(most_replicas(scenario), share), _enough(deployments, scenario, rate_scale, clients, each_turn_s))


def keyed_requests(requests: workload.Requests, block_size: int, longest: int | None) -> int:
    """How many of the requests can be looked up in a prefix cache within the bound of work; at least one, all where nothing is shared."""
    if not block_size or not requests.shares_content:
        return len(requests)
    tokens = np.minimum(requests.input_tokens + requests.output_tokens, np.iinfo(np.int64).max if longest is None else longest)
    return max(1, int(np.searchsorted((tokens // block_size).cumsum(), bounds.MAX_KEYED_BLOCKS_PER_RUN, side="right")))


RESIDENCES = 5
"""A planning run lasts at least this many times what a request takes at the plan's batch, or it ends before it has warmed up."""


def _enough(deployments: Deployments, scenario: Scenario, rate_scale: float, clients: int | None, each_turn_s: float | None) -> int:
    """Requests that an open loop sends in RESIDENCES residence times, or RESIDENCES for each client of a closed one, within the bounds.

    A session resides for a turn and its pause: whether the histories stay in the cache shows over several of them.
    """
    rate = scenario.workload.request_rate
    if scenario.workload.trace is not None:
        return 0
    if not rate:
        return min(RESIDENCES * (clients or 0), bounds.MAX_REQUESTS_PER_RUN)
    if each_turn_s is not None:
        return min(math.ceil(rate * rate_scale * RESIDENCES * each_turn_s), bounds.MAX_REQUESTS_PER_RUN)
    decode = deployments[-1]
    step_s = decode.step_time(decode_shape(decode, max(1, plan_batch(decode, 1))))
    residence_s = output_tokens(scenario) / decode.profile.acceptance_length * step_s
    return min(math.ceil(rate * rate_scale * RESIDENCES * residence_s), bounds.MAX_REQUESTS_PER_RUN)


def left_out(scenario: Scenario, timeline: Timeline) -> int:
    """Requests that the scenario asks for in one run and that the bounds of work leave out."""
    trace = trace_of(scenario)
    asked = min(
        scenario.workload.num_prompts, scenario.simulation.max_requests, scenario.workload.num_prompts if trace is None else len(trace)
    )
    there = len(timeline) if timeline.expected_requests is None else max(len(timeline), round(timeline.expected_requests))
    missing = max(0, asked - there)
    # How many requests a steady stretch of sessions holds is a matter of chance.
    return 0 if timeline.stopped or (timeline.expected_requests is not None and missing < asked / 2) else missing


def trace_of(scenario: Scenario) -> Any:
    """The rows of the scenario's trace, if it replays one."""
    return None if scenario.workload.trace is None else traces.get(scenario.workload.trace)


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
