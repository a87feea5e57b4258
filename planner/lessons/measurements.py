"""The chapter's two measurements, on a simulated replica instead of an API: latency against prompt length, and a repeated prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner import traces, workload
from planner.metrics import tpot_s, ttft_s
from planner.plan import deployment
from planner.plan.system import replica
from planner.scenario import Scenario
from planner.scheduler import simulate

PROMPT_LENGTHS = (50, 500, 5_000)


@dataclass(frozen=True, slots=True)
class Measured:
    """One request on an otherwise idle replica, as its client sees it."""

    input_tokens: int
    cached_tokens: int
    ttft_s: float
    tpot_s: float


def lone_requests(
    scenario: Scenario, input_tokens: Sequence[int], output_tokens: int, gap_s: float, same_content: bool = False
) -> tuple[Measured, ...]:
    """Send requests one after another, `gap_s` apart; `same_content` makes each prompt begin like the one before it.

    Raises InputError when the scenario's layout or model cannot be read; the model must fit.
    """
    deployed = deployment.of(scenario)
    block = scenario.engine.block_size
    starts = [0 if same_content else i * 10**6 for i in range(len(input_tokens))]
    ids = tuple(tuple(range(start, start - (-n // block))) for start, n in zip(starts, input_tokens, strict=True))
    recorded = traces.Trace(
        name="lone requests",
        arrival_s=np.arange(len(input_tokens)) * gap_s,
        input_tokens=np.array(input_tokens),
        output_tokens=np.full(len(input_tokens), output_tokens),
        hash_ids=ids,
        hash_tokens=block,
    )
    traffic = scenario.workload.model_copy(update={"num_prompts": len(input_tokens)})
    rows = workload.requests(traffic, acceptance_rates=deployed.profile.acceptance_rates, trace=recorded)
    source = workload.Source(rows, block_size=block if scenario.engine.enable_prefix_caching else 0)
    timeline = simulate(source, replica(deployed))
    columns = (timeline.input_tokens, timeline.cached_tokens, ttft_s(timeline, deployed.step_time.api_s), tpot_s(timeline))
    return tuple(Measured(int(n), int(cached), float(ttft), float(tpot)) for n, cached, ttft, tpot in zip(*columns, strict=True))


def by_prompt_length(scenario: Scenario, lengths: Sequence[int] = PROMPT_LENGTHS, output_tokens: int = 600) -> tuple[Measured, ...]:
    """TTFT and TPOT of lone requests of these prompt lengths: the first grows with the prompt, the second hardly."""
    return lone_requests(scenario, lengths, output_tokens, gap_s=600.0)


def repeated_prompt(scenario: Scenario, input_tokens: int = 5_000, output_tokens: int = 600, gap_s: float = 30.0) -> tuple[Measured, ...]:
    """The same prompt twice within a minute: the second time its full blocks are found in the prefix cache."""
    return lone_requests(scenario, (input_tokens, input_tokens), output_tokens, gap_s, same_content=True)
