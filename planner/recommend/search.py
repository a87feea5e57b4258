"""Best first: the design with the least possible bill is simulated next, until no other one can be cheaper."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from planner import bounds, traffic
from planner.plan import Plan
from planner.plan.findings import against
from planner.problems import InputError
from planner.recommend.bounds import Exclusion, bound, fleet_usd_per_hour
from planner.recommend.design import Design
from planner.recommend.space import Space, label, layouts
from planner.scenario import Scenario
from planner.sweep import spread
from planner.units import HOURS_PER_MONTH

TIE_BAND = 0.10
"""Bills this close to the best are ties where the plan has no error band of its own: step times are no better known."""
WEAKENS = ("low_confidence", "assumed_price", "stale_price", "assumed_acceptance")
"""Findings of a plan that a choice between fleets has to know of."""
WIDEST_TIE_BAND = 0.25
"""A plan that knows itself to be vaguer still does not make everything a tie."""


@dataclass(frozen=True, slots=True)
class Option:
    """A fleet that keeps the promise in the simulation."""

    scenario: Scenario
    """Ready to plan: replicas, layout, precision and batching limits filled in."""
    label: str
    replicas: int
    """In service; units of a disaggregated design."""
    gpus: int
    """GPUs paid for, spares included."""
    usd_per_hour: float
    usd_per_month: float
    strain: float
    """Worst promise, observed over promised; the margin is what is missing to 1."""
    worst_promise: str
    """Which promise that is."""
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    """At the promise's percentile."""
    usd_per_mtok_blended: float | None
    notes: tuple[str, ...]
    """What weakens the prediction (borrowed kernels, assumed prices, an acceptance measured on another model)."""
    band: float | None = None
    """How wrong its price per token may be, as a share; None where the plan knows no band."""
    tie: bool = False
    """Within the error band of the best: prefer it for other reasons if you have any."""

    @property
    def words(self) -> str:
        """What has to be bought: `4 GPUs: 1 × (h100-sxm TP2, fp8 weights, bf16 KV) + 1 spare`."""
        spares = self.scenario.fleet.spares
        kept = f" + {spares} spare" if spares else ""
        return f"{self.gpus} GPU{'s' * (self.gpus != 1)}: {self.replicas} × ({self.label}){kept}"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands."""

    considered: int
    excluded: int
    simulated: int
    best_usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The end of a search."""

    options: tuple[Option, ...]
    """Cheapest first, ties marked. Empty when nothing keeps the promise."""
    exclusions: tuple[Exclusion, ...]
    considered: int
    simulated: int
    tie_band: float

    @property
    def best(self) -> Option | None:
        """The cheapest fleet, or None."""
        return self.options[0] if self.options else None


Event = Progress | Option | Exclusion | Recommendation


