"""What moves the decision: a tornado over the inputs, a utilisation × price map, and the value at which each input flips it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from planner import cost, traces
from planner.cost import Mix
from planner.economics.sizing import OutOfWork, Work, replicas_needed
from planner.problems import InputError
from planner.scenario import Calibration, Length, Lengths, Scenario
from planner.speculation import profile
from planner.units import DAY_S, HOURS_PER_MONTH

STEP = 0.20
WALK = (1.05, 1.12, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.5, 8.0)
"""Moves away from today's value that are looked at, nearest first."""


@dataclass(frozen=True, slots=True)
class Case:
    """A service and everything its verdict depends on that is not in the scenario itself."""

    scenario: Scenario
    """`workload.request_rate` is the mean rate; the fleet is sized for `peak_to_mean` times it."""
    peak_to_mean: float = 1.0
    list_price_factor: float = 1.0
    """Multiplies every list price."""
    hit_rate: float | None = None
    """Share of prompt tokens the API would have cached; None takes what the plan's own cache hits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case comes to."""

    replicas: int
    """Fewest that keep the promise at the peak, spares not counted; 0 when none do."""
    own_usd_per_month: float
    api_usd_per_month: float
    """The cheapest list price at the mean volume."""
    utilization: float
    """Mean rate over what the fleet carries within its promise."""

    @property
    def buys(self) -> bool:
        """Whether the own fleet is the cheaper one."""
        return self.own_usd_per_month < self.api_usd_per_month


@dataclass(frozen=True, slots=True)
class Bar:
    """One input moved down and up."""

    name: str
    low_label: str
    high_label: str
    low: Outcome
    high: Outcome

    @property
    def swing_usd(self) -> float:
        """How far the own monthly bill moves; 0 between two fleets that no size saves."""
        if self.high.own_usd_per_month == self.low.own_usd_per_month:
            return 0.0
        return abs(self.high.own_usd_per_month - self.low.own_usd_per_month)


@dataclass(frozen=True, slots=True)
class Flip:
    """The value of an input at which own and API trade places."""

    name: str
    factor: float | None
    """Times its present value; None when nothing within the range tried flips the decision."""
    message: str


Change = Callable[[Case, float], Case]


def outcome(case: Case, work: Work | None = None) -> Outcome:
    """Size the fleet for the peak, then bill it and the API at the mean. Raises OutOfWork beyond the bound of work."""
    s = case.scenario
    mean_rate = s.workload.request_rate
    if mean_rate is None and s.workload.trace is not None:
        mean_rate = traces.get(s.workload.trace).request_rate
    if not mean_rate:
        raise InputError("workload.request_rate: sensitivity needs an open loop with a rate above 0")
    replicas = replicas_needed(s, mean_rate * case.peak_to_mean, work)
    fleet = s.model_copy(update={"fleet": s.fleet.model_copy(update={"replicas": max(1, replicas)})})
    bill = cost.fleet_hour(fleet)
    own = math.inf if bill is None or not replicas else bill.total_usd * HOURS_PER_MONTH
    per_request = min((cost.usd_per_request(p, _mix(case)) for p in cost.listed(s)), default=math.inf) * case.list_price_factor
    api = per_request * mean_rate * DAY_S / 24 * HOURS_PER_MONTH
    return Outcome(replicas, own, api, 1 / case.peak_to_mean if replicas else 0.0)


def _mix(case: Case) -> Mix:
    plain = cost.mix_of(case.scenario)
    if case.hit_rate is not None:
        return plain.at_hit_rate(case.hit_rate)
    shared = case.scenario.workload.shared_prefix_len if case.scenario.engine.enable_prefix_caching else 0.0
    return plain.at_hit_rate(min(1.0, shared / plain.input_tokens) if plain.input_tokens else 0.0)


def _workload(case: Case, **changes: object) -> Case:
    return replace(case, scenario=case.scenario.model_copy(update={"workload": case.scenario.workload.model_copy(update=changes)}))


def scaled_length(length: Length, factor: float) -> Length:
    """A number or a distribution of tokens stretched by a factor."""
    if isinstance(length, (int, float)):
        return length * factor
    stretch: dict[str, object] = {name: value * factor for name in ("mean", "max") if (value := getattr(length, name)) is not None}
    if length.points is not None:
        stretch["points"] = tuple((p, v * factor) for p, v in length.points)
    if length.values is not None:
        stretch["values"] = tuple(v * factor for v in length.values)
    return Lengths.model_validate(length.model_dump() | stretch)


def _price(case: Case, factor: float) -> Case:
    s = case.scenario
    hour = cost.gpu_hour(s.hardware.gpu, s.price)
    usd = (hour.usd if hour else 0.0) * factor
    return replace(case, scenario=s.model_copy(update={"price": s.price.model_copy(update={"usd_per_gpu_hour": usd})}))


def _efficiency(case: Case, factor: float) -> Case:
    """Steps `factor` times as efficient take 1 / factor of the time."""
    s = case.scenario
    before = s.calibration.factor if s.calibration else 1.0
    slower = Calibration(engine=s.engine.name, gpu=s.hardware.gpu, factor=before / factor, source="sensitivity")
    return replace(case, scenario=s.model_copy(update={"calibration": slower}))


