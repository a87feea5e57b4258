"""How wrong a plan may be: bands from the errors on measured rows, a grade, and the nearest measured points.

The shipped residuals (`catalog/residuals.csv`) hold what the planner predicted and what was measured. A plan borrows the errors
of rows like it: every (model, GPU) group counts once, weighted by how alike it is in silicon, kind of model, engine and load.
The 80 % band lies between weighted quantiles of log(measured / predicted); where groups like it are few, the rest widen it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from planner.architecture import Architecture
from planner.catalog.gpus import gpus
from planner.catalog.residuals import METRICS, Residual, residuals
from planner.scenario import Scenario

TAIL = {"tpot": 0.075, "ttft": 0.085, "throughput": 0.10}
"""Weight left outside the band on either side. Fewer groups hold times than throughputs, so their quantiles are taken further out;
with whole (model, GPU) groups left out, each band holds 80 % ± 7 of the measurements."""

NEIGHBOUR = 6.0
"""Weight of a group with the very model, GPU and engine; 1 is any group of the same class."""
UNLIKE = {"family": 0.6, "vendor": 0.15, "model_class": 0.25, "engine": 0.7, "regime": 0.3, "limit": 0.05}
"""Factor on a group's weight for each way in which it differs; chosen on whole groups left out."""
AT_LIMIT = "open loop at its limit"
"""Regime of runs whose rate was raised until a promise just held: their latencies are the promise's, not the step's."""
KNOWN_TO_FAIL = 0.30
"""Median |log(measured / predicted)| of a class's own groups beyond which it gets a bound instead of a band around the point."""


@dataclass(frozen=True, slots=True)
class Target:
    """What decides which measured rows a plan resembles."""

    model: str
    gpu: str
    family: str
    model_class: str
    engine: str
    regime: str


@dataclass(frozen=True, slots=True)
class Band:
    """Factors on a predicted figure between which four of five measurements fall."""

    low: float
    high: float
    groups: int
    """(model, GPU) groups of the same silicon family and kind of model behind it."""
    neighbour: bool
    """The very model, GPU and engine were measured."""
    at_most: bool = False
    """The class is known to come out above the prediction's good side: the point is a bound (throughput at most, time at least)."""


def target(scenario: Scenario, arch: Architecture, gpu: str) -> Target:
    """The scenario in the terms of the residuals."""
    moe = any(g.mlp and g.mlp.experts for g in arch.layers)
    load = scenario.workload
    regime = "open loop" if load.request_rate is not None else "closed loop"
    if load.request_rate is None and load.max_concurrency is not None and load.max_concurrency >= load.num_prompts:
        regime = "offline"
    return Target(arch.name, gpu, gpus()[gpu].family, "moe" if moe else "dense", scenario.engine.name, regime)


@lru_cache(maxsize=512)
def band(t: Target, metric: str, level: str = "calibrated", rows: tuple[Residual, ...] | None = None) -> Band | None:
    """The band of one metric for a target; None when no row has the metric. `rows` replaces the shipped ones (tests)."""
    groups: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    own: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    neighbour = False
    for row in residuals() if rows is None else rows:
        error = row.log_error(metric, level)
        if error is None:
            continue
        groups[row.model, row.gpu].append((similarity(t, row), error))
        if (row.family, row.model_class) == (t.family, t.model_class):
            own[row.model, row.gpu].append(error)
        neighbour = neighbour or (row.model, row.gpu, row.engine) == (t.model, t.gpu, t.engine)
    if not groups:
        return None
    weighted = [(weight / len(members), error) for members in groups.values() for weight, error in members]
    tail = TAIL.get(metric, 0.10)
    low, high = quantile(weighted, tail), quantile(weighted, 1 - tail)
    centre = quantile([(1 / len(errors), e) for errors in own.values() for e in errors], 0.5) if own else 0.0
    return Band(math.exp(low), math.exp(high), len(own), neighbour, abs(centre) > KNOWN_TO_FAIL)


def similarity(t: Target, row: Residual) -> float:
    """Weight of a row for a target: 1 for the same class, more for the very deployment, less for each difference."""
    weight = NEIGHBOUR if (row.model, row.gpu, row.engine) == (t.model, t.gpu, t.engine) else 1.0
    if row.family != t.family:
        weight *= UNLIKE["family"] if _nvidia(row.family) == _nvidia(t.family) else UNLIKE["vendor"]
    for name in ("model_class", "engine"):
        if getattr(row, name) != getattr(t, name):
            weight *= UNLIKE[name]
    if row.regime != t.regime:
        weight *= UNLIKE["limit" if AT_LIMIT in (row.regime, t.regime) else "regime"]
    return weight


def _nvidia(family: str) -> bool:
    return not family.startswith(("cdna", "tpu", "gaudi", "neuron"))


def quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Weighted quantile: the value below which `share` of the weight lies, interpolated between the middles of the weights."""
    ordered = sorted(weighted, key=lambda item: item[1])
    total = sum(weight for weight, _ in ordered)
    below = 0.0
    last: tuple[float, float] | None = None
    for weight, value in ordered:
        middle = (below + weight / 2) / total
        if middle >= share:
            if last is None or middle == last[0]:
                return value
            return last[1] + (value - last[1]) * (share - last[0]) / (middle - last[0])
        below += weight
        last = middle, value
    return ordered[-1][1]


def grade(found: Band | None) -> str:
    """A: the deployment itself was measured. B: its silicon family and kind of model were, on two groups or more. C: extrapolated."""
    if found is None:
        return "C"
    return "A" if found.neighbour else "B" if found.groups >= 2 else "C"


def confidence(
    scenario: Scenario,
    arch: Architecture,
    gpu: str,
    figures: Mapping[str, float | None],
    sampling: Mapping[str, float] | None = None,
    rerun: Callable[[float], Mapping[str, float | None]] | None = None,
    borrowed: float = 0.0,
) -> dict[str, Any]:
    """The `confidence` part of a plan.

    `figures` are the plan's means of tpot, ttft (s), throughput (tokens/s) and usd (per million output tokens); `sampling` their
    relative half-widths from the replications; `rerun(scale)` answers the same figures with every step time multiplied, because
    queues amplify an error of the step. `borrowed` is what kernels of another data type add to the step's error, half-width on the log
    scale; a measured neighbour then proves less, so the grade is B at best. Bands are [low, high] in the figure's unit and
    always hold the figure itself.
    """
    level = scenario.fidelity
    if level == "textbook":
        return {"grade": "C", "fidelity": level, "bands": None, "one_sided": {}, "nearest_measured": []}
    t = target(scenario, arch, gpu)
    factors = {metric: _widened(band(t, metric, level), borrowed) for metric in ("tpot", "ttft", "throughput")}
    step = factors["tpot"] or factors["throughput"]
    slow = fast = figures
    if rerun is not None and step is not None:
        slow, fast = rerun(step.high), rerun(step.low)
    bands: dict[str, list[float]] = {}
    bounds: dict[str, str] = {}
    for metric, value in figures.items():
        if not value:
            continue
        low = high = value
        if metric == "usd":
            inverse = factors["throughput"] or step
            if inverse is not None:
                low, high = value / inverse.high, value / inverse.low
        elif metric == "throughput" and rerun is not None and scenario.workload.request_rate is not None:
            pass  # an open loop sends what it sends; only a step slow enough to overload it changes what comes out
        elif (f := factors.get(metric)) is not None:
            low, high = value * f.low, value * f.high
            if f.at_most:
                bounds[metric] = "at most" if metric == "throughput" else "at least"
        for other in (slow.get(metric), fast.get(metric)):
            if other:
                low, high = min(low, other), max(high, other)
        spread = (sampling or {}).get(metric, 0.0)
        low, high = combined(value, low, high, spread)
        bands[metric] = [min(low, value), max(high, value)]
    return {
        "grade": grade(step),
        "fidelity": level,
        "bands": bands or None,
        "one_sided": bounds,
        "nearest_measured": nearest(scenario, t, level),
    }


def _widened(found: Band | None, borrowed: float) -> Band | None:
    """The band of a step whose kernels are partly another data type's."""
    if found is None or borrowed <= 0:
        return found
    low, high = combined(1.0, found.low, found.high, borrowed)
    return replace(found, low=low, high=high, neighbour=False)


def combined(value: float, low: float, high: float, spread: float) -> tuple[float, float]:
    """Model and sampling error, independent, added in quadrature on the log scale."""
    if spread <= 0:
        return low, high
    down, up = max(0.0, math.log(value / low)), max(0.0, math.log(high / value))
    return value * math.exp(-math.hypot(down, spread)), value * math.exp(math.hypot(up, spread))


def nearest(scenario: Scenario, t: Target, level: str = "calibrated", count: int = 3) -> list[dict[str, Any]]:
    """The measured rows most like the scenario, at most one per (model, GPU, engine), with the planner's error on each."""
    gpus_of_plan = scenario.parallel.gpus
    load = scenario.workload.max_concurrency or 0

    def distance(row: Residual) -> float:
        apart = 0.0 if row.model == t.model else 1.0
        apart += 0.0 if row.gpu == t.gpu else 1.0 if row.family == t.family else 2.5
        apart += 0.0 if row.engine == t.engine else 0.6
        apart += 0.0 if row.model_class == t.model_class else 2.0
        apart += 0.0 if row.regime == t.regime else 0.5
        apart += 0.2 * abs(math.log2(max(1, row.gpus) / gpus_of_plan))
        if load and row.concurrency:
            apart += 0.05 * abs(math.log2(row.concurrency / load))
        return apart

    found: list[dict[str, Any]] = []
    seen: set[tuple[str, str, str]] = set()
    for row in sorted(residuals(), key=distance):
        key = (row.model, row.gpu, row.engine)
        if key in seen:
            continue
        errors = {m: math.exp(-e) - 1 for m in METRICS if (e := row.log_error(m, level)) is not None}
        metric = "tpot" if "tpot" in errors else "throughput" if "throughput" in errors else next(iter(errors), None)
        if metric is None:
            continue
        seen.add(key)
        found.append(
            {
                "source": row.source,
                "date": row.date,
                "model": row.model,
                "gpu": row.gpu,
                "gpus": row.gpus,
                "engine": row.engine,
                "load": row.load,
                "metric": metric,
                "measured": row.measured[metric],
                "predicted": row.predicted[level][metric],
                "error": errors[metric],
            }
        )
        if len(found) == count:
            break
    return found
