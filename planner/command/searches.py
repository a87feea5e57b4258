"""sweep, recommend, frontier: many plans at once."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from planner.command import inputs
from planner.command.output import STOPPED, plain, print_json, print_table, shown
from planner.problems import InputError
from planner.scenario import Scenario
from planner.scenario.base import LARGEST

if TYPE_CHECKING:
    from planner.recommend import Recommendation, Space


def add_commands(commands: Any) -> None:
    """Add the commands of this module."""
    sweep = inputs.scenario_command(commands, "sweep", run_sweep, "plan over one or two fields")
    sweep.add_argument(
        "--axis", action="append", required=True, metavar="PATH=VALUES", help="v1,v2,… or low:high:count[:log]; give it once or twice"
    )
    sweep.add_argument("--full", action="store_true", help="replications and capacity at every point")
    sweep.add_argument("--backend", help="joblib backend: loky, threading, multiprocessing, dask or ray")
    sweep.add_argument("--scheduler", help="address of a Dask scheduler (with --backend dask)")
    sweep.add_argument("--jobs", type=int, default=1, help="processes; -1 is one per core")
    recommend = inputs.scenario_command(commands, "recommend", run_recommend, "the cheapest fleets that keep the promise")
    _list(recommend, "--gpus", "candidate GPUs (default: every priced part with measured kernels)")
    _list(recommend, "--tensor-parallel", "candidate tensor-parallel sizes", "1,2,4,8")
    recommend.add_argument("--price", action="append", default=[], metavar="GPU=USD", help="USD per GPU-hour of one candidate")
    recommend.add_argument("--no-speculation", action="store_true", help="leave speculative decoding out")
    recommend.add_argument("--no-split", action="store_true", help="leave separate prefill and decode pools out")
    recommend.add_argument("--exclusions", action="store_true", help="print every exclusion with its reason")
    frontier = inputs.scenario_command(commands, "frontier", run_frontier, "price against tokens/s per user over GPUs and layouts")
    _list(frontier, "--gpus", "GPUs to draw (default: the scenario's)")
    frontier.add_argument("--at", type=float, metavar="TOKENS_PER_S", help="only the cheapest point with this speed per user")


def _list(command: argparse.ArgumentParser, option: str, text: str, default: str = "") -> None:
    command.add_argument(option, default=default, metavar="A,B,…", help=text)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def run_sweep(arguments: argparse.Namespace) -> int:
    """Print one row per point."""
    from planner.sweep import axis, sweep

    scenario = inputs.scenario(arguments.scenario, arguments.set)
    axes = [axis(text) for text in arguments.axis]
    client = _connect(arguments.scheduler) if arguments.scheduler else None
    found = sweep(scenario, axes, "full" if arguments.full else "quick", arguments.backend, arguments.jobs)
    if client is not None:
        client.close()
    status = STOPPED if found.missing else 0
    if found.missing:
        print(f"stopped: {len(found.rows):,} of {len(found.rows) + found.missing:,} points; these follow", file=sys.stderr)
    if arguments.json:
        print_json({"axes": plain(found.axes), "rows": list(found.rows), "knee": found.knee(), "missing": found.missing})
        return status
    columns = [
        *(a.path for a in axes), "meets_slo", "ttft_slo_s", "tpot_slo_s", "output_tokens_per_s", "usd_per_mtok_output", "problems"
    ]  # fmt: skip
    percentile = f"p{scenario.slo.percentile}"
    words = {"meets_slo": "keeps promise", "ttft_slo_s": f"TTFT {percentile} s", "tpot_slo_s": f"TPOT {percentile} s",
             "output_tokens_per_s": "output tokens/s", "usd_per_mtok_output": "USD/M output"}  # fmt: skip
    print_table([words.get(c, c) for c in columns], ([shown(row.get(c)) for c in columns] for row in found.rows))
    return status


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--scheduler needs dask: pip install 'dask[distributed]'") from None
    return Client(address)


def run_recommend(arguments: argparse.Namespace) -> int:
    """Print fleets as they are found, then the ranking and why the rest is out."""
    from planner import recommend as rec

    scenario = inputs.scenario(arguments.scenario, arguments.set)
    prices = dict(_price(text) for text in arguments.price)
    space = rec.Space(
        gpus=_split(arguments.gpus),
        tensor_parallel_sizes=tuple(_size(n) for n in _split(arguments.tensor_parallel)),
        speculative=(None,) if arguments.no_speculation else (),
        disaggregation=(None,) if arguments.no_split else rec.Space().disaggregation,
        usd_per_gpu_hour=prices,
    )
    found, status = _searched(scenario, space)
    if arguments.json:
        print_json(plain(found) | {"options": [_option(o) for o in found.options]})
        return status
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    _print_recommendation(found)
    if arguments.exclusions or not found.options:
        print_table(["out", "candidates", "why"], ([e.label, e.candidates, e.reason] for e in found.exclusions))
    return status


def _searched(scenario: Scenario, space: Space) -> tuple[Recommendation, int]:
    """The recommendation, or what was found when the user stopped the search, and the exit status that says which."""
    from planner import recommend as rec

    seen: list[rec.Event] = []
    try:
        for event in rec.recommend(scenario, space):
            if isinstance(event, rec.Recommendation):
                return event, 0
            if not isinstance(event, rec.Progress):
                seen.append(event)
            elif sys.stderr.isatty():
                print(f"\r{event.excluded:,} of {event.considered:,} out, {event.simulated} simulated", end="", file=sys.stderr)
    except KeyboardInterrupt:
        if not any(isinstance(e, rec.Option) for e in seen):
            raise
    print("stopped before the end of the search: these keep the promise, cheaper ones may exist", file=sys.stderr)
    options = sorted((e for e in seen if isinstance(e, rec.Option)), key=lambda o: o.usd_per_month)
    out = tuple(e for e in seen if isinstance(e, rec.Exclusion))
    return rec.Recommendation(tuple(options), out, len(seen), len(options), 0.0), STOPPED


def _print_recommendation(found: Recommendation) -> None:
    """The ranking, then what is to be known of it."""
    print(f"{found.considered:,} candidates considered, {found.simulated} simulations")
    columns = [
        "design",
        "replicas",
        "GPUs, spares too",
        "USD/month",
        "worst promise",
        "margin",
        "as good",
        "max_num_seqs",
        "max_num_batched_tokens",
    ]
    rows = []
    for o in found.options:
        engine = o.scenario.engine
        rows.append([o.label, o.replicas, o.gpus, f"{o.usd_per_month:,.0f}", o.worst_promise, f"{1 - o.strain:.0%}", shown(o.tie),
                     engine.max_num_seqs, engine.max_num_batched_tokens])  # fmt: skip
    print_table(columns, rows)
    if (best := found.best) is not None:
        slo = best.scenario.slo
        promised = slo.ttft_s is not None or slo.tpot_s is not None or slo.e2e_s is not None
        limit = f"{best.worst_promise} comes nearest to its limit" if promised else "nothing is promised, so it only has to keep up"
        print(f"cheapest: {best.words}, for ${best.usd_per_month:,.0f} a month; {limit}")
    if sum(o.tie for o in found.options) > 1:
        print(f"as good: the bill is within {found.tie_band:.0%} of the cheapest, which is no better known than that")
    for note in dict.fromkeys(note for o in found.options for note in o.notes):
        print(f"note: {note}")


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:5]) <= 1024:
        raise InputError(f"--tensor-parallel {text!r}: give whole numbers from 1 to 1024, for example 1,2,4,8")
    return int(text)


def _price(text: str) -> tuple[str, float]:
    gpu, _, usd = text.partition("=")
    try:
        value = float(usd)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LARGEST:
        raise InputError(f"--price {text!r}: write GPU=USD, for example h100-sxm=2.50")
    return gpu.strip(), value


def _option(option: Any) -> dict[str, Any]:
    data = plain(option)
    data["scenario"] = option.scenario.model_dump(mode="json")
    return data


def run_frontier(arguments: argparse.Namespace) -> int:
    """Print the Pareto set, or the cheapest point at a speed."""
    from planner.economics import frontier

    scenario = inputs.scenario(arguments.scenario, arguments.set)
    points = frontier.points(scenario, gpus=_split(arguments.gpus))
    if arguments.at is not None:
        chosen = frontier.cheapest_at(points, arguments.at)
        if chosen is None:
            raise InputError(f"--at {arguments.at:g}: no layout gives every user that speed; try more GPUs or a lower speed")
        points = (chosen,)
    if arguments.json:
        print_json(
            [{k: v for k, v in plain(p).items() if k != "layout"} | {"scenario": p.scenario.model_dump(mode="json")} for p in points]
        )
        return 0
    drawn = points if arguments.at is not None else [p for p in points if p.on_frontier]
    print_table(
        ["GPU", "TP", "weights", "batch", "tokens/s per user", "output tokens/s per GPU", "USD/M tokens", "USD/M output"],
        ([p.gpu, p.tensor_parallel_size, p.weights, p.batch, *(shown(v) for v in (p.tokens_per_s_per_user, p.output_tokens_per_s_per_gpu,
          p.usd_per_mtok, p.usd_per_mtok_output))] for p in drawn),
    )  # fmt: skip
    return 0
