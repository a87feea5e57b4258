"""A planning run of sessions begins in its steady state: how long a turn lasts there, and what the caches hold."""

from __future__ import annotations

from collections.abc import Sequence

from planner import traffic
from planner.fleet.routing import Router
from planner.kv_cache import KvCache
from planner.plan.deployment import Deployment
from planner.plan.pool import pool_blocks, shares_blocks
from planner.plan.steady import decode_shape
from planner.roofline import StepShape
from planner.scenario import Scenario
from planner.workload import Requests

ITERATIONS = 30
HIGHEST_LOAD = 0.9
"""Share of time that prefill is taken to need at most: above it nothing is steady."""


def begins_steady(scenario: Scenario) -> bool:
    """Whether runs begin with sessions under way: planning, several turns, no trace."""
    w = scenario.workload
    return scenario.simulation.mode == "planning" and w.turns > 1 and w.trace is None and w.request_rate != 0


def turn_s(
    deployments: tuple[Deployment, ...], scenario: Scenario, rate: float | None, clients: int | None, replicas: tuple[int, ...]
) -> float:
    """Time from one turn of a session to its next in the steady state, s: the pause and a closed form of the answer.

    `rate` is requests/s, or `clients` are always under way, on as many `replicas` of each deployment. What is not found in the cache
    is computed again; with exponential pauses an LRU cache finds the share of the idle histories that it has room for.
    """
    means, think_s = traffic.of(scenario.workload), scenario.workload.think_time_s
    prefill, decode = deployments[0], deployments[-1]
    together = len(deployments) == 1  # prefill and decoding share the cache and the steps
    pool, offloaded = pool_tokens(decode), sum(tier.tokens for tier in prefill.memory.offload)
    histories = (pool if together else pool_tokens(prefill)) + offloaded
    found = round(means.reusable_tokens) if shares_blocks(prefill.scenario.engine) else 0
    prompt = max(1, round(means.input_tokens))
    hit_s, miss_s = (prefill_s(prefill, prompt, cached) for cached in (min(found, prompt - 1), 0))
    steps = max(0.0, means.output_tokens - 1) / decode.profile.acceptance_length
    seats = decode.scenario.engine.max_num_seqs * decode.scenario.parallel.data_parallel_size
    most = max(1.0, min(seats, pool / means.final_tokens))
    answer_s = hit_s
    for _ in range(ITERATIONS):
        each = rate if rate is not None else (clients or 1) / (think_s + answer_s)
        running = min(most, each / replicas[-1] * answer_s)
        room = histories - (running * means.final_tokens if together else 0.0)
        idle = each / replicas[0] * think_s * means.final_tokens
        hits = min(1.0, max(0.0, room) / idle) if idle else 1.0
        work_s = hits * hit_s + (1 - hits) * miss_s
        load = min(HIGHEST_LOAD, each / replicas[0] * work_s)
        step_s = decode.step_time(decode_shape(decode, max(1, round(running))))
        now_s = work_s * (1 + load / 2 / (1 - load)) + steps * step_s / (1 - (load if together else 0.0))
        answer_s = (answer_s + now_s) / 2
    return think_s + answer_s


def pool_tokens(deployment: Deployment) -> float:
    """Tokens that the simulated pool holds."""
    return float(pool_blocks(deployment) * deployment.scenario.engine.block_size)


def prefill_s(deployment: Deployment, prompt: int, cached: int) -> float:
    """Time of one prompt of which `cached` tokens are found, in chunks of the token budget."""
    budget = deployment.scenario.engine.max_num_batched_tokens
    starts = range(cached, prompt, budget)
    return sum(deployment.step_time(StepShape(chunks=((min(budget, prompt - at), at),))) for at in starts)


def fill(
    caches: Sequence[KvCache], requests: Requests, routing: str, turn_tokens: float, turn_s: float, prompts_only: bool = False
) -> None:
    """Put what sessions under way have left into the caches, as they were used: the newest histories that there is room for.

    A router that keeps sessions where they were put each on one replica; the others have shown every replica one of the last turns.
    `prompts_only` is a prefill pool, which never has the KV of an answer.
    """
    histories, size = requests.histories, caches[0].block_size
    if histories is None or not caches[0].prefix:
        return
    tokens = histories.prompt_tokens if prompts_only else histories.tokens
    router, names = Router("sticky"), range(len(caches))
    room = [cache.total_blocks + sum(tier.capacity_blocks for tier in cache.tiers) for cache in caches]
    chosen: list[list[tuple[float, int, int]]] = [[] for _ in caches]
    rows = list(zip(histories.used_s.tolist(), histories.session.tolist(), tokens.tolist(), strict=True))
    for used_s, session, held in reversed(rows):
        if max(room) <= 0:
            break
        home = session % len(caches)
        if routing == "sticky":
            first = requests.session_keys(session, requests.shared_tokens, requests.shared_tokens + size, size)
            home = router.choose(first, names, float, int)
        for back in range(len(caches) if routing in ("round_robin", "least_loaded") else 1):
            at, left = (home + back) % len(caches), int(held - back * turn_tokens)
            if left >= size and room[at] > 0:
                chosen[at].append((used_s - back * turn_s, session, left))
                room[at] -= left // size
    for cache, entries in zip(caches, chosen, strict=True):
        for used_s, session, left in sorted(entries):
            keys = requests.session_keys(session, min(requests.shared_tokens, left), left, size)[: cache.total_blocks]
            hits = cache.match(keys, used_s)
            cache.hold(keys[:hits])
            cache.take(len(keys) - hits)
            cache.publish(keys[hits:])
            cache.release(keys, used_s)