def _acceptance(case: Case, factor: float) -> Case:
    s = case.scenario
    assert s.speculative is not None
    rates = tuple(min(1.0, r * factor) for r in profile(s.speculative).acceptance_rates)
    drafts = s.speculative.model_copy(update={"acceptance_rate": None, "acceptance_rates": rates})
    return replace(case, scenario=s.model_copy(update={"speculative": drafts}))


def _hit_rate(case: Case, factor: float) -> Case:
    shared = case.scenario.workload.shared_prefix_len * factor
    moved = _workload(case, shared_prefix_len=min(shared, cost.mix_of(case.scenario).input_tokens))
    return moved if case.hit_rate is None else replace(moved, hit_rate=min(1.0, case.hit_rate * factor))


def inputs(case: Case) -> dict[str, Change]:
    """The inputs that exist in a case, each with how it is moved by a factor."""
    w = case.scenario.workload
    found: dict[str, Change] = {
        "GPU price": _price,
        "list price": lambda c, f: replace(c, list_price_factor=c.list_price_factor * f),
        "volume": lambda c, f: _workload(c, request_rate=(c.scenario.workload.request_rate or 0.0) * f),
        "input length": lambda c, f: _workload(c, input_len=scaled_length(c.scenario.workload.input_len, f)),
        "output length": lambda c, f: _workload(c, output_len=scaled_length(c.scenario.workload.output_len, f)),
        "efficiency": _efficiency,
    }
    if case.peak_to_mean > 1:
        found["peak over mean"] = lambda c, f: replace(c, peak_to_mean=max(1.0, c.peak_to_mean * f))
    if w.shared_prefix_len > 0 or case.hit_rate:
        found["prefix hit rate"] = _hit_rate
    if case.scenario.speculative is not None:
        found["acceptance"] = _acceptance
    return found


def tornado(case: Case, step: float = STEP, efficiency_band: tuple[float, float] | None = None, work: Work | None = None) -> Iterator[Bar]:
    """Each input moved by ± `step`, one at a time, as the bars come; efficiency also by the plan's own band where one is given.

    `efficiency_band` is (low, high) around 1: how wrong the step time may be. Sort by `swing_usd` to draw. The bars end before the
    inputs do where `work` is out (`left_out`).
    """
    work = work or Work()
    moves = [(name, change, (1 - step, 1 + step)) for name, change in inputs(case).items()]
    if efficiency_band is not None:
        moves.append(("efficiency (model error)", _efficiency, efficiency_band))
    with suppress(OutOfWork):
        for name, change, (low, high) in moves:
            at_low, at_high = outcome(change(case, low), work), outcome(change(case, high), work)
            yield Bar(name, f"{low - 1:+.0%}", f"{high - 1:+.0%}", at_low, at_high)


def left_out(case: Case, moved: Collection[str]) -> str:
    """Which inputs a tornado did not come to, and why, as one sentence; empty where it came to all."""
    missing = [name for name in inputs(case) if name not in moved]
    return f"Not moved, because one search may cause no more work: {', '.join(missing)}." if missing else ""


def flips(
    case: Case, names: Sequence[str] = (), furthest: float = 8.0, tolerance: float = 0.02, work: Work | None = None
) -> Iterator[Flip]:
    """For each input, the factor nearest to 1 at which own and API trade places, between 1 / furthest and furthest."""
    work = work or Work()
    now = outcome(case, work)
    cheaper, other = ("own fleet", "API") if now.buys else ("API", "own fleet")
    for name, change in inputs(case).items():
        if names and name not in names:
            continue
        try:
            factor = _nearest(partial(_decides, case, change, work), now.buys, furthest, tolerance)
        except OutOfWork:
            yield Flip(name, None, f"{name}: not found within the work that one search may cause")
            continue
        if factor is None:
            yield Flip(name, None, f"{name}: no value from 1/{furthest:g} to {furthest:g} times today's makes the {other} cheaper")
        else:
            yield Flip(name, factor, f"{name}: at {factor:.2f} times today's value the {other} becomes cheaper than the {cheaper}")


def _decides(case: Case, change: Change, work: Work, factor: float) -> bool:
    return outcome(change(case, factor), work).buys


def _nearest(decides: Callable[[float], bool], now: bool, furthest: float, tolerance: float) -> float | None:
    """The smallest move away from 1, up or down, after which the decision differs.

    The way out is walked before it is halved: replicas come in steps, so a decision can flip and flip back.
    """
    found = []
    for direction in (1, -1):
        near = 1.0
        for move in WALK:
            if move > furthest:
                break
            far = move**direction
            if decides(far) != now:
                while max(near / far, far / near) > 1 + tolerance:
                    middle = math.sqrt(near * far)
                    near, far = (middle, far) if decides(middle) == now else (near, middle)
                found.append(far)
                break
            near = far
    return min(found, key=lambda f: abs(math.log(f)), default=None)


def heat_map(
    usd_per_mtok_at_full: float, usd_per_gpu_hour: float, utilizations: Sequence[float], prices: Sequence[float]
) -> tuple[tuple[float, ...], ...]:
    """USD per million tokens at each share of capacity in use (rows) and each GPU-hour price (columns).

    Both act by division and multiplication on the price at full use, so one plan at its capacity fills the map.
    """
    return tuple(tuple(usd_per_mtok_at_full * price / usd_per_gpu_hour / u for price in prices) for u in utilizations)
