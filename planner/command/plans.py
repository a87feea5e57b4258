"""plan and compare: what a scenario answers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from planner.command import inputs
from planner.command.output import print_json, print_table, working
from planner.problems import InputError


def add_commands(commands: Any) -> None:
    """Add `plan` and `compare`."""
    plan = commands.add_parser("plan", help="answer a scenario", description="Does it fit, how fast, at what price.")
    inputs.add_scenario(plan)
    plan.add_argument("--markdown", action="store_true", help="print the plan as Markdown")
    plan.add_argument("--out", metavar="FILE", help="write a document: .json, .csv, .xlsx, .md or .html")
    plan.add_argument("--quick", action="store_true", help="one simulated run, no capacity search")
    plan.set_defaults(run=run_plan)
    compare = commands.add_parser("compare", help="two to four scenarios side by side", description="Figures and ratios against the first.")
    inputs.add_scenario(compare, "+")
    compare.add_argument("--quick", action="store_true", help="one simulated run each, no capacity search")
    compare.set_defaults(run=run_compare)


def run_plan(arguments: argparse.Namespace) -> int:
    """Print or write one plan."""
    from planner.plan import plan

    scenario = inputs.scenario(arguments.scenario, arguments.set)
    with working("planning"):
        answer = plan(scenario, effort="quick" if arguments.quick else "full")
    if arguments.out:
        from planner import export

        export.write(answer, Path(arguments.out))
    if arguments.json:
        print_json(answer.to_dict())
    elif arguments.markdown:
        from planner import export

        print(export.build(answer, "md").decode("utf-8"))
    elif not arguments.out:
        print("\n".join(summary(answer)))
    return 0


def summary(answer: Any) -> list[str]:
    """The answer in a few lines for a terminal."""
    from planner.export.figures import cell

    d = answer.to_dict()
    s, memory, roofline, latency, cost = d["scenario"], d["memory"], d["roofline"], d["latency"], d["cost"]
    floor = cost["floor"]
    lines = [title(answer)]
    if answer.fits:
        lines += [
            f"Fits: KV pool {cell(memory['kv_pool_bytes_per_gpu'], 'gib').text} per GPU, {cell(memory['kv_pool_tokens'], 'tokens').text}, "
            f"up to {memory['cache_limited_batch']} sequences at their final length",
            f"Decode step {cell(roofline['decode_step_s'], 'ms').text} at batch {roofline['batch']}, bound by {roofline['decode_bound']}; "
            f"prefill {cell(roofline['prefill_tokens_per_s'], 'tokens_s').text}",
        ]
    percentile = f"p{s['slo']['percentile']}"
    for name, label in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "Answer")):
        if latency[name]:
            promise = s["slo"][name]
            against = f" against a promise of {cell(promise, 'ms').text}" if promise else ""
            lines.append(f"{label} {percentile} {cell(latency[name][percentile], 'ms').text}{against}")
    if cost["usd_per_mtok_output"] is not None:
        lines.append(
            f"{cell(cost['usd_per_mtok_output'], 'usd').text} per million output tokens and "
            f"{cell(cost['usd_per_mtok_input'], 'usd').text} per million input tokens at this load; "
            f"always full, it would be {cell(floor['usd_per_mtok_output'], 'usd').text} and {cell(floor['usd_per_mtok_input'], 'usd').text}"
        )
    if cost["usd_per_month"] is not None:
        spares = answer.scenario.fleet.spares
        kept = f", {spares} spare {'replica' if spares == 1 else 'replicas'} included" if spares else ""
        lines.append(f"{cell(cost['usd_per_month'], 'usd').text} per month for {cost['gpus']} GPU{'s' * (cost['gpus'] != 1)}{kept}")
    for problem in d["problems"]:
        remedy = problem["remedy"].strip()
        parts = (f"{problem['severity']}: {problem['message']}", remedy[:1].upper() + remedy[1:])
        lines.append(". ".join(part.rstrip(".") for part in parts if part))
    return lines


def title(answer: Any) -> str:
    """The plan in one phrase."""
    s = answer.scenario
    if s.disaggregation:
        pools = s.disaggregation
        where = f"{pools.prefill.replicas * pools.prefill.parallel.gpus} × {pools.prefill.gpu} prefill + "
        where += f"{pools.decode.replicas * pools.decode.parallel.gpus} × {pools.decode.gpu} decode"
    else:
        where = f"{s.gpus} × {s.hardware.gpu}"
    return f"{s.model.name} {s.precision.weights} on {where}"


def run_compare(arguments: argparse.Namespace) -> int:
    """Print two to four plans side by side."""
    from planner.export.figures import cell
    from planner.plan import plan

    if not 2 <= len(arguments.scenario) <= 4:
        raise InputError(f"compare takes two to four scenarios, not {len(arguments.scenario)}")
    # All of them are read first: a misspelt last one must not cost the time of the others.
    scenarios = [inputs.scenario(text, arguments.set) for text in arguments.scenario]
    with working("planning"):
        plans = [plan(scenario, effort="quick" if arguments.quick else "full") for scenario in scenarios]
    if arguments.json:
        print_json([p.to_dict() for p in plans])
        return 0
    dicts = [p.to_dict() for p in plans]
    rows = []
    for label, path, unit in FIGURES:
        values = [dig(d, path.replace("pSLO", f"p{d['scenario']['slo']['percentile']}")) for d in dicts]
        base = values[0]
        cells = []
        for i, (value, d) in enumerate(zip(values, dicts, strict=True)):
            numbers = type(value) in (int, float) and type(base) in (int, float) and base
            at = f" at {dig(d, 'roofline.batch'):,}" if label == AT_ITS_BATCH and value else ""
            cells.append(cell(value, unit).text + at + (f" (×{value / base:.2f})" if i and numbers else ""))
        rows.append([label, *cells])
    print_table(["", *(title(p) for p in plans)], rows)
    return 0


AT_ITS_BATCH = "decode step, each at its own batch"
FIGURES = (
    ("fits", "memory.fits", "number"),
    ("sequences that fit", "memory.cache_limited_batch", "count"),
    ("decode step, one sequence", "roofline.decode_step_batch1_s", "ms"),
    (AT_ITS_BATCH, "roofline.decode_step_s", "ms"),
    ("TTFT", "latency.ttft_s.pSLO", "ms"),
    ("TPOT", "latency.tpot_s.pSLO", "ms"),
    ("output tokens/s", "throughput.output_tokens_per_s", "tokens_s"),
    ("capacity", "throughput.capacity_requests_per_s", "requests_s"),
    ("USD per million output tokens", "cost.usd_per_mtok_output", "usd"),
    ("USD per million input tokens", "cost.usd_per_mtok_input", "usd"),
    ("USD per month", "cost.usd_per_month", "usd"),
)
"""What a comparison shows: label, dotted path in the plan, unit."""


def dig(data: Any, path: str) -> Any:
    """The value at a dotted path, or None where a part is null."""
    for name in path.split("."):
        if data is None:
            return None
        data = data.get(name)
    return data
