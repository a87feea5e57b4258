"""How far a plan's figures may be off: residuals of its class, the error of the step time run through the queue, and sampling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner import architecture, bands
from planner.cost import Cost
from planner.metrics import Metrics, summarize
from planner.plan import deployment as deployments
from planner.plan.deployment import Deployments
from planner.plan.load import Effort, Loaded, trace_pace
from planner.plan.system import run_once
from planner.scenario import Scenario

Figures = dict[str, float | None]


def confidence(scenario: Scenario, built: Deployments, load: Loaded | None, cost: Cost, effort: Effort) -> dict[str, Any]:
    """The `confidence` part: grade, bands of the mean TPOT and TTFT, throughput and dollars per million output tokens, nearest rows."""
    figures = _figures(load.metrics) | {"usd": cost.usd_per_mtok_output} if load else {}
    sampling = _sampling(load.metrics) if load else {}
    rerun = _rerun(scenario, built, load, figures) if load and effort == "full" and not load.overloaded else None
    gpu = scenario.disaggregation.decode.gpu if scenario.disaggregation else scenario.hardware.gpu
    borrowed = max((d.step_time.spread for d in built), default=0.0)
    return bands.confidence(scenario, architecture.of(scenario.model), gpu, figures, sampling, rerun, borrowed)


def _figures(metrics: Metrics) -> Figures:
    latency = metrics.latency
    return {
        "tpot": latency.tpot_s.mean if latency.tpot_s else None,
        "ttft": latency.ttft_s.mean if latency.ttft_s else None,
        "throughput": metrics.throughput.output_tokens_per_s or None,
    }


def _sampling(metrics: Metrics) -> dict[str, float]:
    """Half the width of the 95 % interval over the replications, relative to the percentile it belongs to."""
    found = {}
    for name, latency in (("tpot", metrics.latency.tpot_s), ("ttft", metrics.latency.ttft_s)):
        if latency is not None and latency.p95_ci is not None and latency.p95 > 0:
            low, high = latency.p95_ci
            found[name] = (high - low) / 2 / latency.p95
    return found


def _rerun(scenario: Scenario, built: Deployments, load: Loaded, figures: Figures) -> Callable[[float], Mapping[str, float | None]]:
    """The plan's figures had every step taken `scale` times as long: one run with the first run's random numbers, as a ratio to it."""
    slo, mode, api_s = scenario.slo, scenario.simulation.mode, built[0].step_time.api_s
    base = _figures(summarize([load.timelines[0]], slo, mode, api_s))

    def again(scale: float) -> Figures:
        slower = tuple(deployments.of(d.scenario, scale) for d in built)
        timeline, _ = run_once(slower, scenario, scenario.workload.seed, trace_pace(scenario))
        seen = _figures(summarize([timeline], slo, mode, api_s))
        return {name: _times(figures[name], seen[name], base[name]) for name in base}

    return again


def _times(value: float | None, new: float | None, old: float | None) -> float | None:
    return value * new / old if value and new and old else None
