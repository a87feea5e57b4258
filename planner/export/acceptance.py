"""The acceptance test: three load points with the band that each measured figure must fall into, for people and for `check`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.export import loadtest
from planner.export.loadtest import Load
from planner.export.subject import Subject
from planner.measure.bands import UNSTATED_BAND, band
from planner.measure.lengths import lengths
from planner.problems import InputError

TEST_SHARES = (0.5, 1.0, 1.2)
METRICS = (("ttft", "ttft_s", "s", "TTFT"), ("tpot", "tpot_s", "ms", "TPOT"))
CLIENT_SPREAD = 0.05
"""What a client's own clock, its start and its last answers may take from or add to an open loop's throughput, beside chance."""
SIGMAS = 2.0
"""Standard errors of the run's arrivals and lengths that the band of an open loop's throughput leaves on either side."""
LOSING = {"overloaded", "requests_failed"}
"""Problems with which less comes out than arrives."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One figure of a benchmark result and where it must lie, SI units."""

    metric: str
    """ttft, tpot or throughput (output tokens per second)."""
    statistic: str
    """mean, p50, p95 …"""
    words: str
    unit: str
    """How it is shown."""
    predicted: float
    low: float
    high: float
    """A figure on the better side of the band passes too."""
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
    """The test's load points; only the plan's own load where no other was simulated, none where nothing was or no load can be stated."""
    whole = loadtest.load(s.scenario)
    if not s.simulated or s.errors or (whole.request_rate is None and whole.max_concurrency is None):
        return ()
    others = {float(p.name.rstrip("%")) / 100: p for p in s.extras.load_points if p.latency}
    codes = {str(p.get("code")) for p in s.problems}
    found = []
    for share in TEST_SHARES:
        losing = codes & LOSING
        if share == 1.0 and s.peak_to_mean == 1.0:
            plan: Mapping[str, Any] = s.plan
        elif share in others:
            plan = {"latency": others[share].latency, "throughput": others[share].throughput}
            losing = set(others[share].problems) & LOSING
        else:
            continue
        load = loadtest.load(s.scenario, share * s.peak_to_mean)
        expect = (*_latencies(s, plan, share), *_throughput(s, plan, load, bool(losing)))
        found.append(Point(f"{share:.0%} of the peak", f"load-{share * 100:.0f}", share, load, expect))
    if not found:
        load = loadtest.load(s.scenario, 1.0)
        expect = (*_latencies(s, s.plan, 1.0), *_throughput(s, s.plan, load, bool(codes & LOSING)))
        found.append(Point(s.load_words, "load-mean", 1 / s.peak_to_mean, load, expect))
    return tuple(found)


def _latencies(s: Subject, plan: Mapping[str, Any], share: float) -> list[Expectation]:
    found = []
    for metric, name, unit, words in METRICS:
        for statistic in dict.fromkeys(("p50", s.percentile)):
            predicted = (plan["latency"].get(name) or {}).get(statistic)
            try:
                stated = band(s.plan, metric, statistic)
            except InputError:
                continue
            if not predicted or not stated.mean:
                continue
            # Every load point is as uncertain as the planned one, in relative terms.
            low, high = (predicted * end / stated.mean for end in (stated.low, stated.high))
            why = "the plan's band" if stated.stated else f"±{UNSTATED_BAND:.0%}, for want of a stated band"
            promise = getattr(s.scenario.slo, name)
            if share <= 1.0 and statistic == s.percentile and promise is not None and predicted <= promise < high:
                high, why = promise, "up to the promise, tighter than the band"
            found.append(Expectation(metric, statistic, f"{words} {statistic}", unit, predicted, min(low, high), high, why))
    return found


def _throughput(s: Subject, plan: Mapping[str, Any], load: Load, losing: bool) -> list[Expectation]:
    """Output tokens per second over a finite run, which ends with a drain that no steady state has.

    A fleet that keeps up puts out what arrives, on average; one run of n requests differs from that by what its n gaps (of coefficient
    of variation 1 / √burstiness) and its n lengths happen to sum to.
    """
    predicted = (plan.get("throughput") or {}).get("output_tokens_per_s")
    served = (plan.get("throughput") or {}).get("requests_per_s") or 0.0
    if not predicted:
        return []
    spread, why = UNSTATED_BAND, f"−{UNSTATED_BAND:.0%}"
    if load.request_rate is not None:
        w, (_, outputs) = s.scenario.workload, lengths(s.scenario)
        chance = SIGMAS * math.sqrt((1 / w.burstiness + outputs.cv**2) / load.num_prompts)
        spread = min(0.9, CLIENT_SPREAD + chance)
        why = f"−{spread:.0%} by chance in {load.num_prompts:,} requests"
        if not losing:
            served = load.request_rate
            predicted = served * outputs.mean
            why = f"rate × mean answer, {why}"
    answer_s = ((plan.get("latency") or {}).get("e2e_s") or {}).get("p95") or 0.0
    sending_s = load.num_prompts / served if served else 0.0
    lasting = sending_s / (sending_s + answer_s) if sending_s else 1.0
    why += f", and the last answers' {answer_s:.0f} s counted in"
    low, high = predicted * lasting * (1 - spread), predicted * (1 + spread)
    return [Expectation("throughput", "mean", "Output tokens per second", "tokens_s", predicted, low, high, why)]


def machine_readable(s: Subject) -> dict[str, Any]:
    """The test as JSON data, in the form that `planner.measure.check` reads out of a plan file."""
    inputs, outputs = lengths(s.scenario)
    shared = loadtest.shared_tokens(s.scenario)
    listed = []
    for p in points(s):
        bands = {
            f"{e.metric}_{e.statistic}": {"low": e.low, "high": e.high, "statistic": e.statistic, "predicted": e.predicted}
            for e in p.expect
        }
        listed.append(
            {
                "name": p.name,
                "tag": p.tag,
                "share": p.share,
                "request_rate": p.load.request_rate,
                "max_concurrency": p.load.max_concurrency,
                "num_prompts": p.load.num_prompts,
                "input_len": shared + inputs.mean,
                "output_len": outputs.mean,
                "input_len_stdev": inputs.stdev,
                "output_len_stdev": outputs.stdev,
                "bands": bands,
            }
        )
    return {"version": 1, "points": listed}
