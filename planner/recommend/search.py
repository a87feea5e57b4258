"""Best first: the design with the least possible bill is simulated next, until no other one can be cheaper."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from planner.capacity import largest_rate
from planner.metrics import MIN_REPLICATIONS
from planner.plan import Plan, plan
from planner.problems import InputError
from planner.recommend.bounds import Bound, Exclusion, bound, demand, fleet_usd_per_hour
from planner.recommend.space import Space, label, layouts, with_replicas, with_setting
from planner.scenario import Scenario
from planner.sweep import spread, strain, strains
from planner.units import HOURS_PER_MONTH, MS

TIE_BAND = 0.10
"""Bills this close to the best are ties where the plan has no error band of its own: step times are no better known."""
WIDEST_TIE_BAND = 0.25
"""A plan that knows itself to be vaguer still does not make everything a tie."""
FEW_REPLICAS = 4
"""Up to here one more replica is simulated at a time; above, the capacity of one replica is searched."""
FAR_OFF = 1.5
"""Worst promise, observed over promised, above which one run is enough to give a design up."""
NEAR = 0.15
"""Distance from 1 within which a handful of runs does not decide."""
ROOM = 0.95
"""Observed over promised above which a promise has nothing left to trade."""


@dataclass(frozen=True, slots=True)
class Option:
    """A fleet that keeps the promise in the simulation."""

    scenario: Scenario
    """Ready to plan: replicas, layout, precision and batching limits filled in."""
    label: str
    replicas: int
    gpus: int
    """GPUs paid for, spares included."""
    usd_per_hour: float
    usd_per_month: float
    strain: float
    """Worst promise, observed over promised; the margin is what is missing to 1."""
    binding: str
    """Which promise that is."""
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    """At the promise's percentile."""
    usd_per_mtok_blended: float | None
    notes: tuple[str, ...]
    """What weakens the prediction (borrowed kernels, assumed prices)."""
    band: float | None = None
    """How wrong its price per token may be, as a share; None where the plan knows no band."""
    tie: bool = False
    """Within the error band of the best: prefer it for other reasons if you have any."""


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
    closed-form capacity comes first. `keep` options are verified with full replications before the end.
    """
    space = space or Space()
    out: list[Exclusion] = []
    queue: list[tuple[float, float, int, Bound, int]] = []
    order, considered, simulated = count(), 0, 0
    for layout in layouts(scenario, space):
        considered += len(layout.settings)
        judged = bound(layout)
        if isinstance(judged, Exclusion):
            out.append(judged)
            yield judged
        else:
            heapq.heappush(queue, (judged.usd_per_hour, -judged.requests_per_s, next(order), judged, judged.replicas))
    if considered == 0:
        raise InputError("recommend: the space is empty; allow at least one GPU, layout and precision")
    found: list[Option] = []
    while queue:
        usd, _, _, judged, replicas = queue[0]
        best = found[0].usd_per_hour if found else None
        yield Progress(considered, sum(e.candidates for e in out), simulated, None if best is None else best * HOURS_PER_MONTH)
        if best is not None and (usd > best * (1 + _tie_band(found)) or len(found) >= keep):
            break
        heapq.heappop(queue)
        option, tried, needed = _settle(judged, replicas)
        simulated += tried
        if option is None and needed is None:
            reason = f"the promise is not kept at any load with these batching limits ({judged.layout.label})"
            lost = Exclusion(judged.layout.label, reason, "simulation", len(judged.layout.settings))
            out.append(lost)
            yield lost
        elif option is None and needed is not None:
            dearer = fleet_usd_per_hour(judged.layout.scenario, needed) or math.inf
            heapq.heappush(queue, (dearer, -judged.requests_per_s, next(order), judged, needed))
        elif option is not None:
            found.append(option)
            found.sort(key=_rank)
            yield option
            others = Exclusion(option.label, "other batching limits of this design cost the same", "cost", len(judged.layout.settings) - 1)
            if others.candidates:
                out.append(others)
    band = _tie_band(found)
    if found:
        limit = found[0].usd_per_month * (1 + band)
        for usd, _, _, judged, replicas in sorted(queue):
            against = f"${found[0].usd_per_month:,.0f} for the best"
            reason = f"at least {replicas} replicas for ${usd * HOURS_PER_MONTH:,.0f} a month, against {against}"
            stage = "cost" if usd * HOURS_PER_MONTH > limit else "not simulated"
            out.append(Exclusion(judged.layout.label, reason, stage, len(judged.layout.settings)))
            yield out[-1]
    ranked = tuple(replace(o, tie=o.usd_per_hour <= found[0].usd_per_hour * (1 + band)) for o in found)
    yield Recommendation(ranked, tuple(out), considered, simulated, band)


def best(scenario: Scenario, space: Space | None = None) -> Recommendation:
    """Run a search to its end. Raises InputError for an empty space."""
    *_, last = recommend(scenario, space)
    assert isinstance(last, Recommendation)
    return last


def _tie_band(found: list[Option]) -> float:
    """How far bills may differ and still be ties: the best option's own error band, bounded, or `TIE_BAND`."""
    band = found[0].band if found else None
    return TIE_BAND if band is None else min(band, WIDEST_TIE_BAND)


def _rank(option: Option) -> tuple[float, int, float]:
    """Cheaper first; of equals the simpler, then the one with more margin."""
    return (round(option.usd_per_hour, 6), int(option.scenario.speculative is not None), option.strain)


