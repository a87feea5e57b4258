"""The acceptance test: benchmark results against the bands that a plan promised, pass or fail for each band."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from planner.measure.bands import FIGURES, band, figure
from planner.measure.deployment import conflicts
from planner.measure.lengths import lengths
from planner.measure.rows import Row
from planner.problems import InputError
from planner.scenario import Scenario, parse
from planner.units import MS

Status = Literal["pass", "fail", "not measured"]
SAME_LOAD = 0.05
SAME_LENGTH = 0.1
"""Relative differences up to which a row stands for a load point."""
MEANS_APART = 3.0
"""Standard errors by which the mean length of a run may differ from the plan's besides, since a run is one sample of it."""
FEW_REQUESTS = 200
"""Requests of a run that does not say how many it held: what the plan's commands send at least."""
MORE_IS_BETTER = ("throughput",)
COLUMNS = {"ttft": "ttft_{}_ms", "tpot": "tpot_{}_ms", "e2e": "e2e_{}_ms"}


@dataclass(frozen=True, slots=True)
class Point:
    """One load at which a plan makes promises."""

    name: str
    load_kind: Literal["rate", "concurrency"]
    load_value: float
    input_len: float
    output_len: float
    input_len_stdev: float
    output_len_stdev: float
    bands: tuple[tuple[str, str, float, float], ...]
    """(metric, statistic, low, high), SI."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One band and what was measured for it. SI units (seconds, tokens per second)."""

    point: str
    row: str | None
    metric: str
    statistic: str
    low: float
    high: float
    measured: float | None
    status: Status
    note: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """All verdicts, and the one that counts."""

    verdicts: tuple[Verdict, ...]
    passed: bool
    """Every band that was measured passed, and at least one was."""
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {"passed": self.passed, "sentence": self.sentence, "verdicts": [asdict(v) for v in self.verdicts]}


DAMAGE = (AttributeError, ArithmeticError, IndexError, KeyError, TypeError, ValueError)
"""What a plan file of other shapes than ours makes of reading it."""


def check(plan: Mapping[str, Any], rows: Sequence[Row]) -> Checked:
    """Hold measured rows against the bands of a plan's JSON: those of its `acceptance` part, or the plan's own load point.

    A figure better than its band passes, with a note. Raises InputError when the plan states no band or when no row was
    measured at a load of the plan.
    """
    try:
        points = tuple(load_points(plan))
    except DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError("the figures of the plan file are damaged; make it again with `plan … --json`") from error
    scenario = parse(plan["scenario"])
    others = [why for row in rows if (why := conflicts(scenario, row))]
    rows = [row for row in rows if not conflicts(scenario, row)]
    if others and not rows:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        raise InputError(f"no result is of the plan's own deployment{more}: {others[0]}")
    verdicts: list[Verdict] = []
    matched = False
    for point in points:
        row = next((r for r in rows if _matches(point, r)), None)
        matched = matched or row is not None
        verdicts += [_verdict(point, row, *promise) for promise in point.bands]
        if row is not None and row.get("n_failed"):
            # Latencies of the requests that survived say little when others did not.
            verdicts.append(Verdict(point.name, str(row.get("id")), "failed requests", "count", 0.0, 0.0, row["n_failed"], "fail"))
    if not matched:
        asked = "; ".join(f"{p.load_kind} {p.load_value:g} with {p.input_len:,.0f} in and {p.output_len:,.0f} out" for p in points)
        held = "; ".join(_load(r) for r in rows[:3]) + (" …" if len(rows) > 3 else "")
        raise InputError(f"no result was measured at a load of the plan ({asked}); the results are at {held}")
    measured = [v for v in verdicts if v.status != "not measured"]
    failed = [v for v in measured if v.status == "fail"]
    told = f"{len(measured) - len(failed)} of {len(measured)} measured bands passed"
    if failed:
        told += ": " + ", ".join(f"{v.metric} {v.statistic} failed" for v in failed[:3]) + (" …" if len(failed) > 3 else "")
    if others:
        told += f"; {len(others)} results are of another deployment: {others[0]}"
    if len(measured) < len(verdicts):
        told += f"; {len(verdicts) - len(measured)} bands were not measured"
    return Checked(tuple(verdicts), bool(measured) and not failed, told + ".")


