"""Plans over one or two fields, on this machine or on a cluster, with the same answer wherever they ran."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from planner import bounds
from planner.plan import Plan, plan
from planner.problems import InputError
from planner.scenario import Scenario, set_path

Row = dict[str, Any]

BENT = 3.0
"""Times its lowest value at which a latency has left the flat."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A dotted field of the scenario and the values it takes."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Figures at every point, in the order of the axes, the last one running fastest."""

    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]
    """Axis values by path, then the figures of `figures`."""
    missing: int = 0
    """Points that were not reached because the user stopped the sweep."""

    def grid(self, figure: str) -> list[list[Any]]:
        """A figure over two axes: one list per value of the first."""
        if len(self.axes) != 2:
            raise InputError(f"a grid needs two axes, this sweep has {len(self.axes)}")
        width = len(self.axes[1].values)
        cells = [row.get(figure) for row in self.rows]
        return [cells[i : i + width] for i in range(0, len(cells), width)]

    def knee(self) -> float | None:
        """Rate at which latency leaves the flat: the last one before the promised TTFT percentile is BENT times its lowest value.

        None when the axis is no rate or nothing bends.
        """
        if len(self.axes) != 1 or self.axes[0].path != "workload.request_rate":
            return None
        points = sorted((row["workload.request_rate"], row["ttft_slo_s"]) for row in self.rows if row.get("ttft_slo_s"))
        if len(points) < 3:
            return None
        flat = min(ttft for _, ttft in points)
        for (rate, _), (_, after) in pairwise(points):
            if after > BENT * flat:
                return rate
        return None


def axis(text: str) -> Axis:
    """An axis from `path=v1,v2,…` or `path=low:high:count` (evenly spaced; `low:high:count:log` by equal factors).

    Raises InputError for anything else.
    """
    path, equals, values = text.partition("=")
    if not equals or not path or not values:
        raise InputError(f"--axis {text!r}: write path=v1,v2,… or path=low:high:count, for example workload.request_rate=1:8:8")
    if ":" in values:
        return Axis(path.strip(), _range(text, values.split(":")))
    return Axis(path.strip(), tuple(_value(v.strip()) for v in values.split(",")))


def _range(text: str, parts: list[str]) -> tuple[float, ...]:
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        if len(parts) > 4 or (len(parts) == 4 and parts[3] != "log") or not 2 <= count <= bounds.MAX_SWEEP_POINTS or not low < high:
            raise ValueError
        if len(parts) == 4:
            return tuple(low * (high / low) ** (i / (count - 1)) for i in range(count))
        return tuple(low + (high - low) * i / (count - 1) for i in range(count))
    except (ValueError, IndexError, ZeroDivisionError):
        most = f"2 to {bounds.MAX_SWEEP_POINTS:,} points"
        raise InputError(f"--axis {text!r}: a range is low:high:count with low < high and {most}, or …:log") from None


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "null": None}.get(text, text)


def figures(answer: Plan) -> Row:
    """What a sweep keeps of a plan: one flat row of numbers, null where a part does not exist."""
    percentile = f"p{answer.scenario.slo.percentile}"
    row: Row = {"fits": answer.fits, "problems": [p.code for p in answer.problems if p.severity != "info"]}
    row["gpus"] = answer.cost.gpus
    memory, closed, load, bill = answer.memory, answer.roofline, answer.load, answer.cost
    row["cache_limited_batch"] = memory.cache_limited_batch if memory else None
    row["decode_step_s"] = closed.decode_step_s if closed else None
    row["prefill_tokens_per_s"] = closed.prefill_tokens_per_s if closed else None
    for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s"):
        seen = getattr(load.metrics.latency, name) if load else None
        stem = name.removesuffix("_s")
        row |= {f"{stem}_{p}_s": getattr(seen, p) if seen else None for p in ("p50", "p95", "p99")}
        row[f"{stem}_slo_s"] = getattr(seen, percentile) if seen else None
    for name in ("requests_per_s", "output_tokens_per_s", "mean_batch", "busy", "goodput_requests_per_s", "prefix_hit_rate", "preemptions"):
        row[name] = getattr(load.metrics.throughput, name) if load else None
    row["capacity_requests_per_s"] = load.capacity_requests_per_s if load else None
    row["meets_slo"] = meets_slo(answer)
    for name in ("usd_per_hour", "usd_per_month", "usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended", "usd_per_request"):
        row[name] = getattr(bill, name)
    return {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def strains(answer: Plan) -> dict[str, float]:
    """Observed over promised by latency, of the class that fares worst; infinite where the load cannot drain, empty where nothing ran."""
    worst: dict[str, float] = {}
    if answer.load is not None:
        for kept in answer.load.kept:
            strain_here = math.inf if answer.load.overloaded else kept.strain
            worst[kept.promise.name] = max(worst.get(kept.promise.name, 0.0), strain_here)
    return worst


def strain(answer: Plan) -> float:
    """The worst promise, observed over promised: 0 when nothing is promised, infinity when the plan cannot run or drain."""
    if not answer.fits or (answer.load is not None and answer.load.metrics.simulation.overloaded):
        return math.inf
    return max(strains(answer).values(), default=0.0)


def spread(answer: Plan, figure: str) -> float | None:
    """Half the plan's error band of `figure` (tpot, ttft, throughput, usd) over its middle; None where no band is known."""
    confidence = answer.confidence
    bands = confidence.get("bands") if isinstance(confidence, dict) else getattr(confidence, "bands", None)
    band = bands.get(figure) if isinstance(bands, dict) else getattr(bands, figure, None)
    if band is None or band[0] is None or band[1] is None or band[0] + band[1] <= 0:
        return None
    return float((band[1] - band[0]) / (band[1] + band[0]))