def _settle(judged: Bound, replicas: int) -> tuple[Option | None, int, int | None]:
    """Simulate a design at this many replicas.

    Returns the option if some batching limits keep the promise, the simulations run, and otherwise the replicas to come
    back with (None when more of them will not help).
    """
    layout, tried, seen = judged.layout, 0, None
    for setting in layout.settings:
        if seen is not None and not _worth_trying(setting, layout.settings[0], seen):
            continue
        answer, runs = _decided(with_replicas(with_setting(layout.scenario, setting), replicas))
        tried += runs
        if strain(answer) <= 1:
            return _option(answer), tried, None
        seen = _latest(seen, setting, answer)
    if replicas < FEW_REPLICAS:
        return None, tried, replicas + 1
    return None, *_more_replicas(judged, replicas, tried)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the batching limits tried so far did: promises over their limits, and the fewest sequences that still queued."""

    first: float
    """TTFT over its promise with the first limits."""
    token: float
    """TPOT or E2E over its promise with the first limits."""
    starved: int
    """The largest max_num_seqs at which waiting for a seat broke the TTFT promise."""


def _latest(seen: _Seen | None, setting: tuple[int, int], answer: Plan) -> _Seen:
    ratios = strains(answer)
    first, token = ratios.get("ttft_s", 0.0), max((v for name, v in ratios.items() if name != "ttft_s"), default=0.0)
    if seen is None:
        return _Seen(first, token, 0)
    return replace(seen, starved=max(seen.starved, setting[0])) if first > 1 else seen


def _worth_trying(setting: tuple[int, int], tried: tuple[int, int], seen: _Seen) -> bool:
    """Whether these batching limits could mend what the first ones broke.

    Limits trade one promise against the other: fewer sequences at once speed tokens up and make requests wait, a larger
    token budget does the reverse. Where neither promise has room, or both are broken, no limit helps.
    """
    slower_first = setting[0] < tried[0]
    if seen.token > 1:
        return seen.first < ROOM and slower_first and setting[0] > seen.starved and setting[1] == tried[1]
    return seen.token < ROOM and not slower_first and setting[1] > tried[1]


def _decided(design: Scenario) -> tuple[Plan, int]:
    """The design simulated until it is clear whether it keeps its promise, and the plans that took.

    One run settles what is far off, a handful most of the rest; only a strain near 1 is worth the replications of a full
    plan, because a 95th percentile of one run can be a third off.
    """
    answer = plan(design, "quick")
    if design.simulation.replications is not None or strain(answer) > FAR_OFF:
        return answer, 1
    handful = design.simulation.model_copy(update={"replications": MIN_REPLICATIONS})
    several = plan(design.model_copy(update={"simulation": handful}), "quick")
    if not 1 - NEAR <= strain(several) <= 1 + NEAR:
        return several, 2
    return plan(design, "full"), 3


def _more_replicas(judged: Bound, replicas: int, tried: int) -> tuple[int, int | None]:
    """Simulations so far and the replicas that the best batching limits need, from the capacity of one of them."""
    rate = demand(judged.layout.scenario)
    if rate is None:
        return tried, replicas + max(1, replicas // 10)
    most, probes = 0.0, 0
    for setting in judged.layout.settings[:3]:
        design = with_setting(judged.layout.scenario, setting)

        def at(rate_per_replica: float, design: Scenario = design) -> float:
            traffic = design.workload.model_copy(update={"request_rate": rate_per_replica})
            return strain(plan(design.model_copy(update={"workload": traffic}), "quick"))

        found = largest_rate(at, rate / replicas, tolerance=0.02, max_probes=10)
        most, probes = max(most, found.rate), probes + len(found.probes)
    needed = math.ceil(rate / most) if most > 0 else None
    return tried + probes, None if needed is None else max(replicas + 1, needed)


def _option(answer: Plan) -> Option:
    s, slo = answer.scenario, answer.scenario.slo
    assert answer.load is not None
    latency = answer.load.metrics.latency
    seen = {}
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        distribution = getattr(latency, name)
        seen[name] = None if distribution is None else distribution.percentile(slo.percentile)
    ratios = {n: v / getattr(slo, n) for n, v in seen.items() if v is not None and getattr(slo, n) is not None}
    binding = max(ratios, key=lambda n: ratios[n], default="")
    worst = (
        f"p{slo.percentile} {binding.removesuffix('_s').upper()} {(seen[binding] or 0.0) / MS:,.0f} ms"
        if binding
        else "nothing is promised"
    )
    usd = answer.cost.usd_per_hour or 0.0
    return Option(
        scenario=s,
        label=label(s),
        replicas=s.fleet.replicas,
        gpus=answer.cost.gpus,
        usd_per_hour=usd,
        usd_per_month=usd * HOURS_PER_MONTH,
        strain=max(ratios.values(), default=0.0),
        binding=worst,
        ttft_s=seen["ttft_s"],
        tpot_s=seen["tpot_s"],
        e2e_s=seen["e2e_s"],
        usd_per_mtok_blended=answer.cost.usd_per_mtok_blended,
        band=spread(answer, "usd"),
        notes=tuple(p.message for p in answer.problems if p.code in ("low_confidence", "assumed_price", "stale_price")),
    )
