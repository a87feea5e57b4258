"""One request on an idle machine: what it takes of a promise. What it breaks, no number of replicas mends."""

from __future__ import annotations

from dataclasses import dataclass

from planner import traffic
from planner.plan.deployment import Deployment, Deployments
from planner.plan.steady import decode_shape, prefill_alone_s
from planner.problems import Problem
from planner.scenario import Scenario
from planner.units import milliseconds


@dataclass(frozen=True, slots=True)
class Alone:
    """What a request alone on an idle machine takes of a promise."""

    name: str
    label: str
    what: str
    alone_s: float
    limit_s: float
    lever: str
    """What would make it faster."""


def alone(prefill: Deployment, decode: Deployment, scenario: Scenario) -> list[Alone]:
    """The promises that can be judged by one request on an idle machine; the two deployments are one unless pools are split."""
    slo, means, engine = scenario.slo, traffic.of(scenario.workload), scenario.engine
    prompt = max(1, round(traffic.prompt_quantile(scenario.workload, slo.percentile / 100)))
    tpot_s = decode.step_time(decode_shape(decode, 1)) / decode.profile.acceptance_length
    # What a cache holds costs a lone request nothing once it is warm, so only prompts that share nothing can be judged.
    grows = engine.enable_prefix_caching and (means.reusable_tokens > 0 or scenario.workload.trace is not None)
    faster = "a faster GPU or more tensor parallelism"
    found = []
    if slo.ttft_s is not None and not grows:
        what = f"a p{slo.percentile} prompt of {prompt:,} tokens"
        found.append(Alone("ttft_s", "TTFT", what, lone_ttft_s(prefill, prompt), slo.ttft_s, faster))
    if slo.tpot_s is not None:
        lever = "fewer bytes of weights, more tensor parallelism, or speculation"
        found.append(Alone("tpot_s", "TPOT", "one sequence", tpot_s, slo.tpot_s, lever))
    if slo.e2e_s is not None and not grows:
        answer_s = lone_ttft_s(prefill, max(1, round(means.input_tokens))) + tpot_s * max(0.0, means.output_tokens - 1)
        what = f"a mean request of {means.input_tokens:,.0f} + {means.output_tokens:,.0f} tokens"
        found.append(Alone("e2e_s", "the answer", what, answer_s, slo.e2e_s, f"{faster}, speculation, or shorter answers"))
    return found


def latency_problems(deployments: Deployments, scenario: Scenario) -> list[Problem]:
    """Promises that a request alone on an idle machine already breaks: replicas cannot mend those."""
    found = []
    for a in alone(deployments[0], deployments[-1], scenario):
        if a.alone_s > a.limit_s:
            takes, promised = milliseconds(a.alone_s), milliseconds(a.limit_s)
            message = f"{a.label} of {a.what} alone is {takes}, over the promised {promised}: more replicas will not help"
            found.append(Problem("infeasible_slo", "error", f"slo.{a.name}", message, f"It needs {a.lever}, or another promise."))
    return found


def lone_ttft_s(deployment: Deployment, prompt: int) -> float:
    """TTFT of one prompt on an idle replica, nothing cached, s."""
    return prefill_alone_s(deployment, prompt) + deployment.step_time.api_s
