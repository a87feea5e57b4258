"""Measured rows over a plan's bands: what agrees, which part of the system is off, and the one factor that would fix it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from planner.measure.bands import Band, band, figure
from planner.measure.deployment import as_measured
from planner.measure.predict import predicted
from planner.measure.rows import Row
from planner.problems import InputError
from planner.scenario import Calibration, Scenario
from planner.units import MS

Predict = Callable[[Row], Mapping[str, Any]]
"""A row → the plan's JSON at that row's load and lengths."""

MEASURED = {
    "ttft": ("ttft_mean_ms", "mean", MS),
    "ttft_p50": ("ttft_p50_ms", "p50", MS),
    "ttft_p99": ("ttft_p99_ms", "p99", MS),
    "tpot": ("tpot_mean_ms", "mean", MS),
    "tpot_p50": ("tpot_p50_ms", "p50", MS),
    "tpot_p99": ("tpot_p99_ms", "p99", MS),
    "e2e": ("e2e_mean_ms", "mean", MS),
    "throughput": ("out_tok_s_total", "mean", 1.0),
}
"""Metric → column of the row, statistic, and the factor that makes it SI."""

ENOUGH = {"mean": 1, "p50": 5, "p99": 100}
"""Requests that a statistic needs before it is compared; rows that do not say how many they hold are taken at their word."""

MOST_ROWS = 200
"""Rows compared at most: each one is a simulation."""

Verdict = Literal["agrees", "slower", "faster", "not measured"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one row against its band."""

    row: str
    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    stated: bool
    """The band is the plan's; otherwise ±20 % stands in for it."""
    error: float
    """Signed fraction predicted / measured − 1."""
    agrees: bool


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the system: what was measured of it, what the plan says, and the verdict. Seconds, or seconds per token."""

    name: Literal["queue", "prefill", "decode", "api"]
    verdict: Verdict
    measured: float | None
    predicted: float | None
    ratio: float | None
    """Measured over predicted."""
    how: str
    """How the measurement tells it, in one sentence."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What measured rows say about a plan."""

    comparisons: tuple[Comparison, ...]
    components: tuple[Component, ...]
    calibration: Calibration | None
    """The factor on step time that brings the decode of these rows onto the plan; None when nothing was measured for it."""
    sentence: str
    skipped: tuple[tuple[str, str], ...]
    """(row, why) of rows that could not be compared."""
    notes: tuple[str, ...] = ()
    """Rows of another deployment than the plan's, and what they were laid over instead."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON."""
        return {
            "sentence": self.sentence,
            "rows": [asdict(c) for c in self.comparisons],
            "components": [asdict(c) for c in self.components],
            "calibration": self.calibration.model_dump(mode="json") if self.calibration else None,
            "skipped": [{"row": name, "reason": why} for name, why in self.skipped],
            "notes": list(self.notes),
        }


def compare(rows: Sequence[Row], scenario: Scenario, predict: Predict | None = None) -> Findings:
    """Lay measured rows over what the planner says for the same lengths and load on `scenario`'s hardware and engine.

    A row that states another model, layout or precision is laid over a plan of that, which `notes` says; one of another GPU or engine is
    left out. `predict` replaces the planner, for plans that are at hand already. Raises InputError when no row can be compared.
    """
    if len(rows) > MOST_ROWS:
        raise InputError(f"{len(rows):,} rows are too many to compare with one plan; give at most {MOST_ROWS}, or use validate")
    ask = predict or (lambda row: predicted(scenario, row))
    pairs: list[tuple[Row, Mapping[str, Any]]] = []
    comparisons: list[Comparison] = []
    skipped: list[tuple[str, str]] = []
    notes: list[str] = []
    for i, row in enumerate(rows):
        try:
            _, note = as_measured(scenario, row)
            plan = ask(row)
        except InputError as error:
            skipped.append((_name(row, i), str(error)))
            continue
        found = _compare_row(row, plan, _name(row, i))
        if not found:
            skipped.append((_name(row, i), _why_nothing(plan)))
            continue
        pairs.append((row, plan))
        comparisons += found
        notes += [note] if note else []
    if not comparisons:
        why = skipped[0][1] if skipped else "there are none"
        raise InputError(f"no measured row could be compared: {why}")
    components = (_queue(pairs), *_prompt_and_api(pairs), _decode(pairs))
    factor = calibration([row for row, _ in pairs], pairs, scenario)
    return Findings(tuple(comparisons), components, factor, _sentence(comparisons, components), tuple(skipped), tuple(notes))


