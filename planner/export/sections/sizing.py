"""Section 4: memory, batch, step time, the operating point and the latencies around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.export import charts
from planner.export.blocks import Block, Chart, Section, Text, missing, table
from planner.export.figures import cell, show
from planner.export.sections.decision import binding
from planner.export.subject import LATENCY_NAMES, LATENCY_UNITS, Subject
from planner.units import GIB, MS

MEMORY_PARTS = (
    ("weights", "weights_bytes_per_gpu"),
    ("activation reserve", "activation_bytes_per_gpu"),
    ("outside PyTorch", "non_torch_bytes_per_gpu"),
    ("CUDA graphs", "cuda_graph_bytes_per_gpu"),
    ("KV pool", "kv_pool_bytes_per_gpu"),
)
MORE_LATENCIES = {"ttft_answer_s": "First answer token", "itl_s": "Gap between tokens", "queue_s": "Wait in the queue"}
OF_THE_LOAD = ("overloaded", "slo_missed", "infeasible_slo", "preemptions", "requests_failed", "stopped")
"""Findings that differ from load to load; the rest stand in section 1."""
SHOWN_TERMS = 10


def sizing(s: Subject) -> Section:
    """What holds it, how many run at once, how long a step takes, and what people see at 50 to 120 % of the load."""
    blocks: list[Block] = [*_memory(s)]
    if s.fits:
        blocks += [*_batch(s), *_step(s), *_operating_point(s), *_load_points(s)]
    return Section(4, "Sizing", tuple(blocks))


def _memory(s: Subject) -> list[Block]:
    memory = s.part("memory")
    if memory.get("weights_bytes_per_gpu") is None:
        return [missing("Memory", "this layout is not possible (section 1)")]
    formulas = {t["name"].replace(" ", "_"): f"{t['formula']} ({t['source']})" for t in memory.get("terms") or ()}
    rows = []
    for name, key in MEMORY_PARTS:
        term = key.removesuffix("_bytes_per_gpu")
        rows.append((name, cell(memory.get(key), "gib"), formulas.get(term, "")))
    total = memory.get("gpu_memory_bytes")
    used = sum(max(0.0, memory.get(key) or 0.0) for _, key in MEMORY_PARTS)
    if total:
        rows.append(("left over", cell(max(0.0, total - used), "gib"), "margin outside the engine's budget"))
        rows.append(("one GPU as the engine sees it", cell(total, "gib"), formulas.get("budget", "")))
    if not s.fits:
        rows.append(("missing", cell(memory.get("shortfall_bytes_per_gpu"), "gib"), "for one sequence of the planned length"))
    found: list[Block] = [table("memory", "Memory of one GPU", ("Part", "Size", "How it was worked out"), rows)]
    parts = [{"part": name, "gib": round(max(0.0, memory.get(key) or 0.0) / GIB, 3)} for name, key in MEMORY_PARTS]
    if total and used < total:
        parts.append({"part": "left over", "gib": round((total - used) / GIB, 3)})
    words = (
        f"Weights take {show(memory['weights_bytes_per_gpu'], 'gib')} and the KV pool "
        f"{show(memory.get('kv_pool_bytes_per_gpu'), 'gib')} of each GPU."
    )
    found.append(Chart("memory-chart", "Memory of one GPU", words, charts.memory_stack(parts)))
    rules = [
        ("KV bytes per token, this precision", cell(memory.get("kv_bytes_per_token"), "bytes"), "whole replica, one copy"),
        ("KV pool", cell(memory.get("kv_pool_tokens"), "tokens"), "one replica"),
        ("Sequences at their final mean length", cell(memory.get("cache_limited_batch"), "count"), "the batch that never preempts"),
        (
            "Sequences at max_model_len",
            cell(memory.get("max_model_len_concurrency"), "number"),
            f"max_model_len {show(memory.get('max_model_len'), 'tokens')}; the figure in the engine's log",
        ),
    ]
    found.append(table("cache", "What the cache holds", ("Quantity", "Value", "Note"), rules))
    return found


def _batch(s: Subject) -> list[Block]:
    r = s.part("roofline")
    if not r.get("batch"):
        return []
    rows = [
        (
            "Batch that the floor price is quoted at",
            cell(r["batch"], "count"),
            f"at a mean context of {show(r.get('context_tokens'), 'tokens')}",
        ),
        (
            "Batch at which arithmetic takes as long as reading weights",
            cell(r.get("compute_bound_batch"), "count"),
            "larger ones gain little",
        ),
        ("Decode step at that batch", cell(r.get("decode_step_s"), "ms"), f"bound by {r.get('decode_bound')}"),
        ("Decode step of one sequence", cell(r.get("decode_step_batch1_s"), "ms"), "the fastest a user can be served"),
        ("Prefill alone", cell(r.get("prefill_tokens_per_s"), "tokens_s"), f"{show(r.get('prefill_s'), 's')} for one mean prompt"),
    ]
    found: list[Block] = [table("steps", "Steps of one replica", ("Quantity", "Value", "Note"), rows)]
    table_rows = [row for row in r.get("batch_table") or () if row.get("decode_step_s")]
    if table_rows:
        heads = ("Batch", "Step", "Tokens/s", "Tokens/s per user", "$ per M output (floor)", "$ per M input (floor)", "KV cache", "Fits")
        body = [
            (
                cell(row["batch"], "count"),
                cell(row["decode_step_s"], "ms"),
                cell(row["decode_tokens_per_s"], "tokens_s"),
                cell(row["decode_tokens_per_s"] / row["batch"], "tokens_s"),
                cell(row["usd_per_mtok_output"] if row["fits"] else None, "usd"),
                cell(row["usd_per_mtok_input"] if row["fits"] else None, "usd"),
                cell(row["kv_bytes"], "gb"),
                row["fits"],
            )
            for row in table_rows
        ]
        found.append(table("batches", "Speed against price by batch", heads, body, "A batch that does not fit has no price."))
        points = [
            {
                "speed": round(row["decode_tokens_per_s"] / row["batch"], 3),
                "usd": round(row["usd_per_mtok_output"], 6),
                "label": f"{row['batch']:,}",
            }
            for row in table_rows
            if row["fits"] and row.get("usd_per_mtok_output")
        ]
        if len(points) > 1:
            here = _here(s)
            words = "Larger batches are cheaper and slower for each user; numbers are batch sizes" + (
                ", the diamond is this plan at its load." if here else "."
            )
            found.append(Chart("frontier", "Price against speed", words, charts.frontier(points, here)))
    return found


def _here(s: Subject) -> dict[str, Any] | None:
    tpot, usd = s.latency("tpot_s", "mean"), s.part("cost").get("usd_per_mtok_output")
    return {"speed": round(1 / tpot, 3), "usd": round(usd, 6)} if tpot and usd else None


def _step(s: Subject) -> list[Block]:
    terms = [t for t in s.part("roofline").get("terms") or () if t.get("phase") == "decode"]
    if not terms:
        return [missing("Breakdown of a step", "this step-time level has no terms")]
    total = sum(t["seconds"] for t in terms)
    order: dict[str, float] = {}
    for t in terms:
        order[t["name"]] = order.get(t["name"], 0.0) + t["seconds"]
    names = sorted(order, key=lambda name: -order[name])[:SHOWN_TERMS]
    rows, bars = [], []
    for name in names:
        bounds: dict[str, float] = {}
        for t in terms:
            if t["name"] == name:
                bounds[t["bound"]] = bounds.get(t["bound"], 0.0) + t["seconds"]
        for bound, seconds in sorted(bounds.items(), key=lambda item: -item[1]):
            rows.append((name, bound, cell(seconds, "ms"), cell(seconds / total, "share")))
            bars.append({"term": name, "bound": bound, "ms": round(seconds / MS, 4)})
    rest = total - sum(order[name] for name in names)
    if rest > 1e-9:
        rows.append((f"{len(order) - len(names)} smaller terms", "", cell(rest, "ms"), cell(rest / total, "share")))
    biggest = names[0]
    words = f"{biggest} is the largest part of a decode step, {show(order[biggest] / total, 'share')} of {show(total, 'ms')}."
    return [
        table("step-terms", "Where a decode step's time goes", ("Term", "Bound by", "Time", "Share"), rows),
        Chart("step-chart", "Where a decode step's time goes", words, charts.step_bars(bars)),
    ]


def _operating_point(s: Subject) -> list[Block]:
    t = s.part("throughput")
    if not s.simulated:
        return [missing("Operating point", "no traffic was simulated")]
    simulation = s.part("simulation")
    rows = [
        (
            "Served",
            cell(t.get("requests_per_s"), "requests_s"),
            f"{show(t.get('input_tokens_per_s'), 'tokens_s')} in, {show(t.get('output_tokens_per_s'), 'tokens_s')} out",
        ),
        ("Capacity within the promises", cell(t.get("capacity_requests_per_s"), "requests_s"), "largest rate at which every promise holds"),
        ("Utilisation of that capacity", cell(t.get("utilization"), "share"), "above 90 % the latencies say little"),
        ("Time with a step running", cell(t.get("busy"), "share"), "busy"),
        ("Mean batch", cell(t.get("mean_batch"), "number"), "sequences decoding together"),
        ("KV pool in use", cell(t.get("kv_utilization"), "share"), "mean"),
        ("Prompt tokens found in the cache", cell(t.get("prefix_hit_rate"), "share"), "prefix hits"),
        ("Preemptions", cell(t.get("preemptions"), "count"), "recomputed when the pool ran out"),
        ("Tokens per step and sequence", cell(t.get("acceptance_length"), "number"), "above 1 with speculation"),
        ("What gives first", binding(s), ""),
    ]
    found: list[Block] = [table("operating-point", "Operating point", ("Quantity", "Value", "Note"), rows)]
    heads = ("Latency", "Mean", "p50", "p90", "p95", "p99")
    body = []
    for name, words in {**LATENCY_NAMES, **MORE_LATENCIES}.items():
        row = s.part("latency").get(name)
        if row:
            body.append((words, *(cell(row.get(k), LATENCY_UNITS[name]) for k in ("mean", "p50", "p90", "p95", "p99"))))
    runs, seen = simulation.get("replications"), simulation.get("requests")
    note = f"{show(runs, 'count')} simulated runs, {show(seen, 'count')} requests, {simulation.get('mode')} mode."
    moved = s.part("transfers")
    if moved:
        transfers = [
            ("Link", moved.get("link"), f"{show(moved.get('count'), 'count')} caches moved in the simulated runs"),
            ("Cache of one request", cell(moved.get("mean_bytes"), "gib"), "mean"),
            ("Time of one transfer", cell(moved.get("mean_s"), "ms"), "mean, waiting not counted"),
            ("Waiting for the link or for room", cell(_each(moved, "queue_s"), "ms"), "mean of a request"),
            ("of it for room in a decode replica", cell(_each(moved, "blocked_s"), "ms"), "mean of a request"),
        ]
        found.append(table("transfers", "KV caches moved between the pools", ("Quantity", "Value", "Note"), transfers))
    found.append(table("latency", f"Latency at {s.load_words}", heads, body, note))
    return found


def _each(moved: Mapping[str, Any], name: str) -> float | None:
    total, count = moved.get(name), moved.get("count")
    return total / count if total is not None and count else None


def _load_points(s: Subject) -> list[Block]:
    points = s.extras.load_points
    if not points:
        why = "a trace sets the load" if s.scenario.workload.trace is not None else "no other loads were simulated for it"
        return [missing("Latency at 50, 80, 100 and 120 % of the load", why)]
    rows: list[tuple[Any, ...]] = []
    series: list[dict[str, Any]] = []
    for p in points:
        if not p.latency:
            rows.append((p.name, *[None] * 6, None, p.meets_slo, ", ".join(c for c in p.problems if c in OF_THE_LOAD)))
            continue
        ttft, tpot = p.latency["ttft_s"], p.latency["tpot_s"]
        rows.append(
            (
                p.name,
                *(cell(ttft.get(k), "s") for k in ("p50", "p95", "p99")),
                *(cell((tpot or {}).get(k), "ms") for k in ("p50", "p95", "p99")),
                cell(p.throughput.get("preemptions"), "count"),
                p.meets_slo,
                ", ".join(c for c in p.problems if c in OF_THE_LOAD),
            )
        )
        for metric, values in (("TTFT", ttft), ("TPOT", tpot)):
            for statistic in ("p50", "p95", "p99"):
                if values and values.get(statistic) is not None:
                    series.append(
                        {
                            "load": float(p.name.rstrip("%")),
                            "metric": metric,
                            "statistic": statistic,
                            "ms": round(values[statistic] / MS, 3),
                        }
                    )
    heads = ("Load", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "p99", "Preemptions", "Promises kept", "Findings")
    note = (
        "Simulated on the same random numbers, set in proportion to the plan's own figures. "
        "Whether promises are kept is judged by the capacity found for the plan."
    )
    found: list[Block] = [table("load-points", f"Latency at shares of {s.peak_words}", heads, rows, note)]
    slo = s.scenario.slo
    limits = [{"metric": m, "ms": v / MS} for m, v in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s)) if v is not None]
    kept = [p.name for p in points if p.meets_slo]
    words = (
        f"Promises (dashed, at {s.percentile}) hold at {', '.join(kept)} of it."
        if kept
        else "Promises (dashed) hold at none of these loads."
    )
    if series:
        found.append(Chart("latency-chart", "Latency against load", words, charts.latency_by_load(series, limits)))
    else:
        found.append(Text("None of these loads can be served."))
    return found
