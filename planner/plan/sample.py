"""What one run simulates of a scenario: some of its replicas, and the requests that their clients send."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner import bounds, traces, workload
from planner.plan.deployment import Deployments
from planner.plan.pool import shares_blocks
from planner.plan.steady import decode_shape, output_tokens, plan_batch
from planner.scenario import Scenario
from planner.scheduler import Timeline

RESIDENCES = 5
"""A planning run lasts at least this many times what a request takes at the plan's batch, or it ends before it has warmed up."""


def simulated_share(scenario: Scenario) -> float:
    """Share of the fleet that is simulated: large fleets are represented by some of their replicas and those replicas' traffic."""
    return min(1.0, bounds.MAX_SIMULATED_REPLICAS / most_replicas(scenario))


def most_replicas(scenario: Scenario) -> int:
    """Replicas of the fleet, or of the larger pool."""
    split = scenario.disaggregation
    return scenario.fleet.replicas if split is None else max(split.prefill.replicas, split.decode.replicas)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run that is to be made."""

    deployments: Deployments
    scenario: Scenario
    seed: int
    share: float
    """Of the fleet: see `simulated_share`."""
    rate_scale: float
    """Arrivals at the simulated replicas over those that the scenario offers to the whole fleet."""
    each_turn_s: float | None = None
    """Time from turn to turn, where the run begins with sessions under way."""

    def of(self, replicas: int) -> int:
        """How many of so many replicas are simulated."""
        return max(1, round(replicas * self.share))

    @property
    def replicas(self) -> tuple[int, ...]:
        """Simulated replicas of each deployment."""
        split = self.scenario.disaggregation
        whole = (self.scenario.fleet.replicas,) if split is None else (split.prefill.replicas, split.decode.replicas)
        return tuple(self.of(n) for n in whole)

    @property
    def clients(self) -> int | None:
        """Simulated clients of a closed loop."""
        most = self.scenario.workload.max_concurrency
        return None if most is None else max(1, round(most * self.share))

    def turning(self, each_turn_s: float) -> Sample:
        """The same run, begun with sessions whose turns take this long."""
        return replace(self, each_turn_s=each_turn_s)


def source(sample: Sample) -> workload.Source:
    """The clients of one run."""
    scenario, wanted, engine = sample.scenario, sample.scenario.workload, sample.deployments[0].scenario.engine
    prompts = min(_prompts(sample), bounds.MOST_REQUESTS_PER_RUN, scenario.simulation.max_requests)
    longest = sample.deployments[0].memory.max_model_len
    rates, trace = sample.deployments[-1].profile.acceptance_rates, trace_of(scenario)

    def drawn(prompts: int) -> workload.Requests:
        sized = wanted.model_copy(update={"num_prompts": prompts, "max_concurrency": sample.clients})
        return workload.requests(sized, sample.seed, sample.rate_scale, rates, trace, sample.each_turn_s, longest)

    requests = drawn(prompts)
    block_size = engine.block_size if shares_blocks(engine) else 0
    affordable = keyed_requests(requests, block_size, longest)
    if affordable < len(requests):
        requests = drawn(affordable if sample.each_turn_s is None else max(1, prompts * affordable // len(requests)))
    return workload.Source(
        requests,
        block_size=block_size,
        longest_keyed=longest,
        max_concurrency=sample.clients,
        priority_classes=wanted.priority_classes,
        deadline_s=wanted.deadline_s,
        retry_rate=wanted.retry_rate,
        seed=sample.seed,
    )


def _prompts(sample: Sample) -> int:
    """Requests that a run should have: what a benchmark client sends, or enough for a steady state."""
    prompts = sample.scenario.workload.num_prompts
    if sample.scenario.simulation.mode == "benchmark":
        return prompts
    return max(prompts * sample.of(most_replicas(sample.scenario)), _enough(sample))


def _enough(sample: Sample) -> int:
    """Requests that an open loop sends in RESIDENCES residence times, or RESIDENCES for each client of a closed one, within the bounds.

    A session resides for a turn and its pause: whether the histories stay in the cache shows over several of them.
    """
    load, decode = sample.scenario.workload, sample.deployments[-1]
    if load.trace is not None:
        return 0
    if not load.request_rate:
        return min(RESIDENCES * (sample.clients or 0), bounds.MAX_REQUESTS_PER_RUN)
    resides_s = sample.each_turn_s
    if resides_s is None:
        step_s = decode.step_time(decode_shape(decode, max(1, plan_batch(decode, 1))))
        resides_s = output_tokens(sample.scenario) / decode.profile.acceptance_length * step_s
    return min(math.ceil(load.request_rate * sample.rate_scale * RESIDENCES * resides_s), bounds.MAX_REQUESTS_PER_RUN)


def keyed_requests(requests: workload.Requests, block_size: int, longest: int | None) -> int:
    """How many of the requests can be looked up in a prefix cache within the bound of work; at least one, all where nothing is shared."""
    if not block_size or not requests.shares_content:
        return len(requests)
    tokens = np.minimum(requests.input_tokens + requests.output_tokens, np.iinfo(np.int64).max if longest is None else longest)
    return max(1, int(np.searchsorted((tokens // block_size).cumsum(), bounds.MAX_KEYED_BLOCKS_PER_RUN, side="right")))


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