def load_points(plan: Mapping[str, Any]) -> Iterator[Point]:
    """The loads at which the plan makes promises.

    `acceptance` holds points with `request_rate` or `max_concurrency`, optional `input_len` and `output_len`, and `bands`:
    a name such as `ttft_s` or `tpot_p95_s` → [low, high] or {low, high, statistic}. Without it, the plan's workload is the point.
    """
    if not isinstance(plan.get("scenario"), Mapping):
        raise InputError("the plan file has no scenario; give a plan made by `plan … --json`")
    scenario = parse(plan["scenario"])
    listed = plan.get("acceptance") or plan.get("acceptance_test")
    if isinstance(listed, Mapping):
        listed = listed.get("points") or listed.get("load_points")
    if listed:
        for i, raw in enumerate(listed):
            yield _listed(raw, i, scenario)
        return
    workload = scenario.workload
    if workload.request_rate is None and workload.max_concurrency is None:
        raise InputError("the plan replays a trace, so it has no one load to check against; give its `acceptance` points")
    bands = []
    for metric in ("ttft", "tpot", "e2e", "throughput"):
        for statistic in ("mean",) if metric == "throughput" else ("mean", f"p{scenario.slo.percentile}"):
            if figure(plan, metric, statistic) is not None:
                found = band(plan, metric, statistic)
                bands.append((metric, statistic, found.low, found.high))
    if not bands:
        raise InputError("the plan states no latency and no throughput, so there is nothing to check; see its problems")
    closed = workload.request_rate is None
    value = float((workload.max_concurrency if closed else workload.request_rate) or 0.0)
    yield Point("the plan's load", "concurrency" if closed else "rate", value, **_lengths({}, scenario), bands=tuple(bands))


def _listed(raw: Any, i: int, scenario: Scenario) -> Point:
    where = f"acceptance point {i + 1}"
    if not isinstance(raw, Mapping) or not isinstance(raw.get("bands"), Mapping):
        raise InputError(f"{where} has no bands; give an object of metric → [low, high]")
    rate, clients = _positive(raw.get("request_rate")), _positive(raw.get("max_concurrency"))
    if rate is None and clients is None:
        raise InputError(f"{where} has no load; give request_rate or max_concurrency")
    bands = []
    for name, value in raw["bands"].items():
        metric = next((m for m in FIGURES if str(name).startswith(m)), None) or ("throughput" if "throughput" in str(name) else None)
        pair = [value.get("low"), value.get("high")] if isinstance(value, Mapping) else value
        numbers = [_positive(v) for v in pair] if isinstance(pair, (list, tuple)) and len(pair) == 2 else [None]
        if metric is None or None in numbers:
            raise InputError(f"{where}, band {name!r}, is {value!r}; give [low, high] for one of {', '.join(FIGURES)}")
        statistic = value.get("statistic") if isinstance(value, Mapping) else None
        found = re.search(r"p50|p90|p95|p99", str(name))
        low, high = numbers[0] or 0.0, numbers[1] or 0.0
        bands.append((metric, str(statistic or (found.group() if found else "mean")), low, high))
    return Point(
        str(raw.get("name") or where),
        "rate" if rate is not None else "concurrency",
        float(rate if rate is not None else clients or 0.0),
        **_lengths(raw, scenario),
        bands=tuple(bands),
    )


def _lengths(raw: Mapping[str, Any], scenario: Scenario) -> dict[str, float]:
    """Lengths that a point states, or else the scenario's."""
    inputs, outputs = lengths(scenario)
    shared = 0.0 if scenario.workload.trace is not None else float(round(scenario.workload.shared_prefix_len))
    own = {
        "input_len": shared + inputs.mean,
        "output_len": outputs.mean,
        "input_len_stdev": inputs.stdev,
        "output_len_stdev": outputs.stdev,
    }
    return {name: _positive(raw.get(name)) or value for name, value in own.items()}


def _verdict(point: Point, row: Row | None, metric: str, statistic: str, low: float, high: float) -> Verdict:
    measured = None
    if row is not None:
        value = row.get("out_tok_s_total") if metric in MORE_IS_BETTER else row.get(COLUMNS.get(metric, "{}").format(statistic))
        measured = None if value is None else value * (1.0 if metric in MORE_IS_BETTER else MS)
    name = str(row.get("id")) if row else None
    if measured is None:
        why = "no result at this load" if row is None else f"the result holds no {metric} {statistic}"
        return Verdict(point.name, name, metric, statistic, low, high, None, "not measured", why)
    worse, better = (measured < low, measured > high) if metric in MORE_IS_BETTER else (measured > high, measured < low)
    return Verdict(
        point.name, name, metric, statistic, low, high, measured, "fail" if worse else "pass", "better than the band" if better else ""
    )


def _matches(point: Point, row: Row) -> bool:
    count = row.get("n_requests") or FEW_REQUESTS
    lengths_of = (
        (row.get("isl_mean"), point.input_len, point.input_len_stdev),
        (row.get("osl_mean"), point.output_len, point.output_len_stdev),
    )
    return (
        row.get("load_kind") == point.load_kind
        and _near(row.get("load_value"), point.load_value, SAME_LOAD)
        # A benchmark that does not state its lengths is taken at its word about the load.
        and all(
            measured is None or _near(measured, planned, SAME_LENGTH + MEANS_APART * stdev / planned / count**0.5)
            for measured, planned, stdev in lengths_of
        )
    )


def _near(value: float | None, aim: float, tolerance: float) -> bool:
    return value is not None and abs(value - aim) <= tolerance * aim


def _load(row: Row) -> str:
    value = f" {row['load_value']:g}" if row.get("load_value") is not None else ""
    lengths = " with {} in and {} out".format(*(f"{v:,.0f}" if v is not None else "?" for v in (row.get("isl_mean"), row.get("osl_mean"))))
    return f"{row.get('load_kind') or 'unknown load'}{value}{lengths}"


def _positive(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf") else None
