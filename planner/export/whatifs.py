"""What a document says beyond its plan: the same scenario at other loads, with less hardware, with other inputs.

Each row is simulated, once or a few times, on the same random numbers as the base case. What a row shows is the plan's own
percentile times (this run ÷ the base run): the noise that both runs share cancels, and the base row is the plan itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from planner.economics.sensitivity import Case, scaled_length, tornado
from planner.export import promises
from planner.export.extras import Extras, Lever, Outcome, Resized, WeekBill, peak_to_mean
from planner.problems import InputError
from planner.scenario import Calibration, Scenario, mean_length

LOAD_SHARES = (0.5, 0.8, 1.0, 1.2)
SWING = 0.2
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
MOST_WORK_OF_LEVERS, MOST_WORK_OF_SIZING = 100_000, 60_000
"""Work of one run (see `work`) beyond which a document does without twenty more of it, or without the fleet search's hundred."""
LEAST_PROMPTS, MOST_PROMPTS = 100, 400
"""Requests of one what-if run: enough to rank levers, few enough to ask for twenty of them."""
RUNS_OF_A_POINT = 8
"""Runs behind a load point: the p95 of one run of some hundred requests can fall as the load grows."""
WHAT_IF_TOKENS, PROMPT_TOKENS_OF_A_STEP = 60_000, 100
"""Output tokens of one what-if run, and prompt tokens that cost the simulation about as much as one output token."""

Ask = Callable[[Scenario], Mapping[str, Any]]
"""A scenario → the JSON of its quick plan."""


def extras(scenario: Scenario, plan: Mapping[str, Any] | None = None, ask: Ask | None = None) -> Extras:
    """Everything computed for one plan. `plan` saves asking for the base case again; about twenty quick plans."""
    ask = ask or quick
    plan = plan or ask(scenario)
    if not (plan.get("memory") or {}).get("fits") or (plan.get("latency") or {}).get("ttft_s") is None:
        return Extras()

    at_plan = outcome("plan", "as planned", scenario, plan)

    peak = peak_to_mean(scenario)

    def asker(base: Mapping[str, Any]) -> Ask:
        return lambda changed: _in_proportion(plan, base, _priced_like(plan, ask(changed), peak))

    small = _smaller(scenario)
    first = ask(small)
    part, effort = asker(first), work(first)
    busiest = at_load(small, peak)
    base = at_plan if peak == 1.0 else outcome("Base", "busiest hour", busiest, part(busiest))
    return Extras(
        load_points=tuple(_judged(point, plan) for point in _points(small, effort, asker, ask)),
        failures=failures(busiest, part),
        levers=levers(busiest, base, part) if effort <= MOST_WORK_OF_LEVERS else (),
        cases=cases(busiest, base, part) if effort <= MOST_WORK_OF_LEVERS else (),
        resized=resized(small) if effort <= MOST_WORK_OF_SIZING else (),
    )


def _points(small: Scenario, effort: int, asker: Callable[[Mapping[str, Any]], Ask], ask: Ask) -> tuple[Outcome, ...]:
    """The load points, each from several runs where one costs little: readers compare them with the promise."""
    several = _with(small, "simulation", replications=RUNS_OF_A_POINT if effort * RUNS_OF_A_POINT <= MOST_WORK_OF_LEVERS else 1)
    return load_points(several, asker(ask(several)))


def _judged(point: Outcome, plan: Mapping[str, Any]) -> Outcome:
    """The point with the verdict that the plan's capacity gives it: that rests on many more runs than the point does."""
    capacity = (plan.get("throughput") or {}).get("capacity_requests_per_s")
    if capacity is None or not point.request_rate or point.meets_slo is None or "overloaded" in point.problems:
        return point
    keeps = point.request_rate <= capacity
    codes = tuple(code for code in point.problems if code != "slo_missed")
    return Outcome(**{**_fields(point), "meets_slo": keeps, "problems": codes if keeps else (*codes, "slo_missed")})


def work(plan: Mapping[str, Any]) -> int:
    """Steps and requests of a plan's simulation: what asking for it again costs, the same on every machine."""
    simulation = plan.get("simulation") or {}
    return int(simulation.get("steps") or 0) + int(simulation.get("requests") or 0)