def _why_nothing(plan: Mapping[str, Any]) -> str:
    """Why a plan holds none of a row's figures."""
    errors = [p for p in plan.get("problems") or () if p.get("severity") == "error"]
    return f"the planner says: {errors[0].get('message')}" if errors else "it holds no figure that a plan predicts"


def _compare_row(row: Row, plan: Mapping[str, Any], name: str) -> list[Comparison]:
    found = []
    for metric, (column, statistic, scale) in MEASURED.items():
        measured = row.get(column)
        base = metric.split("_")[0]
        if measured is None or figure(plan, base, statistic) is None or (row.get("n_requests") or math.inf) < ENOUGH[statistic]:
            continue
        value, expected = measured * scale, band(plan, base, statistic)
        found.append(
            Comparison(
                name,
                metric,
                value,
                expected.mean,
                expected.low,
                expected.high,
                expected.stated,
                expected.mean / value - 1,
                expected.holds(value),
            )
        )
    return found


def _decode(pairs: Sequence[tuple[Row, Mapping[str, Any]]]) -> Component:
    """Decode is what TPOT shows."""
    points = [(row["tpot_mean_ms"] * MS, band(plan, "tpot")) for row, plan in pairs if row.get("tpot_mean_ms") and figure(plan, "tpot")]
    return _judge("decode", points, "TPOT: the time after the first token over the tokens after it", "no row holds TPOT")


def _queue(pairs: Sequence[tuple[Row, Mapping[str, Any]]]) -> Component:
    """The queue is what TTFT grows by when the same prompts are sent under load."""
    alone = [(row, plan) for row, plan in pairs if _is_alone(row) and row.get("ttft_mean_ms")]
    loaded = [(row, plan) for row, plan in pairs if not _is_alone(row) and row.get("ttft_mean_ms")]
    points = []
    for row, plan in loaded:
        base = min(alone, key=lambda pair: abs(math.log(pair[0]["isl_mean"] / row["isl_mean"])), default=None)
        if (
            base is None
            or not 0.8 <= base[0]["isl_mean"] / row["isl_mean"] <= 1.25
            or figure(plan, "ttft") is None
            or figure(base[1], "ttft") is None
        ):
            continue
        growth = (row["ttft_mean_ms"] - base[0]["ttft_mean_ms"]) * MS
        expected = band(plan, "ttft")
        growth_expected = expected.mean - band(base[1], "ttft").mean
        slack = max(expected.high - expected.mean, 1e-3), max(expected.mean - expected.low, 1e-3)
        points.append(
            (growth, Band("queue", "mean", growth_expected, growth_expected - slack[1], growth_expected + slack[0], expected.stated))
        )
    how = "TTFT under load less TTFT of the same prompts sent alone: waiting, and steps shared with others"
    return _judge("queue", points, how, "needs rows of one prompt length both alone (concurrency 1) and under load")


def _prompt_and_api(pairs: Sequence[tuple[Row, Mapping[str, Any]]]) -> tuple[Component, Component]:
    """Among requests sent alone, TTFT grows with the prompt by prefill and starts from a constant: API, network, one step."""
    alone = [
        (row, plan)
        for row, plan in pairs
        if _is_alone(row) and row.get("ttft_mean_ms") and not (row.get("cached_input_tokens") or 0) > 0.2 * row["isl_mean"]
    ]
    usable = [(row["isl_mean"], row["ttft_mean_ms"] * MS, band(plan, "ttft")) for row, plan in alone if figure(plan, "ttft") is not None]
    lengths = sorted({tokens for tokens, _, _ in usable})
    if len(lengths) < 2 or lengths[-1] < 2 * lengths[0]:
        missing = "needs prompts of two lengths, the longer at least twice the shorter, sent alone (concurrency 1)"
        return _judge("prefill", [], "", missing), _judge("api", [], "", missing)
    slope, constant = _line([(x, y) for x, y, _ in usable])
    slope_said, constant_said = _line([(x, b.mean) for x, _, b in usable])
    slope_low, constant_low = _line([(x, b.low) for x, _, b in usable])
    slope_high, constant_high = _line([(x, b.high) for x, _, b in usable])
    stated = all(b.stated for _, _, b in usable)
    prefill = Band("prefill", "mean", slope_said, min(slope_low, slope_high), max(slope_low, slope_high), stated)
    # A constant of a few milliseconds is at the edge of what a line through TTFTs can tell: leave it 20 ms.
    slack_s = max(0.02, 0.5 * abs(constant_said))
    api = Band(
        "api", "mean", constant_said, min(constant_low, constant_said - slack_s), max(constant_high, constant_said + slack_s), stated
    )
    return (
        _judge("prefill", [(slope, prefill)], "how TTFT grows with each prompt token when requests are sent alone", ""),
        _judge("api", [(constant, api)], "what TTFT starts from at an empty prompt: API, network and one step", ""),
    )


