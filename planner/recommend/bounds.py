"""What closed forms know about a design before anything is simulated: why it is out, or the least that it can cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import cost, traffic
from planner.economics import operating
from planner.plan import deployment
from planner.plan.alone import alone
from planner.problems import InputError
from planner.recommend.space import Layout, with_replicas
from planner.scenario import Scenario
from planner.units import gibibytes, milliseconds

OPTIMISM = 1.25
"""Closed forms may understate what a replica carries by this much before a design is priced out by mistake: the steady state
takes mean lengths and a constant batch."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The least replicas and dollars with which a design could keep the promise."""

    layout: Layout
    replicas: int
    usd_per_hour: float
    requests_per_s: float
    """Closed-form estimate of what one replica carries."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Candidates that are out, and why."""

    label: str
    reason: str
    stage: str
    """illegal, memory, latency, price, cost or simulation."""
    candidates: int


def fleet_usd_per_hour(scenario: Scenario, replicas: int) -> float | None:
    """The bill of a fleet of this design, spares and everything else included."""
    bill = cost.fleet_hour(with_replicas(scenario, replicas))
    return None if bill is None else bill.total_usd


def bound(layout: Layout) -> Bound | Exclusion:
    """Judge one design by closed forms alone."""
    s = layout.scenario

    def out(stage: str, reason: str) -> Exclusion:
        return Exclusion(layout.label, reason, stage, len(layout.settings))

    pools = s.disaggregation
    roles = [s] if pools is None else [deployment.pool_scenario(s, pool) for pool in (pools.prefill, pools.decode)]
    replicas = []
    for role in roles:
        wrong = next((p for p in deployment.problems(role) if p.severity == "error"), None)
        if wrong is not None:
            return out("illegal", f"{wrong.message}; {wrong.remedy}" if wrong.remedy else wrong.message)
        try:
            replica = deployment.of(role)
        except InputError as error:
            return out("illegal", str(error))
        if not replica.memory.fits:
            return out("memory", f"does not fit: short {gibibytes(replica.memory.shortfall_bytes_per_gpu)} per GPU")
        replicas.append(replica)
    late = next((a for a in alone(replicas[0], replicas[-1], s) if a.alone_s > a.limit_s), None)
    if late is not None:
        takes, promised = milliseconds(late.alone_s), milliseconds(late.limit_s)
        return out("latency", f"{late.label} infeasible for one request alone: {takes} for {late.what} against {promised}")
    if fleet_usd_per_hour(s, 1) is None:
        return out("price", f"nobody publishes a price for {s.hardware.gpu} on basis {s.price.basis}")
    tpot_s = None if s.slo.tpot_s is None else s.slo.tpot_s * OPTIMISM
    carried = operating.best_within(replicas[-1], tpot_s, prefill=pools is None)
    if carried is None:
        promised = milliseconds(s.slo.tpot_s or 0.0)
        return out("latency", f"one sequence already takes more than the promised {promised} per token with prompts coming in")
    requests_per_s = carried.requests_per_s
    if pools is not None:
        prompts = pools.prefill.replicas / operating.prompt_s(replicas[0])
        requests_per_s = min(prompts, pools.decode.replicas * requests_per_s)
    rate = traffic.of(s.workload).request_rate
    clients = s.workload.max_concurrency or 1
    units = clients / (carried.batch * OPTIMISM) if rate is None else rate / (requests_per_s * OPTIMISM)
    count = max(1, math.ceil(units - 1e-9))
    return Bound(layout, count, fleet_usd_per_hour(s, count) or 0.0, requests_per_s)