def meets_slo(answer: Plan) -> bool:
    """Whether the plan runs and keeps every promise at its percentile."""
    return answer.fits and strain(answer) <= 1.0


def point(scenario: Scenario, changes: Sequence[tuple[str, Any]], effort: str) -> Row:
    """One row: the changed scenario planned. A combination that is wrong by itself becomes a row that says so."""
    row: Row = dict(changes)
    try:
        for path, value in changes:
            scenario = set_path(scenario, path, value)
        return row | figures(plan(scenario, "quick" if effort == "quick" else "full"))
    except InputError as error:
        return row | {"fits": False, "meets_slo": False, "problems": ["wrong_input"], "error": str(error)}


def sweep(
    scenario: Scenario,
    axes: Sequence[Axis],
    effort: str = "quick",
    backend: str | None = None,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    measure: Callable[[Scenario, Sequence[tuple[str, Any]], str], Row] = point,
) -> Sweep:
    """Plan every combination of one or two axes.

    `backend` is a joblib backend by name: loky, threading, multiprocessing, or dask or ray where those are installed and
    a client is connected; `n_jobs` -1 uses every core. Every point draws from the scenario's own seed, so rows do not
    depend on where or in which order they ran. Raises InputError for unknown fields, too many points, or a backend that
    is not there.
    """
    if not 1 <= len(axes) <= 2:
        raise InputError(f"a sweep takes one or two axes, not {len(axes)}")
    points = math.prod(len(a.values) for a in axes)
    if not 1 <= points <= bounds.MAX_SWEEP_POINTS:
        raise InputError(f"a sweep has 1 to {bounds.MAX_SWEEP_POINTS:,} points, this one {points:,}; give fewer values")
    grid = [tuple(zip((a.path for a in axes), values, strict=True)) for values in product(*(a.values for a in axes))]
    for a in axes:
        set_path(scenario, a.path, _current(scenario, a.path))
    rows: list[Row] = []
    try:
        for row in _run(backend, n_jobs, measure, [(scenario, changes, effort) for changes in grid]):
            rows.append(row)
            if progress:
                progress(len(rows), len(grid))
    except KeyboardInterrupt:
        if not rows:
            raise
    return Sweep(tuple(axes), tuple(rows), missing=len(grid) - len(rows))


def _current(scenario: Scenario, path: str) -> Any:
    """The field's present value: setting it proves that the path exists, with the error of every other door."""
    value: Any = scenario
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _run(backend: str | None, n_jobs: int, call: Callable[..., Row], jobs: list[tuple[Any, ...]]) -> Iterator[Row]:
    """Rows in the order of the jobs, as they come."""
    if backend is None and n_jobs == 1:
        yield from (call(*job) for job in jobs)
        return
    try:
        import joblib
    except ImportError as error:
        raise InputError("several processes need the package joblib; run `pip install joblib`, or leave --jobs out") from error

    if backend == "ray":
        _register_ray()
    try:
        with joblib.parallel_config(backend=backend or "loky", n_jobs=n_jobs):
            yield from joblib.Parallel()(joblib.delayed(call)(*job) for job in jobs)
    except (ValueError, ImportError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"backend {backend!r}: {error}; use loky, threading, multiprocessing, or dask or ray with a running client"
        ) from error


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray
    except ImportError:
        raise InputError("backend 'ray': ray is not installed; pip install ray, or use loky") from None
    register_ray()