def recommend(scenario: Scenario, space: Space | None = None, keep: int = 8) -> Iterator[Event]:
    """Search the space for the cheapest fleets that keep the scenario's promise at its offered load.

    Yields exclusions and options as they are found, progress between simulations, and a `Recommendation` last. Stop
    iterating to cancel. Designs are visited by a lower bound of their bill, so the search may end at the first design
    that can no longer beat the best by more than the tie band; among designs of equal bill the one with the larger
    closed-form capacity comes first.
    """
    if not traffic.of(scenario.workload).request_rate and scenario.workload.max_concurrency is None:
        raise InputError("workload.request_rate gives no load to find a fleet for; give a rate above 0, or clients in max_concurrency")
    space = space or Space()
    out: list[Exclusion] = []
    queue: list[tuple[float, float, int, Design]] = []
    order, considered, simulated, steps = count(), 0, 0, 0

    def push(design: Design) -> None:
        usd = fleet_usd_per_hour(design.judged.layout.scenario, design.replicas) or math.inf
        heapq.heappush(queue, (usd, -design.judged.requests_per_s, next(order), design))

    for layout in layouts(scenario, space):
        considered += len(layout.settings)
        judged = bound(layout)
        if isinstance(judged, Exclusion):
            out.append(judged)
            yield judged
        else:
            push(Design(judged, judged.replicas))
    if considered == 0:
        raise InputError("recommend: the space is empty; allow at least one GPU, layout and precision")
    found: list[Option] = []
    while queue:
        usd, _, _, design = queue[0]
        best = found[0].usd_per_hour if found else None
        yield Progress(considered, sum(e.candidates for e in out), simulated, None if best is None else best * HOURS_PER_MONTH)
        if best is not None and (usd > best * (1 + _tie_band(found)) or len(found) >= keep):
            break
        if steps > bounds.MAX_WORK_PER_SEARCH:
            break
        heapq.heappop(queue)
        simulated, steps = simulated - design.simulated, steps - design.steps
        state = design.settle()
        simulated, steps = simulated + design.simulated, steps + design.steps
        layout = design.judged.layout
        if state == "open":
            push(design)
        elif design.answer is None:
            reason = f"the promise is still broken by {max(design.failed, design.most)} replicas"
            out.append(Exclusion(layout.label, reason, "simulation", len(layout.settings)))
            yield out[-1]
        else:
            option = _option(design.answer)
            found.append(option)
            found.sort(key=_rank)
            yield option
            if len(layout.settings) > 1:
                out.append(Exclusion(option.label, "other batching limits of this design cost the same", "cost", len(layout.settings) - 1))
    band = _tie_band(found)
    if found:
        limit = found[0].usd_per_hour * (1 + band)
        for usd, _, _, design in sorted(queue, key=lambda entry: entry[:3]):
            against = f"${found[0].usd_per_month:,.0f} for the best"
            reason = f"at least {design.replicas} replicas for ${usd * HOURS_PER_MONTH:,.0f} a month, against {against}"
            stage = "cost" if usd > limit else "not simulated"
            out.append(Exclusion(design.judged.layout.label, reason, stage, len(design.judged.layout.settings)))
            yield out[-1]
    else:
        for _, _, _, design in sorted(queue, key=lambda entry: entry[:3]):
            reason = f"not reached: the search stopped at its bound of work, after {simulated:,} simulations without a design that holds"
            out.append(Exclusion(design.judged.layout.label, reason, "not simulated", len(design.judged.layout.settings)))
            yield out[-1]
    ranked = tuple(replace(o, tie=o.usd_per_hour <= found[0].usd_per_hour * (1 + band)) for o in found)
    yield Recommendation(ranked, tuple(out), considered, simulated, band)


def best(scenario: Scenario, space: Space | None = None) -> Recommendation:
    """Run a search to its end. Raises InputError for an empty space or no load."""
    *_, last = recommend(scenario, space)
    assert isinstance(last, Recommendation)
    return last


def units(scenario: Scenario) -> int:
    """Replicas of the fleet, or units of two pools, spares apart."""
    pools = scenario.disaggregation
    return scenario.fleet.replicas if pools is None else math.gcd(pools.prefill.replicas, pools.decode.replicas)


def _tie_band(found: list[Option]) -> float:
    """How far bills may differ and still be ties: the best option's own error band, bounded, or `TIE_BAND`."""
    band = found[0].band if found else None
    return TIE_BAND if band is None else min(band, WIDEST_TIE_BAND)


def _rank(option: Option) -> tuple[float, int, float]:
    """Cheaper first; of equals the simpler, then the one with more margin."""
    return (round(option.usd_per_hour, 6), int(option.scenario.speculative is not None), option.strain)


def _option(answer: Plan) -> Option:
    s, slo = answer.scenario, answer.scenario.slo
    assert answer.load is not None
    latency = answer.load.metrics.latency
    seen = {name: getattr(latency, name) for name in ("ttft_s", "tpot_s", "e2e_s")}
    at_s = {name: None if d is None else d.percentile(slo.percentile) for name, d in seen.items()}
    worst = max(answer.load.kept, key=lambda kept: kept.strain, default=None)
    usd = answer.cost.usd_per_hour or 0.0
    return Option(
        scenario=s,
        label=label(s),
        replicas=units(s),
        gpus=answer.cost.gpus,
        usd_per_hour=usd,
        usd_per_month=usd * HOURS_PER_MONTH,
        strain=worst.strain if worst else 0.0,
        worst_promise="nothing is promised" if worst is None else f"p{worst.promise.percentile} {against(worst, worst.promise.percentile)}",
        ttft_s=at_s["ttft_s"],
        tpot_s=at_s["tpot_s"],
        e2e_s=at_s["e2e_s"],
        usd_per_mtok_blended=answer.cost.usd_per_mtok_blended,
        band=spread(answer, "usd"),
        notes=tuple(p.message for p in answer.problems if p.code in WEAKENS),
    )
