"""drill, burst and prefixes: what happens to a fleet on a bad day, under recorded bursts, and to its prefix hits by routing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from planner.command import inputs
from planner.command.output import plain, print_json, print_table, shown
from planner.problems import InputError

KINDS = ("loss", "spot", "autoscale")
TRACE = "give a trace as CSV or JSONL, or the name of a shipped one"


def add_commands(commands: Any) -> None:
    """Add `drill`, `burst` and `prefixes`."""
    drill = inputs.scenario_command(commands, "drill", run_drill, "the fleet when a replica is lost, spot capacity goes, or demand rises")
    drill.add_argument("--kind", choices=KINDS, default="loss", help="what happens (default: loss)")
    drill.add_argument("--at", type=float, default=0.4, metavar="SHARE", help="loss: how far through the arrivals (default: 0.4)")
    drill.add_argument(
        "--hours", type=float, default=24.0, help="spot: hours whose interruptions all fall within the arrivals (default: 24)"
    )
    drill.add_argument("--capacity", type=float, metavar="REQ/S", help="autoscale: what one replica carries (default: searched)")
    drill.add_argument(
        "--seconds-per-hour", type=float, help="autoscale: how long an hour of the curve lasts (default: a day fills the arrivals)"
    )
    inputs.scenario_command(commands, "burst", run_burst, "a recorded trace beside the same requests at random times")
    prefixes = commands.add_parser(
        "prefixes", help="prefix hits of a trace by routing", description="Share of prompt tokens found cached, by routing rule."
    )
    prefixes.add_argument("trace", metavar="TRACE", help="shipped trace with content ids, or a JSONL or CSV file")
    prefixes.add_argument("--replicas", type=int, default=8, help="caches behind the router (default: 8)")
    prefixes.add_argument("--pool-tokens", type=int, default=500_000, help="tokens that one replica's cache holds (default: 500,000)")
    prefixes.add_argument("--json", action="store_true", help="print JSON")
    prefixes.set_defaults(run=run_prefixes)


def run_drill(arguments: argparse.Namespace) -> int:
    """Print what clients saw before, during and after."""
    from planner import lessons

    scenario = inputs.scenario(arguments.scenario, arguments.set)
    note = ""
    if arguments.kind == "loss":
        if not 0 <= arguments.at <= 1:
            raise InputError(f"--at {arguments.at:g} is not a share of the arrivals; give 0 to 1")
        drills = lessons.replica_loss(scenario, arguments.at)
    elif arguments.kind == "spot":
        if not scenario.fleet.interruption_per_hour:
            raise InputError("fleet.interruption_per_hour is 0, so nothing is taken away; set it, for example to 0.05")
        drills = (lessons.undisturbed(scenario), lessons.spot_interruptions(scenario, arguments.hours, scenario.workload.seed))
        note = f"the interruptions of {arguments.hours:g} h fall within {lessons.arrivals_s(scenario):,.0f} s of arrivals"
    else:
        drills, note = _autoscaled(arguments, scenario)
    if arguments.json:
        print_json({"kind": arguments.kind, "startup_s": scenario.fleet.startup_s, "note": note, "drills": [_as_json(d) for d in drills]})
        return 0
    rows = [
        [d.label if i == 0 else "", p.name, p.requests, *(shown(v) for v in (p.ttft_p95_s, p.e2e_p95_s)), f"{p.kept:.1%}"]
        for d in drills
        for i, p in enumerate(d.phases)
    ]
    print_table(["drill", "phase", "requests", "TTFT p95 s", "answer p95 s", "kept the promise"], rows)
    print()
    print_table(
        ["drill", "requests started again", "most replicas, spares too", "replica-hours paid"],
        ([d.label, d.rerouted, d.replicas, f"{d.run.replica_hours():.2f}"] for d in drills),
    )
    print(f"\nduring: while a replica starts, which takes {scenario.fleet.startup_s:g} s" + (f"; {note}" if note else ""))
    return 0


def _autoscaled(arguments: argparse.Namespace, scenario: Any) -> tuple[Any, str]:
    from planner import lessons
    from planner.plan import plan

    if scenario.fleet.demand_curve is None:
        from planner import demand

        raise InputError(f"fleet.demand_curve is null, so demand never changes; name a week: {', '.join(demand.index())}")
    capacity = arguments.capacity
    if capacity is None:
        load = plan(scenario, "full").load
        found = load.capacity_requests_per_s if load else None
        capacity = found / scenario.fleet.replicas if found else None
    if not capacity or not 0 < capacity < 1e6:
        raise InputError("no rate at which one replica keeps its promise is known; give it with --capacity REQ/S, above 0")
    hour_s = arguments.seconds_per_hour or lessons.arrivals_s(scenario) / 24
    if not 0 < hour_s <= 3600:
        raise InputError(f"--seconds-per-hour {hour_s:g} is out of range; give more than 0, at most 3600 (open loop only)")
    drills = (lessons.fixed_on_demand(scenario, hour_s), lessons.autoscaled(scenario, capacity, hour_s))
    return drills, f"an hour of {_curve_name(scenario)} lasts {hour_s:.3g} s; one replica carries {capacity:.3g} requests/s"


def _curve_name(scenario: Any) -> str:
    curve = scenario.fleet.demand_curve
    return curve if isinstance(curve, str) else "the demand curve"


def _as_json(drill: Any) -> dict[str, Any]:
    from math import isfinite

    return {
        "label": drill.label,
        "ttft_p95_s": drill.ttft_p95_s if isfinite(drill.ttft_p95_s) else None,
        "kept": drill.kept,
        "rerouted": drill.rerouted,
        "replicas": drill.replicas,
        "replica_hours": drill.run.replica_hours(),
        "spans": plain(drill.run.spans),
        "phases": plain(drill.phases),
    }


def run_burst(arguments: argparse.Namespace) -> int:
    """Print the recorded arrivals beside Poisson ones."""
    from planner.economics import burst

    found = burst.bursts(inputs.scenario(arguments.scenario, arguments.set))
    sides = {"recorded": found.recorded, "poisson": found.poisson}
    if any(answer.load is None for answer in sides.values()):
        raise InputError("burst needs a scenario that can run; `plan` says what is in the way")
    cost = found.prefill
    if arguments.json:
        parts = {name: {k: v for k, v in p.to_dict().items() if k in ("latency", "throughput", "problems")} for name, p in sides.items()}
        print_json(parts | {"prefill": plain(cost) | {"ratio": cost.ratio} if cost else None})
        return 0
    rows = []
    for name, answer in sides.items():
        metrics = answer.load.metrics if answer.load else None
        assert metrics is not None
        ttft = metrics.latency.ttft_s
        figures = (ttft.p50, ttft.p95, ttft.p99) if ttft else (None,) * 3
        tpot = metrics.latency.tpot_s
        rows.append([name, *(shown(v) for v in figures), shown(tpot.p95 if tpot else None), f"{metrics.throughput.good_share:.1%}"])
    print_table(["arrivals", "TTFT p50 s", "TTFT p95 s", "TTFT p99 s", "TPOT p95 s", "kept the promise"], rows)
    if cost is not None:
        print(
            f"\none prefill server keeps the TTFT promise at {cost.trace_tokens_per_s:,.0f} prompt tokens/s with the recorded arrivals, "
            f"{cost.poisson_tokens_per_s:,.0f} with random ones: bursts cost {cost.ratio:.2f}×"
        )
    return 0


def run_prefixes(arguments: argparse.Namespace) -> int:
    """Print hit rate and imbalance of each routing rule."""
    from typing import get_args

    from planner import files, traces
    from planner.fleet import prefix_hits
    from planner.scenario import Routing

    path = Path(arguments.trace)
    given = path.suffix.lower() in (".csv", ".jsonl", ".json") or files.stands(path)
    trace = traces.parse(files.read_bytes(path, traces.MAX_BYTES, TRACE), path.name) if given else traces.shipped(arguments.trace)
    if trace.hash_ids is None:
        keyed = ", ".join(name for name, row in traces.index().items() if row["hash_tokens"])
        raise InputError(
            f"trace {trace.name!r} has no block ids, so nothing can be said about its prefixes; shipped ones with ids: {keyed}"
        )
    if not 1 <= arguments.replicas <= 1000:
        raise InputError(f"--replicas {arguments.replicas} is out of range; give 1 to 1000")
    if not trace.hash_tokens <= arguments.pool_tokens <= 10**9:
        raise InputError(
            f"--pool-tokens {arguments.pool_tokens} is out of range; give one block ({trace.hash_tokens} tokens) to 1e9 tokens"
        )
    found = {rule: prefix_hits(trace, arguments.replicas, arguments.pool_tokens, rule) for rule in get_args(Routing)}
    if arguments.json:
        print_json({"trace": trace.name, "replicas": arguments.replicas, "pool_tokens": arguments.pool_tokens, "routing": plain(found)})
        return 0
    print_table(
        ["routing", "prompt tokens found cached", "busiest replica over the mean"],
        ([rule, f"{hits.hit_rate:.1%}", f"{hits.imbalance:.2f}"] for rule, hits in found.items()),
    )
    return 0
