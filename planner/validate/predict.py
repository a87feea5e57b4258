"""What the planner says about one case, in the terms of the measured table."""

from __future__ import annotations

from dataclasses import dataclass

from planner.plan import plan
from planner.validate.scenarios import CannotModel, Case


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted figures of a case, and what the plan said beside them."""

    metrics: dict[str, float]
    """By the names of `rows.METRICS`: seconds, or output tokens per second of all GPUs."""
    low_confidence: str
    """Why the kernels behind it are not the deployment's own; empty when they are."""
    saturated: bool
    """Requests waited for memory or seats beyond the closed loop's own wave."""


def predict(case: Case) -> Prediction:
    """Runs the case in benchmark mode. Raises CannotModel when the planner says that it cannot run."""
    answer = plan(case.scenario, effort="quick")
    blocking = [p for p in answer.problems if p.severity == "error" and p.code in ("does_not_fit", "illegal_parallelism")]
    if blocking or answer.load is None:
        raise CannotModel(f"the planner says: {blocking[0].code if blocking else 'nothing to simulate'}")
    seen = answer.load.metrics
    latency = seen.latency
    found = {
        "tpot": latency.tpot_s.mean if latency.tpot_s else None,
        "ttft": latency.ttft_s.mean if latency.ttft_s else None,
        "ttft_p50": latency.ttft_s.p50 if latency.ttft_s else None,
        "e2e": latency.e2e_s.mean if latency.e2e_s else None,
        "throughput": seen.throughput.output_tokens_per_s,
    }
    borrowed = [p.message for p in answer.problems if p.code == "low_confidence" and p.severity == "warning"]
    return Prediction(
        metrics={name: float(value) for name, value in found.items() if value},
        low_confidence=borrowed[0] if borrowed else "",
        saturated=seen.throughput.preemptions > 0 or seen.simulation.overloaded,
    )
