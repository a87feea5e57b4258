"""The simulated half of a plan: replications until the promise is known, and the largest rate that keeps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from planner import bounds, capacity, traces, workload
from planner.cost import Load
from planner.kv_cache import KvCache, tiers_of
from planner.metrics import Metrics, overloaded, promised, settled, summarize
from planner.plan.deployment import Deployment
from planner.plan.steady import decode_shape, input_tokens, output_tokens, plan_batch, prefill_rate
from planner.scenario import Scenario
from planner.scheduler import POLICIES, Replica, Timeline, limits_of, simulate

Effort = Literal["quick", "full"]
"""quick: one run, no capacity search; full: as many runs as the promise needs, and the capacity."""

CAPACITY_TOLERANCE = 0.03
CAPACITY_PROBES = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the plan does under its traffic."""

    metrics: Metrics
    timelines: tuple[Timeline, ...]
    """One per replication, in the order of their seeds."""
    capacity_requests_per_s: float | None
    """Largest rate of the whole fleet at which every promise holds at its percentile; None where none was searched."""
    utilization: float | None
    """Offered rate over that capacity."""
    probes: tuple[capacity.Probe, ...] = ()
    """Rates tried by the search, with the worst latency over its promise at each."""

    @property
    def cost_load(self) -> Load:
        """One second of the steady state, in the terms the bill is split by."""
        t = self.metrics.throughput
        cached = t.input_tokens_per_s * t.prefix_hit_rate
        return Load(
            duration_s=1.0,
            requests=t.requests_per_s,
            input_tokens=t.input_tokens_per_s - cached,
            cached_tokens=cached,
            output_tokens=t.output_tokens_per_s,
            input_busy_s=sum(run.input_busy_s for run in self.timelines),
            cached_busy_s=sum(run.cached_busy_s for run in self.timelines),
            output_busy_s=sum(run.output_busy_s for run in self.timelines),
        )


def simulated(deployment: Deployment, scenario: Scenario, effort: Effort) -> Loaded | None:
    """Run the scenario on `deployment`; None when no request ever arrives."""
    if scenario.workload.request_rate == 0 and scenario.workload.max_concurrency is None and scenario.workload.trace is None:
        return None
    api_s = api_overhead_s(deployment)
    slo, mode = scenario.slo, scenario.simulation.mode

    def run(seed: int, rate_scale: float = 1.0) -> Timeline:
        return run_once(deployment, scenario, scenario.workload.seed + seed, rate_scale)

    wanted = scenario.simulation.replications or (1 if effort == "quick" or mode == "benchmark" else bounds.MAX_REPLICATIONS)
    fixed = scenario.simulation.replications is not None
    timelines = [run(0)]
    while len(timelines) < wanted and affordable(timelines, scenario):
        if not fixed and (overloaded(timelines[0]) or settled(timelines, slo, api_s)):
            break
        timelines.append(run(len(timelines)))
    metrics = summarize(timelines, slo, mode, api_s, [c.slo for c in scenario.workload.priority_classes])
    found = None
    if effort == "full" and scenario.workload.request_rate:
        found = search_capacity(deployment, scenario, lambda scale: run(0, scale), api_s)
    rate = found.rate if found else None
    utilization = scenario.workload.request_rate / rate if rate and scenario.workload.request_rate else None
    return Loaded(metrics, tuple(timelines), rate, utilization, found.probes if found else ())


def affordable(timelines: list[Timeline], scenario: Scenario) -> bool:
    """Whether one more run like those before stays within the bounds of work."""
    runs = len(timelines)
    steps, requests = sum(t.steps for t in timelines), sum(len(t) for t in timelines)
    return steps * (runs + 1) / runs <= bounds.MAX_STEPS_PER_PLAN and requests * (runs + 1) / runs <= scenario.simulation.max_requests


def run_once(deployment: Deployment, scenario: Scenario, seed: int, rate_scale: float = 1.0) -> Timeline:
    """One simulated run. A fleet's traffic is thinned to one replica's share."""
    traffic = scenario.workload
    replicas = scenario.fleet.replicas
    requests = workload.requests(
        traffic.model_copy(update={"num_prompts": min(traffic.num_prompts, scenario.simulation.max_requests)}),
        seed,
        rate_scale / replicas,
        deployment.profile.acceptance_rates,
        trace_of(scenario),
    )
    clients = traffic.max_concurrency if traffic.max_concurrency is None else max(1, round(traffic.max_concurrency / replicas))
    engine = deployment.scenario.engine
    source = workload.Source(
        requests,
        block_size=engine.block_size if engine.enable_prefix_caching else 0,
        max_concurrency=clients,
        priority_classes=traffic.priority_classes,
        deadline_s=traffic.deadline_s,
        retry_rate=traffic.retry_rate,
        seed=seed,
    )
    return simulate(source, replica(deployment), bounds.MAX_STEPS_PER_RUN)


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
    blocks = max(1, int(pool_tokens(deployment)) // engine.block_size)
    kv = KvCache(
        blocks,
        engine.block_size,
        prefix=engine.enable_prefix_caching,
        ttl_s=engine.prefix_cache_ttl_s,
        tiers=tiers_of(engine.kv_offload, memory.kv_bytes_per_token * engine.block_size),
    )
    return Replica(deployment.step_time, limits, kv, POLICIES[engine.batching])


def pool_tokens(deployment: Deployment) -> float:
    """Tokens of this traffic that the pool holds: where windows or states cap what a sequence keeps, more than the engine prints."""
    memory = deployment.memory
    if not memory.windowed_kv_bytes_per_token_per_gpu and not memory.state_bytes_per_sequence_per_gpu:
        return memory.kv_pool_tokens
    length = input_tokens(deployment.scenario) + output_tokens(deployment.scenario)
    return memory.cache_limited_batch * length


def api_overhead_s(deployment: Deployment) -> float:
    """Time outside the engine that TTFT includes; none at the idealised levels."""
    return deployment.step_time.api_s


def search_capacity(deployment: Deployment, scenario: Scenario, run: Callable[[float], Timeline], api_s: float) -> capacity.Capacity | None:
    """Largest rate of the whole fleet that keeps every promise at its percentile, with the same random numbers at every rate."""
    slo, offered = scenario.slo, scenario.workload.request_rate
    promises = {name: getattr(slo, name) for name in ("ttft_s", "tpot_s", "e2e_s") if getattr(slo, name) is not None}
    if not offered:
        return None
    spent = 0

    def strain(rate: float) -> float:
        nonlocal spent
        if spent > bounds.MAX_STEPS_PER_PLAN:
            return inf
        timeline = run(rate / offered)
        spent += timeline.steps
        if overloaded(timeline):
            return inf
        seen = promised(timeline, slo, api_s)
        return max((seen[name] / promises[name] for name in seen), default=0.0)

    return capacity.largest_rate(strain, saturation_rate(deployment, scenario), CAPACITY_TOLERANCE, max_probes=CAPACITY_PROBES)


def saturation_rate(deployment: Deployment, scenario: Scenario) -> float:
    """Closed-form guess of the fleet's largest rate: a request costs its prefill alone and its share of full decode steps."""
    batch = max(1, plan_batch(deployment, scenario.fleet.replicas))
    prompt = max(1, round(input_tokens(scenario)))
    step_s = deployment.step_time(decode_shape(deployment, batch))
    decode_s = output_tokens(scenario) / deployment.profile.acceptance_length * step_s / batch
    return scenario.fleet.replicas / (prompt / prefill_rate(deployment, prompt) + decode_s)
