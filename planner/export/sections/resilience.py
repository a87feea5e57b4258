"""Section 5: what is left when something breaks, and what happens when more arrives than planned."""

from __future__ import annotations

from typing import Any

from planner.export.blocks import Block, Section, missing, table
from planner.export.figures import cell, show
from planner.export.subject import Subject

BURST = 2.0
"""Times the planned load of the burst that is looked at."""


def resilience(s: Subject) -> Section:
    """Loss of a replica and a server, rolling update, bursts, overload, autoscaling."""
    if not s.fits:
        return Section(5, "Headroom and failure", (missing("Headroom", "the plan cannot run"),))
    blocks: list[Block] = [*_losses(s), table("headroom", "Headroom", ("Question", "Answer", "How"), _rows(s))]
    return Section(5, "Headroom and failure", tuple(blocks))


def _losses(s: Subject) -> list[Block]:
    if not s.extras.failures:
        why = "losses in a disaggregated plan are not simulated" if s.scenario.disaggregation else "no failures were simulated for it"
        return [missing("Loss of a replica or a server", why)]
    rows = []
    for f in s.extras.failures:
        ttft, tpot = f.latency.get("ttft_s") or {}, f.latency.get("tpot_s") or {}
        what = "service stops until a replica has started" if f.replicas == 0 else "promises kept" if f.meets_slo else "promises missed"
        rows.append((f.name, f.change, cell(ttft.get(s.percentile), "s"), cell(tpot.get(s.percentile), "ms"), what))
    heads = ("Loss", "What is left", f"TTFT {s.percentile}", f"TPOT {s.percentile}", "Outcome")
    return [table("failures", f"Loss of hardware at {s.peak_words}", heads, rows)]


def _rows(s: Subject) -> list[tuple[Any, Any, Any]]:
    fleet, slo, t = s.scenario.fleet, s.scenario.slo, s.part("throughput")
    capacity, served = t.get("capacity_requests_per_s"), t.get("requests_per_s")
    offered = s.scenario.workload.request_rate or served
    rate = offered * s.peak_to_mean if offered else None
    spares = f"{fleet.spares} idle replica" + ("s" if fleet.spares != 1 else "")
    rows: list[tuple[Any, Any, Any]] = [
        (
            "Spare replicas",
            cell(fleet.spares, "count"),
            f"{spares} paid for; none means that any loss costs capacity" if not fleet.spares else f"{spares}: N+{fleet.spares}",
        ),
        (
            "Load the fleet could add",
            cell(capacity / rate - 1 if capacity and rate else None, "share"),
            f"capacity within the promises over {s.peak_words}, less one",
        ),
        (
            "Rolling update",
            "one replica at a time",
            "on the spare, at full capacity"
            if fleet.spares
            else f"capacity is {show(1 - 1 / fleet.replicas, 'share')} of the plan's for {show(fleet.startup_s, 's')} per replica",
        ),
        ("Start of a replica", cell(fleet.startup_s, "s"), "from asking for it to its first request"),
        (
            "Autoscaling",
            f"{fleet.min_replicas} to {fleet.max_replicas} replicas" if fleet.max_replicas else f"from {fleet.min_replicas}, no ceiling",
            f"at {show(fleet.target_utilization, 'share')} of capacity; thresholds in section 10",
        ),
        (f"Burst of {BURST:g} × {s.peak_words}", *_burst(capacity, rate, slo.ttft_s, fleet.startup_s)),
        ("Beyond capacity", "requests queue", _overload(s)),
    ]
    return rows


def _burst(capacity: float | None, rate: float | None, promise_s: float | None, startup_s: float) -> tuple[Any, str]:
    if not capacity or not rate or not promise_s:
        return None, "no capacity or no TTFT promise to hold it against"
    surplus = rate * BURST - capacity
    if surplus <= 0:
        return "absorbed for ever", "it stays under the capacity"
    seconds = capacity * promise_s / surplus
    enough = "longer" if seconds >= startup_s else "shorter"
    return cell(seconds, "s"), f"until the queue alone waits {show(promise_s, 's')}; {enough} than a start of {show(startup_s, 's')}"


def _overload(s: Subject) -> str:
    w = s.scenario.workload
    if w.deadline_s:
        waiting = f"clients give up after {show(w.deadline_s, 's')} and send {show(w.retry_rate, 'share')} of that again"
    else:
        waiting = "clients wait however long it takes"
    return f"{waiting}; shed load or send it to an API before the wait passes the promise"
