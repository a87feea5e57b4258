"""The acceptance test: three load points with the band that each measured figure must fall into, for people and for `check`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.export import loadtest
from planner.export.loadtest import Load
from planner.export.subject import Subject
from planner.measure.bands import UNSTATED_BAND, band
from planner.problems import InputError

TEST_SHARES = (0.5, 1.0, 1.2)
METRICS = (("ttft", "ttft_s", "s", "TTFT"), ("tpot", "tpot_s", "ms", "TPOT"))
RUN_SPREAD = 0.05
"""Open-loop runs of a few hundred requests arrive within this of the rate that was asked for."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One figure of a benchmark result and where it must lie, SI units."""

    metric: str
    """ttft, tpot or request_throughput."""
    statistic: str
    """mean, p50, p95 …"""
    words: str
    unit: str
    """How it is shown."""
    predicted: float
    low: float | None
    """None where being better is no failure."""
    high: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Point:
    """One load to run."""

    name: str
    tag: str
    """Word in the names of result files."""
    share: float
    load: Load
    expect: tuple[Expectation, ...]


def points(s: Subject) -> tuple[Point, ...]:
    """The test's load points; only the planned load where no other was simulated, none where nothing was."""
    if not s.simulated or s.errors:
        return ()
    others = {float(p.name.rstrip("%")) / 100: p for p in s.extras.load_points if p.latency}
    found = []
    for share in TEST_SHARES:
        if share == 1.0:
            plan: Mapping[str, Any] = s.plan
        elif share in others:
            at = others[share]
            # Every load point is as uncertain as the planned one, in relative terms.
            plan = {"latency": at.latency, "throughput": at.throughput, "confidence": {"bands": at.bands or None}}
        else:
            continue
        expect = (*_latencies(s, plan, share), *_throughput(plan, s, share))
        load = loadtest.load(s.scenario, share)
        found.append(Point(f"{share:.0%} of the plan", f"load-{share * 100:.0f}", share, load, expect))
    return tuple(found)


def _latencies(s: Subject, plan: Mapping[str, Any], share: float) -> list[Expectation]:
    found = []
    for metric, name, unit, words in METRICS:
        for statistic in dict.fromkeys(("p50", s.percentile)):
            try:
                stated = band(plan, metric, statistic)
            except InputError:
                continue
            high, why = stated.high, "the plan's band" if stated.stated else f"±{UNSTATED_BAND:.0%}, for want of a stated band"
            promise = getattr(s.scenario.slo, name)
            if share <= 1.0 and statistic == s.percentile and promise is not None and stated.mean <= promise < high:
                high, why = promise, "the promise, tighter than the band"
            found.append(Expectation(metric, statistic, f"{words} {statistic}", unit, stated.mean, None, high, why))
    return found


def _throughput(plan: Mapping[str, Any], s: Subject, share: float) -> list[Expectation]:
    served = (plan.get("throughput") or {}).get("requests_per_s")
    if not served:
        return []
    rate = s.scenario.workload.request_rate
    if rate is not None and s.scenario.workload.trace is None:
        # What arrives is served unless the point overloads the fleet.
        served = min(served, rate * share) if served < 0.95 * rate * share else rate * share
        return [Expectation("request_throughput", "mean", "requests served per second", "requests_s", served, served * (1 - RUN_SPREAD), None, f"−{RUN_SPREAD:.0%}: what arrives is served")]
    low = served * (1 - UNSTATED_BAND)
    return [Expectation("request_throughput", "mean", "requests served per second", "requests_s", served, low, None, f"−{UNSTATED_BAND:.0%}")]


def machine_readable(s: Subject) -> dict[str, Any]:
    """The test as JSON data: what `check` reads out of a plan file."""
    return {
        "version": 1,
        "points": [
            {
                "name": p.name,
                "tag": p.tag,
                "share": p.share,
                "request_rate": p.load.request_rate,
                "max_concurrency": p.load.max_concurrency,
                "num_prompts": p.load.num_prompts,
                "expect": [
                    {"metric": e.metric, "statistic": e.statistic, "predicted": e.predicted, "low": e.low, "high": e.high, "why": e.why} for e in p.expect
                ],
            }
            for p in points(s)
        ],
    }