def _judge(name: Any, points: Sequence[tuple[float, Band]], how: str, missing: str) -> Component:
    if not points:
        return Component(name, "not measured", None, None, None, missing)
    measured = math.fsum(value for value, _ in points) / len(points)
    said = math.fsum(expected.mean for _, expected in points) / len(points)
    outside = [(value, expected) for value, expected in points if not expected.holds(value)]
    verdict: Verdict = "agrees"
    if len(outside) * 2 > len(points):
        verdict = "slower" if measured > said else "faster"
    # Seconds below a millisecond make no ratio worth reading; the difference tells more.
    ratio = measured / said if said > (1e-3 if name in ("queue", "api") else 0.0) else None
    return Component(name, verdict, measured, said, ratio, how)


def _is_alone(row: Row) -> bool:
    return row.get("load_kind") == "concurrency" and row.get("load_value") == 1 and bool(row.get("isl_mean"))


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and constant of the least-squares line, weighted by 1 / y² so that short prompts count as much as long ones."""
    weights = [1 / max(y, 1e-6) ** 2 for _, y in points]
    total = math.fsum(weights)
    mean_x = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    slope = math.fsum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)) / spread
    return slope, mean_y - slope * mean_x


def calibration(rows: Sequence[Row], pairs: Sequence[tuple[Row, Mapping[str, Any]]], scenario: Scenario) -> Calibration | None:
    """The one factor on step time: the geometric mean of measured over predicted TPOT, times the factor already in force.

    None when no row holds TPOT, or when the factor would be beyond what one number can repair (outside 0.05 to 20).
    """
    ratios = [row["tpot_mean_ms"] * MS / said for row, plan in pairs if row.get("tpot_mean_ms") and (said := figure(plan, "tpot"))]
    if not ratios:
        return None
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) * (scenario.calibration.factor if scenario.calibration else 1.0)
    if not 0.05 < factor < 20:
        return None
    sources = list(dict.fromkeys(str(row.get("source") or "measured rows") for row in rows))
    source = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
    return Calibration(
        engine=scenario.engine.name, gpu=scenario.hardware.gpu, factor=round(factor, 4), n_points=len(ratios), source=source[:200]
    )


def _ratio(value: float) -> str:
    return f"{value:.2f}" if 0.01 <= value < 1e4 else f"{value:.3g}"


def _sentence(comparisons: Sequence[Comparison], components: Sequence[Component]) -> str:
    agreed = sum(c.agrees for c in comparisons)
    told = f"{agreed} of {len(comparisons)} measured figures lie in the plan's bands"
    off = [c for c in components if c.verdict in ("slower", "faster") and c.measured is not None and c.predicted is not None]
    if off:
        worst = max(off, key=lambda c: abs(math.log(c.ratio)) if c.ratio and c.ratio > 0 else 0.0)
        gap_ms = abs((worst.measured or 0.0) - (worst.predicted or 0.0)) / MS
        by = f"a factor of {_ratio(worst.ratio)}" if worst.ratio and worst.ratio > 0 else f"{gap_ms:.3g} ms"
        told += f"; {_WORDS[worst.name]} is {worst.verdict} than planned by {by}"
        others = [f"{_WORDS[c.name]} ({c.verdict})" for c in off if c is not worst]
        told += f"; also off: {', '.join(others)}" if others else ""
    return told + "."


_WORDS = {"queue": "the queue", "prefill": "prefill", "decode": "decode", "api": "the API's constant time"}


def _name(row: Row, i: int) -> str:
    return str(row.get("id") or f"row {i + 1}")
