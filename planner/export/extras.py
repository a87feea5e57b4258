"""What a document says beyond its plan: the rows of its optional tables, as data that travels with the document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner import demand
from planner.scenario import Scenario

REQUEST_COLUMNS = (
    "arrival_s",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "queue_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "preemptions",
    "status",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One what-if plan in the figures that decide."""

    name: str
    change: str
    """What was changed, in words."""
    request_rate: float | None
    max_concurrency: int | None
    replicas: int
    latency: Mapping[str, Any]
    """The `latency` part of that plan, or empty where it cannot run."""
    throughput: Mapping[str, Any]
    meets_slo: bool | None
    usd_per_month: float | None
    usd_per_request: float | None
    problems: tuple[str, ...] = ()
    """Codes of its errors and warnings."""


@dataclass(frozen=True, slots=True)
class Lever:
    """One input moved down and up."""

    name: str
    low: Outcome
    high: Outcome


@dataclass(frozen=True, slots=True)
class Resized:
    """One input moved, with the fleet sized again for the promises at the peak."""

    name: str
    low_change: str
    high_change: str
    low_replicas: int
    """0 when no number of replicas keeps the promises."""
    high_replicas: int
    low_usd_per_month: float | None
    high_usd_per_month: float | None
    low_api_usd_per_month: float | None
    high_api_usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class WeekBill:
    """One way to run a week of demand."""

    name: str
    mean_replicas: float
    peak_replicas: int
    missed_share: float | None
    """Share of requests that come while demand is above what is ready."""
    usd_per_month: float
    note: str


@dataclass(frozen=True, slots=True)
class Extras:
    """Every optional table of a document. Empty parts are said to be missing."""

    load_points: tuple[Outcome, ...] = ()
    failures: tuple[Outcome, ...] = ()
    levers: tuple[Lever, ...] = ()
    cases: tuple[Outcome, ...] = ()
    """Pessimistic, base, optimistic."""
    resized: tuple[Resized, ...] = ()
    week: tuple[WeekBill, ...] = ()
    """Static, autoscaled and cheapest to pay for, where there is a demand curve."""
    requests: tuple[Mapping[str, Any], ...] = ()
    """Simulated requests of one run, one row each."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def from_dict(data: Mapping[str, Any]) -> Extras:
    """Extras back from the JSON that a document carries; rows of a form we do not know are left out."""

    def row(raw: Mapping[str, Any]) -> Outcome:
        known = {name: raw[name] for name in Outcome.__slots__}
        return Outcome(**{**known, "problems": tuple(known["problems"])})

    try:
        return Extras(
            load_points=tuple(row(r) for r in data["load_points"]),
            failures=tuple(row(r) for r in data["failures"]),
            levers=tuple(Lever(r["name"], row(r["low"]), row(r["high"])) for r in data["levers"]),
            cases=tuple(row(r) for r in data["cases"]),
            resized=tuple(Resized(**r) for r in data["resized"]),
            week=tuple(WeekBill(**r) for r in data["week"]),
            requests=tuple(data["requests"]),
        )
    except (KeyError, TypeError, AttributeError):
        return Extras()


def requests(timeline: Any, most: int) -> tuple[dict[str, Any], ...]:
    """The first requests of a simulated run, one row each; null where something never happened."""
    from planner.scheduler.timeline import STATUSES

    rows = []
    for i in range(min(len(timeline), most)):
        arrival, scheduled, first, finish = (
            float(column[i]) for column in (timeline.arrival_s, timeline.scheduled_s, timeline.first_token_s, timeline.finish_s)
        )
        tokens = int(timeline.output_tokens[i])
        rows.append(
            {
                "arrival_s": _finite(arrival),
                "input_tokens": int(timeline.input_tokens[i]),
                "cached_tokens": int(timeline.cached_tokens[i]),
                "output_tokens": tokens,
                "queue_s": _finite(scheduled - arrival),
                "ttft_s": _finite(first - arrival),
                "tpot_s": _finite((finish - first) / (tokens - 1)) if tokens > 1 else None,
                "e2e_s": _finite(finish - arrival),
                "preemptions": int(timeline.preemptions[i]),
                "status": STATUSES[int(timeline.status[i])],
            }
        )
    return tuple(rows)


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def peak_to_mean(scenario: Scenario) -> float:
    """Busiest hour of the week over its mean; 1 where no demand curve is given or the load is no rate.

    With a curve `workload.request_rate` is the week's mean, and the fleet has to hold at the busiest hour.
    """
    w, curve = scenario.workload, scenario.fleet.demand_curve
    if curve is None or w.request_rate is None or w.max_concurrency is not None or w.trace is not None:
        return 1.0
    hours = demand.curve(curve)
    return float(hours.max() / hours.mean())
