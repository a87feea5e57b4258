"""What a document is about: a plan's JSON, read once, with the few facts that several sections need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import Any

from planner import links
from planner.catalog.rental import STALE_AFTER_DAYS
from planner.export.extras import Extras, Outcome, peak_to_mean
from planner.export.promises import verdicts
from planner.plan.growth import Larger, larger
from planner.scenario import SCHEMA_VERSION, Scenario
from planner.units import HOUR_S, HOURS_PER_MONTH

LATENCY_NAMES = {"ttft_s": "Time to first token", "tpot_s": "Time per output token", "e2e_s": "Whole answer"}
LATENCY_UNITS = {"ttft_s": "s", "ttft_answer_s": "s", "tpot_s": "ms", "itl_s": "ms", "e2e_s": "s", "queue_s": "s"}
"""Units are fixed per quantity, so that columns compare."""
SERVICE_S = 3600 * HOURS_PER_MONTH


@dataclass(frozen=True, slots=True)
class Cover:
    """What only the author knows. Nothing is filled in for them."""

    author: str = ""
    status: str = "draft"
    horizon: str = ""
    dated: str = ""
    """ISO date of the document; empty means the newest date of the data in it, so that bytes stay the same."""


@dataclass(frozen=True)
class Subject:
    """A plan as the sections of a document read it."""

    plan: Mapping[str, Any]
    extras: Extras = field(default_factory=Extras)
    cover: Cover = field(default_factory=Cover)

    @cached_property
    def scenario(self) -> Scenario:
        return Scenario.model_validate(self.plan["scenario"])

    def part(self, name: str) -> Mapping[str, Any]:
        """One part of the plan; an empty mapping where it is null or absent, as in plans of older versions."""
        return self.plan.get(name) or {}

    @cached_property
    def problems(self) -> list[Mapping[str, Any]]:
        return list(self.plan.get("problems") or ())

    @cached_property
    def errors(self) -> list[Mapping[str, Any]]:
        return [p for p in self.problems if p.get("severity") == "error"]

    @cached_property
    def fits(self) -> bool:
        return bool(self.part("memory").get("fits"))

    @cached_property
    def simulated(self) -> bool:
        return self.part("latency").get("ttft_s") is not None

    @property
    def percentile(self) -> str:
        return f"p{self.scenario.slo.percentile}"

    def latency(self, name: str, statistic: str | None = None) -> float | None:
        """One latency figure, seconds; at the promise's percentile unless another statistic is named."""
        return (self.part("latency").get(name) or {}).get(statistic or self.percentile)

    @cached_property
    def title(self) -> str:
        return self.scenario.name or f"{self.part('architecture').get('name') or self.scenario.model.name} on {self.purchase}"

    @cached_property
    def purchase(self) -> str:
        """What has to be bought, in words: 4 × h100-sxm as 1 replica of TP2 and 1 spare."""
        s = self.scenario
        split = s.disaggregation
        if split is not None:
            pools = [("prefill", split.prefill), ("decode", split.decode)]
            words = [f"{p.replicas + s.fleet.spares} × {p.parallel.gpus} × {p.gpu} for {role}" for role, p in pools]
            return f"{self.gpus_paid} GPUs: " + ", ".join(words)
        replicas = "replica" if s.fleet.replicas == 1 else "replicas"
        spare = f" and {s.fleet.spares} spare" if s.fleet.spares else ""
        return f"{self.gpus_paid} × {s.hardware.gpu} as {s.fleet.replicas} {replicas} of {layout(s)}{spare}"

    @cached_property
    def gpus_paid(self) -> int:
        known = self.part("cost").get("gpus")
        return int(known) if known else self.scenario.gpus + self.scenario.fleet.spares * self.scenario.parallel.gpus

    @cached_property
    def link(self) -> str:
        """Query string that restores the scenario, with the date of its price data and the floor price of output tokens."""
        floor = self.part("cost").get("floor") or {}
        return links.url("", links.share(self.scenario, self.price_date, floor.get("usd_per_mtok_output")))

    @cached_property
    def input_hash(self) -> str:
        """First 12 hex digits of the SHA-256 of the scenario's canonical JSON."""
        text = json.dumps(self.plan["scenario"], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def price_dates(self) -> list[str]:
        """Dates of the price data in use, whole ISO dates, oldest first."""
        cost = self.part("cost")
        rows = [*(cost.get("gpu_hours") or ()), *(cost.get("list_prices") or ())]
        return sorted(whole_date(row["date"]) for row in rows if row.get("date"))

    @cached_property
    def price_date(self) -> str | None:
        return self.price_dates[-1] if self.price_dates else self.scenario.price.as_of

    @cached_property
    def dated(self) -> str:
        if self.cover.dated:
            return self.cover.dated
        dates = [whole_date(r["date"]) for r in self.plan.get("provenance") or () if r.get("date")]
        return max([*dates, *self.price_dates], default="")

    @cached_property
    def expires(self) -> str:
        """Day on which the first price in use turns stale; empty where no price is dated."""
        if not self.price_dates:
            return ""
        return (date.fromisoformat(self.price_dates[0]) + timedelta(days=STALE_AFTER_DAYS)).isoformat()

    @cached_property
    def requests_per_s(self) -> float | None:
        """The rate that dollars per request stand on, mean of the week: what arrives, or what was served where that is another thing.

        One sample of arrivals has a rate a little off the one asked for; volumes, bills and break-evens would not agree in it.
        """
        cost = self.part("cost")
        if cost.get("usd_per_request") and cost.get("usd_per_hour"):
            return float(cost["usd_per_hour"] / HOUR_S / cost["usd_per_request"])
        served = self.part("throughput").get("requests_per_s")
        return served or None

    @cached_property
    def requests_per_month(self) -> float | None:
        """Requests of a month at the rate that the bill is divided by, around the clock."""
        return self.requests_per_s * SERVICE_S if self.requests_per_s else None

    @cached_property
    def monthly_range(self) -> tuple[float | None, float | None, float | None]:
        """The month's bill at the lowest, planned and highest published price of a GPU-hour."""
        cost = self.part("cost")
        month = cost.get("usd_per_month")
        hours = [h for h in cost.get("gpu_hours") or () if h["usd"]]
        if month is None or not hours:
            return month, month, month
        other = self.scenario.price.other_usd_per_hour * HOURS_PER_MONTH
        low, high = (sum(h[end] / h["usd"] for h in hours) / len(hours) for end in ("low", "high"))
        return (month - other) * low + other, month, (month - other) * high + other

    @cached_property
    def peak_to_mean(self) -> float:
        """Busiest hour over the mean one; 1 without a demand curve."""
        return peak_to_mean(self.scenario)

    @property
    def load_words(self) -> str:
        """What load the plan's own latencies are seen at."""
        return "the planned load" if self.peak_to_mean == 1.0 else "the week's mean load"

    @property
    def peak_words(self) -> str:
        """The load that the fleet has to hold."""
        return "the planned load" if self.peak_to_mean == 1.0 else "the busiest hour"

    @cached_property
    def peak(self) -> Outcome | None:
        """What the busiest hour sees, where it is not the plan itself and was simulated."""
        return next((p for p in self.extras.load_points if p.name == "100%"), None) if self.peak_to_mean != 1.0 else None

    def at_peak(self, name: str) -> float | None:
        """One latency at the promise's percentile in the busiest hour; the plan's own where that is no other."""
        if self.peak is None:
            return self.latency(name)
        return (self.peak.latency.get(name) or {}).get(self.percentile)

    def promises(self) -> list[tuple[str, float, float | None]]:
        """(latency name, promised seconds, predicted seconds at the percentile and at the peak load) of every promise made."""
        slo = self.scenario.slo
        made = [(name, getattr(slo, name)) for name in LATENCY_NAMES]
        return [(name, promise, self.at_peak(name)) for name, promise in made if promise is not None]

    @cached_property
    def verdicts(self) -> list[Mapping[str, Any]]:
        """What became of every promise at the plan's own load, those to single classes included: see `promises.verdicts`."""
        return verdicts(self.plan, self.scenario.slo)

    @cached_property
    def kept(self) -> dict[str, bool]:
        """By latency name, whether the common promise on it is kept at the plan's own load."""
        return {promise["name"]: promise["kept"] for promise in self.verdicts if not promise["to"]}

    @cached_property
    def meets_slo(self) -> bool | None:
        """Whether every promise holds at its percentile at the peak load; None where that was not simulated."""
        if not self.simulated or (self.peak_to_mean != 1.0 and self.peak is None):
            return None
        kept = all(promise["kept"] for promise in self.verdicts) if self.peak is None else self.peak.meets_slo
        return not self.errors and bool(kept)

    @cached_property
    def to_buy(self) -> bool:
        """Whether anything may be bought as it is: it fits, runs and misses no promise that was checked."""
        return self.fits and not self.errors and self.meets_slo is not False

    @cached_property
    def larger_fleet(self) -> Larger | None:
        """The fleet of the same replicas that would hold the promises at the peak load; None where this one does or none would."""
        if self.to_buy or not self.fits:
            return None
        stated = self.plan.get("larger_fleet")
        if self.peak_to_mean != 1.0:
            throughput = self.part("throughput")
            capacity, rate = throughput.get("capacity_requests_per_s"), self.scenario.workload.request_rate
            if capacity and rate:
                return larger(self.scenario, rate * self.peak_to_mean / capacity)
        return _stated(stated) if isinstance(stated, Mapping) else None


def _stated(fleet: Mapping[str, Any]) -> Larger | None:
    """The larger fleet as a plan states it; None where a file of another hand or version says it in other ways."""
    words, gpus, month = fleet.get("words"), fleet.get("gpus"), fleet.get("usd_per_month")
    if not isinstance(words, str) or not isinstance(gpus, int) or not isinstance(month, int | float | None):
        return None
    return Larger(words, (), gpus, month, bool(fleet.get("at_least")), bool(fleet.get("simulated")))


def layout(s: Scenario) -> str:
    """TP2, TP8 × PP2, TP1 × DP8 EP …"""
    p = s.parallel
    parts = [f"TP{p.tensor_parallel_size}"]
    if p.pipeline_parallel_size > 1:
        parts.append(f"PP{p.pipeline_parallel_size}")
    if p.data_parallel_size > 1:
        parts.append(f"DP{p.data_parallel_size}")
    return " × ".join(parts) + (" with expert parallelism" if p.enable_expert_parallel else "")


def whole_date(text: str) -> str:
    """An ISO date from one that may lack its day or month: the first of it."""
    return f"{text}-01-01"[:10] if len(text) == 4 else f"{text}-01"[:10] if len(text) == 7 else text[:10]


def per_request(usd_per_hour: float | None, requests_per_s: float | None) -> float | None:
    """Dollars of one request when this many are served by an hourly bill."""
    return usd_per_hour / HOUR_S / requests_per_s if usd_per_hour is not None and requests_per_s else None


__all__ = ["LATENCY_NAMES", "LATENCY_UNITS", "SCHEMA_VERSION", "Cover", "Subject", "layout", "per_request", "whole_date"]
