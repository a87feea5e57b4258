"""breakeven, week, sensitivity, seats, claim: whether to buy, how to pay, what it would take to change that."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import Any

from planner.command import inputs
from planner.command.output import plain, print_json, print_table, shown
from planner.problems import InputError
from planner.units import HOUR_S


def add_commands(commands: Any) -> None:
    """Add the commands of this module."""
    breakeven = inputs.scenario_command(commands, "breakeven", run_breakeven, "own fleet against list prices, with replica steps")
    breakeven.add_argument("--peak-to-mean", type=float, default=1.0, help="busiest moment over the day's mean")
    breakeven.add_argument("--batch", action="store_true", help="compare with batch interfaces")
    breakeven.add_argument("--hit-rate", type=float, help="share of prompt tokens the API bills as cached (default: the plan's own)")
    breakeven.add_argument("--region", default="world", help="grid for the carbon figure")
    week = inputs.scenario_command(commands, "week", run_week, "a week of demand: static, autoscaled, cheapest payment mix")
    week.add_argument("--curve", metavar="FILE", help="demand by hour (168 values or 24), instead of fleet.demand_curve")
    week.add_argument("--steps-per-hour", type=int, default=1, help="values per hour in that file")
    week.add_argument("--burst-cv", type=float, default=0.0, help="scatter of minutes about the hourly curve")
    week.add_argument("--max-spot-share", type=float, default=0.5, help="most of the fleet that may be spot")
    week.add_argument("--overflow", metavar="LABEL", help="list price that may take the tip of the peaks")
    sensitivity = inputs.scenario_command(commands, "sensitivity", run_sensitivity, "what moves the bill and what flips the decision")
    sensitivity.add_argument("--peak-to-mean", type=float, default=1.0, help="busiest moment over the mean rate of the scenario")
    sensitivity.add_argument("--no-flips", action="store_true", help="only the tornado")
    seats = inputs.scenario_command(commands, "seats", run_seats, "tenants that can be sold a rate limit")
    seats.add_argument("--requests-per-minute", type=float, required=True, help="limit of one tenant")
    seats.add_argument("--activity", type=float, default=0.1, help="share of the busy hour a tenant uses its limit")
    seats.add_argument("--max-risk", type=float, default=0.01, help="chance of more demand than the fleet carries")
    batch = inputs.scenario_command(commands, "batch", run_batch, "the smallest fleet that ends a batch job on time")
    batch.add_argument("--documents", type=float, required=True, help="requests like the scenario's to be done")
    batch.add_argument("--hours", type=float, required=True, help="time until the last one must be done")
    levers = inputs.scenario_command(commands, "levers", run_levers, "the effect of each change on capacity, latency and price")
    levers.add_argument("--pairs", action="store_true", help="also every two of them together")
    claim = commands.add_parser("claim", help="check a quoted speed or price", description="What a quoted number implies.")
    claim.add_argument("scenario", nargs="?", metavar="SCENARIO", help="deployment the claim is about (or give --model and --gpu)")
    claim.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="replace one field")
    claim.add_argument("--json", action="store_true", help="print JSON")
    for option, text in (
        ("--model", "model slug"),
        ("--gpu", "GPU slug"),
        ("--weights", "weight precision"),
        ("--kv-cache", "KV precision"),
    ):
        claim.add_argument(option, help=text)
    claim.add_argument("--tensor-parallel", type=int, help="GPUs of the replica")
    claim.add_argument("--concurrency", type=int, help="requests in flight")
    for option, text in (
        ("--tokens-per-s", "claimed output tokens/s of the replica"),
        ("--ttft-s", "claimed time to first token"),
        ("--usd-per-mtok", "claimed USD per million output tokens"),
        ("--usd-per-gpu-hour", "hourly price behind that"),
        ("--weights-gb-per-gpu", "claimed weights, GB per GPU"),
        ("--input-len", "prompt tokens"),
        ("--output-len", "output tokens"),
    ):
        claim.add_argument(option, type=float, help=text)
    claim.set_defaults(run=run_claim)


def _planned(arguments: argparse.Namespace) -> Any:
    from planner.plan import plan

    return plan(inputs.scenario(arguments.scenario, arguments.set), "full")


def _round(value: float | None) -> str:
    return "never" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def run_breakeven(arguments: argparse.Namespace) -> int:
    """Print break-even against each list price, the waterfall and the power bill."""
    from planner.economics import decision

    answer = _planned(arguments)
    found = decision.break_even(answer, arguments.peak_to_mean, batch=arguments.batch, hit_rate=arguments.hit_rate)
    bars, power = decision.waterfall_of(answer), decision.power_of(answer, arguments.region)
    if arguments.json:
        shapes = decision.blend_by_shape(answer.scenario)
        answers = {"break_even": found, "waterfall": bars, "power": power, "heat_map": decision.heat_map_of(answer)}
        print_json({name: plain(value) for name, value in answers.items()} | {"blend_by_shape": shapes})
        return 0
    print_table(
        ["list price", "USD/1,000 requests", "break-even requests/day", "utilisation there", "always cheaper above"],
        ([b.label, shown(b.usd_per_request * 1000), *(_round(v) for v in (b.requests_per_day,)), _percent(b.utilization),
          _round(b.always_above_requests_per_day)] for b in found),
    )  # fmt: skip
    print()
    print_table(
        ["waterfall", "USD/1,000 requests", "total"],
        ([b.name, shown(b.usd_per_request * 1000), shown(b.total_usd_per_request * 1000)] for b in bars),
    )
    if power is not None:
        print(
            f"\n{power.kw:.1f} kW, {power.kwh_per_month:,.0f} kWh and {power.kg_co2e_per_month:,.0f} kgCO2e a month ({power.grid.region})"
        )
    return 0


def run_week(arguments: argparse.Namespace) -> int:
    """Print what a week costs three ways."""
    from planner import cost, files
    from planner.economics import decision, week

    answer = _planned(arguments)
    if arguments.curve:
        curve = files.read_text(arguments.curve, week.MOST_BYTES, "give hourly shares, one a line or with commas between")
        shares = week.parse_shares(curve, max(1, arguments.steps_per_hour))
        fleet = answer.scenario.fleet.model_copy(update={"demand_curve": shares})
        answer = replace(answer, scenario=answer.scenario.model_copy(update={"fleet": fleet}))
    api = None
    if arguments.overflow:
        api = next((row for row in answer.cost.list_prices if row.label == arguments.overflow), None)
        if api is None:
            listed = ", ".join(row.label for row in cost.compare(cost.listed(answer.scenario), cost.mix_of(answer.scenario), None))
            raise InputError(f"--overflow {arguments.overflow!r} is not among this plan's list prices: {listed}")
    report = decision.week_of(answer, burst_cv=arguments.burst_cv, max_spot_share=arguments.max_spot_share, api=api)
    if arguments.json:
        fleets = {
            name: {
                "usd_per_month": fleet.usd_per_month,
                "mean_replicas": fleet.mean_replicas,
                "peak_replicas": fleet.peak_replicas,
                "busy": fleet.busy,
                "missed_share": fleet.missed_share,
                "replicas_by_hour": decision.by_hour(fleet.replicas),
            }
            for name, fleet in (("static", report.static), ("autoscaled", report.autoscaled))
        }
        print_json(fleets | {"payment": plain(report.payment), "peak_to_mean": report.peak_to_mean, "offers": plain(report.offers)})
        return 0
    rows = [
        [
            name,
            f"{fleet.usd_per_month:,.0f}",
            f"{fleet.mean_replicas:.1f}",
            fleet.peak_replicas,
            f"{fleet.busy:.0%}",
            f"{fleet.missed_share:.2%}",
        ]
        for name, fleet in (("static for the peak", report.static), ("autoscaled", report.autoscaled))
    ]
    print_table(["fleet", "USD/month", "mean replicas", "peak", "busy", "late requests"], rows)
    counts = ", ".join(f"{n} {basis}" for basis, n in report.payment.replicas().items())
    print(f"\ncheapest payment: ${decision.month(report.payment.usd):,.0f} a month with {counts} (spares not counted)")
    return 0


def run_sensitivity(arguments: argparse.Namespace) -> int:
    """Print the tornado and the flips."""
    from planner.economics import breakeven, sensitivity, sizing
    from planner.plan import plan
    from planner.sweep import spread

    case = sensitivity.Case(inputs.scenario(arguments.scenario, arguments.set), peak_to_mean=breakeven.checked_peak(arguments.peak_to_mean))
    now = sensitivity.outcome(case)
    wrong = spread(plan(case.scenario, "quick"), "tpot")
    band = None if wrong is None else (1 - wrong, 1 + wrong)
    bars = sorted(sensitivity.tornado(case, efficiency_band=band), key=lambda b: -b.swing_usd)
    left_out = sensitivity.left_out(case, [bar.name for bar in bars])
    moved = [] if arguments.no_flips else list(sensitivity.flips(case))
    if arguments.json:
        print_json({"now": plain(now), "tornado": plain(bars), "left_out": left_out, "flips": plain(moved)})
        return 0
    own = (
        f"{now.replicas} replica{'s' * (now.replicas != 1)}"
        if now.replicas
        else f"no number of replicas up to {sizing.MOST_REPLICAS:,} keeps the promise"
    )
    own += f", ${now.own_usd_per_month:,.0f} a month" if math.isfinite(now.own_usd_per_month) else ""
    print(f"{own}; the cheapest list price: {'$' * math.isfinite(now.api_usd_per_month)}{_usd(now.api_usd_per_month)}")
    print_table(
        ["input", "own at low", "own at high", "API at low", "API at high"],
        ([f"{b.name} {b.low_label} / {b.high_label}", *(_usd(v) for v in (b.low.own_usd_per_month, b.high.own_usd_per_month,
          b.low.api_usd_per_month, b.high.api_usd_per_month))] for b in bars),
    )  # fmt: skip
    for line in filter(None, (left_out, *(flip.message for flip in moved))):
        print(line)
    return 0


def _usd(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "none"


def run_seats(arguments: argparse.Namespace) -> int:
    """Print how many tenants fit."""
    from planner.economics import decision

    found = decision.seats_of(_planned(arguments), arguments.requests_per_minute, arguments.activity, arguments.max_risk)
    if arguments.json:
        print_json(plain(found))
        return 0
    print(
        f"{found.tenants:,} tenants at {found.requests_per_minute:g} requests and {found.tokens_per_minute:,.0f} tokens a minute each: "
        f"{found.oversubscription:.1f}× oversubscribed, {found.risk:.2%} risk of breaking the promise"
    )
    return 0


def run_batch(arguments: argparse.Namespace) -> int:
    """Print fleet, finish and bill of a batch job, beside batch interfaces."""
    from planner import cost
    from planner.economics import decision, offline

    if arguments.documents <= 0 or arguments.hours <= 0:
        raise InputError(f"batch: --documents {arguments.documents:g} and --hours {arguments.hours:g} must both be above 0")
    answer = _planned(arguments)
    window_s = arguments.hours * HOUR_S
    job, ended = decision.batch_job(answer, arguments.documents, window_s), decision.offline_of(answer, arguments.documents, window_s)
    offered = {price.label: cost.batch_price(price) or price for price in cost.listed(answer.scenario)}
    api = {label: offline.api_usd(job, price.input, price.output) for label, price in offered.items()}
    if arguments.json:
        rates = {"input_tokens_per_s": job.input_tokens_per_s, "output_tokens_per_s": job.output_tokens_per_s}
        print_json({"finish": plain(ended), "job": plain(job) | rates, "api_usd": api})
        return 0
    gpus = sum(n for _, n, _ in cost.pools(answer.scenario)) * ended.replicas
    print(f"{job.input_tokens_per_s:,.0f} prompt and {job.output_tokens_per_s:,.0f} output tokens/s are wanted")
    print(f"{gpus} GPUs end in {ended.mean_s / HOUR_S:.2f} h (19 runs of 20 within {ended.p95_s / HOUR_S:.2f} h) for ${ended.usd:,.0f}")
    print_table(
        ["through an API (batch rate where sold)", "USD"],
        ([label, f"{usd:,.0f}"] for label, usd in sorted(api.items(), key=lambda kv: kv[1])),
    )
    return 0


def run_levers(arguments: argparse.Namespace) -> int:
    """Print one row per lever, the scenario as it is first."""
    from planner.economics import levers

    found = list(levers.effects(inputs.scenario(arguments.scenario, arguments.set), pairs=arguments.pairs))
    if arguments.json:
        print_json([plain(e) | {"scenario": e.scenario.model_dump(mode="json")} for e in found])
        return 0
    rows = []
    for e in found:
        figures = (e.capacity_requests_per_s, e.ttft_s, e.tpot_s, e.usd_per_mtok_blended, e.interaction)
        rows.append([" + ".join(e.levers) or "as it is", shown(e.fits), *(shown(v) for v in figures)])
    print_table(["lever", "fits", "capacity req/s", "TTFT s", "TPOT s", "USD/M tokens", "interaction"], rows)
    return 0


def run_claim(arguments: argparse.Namespace) -> int:
    """Print what a claim implies."""
    from planner.economics.claim import Claim, check
    from planner.scenario import parse, set_path

    scenario = inputs.scenario(arguments.scenario, arguments.set) if arguments.scenario else parse({})
    for path, value in (
        ("model.name", arguments.model),
        ("hardware.gpu", arguments.gpu),
        ("precision.weights", arguments.weights),
        ("precision.kv_cache", arguments.kv_cache),
        ("parallel.tensor_parallel_size", arguments.tensor_parallel),
        ("workload.input_len", arguments.input_len),
        ("workload.output_len", arguments.output_len),
    ):
        scenario = scenario if value is None else set_path(scenario, path, value)
    verdict = check(
        scenario,
        Claim(
            output_tokens_per_s=arguments.tokens_per_s,
            usd_per_mtok_output=arguments.usd_per_mtok,
            usd_per_gpu_hour=arguments.usd_per_gpu_hour,
            concurrency=arguments.concurrency,
            ttft_s=arguments.ttft_s,
            weights_gb_per_gpu=arguments.weights_gb_per_gpu,
        ),
    )
    if arguments.json:
        print_json(plain(verdict))
        return 0
    print("\n".join(verdict.findings))
    for e in verdict.explanations:
        print(f"  if {e.cause}: {e.output_tokens_per_s:,.0f} tokens/s ({e.ratio:.2f}× the claim)")
    return 0