def resized(scenario: Scenario) -> tuple[Resized, ...]:
    """The bill as each input moves by ±20 % and the fleet is sized again; empty for a closed loop, a trace or two pools."""
    if not scenario.workload.request_rate or scenario.workload.max_concurrency or scenario.workload.trace or scenario.disaggregation:
        return ()
    try:
        bars = list(tornado(Case(scenario, peak_to_mean(scenario)), SWING))
    except InputError:
        return ()

    def known(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return tuple(
        Resized(
            name=bar.name,
            low_change=bar.low_label,
            high_change=bar.high_label,
            low_replicas=bar.low.replicas,
            high_replicas=bar.high.replicas,
            low_usd_per_month=known(bar.low.own_usd_per_month),
            high_usd_per_month=known(bar.high.own_usd_per_month),
            low_api_usd_per_month=known(bar.low.api_usd_per_month),
            high_api_usd_per_month=known(bar.high.api_usd_per_month),
        )
        for bar in bars
    )


def week(answer: Any) -> tuple[WeekBill, ...]:
    """A `Plan`'s week of demand run three ways; empty without a curve, a capacity or a price."""
    if answer.scenario.fleet.demand_curve is None or answer.scenario.disaggregation is not None:
        return ()
    from planner.economics.decision import month, week_of

    try:
        report = week_of(answer)
    except InputError:
        return ()
    target = f"sized for {answer.scenario.fleet.target_utilization:.0%} of capacity at most"
    rows = [
        WeekBill(name, w.mean_replicas, w.peak_replicas, w.missed_share, w.usd_per_month, note)
        for name, w, note in (
            ("always the peak fleet", report.static, target),
            ("autoscaled", report.autoscaled, f"{target}, {answer.scenario.fleet.startup_s:g} s behind demand"),
        )
    ]
    paid = report.payment
    kinds = ", ".join(f"{count} {choice.replace('_', ' ')}" for choice, count in paid.replicas().items())
    monthly = month(paid.usd)
    rows.append(
        WeekBill(
            "paid the cheapest way",
            report.autoscaled.mean_replicas,
            report.autoscaled.peak_replicas,
            None,
            monthly,
            f"levels: {kinds}, spares not counted",
        )
    )
    return tuple(rows)


def _in_proportion(plan: Mapping[str, Any], base: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """The other run with each latency, promised or not, as the plan's times (other ÷ base), where all three are known."""
    found: dict[str, Any] = {}
    for name, row in (other.get("latency") or {}).items():
        mine, its = (plan["latency"].get(name) or {}), ((base.get("latency") or {}).get(name) or {})
        found[name] = row and {
            k: mine[k] * v / its[k] if v and mine.get(k) and its.get(k) else v for k, v in row.items() if k in STATISTICS
        }
    return {**other, "latency": found, "promises": promises.in_proportion(plan, base, other)}


def _priced_like(plan: Mapping[str, Any], other: Mapping[str, Any], looked_at: float) -> Mapping[str, Any]:
    """The other plan's price of a request worked out from this one's by hourly bill and arrival rate.

    Where all arrivals are served, the number served in a short run is noise about that; taking it as it comes would make
    levers seem to move a price that they do not touch.
    """
    cost, rate = plan.get("cost") or {}, plan["scenario"]["workload"]["request_rate"]
    changed, changed_rate = dict(other.get("cost") or {}), other["scenario"]["workload"]["request_rate"]
    overloaded = any(p["code"] == "overloaded" for p in (*(plan.get("problems") or ()), *(other.get("problems") or ())))
    known = (cost.get("usd_per_request"), cost.get("usd_per_hour"), changed.get("usd_per_hour"), rate, changed_rate)
    if overloaded or not all(known):
        return other
    # Dollars of a request are those of the whole week, also where the run looks at its busiest hour.
    served = changed_rate / looked_at
    changed["usd_per_request"] = cost["usd_per_request"] * (changed["usd_per_hour"] / cost["usd_per_hour"]) * (rate / served)
    return {**other, "cost": changed}


def quick(scenario: Scenario) -> Mapping[str, Any]:
    """The JSON of a plan simulated once."""
    from planner.plan import plan

    return plan(scenario, effort="quick").to_dict()


def outcome(name: str, change: str, scenario: Scenario, plan: Mapping[str, Any]) -> Outcome:
    """The deciding figures of one plan."""
    latency, cost = plan.get("latency") or {}, plan.get("cost") or {}
    problems = tuple(p["code"] for p in plan.get("problems") or () if p["severity"] in ("error", "warning"))
    failed = any(p["severity"] == "error" for p in plan.get("problems") or ())
    simulated = latency.get("ttft_s") is not None
    holds = not failed and all(promise["kept"] for promise in promises.verdicts(plan, scenario.slo))
    return Outcome(
        name=name,
        change=change,
        request_rate=scenario.workload.request_rate,
        max_concurrency=scenario.workload.max_concurrency,
        replicas=scenario.fleet.replicas,
        latency=latency if simulated else {},
        throughput=plan.get("throughput") or {},
        meets_slo=holds if simulated else False if failed else None,
        usd_per_month=cost.get("usd_per_month"),
        usd_per_request=cost.get("usd_per_request"),
        problems=problems,
    )


def load_points(scenario: Scenario, ask: Ask = quick) -> tuple[Outcome, ...]:
    """The scenario at shares of its peak load; empty where a trace sets the load."""
    if scenario.workload.trace is not None:
        return ()
    found = []
    for share in LOAD_SHARES:
        at = at_load(scenario, share * peak_to_mean(scenario))
        found.append(outcome(f"{share:.0%}", f"{share:.0%} of the peak load", at, ask(at)))
    return tuple(found)


def at_load(scenario: Scenario, share: float) -> Scenario:
    """The scenario with its arrival rate, or its number of clients, times `share`."""
    w = scenario.workload
    changes: dict[str, Any] = {}
    if w.max_concurrency is not None:
        changes["max_concurrency"] = max(1, round(w.max_concurrency * share))
    if w.request_rate is not None:
        changes["request_rate"] = w.request_rate * share
    return _with(scenario, "workload", **changes)


def failures(scenario: Scenario, ask: Ask = quick) -> tuple[Outcome, ...]:
    """What is left when a replica, or a server with all its replicas, is lost while the load stays."""
    fleet = scenario.fleet
    if scenario.disaggregation is not None:
        return ()
    per_server = max(1, scenario.hardware.gpus_per_node // scenario.parallel.gpus)
    found = []
    for name, lost in dict.fromkeys((("one replica lost", 1), ("one server lost", min(per_server, fleet.replicas + fleet.spares)))):
        left = min(fleet.replicas, fleet.replicas + fleet.spares - lost)
        change = f"{lost} of {fleet.replicas + fleet.spares} replicas gone, {left} of {fleet.replicas} needed are left"
        if left < 1:
            found.append(
                Outcome(name, change, scenario.workload.request_rate, scenario.workload.max_concurrency, 0, {}, {}, False, None, None)
            )
            continue
        at = _with(scenario, "fleet", replicas=left)
        found.append(outcome(name, change, at, ask(at)))
    return tuple(found)


def levers(scenario: Scenario, base: Outcome, ask: Ask = quick) -> tuple[Lever, ...]:
    """Each input moved by ±20 % with all others kept."""

    def asked(name: str, word: str, change: Callable[[float], Scenario]) -> Lever:
        down, up = (change(factor) for factor in (1 - SWING, 1 + SWING))
        return Lever(name, outcome(name, f"{word} −20 %", down, ask(down)), outcome(name, f"{word} +20 %", up, ask(up)))

    found = [_price_lever(base)] if base.usd_per_month else []
    w = scenario.workload
    if w.trace is None:
        found.append(asked("Volume", "load", lambda f: at_load(scenario, f)))
        found.append(
            asked("Output length", "output tokens", lambda f: _with(scenario, "workload", output_len=scaled_length(w.output_len, f)))
        )
        found.append(asked("Input length", "prompt tokens", lambda f: longer_prompts(scenario, f)))
        if w.shared_prefix_len:
            found.append(asked("Shared prefix", "cached part of the prompt", lambda f: _shared_prefix(scenario, f)))
    if scenario.speculative is not None:
        found.append(asked("Acceptance", "accepted drafts", lambda f: _acceptance(scenario, f)))
    found.append(asked("Efficiency", "time of every step", lambda f: slower(scenario, f)))
    return tuple(found)


def cases(scenario: Scenario, base: Outcome, ask: Ask = quick) -> tuple[Outcome, ...]:
    """Three futures: longer answers on slower steps, as planned, shorter answers on faster steps."""
    found = []
    for name, factor, words in (
        ("Pessimistic", 1 + SWING, "outputs and every step +20 %"),
        ("Base", 1.0, "as planned"),
        ("Optimistic", 1 - SWING, "outputs and every step −20 %"),
    ):
        if factor == 1.0:
            found.append(Outcome(**{**_fields(base), "name": name}))
            continue
        at = slower(scenario, factor)
        if scenario.workload.trace is None:
            at = _with(at, "workload", output_len=scaled_length(scenario.workload.output_len, factor))
        found.append(outcome(name, words, at, ask(at)))
    return tuple(found)


def slower(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with every step's time multiplied, through its calibration."""
    own = scenario.calibration
    measured = own is not None and (own.engine, own.gpu) == (scenario.engine.name, scenario.hardware.gpu)
    before = own.factor if own is not None and measured else 1.0
    stated = Calibration(engine=scenario.engine.name, gpu=scenario.hardware.gpu, factor=before * factor, source="what if")
    return scenario.model_copy(update={"calibration": stated})


def longer_prompts(scenario: Scenario, factor: float) -> Scenario:
    """Prompts times `factor`, their shared prefix with them."""
    w = scenario.workload
    return _with(scenario, "workload", input_len=scaled_length(w.input_len, factor), shared_prefix_len=w.shared_prefix_len * factor)


def _shared_prefix(scenario: Scenario, factor: float) -> Scenario:
    w = scenario.workload
    shared = w.shared_prefix_len * factor
    # A fixed prompt cannot be shorter than the prefix it begins with.
    if isinstance(w.input_len, int | float):
        shared = min(shared, w.input_len)
    return _with(scenario, "workload", shared_prefix_len=shared)


def _acceptance(scenario: Scenario, factor: float) -> Scenario:
    spec = scenario.speculative
    assert spec is not None
    if spec.acceptance_rates is not None:
        changed = spec.model_copy(update={"acceptance_rates": tuple(min(1.0, r * factor) for r in spec.acceptance_rates)})
    elif spec.acceptance_rate is not None:
        changed = spec.model_copy(update={"acceptance_rate": min(1.0, spec.acceptance_rate * factor)})
    else:
        changed = spec
    return scenario.model_copy(update={"speculative": changed})


def _price_lever(base: Outcome) -> Lever:
    """Dollars follow the price of a GPU-hour; nothing else does."""

    def at(factor: float, sign: str) -> Outcome:
        money = {name: None if (value := getattr(base, name)) is None else value * factor for name in ("usd_per_month", "usd_per_request")}
        return Outcome(**{**_fields(base), **money, "name": "GPU price", "change": f"price of a GPU-hour {sign}20 %"})

    return Lever("GPU price", at(1 - SWING, "−"), at(1 + SWING, "+"))


def _fields(row: Outcome) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _smaller(scenario: Scenario) -> Scenario:
    """Fewer requests for a what-if: long answers and long prompts are simulated by the step, so they get fewer still."""
    w = scenario.workload
    tokens = max(1.0, mean_length(w.output_len) + mean_length(w.input_len) / PROMPT_TOKENS_OF_A_STEP) * w.turns
    prompts = max(LEAST_PROMPTS, min(MOST_PROMPTS, round(WHAT_IF_TOKENS / tokens)), 2 * (w.max_concurrency or 0))
    return _with(scenario, "workload", num_prompts=min(prompts, w.num_prompts))


def _with(scenario: Scenario, section: str, **changes: Any) -> Scenario:
    part = getattr(scenario, section).model_copy(update=changes)
    return scenario.model_copy(update={section: part})
