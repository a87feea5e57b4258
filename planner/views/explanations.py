"""Every number with its formula, the values in it, its source, date and error band."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.catalog.rental import dated
from planner.scenario import Scenario
from planner.views import components, verdict
from planner.views.text import compact, digits, gibibytes, percent, seconds, usd
from planner.views.words import TERMS

Json = dict[str, Any]
Line = tuple[str, str, str]

BATCH_LIMITS = {"kv_cache": "cache", "max_num_seqs": "most sequences", "clients": "clients of one replica"}


def everything(plan: Json, scenario: Scenario) -> None:
    """All explanations of a plan that runs, then its sources."""
    components.explain("Step time, batch, prefill", step_lines(plan, scenario))
    components.explain("Latency and throughput", load_lines(plan, scenario))
    components.explain("Dollars", cost_lines(plan, scenario))
    memory(plan)
    sources(plan)


def memory(plan: Json) -> None:
    """The memory budget, term by term."""
    components.memory_terms(plan)
    layers(plan)


def layers(plan: Json) -> None:
    """The model layer by layer: what each group of equal layers weighs and caches."""
    rows = [
        {
            "layers": r["layers"],
            "count": r["count"],
            "cache": r["kind"],
            "mixer": r["mixer"],
            "MLP": r["mlp"],
            "parameters each": compact(r["params_each"]),
            "active each": compact(r["active_params_each"]),
            "weights each, per GPU": gibibytes(r["weight_bytes_per_gpu_each"]),
            "16-bit cache each, bytes a token": compact(r["kv_bytes_per_token_each"]),
            "state each, bytes a sequence": compact(r["state_bytes_each"]),
        }
        for r in plan["memory"].get("layers") or []
    ]
    if rows:
        with st.expander("The model, layer by layer", icon=":material/layers:"):
            components.table(rows, "Groups of equal layers with their mixer, MLP, parameters, weights and cache")


def step_lines(plan: Json, scenario: Scenario) -> list[Line]:
    """The closed forms."""
    roof, mem = plan["roofline"], plan["memory"]
    limits = ", ".join(f"{BATCH_LIMITS[limit['name']]} {limit['sequences']:,}" for limit in roof["batch_limits"])
    level = {
        "textbook": "textbook arithmetic: weights ÷ bandwidth",
        "datasheet": "datasheet lower bound: the larger of FLOPs ÷ peak and bytes ÷ bandwidth, per kernel",
        "calibrated": "sum of kernels with constants measured on this GPU family",
    }[scenario.fidelity]
    terms = " + ".join(f"{t['name']} {seconds(t['seconds'])}" for t in roof["terms"] if t["phase"] in ("decode", "step") and t["seconds"])
    return [
        ("Batch", f"{roof['batch']:,} = min({limits})", "definition"),
        (f"Decode step at batch {roof['batch']:,}", f"{seconds(roof['decode_step_s'])} = {terms}", level),
        ("Prefill rate", f"{compact(roof['prefill_tokens_per_s'])} tokens/s; a prompt alone takes {seconds(roof['prefill_s'])}", level),
        (
            "Compute-bound batch",
            f"{digits(roof['compute_bound_batch'])}: from here on the arithmetic of a step takes longer than reading its weights",
            level,
        ),
        (
            "KV cache of one token",
            f"{compact(mem['kv_bytes_per_token'])} bytes = {compact(mem['kv_bytes_per_token_per_gpu'])} bytes on each GPU after sharding",
            "counted layer by layer from the model's config.json",
        ),
    ]


def load_lines(plan: Json, scenario: Scenario) -> list[Line]:
    """What the simulation counted."""
    load, sim, latency = plan["throughput"], plan["simulation"], plan["latency"]
    how = (
        f"{sim['requests'] or 0:,} requests in {sim['replications'] or 0} runs of the engine's step "
        f"loop, {sim['steps'] or 0:,} steps, mode {sim['mode']}"
    )
    point = f"p{scenario.slo.percentile}"
    rows: list[Line] = []
    for key, name, meaning in (
        ("ttft_s", "TTFT", "queue + prompt + the step that emits the first token + API constant"),
        ("tpot_s", "TPOT", "(end − first token) ÷ (output tokens − 1), one value a request"),
        ("e2e_s", "Whole answer", "arrival to last token"),
        ("queue_s", "Queue", "arrival to first scheduled"),
    ):
        values = latency.get(key)
        if values:
            interval = values.get("p95_ci") or []
            within = (
                f"; p95 between {seconds(interval[0])} and {seconds(interval[1])} at 95 %"
                if isinstance(interval, (list, tuple)) and len(interval) == 2 and interval[0] is not None
                else ""
            )
            rows.append(
                (
                    f"{name} {point}: {seconds(values.get(point))}",
                    f"{meaning}; mean {seconds(values['mean'])}, p50 {seconds(values['p50'])}, p99 {seconds(values['p99'])}{within}",
                    how,
                )
            )
    rows.append(
        (
            "Throughput",
            (
                f"{compact(load['output_tokens_per_s'])} output tokens/s at a mean batch of "
                f"{digits(load['mean_batch'])}; the engine is busy {percent(load['busy'])} of the time"
            ),
            how,
        )
    )
    if load["capacity_requests_per_s"]:
        rows.append(
            (
                "Utilization",
                (
                    f"{percent(load['utilization'])} = offered {digits(scenario.workload.request_rate)} ÷ "
                    f"{digits(load['capacity_requests_per_s'])} requests/s, the most at which the promise holds"
                ),
                how,
            )
        )
    return rows


def cost_lines(plan: Json, scenario: Scenario) -> list[Line]:
    """From a GPU-hour to a token."""
    cost, load = plan["cost"], plan["throughput"]
    hours = cost.get("gpu_hours") or []
    paid = "; ".join(f"{h['gpu']} at {usd(h['usd'])} per hour ({h['basis']}, {h['source']}, {dated(h['date'])})" for h in hours)
    rows: list[Line] = [
        (
            "Dollars per hour",
            f"{usd(cost['usd_per_hour'])} = {cost['gpus']} GPUs × price + {usd(scenario.price.other_usd_per_hour)} other",
            paid,
        )
    ]
    rows.append(("Dollars per month", f"{usd(cost['usd_per_month'])} = {usd(cost['usd_per_hour'])} × 730 h", "definition"))
    rows.append(
        (
            "$ per M output, at load",
            (
                f"{usd(cost['usd_per_mtok_output'])}: each step's time is split into what it would take "
                "without the prompt chunk (output) and the rest (input); idle time in the same ratio"
            ),
            "definition",
        )
    )
    rows.append(
        (
            "$ per M output, floor",
            (
                f"{usd(cost['floor']['usd_per_mtok_output'])} = $ per second of one replica ÷ (batch "
                f"{plan['roofline']['batch']:,} ÷ step {seconds(plan['roofline']['decode_step_s'])}) ÷ busy "
                f"share {digits(scenario.price.utilization)}"
            ),
            "definition",
        )
    )
    if load["output_tokens_per_s"]:
        rows.append(("$ per M, blended", f"{usd(cost['usd_per_mtok_blended'])} = all dollars ÷ all tokens", "definition"))
    return rows


def confidence(plan: Json) -> None:
    """Grade, error bands and the nearest measured configurations."""
    found = plan["confidence"] or {}
    grade = found.get("grade")
    if found.get("fidelity") == "textbook":
        st.markdown("Textbook arithmetic is exact for what it leaves out: it has no error band. The calibrated level has one.")
        return
    meaning = {
        "A": "this model on this GPU and engine was measured",
        "B": "models of this kind on this family of GPUs were measured",
        "C": "nothing near it was measured, so this is extrapolated",
    }
    st.markdown(
        f"Grade **{grade}**: {meaning[grade]}."
        if grade in meaning
        else "No error band is known for this class of plan: treat the figures as estimates."
    )
    if told := verdict.bands(plan):
        rows = [{"mean": b.figure, "this plan": b.mean, "low": b.low, "high": b.high, "the plan is": b.side or "within"} for b in told]
        components.table(rows, "Error bands of the plan's means: four of five measurements fall within")
    if nearest := found.get("nearest_measured"):
        components.table([_measured(row) for row in nearest], "Nearest measured configurations and the error on them")


FIGURES = {"tpot": ("TPOT", seconds), "ttft": ("TTFT", seconds), "throughput": ("tokens/s", compact), "e2e": ("whole answer", seconds)}


def _measured(row: Json) -> Json:
    """A measured row beside the prediction for it."""
    name, show = FIGURES[row["metric"]]
    return {
        "measured": f"{row['model']} on {row['gpus']} × {row['gpu']}, {row['engine']}, {row['load']}",
        "figure": name,
        "was": show(row["measured"]),
        "predicted": show(row["predicted"]),
        "error": percent(row["error"]),
        "date": row["date"],
        "source": row["source"],
    }


def sources(plan: Json) -> None:
    """Error bands, and where each constant came from."""
    with st.expander("How wrong this may be", icon=":material/error_med:"):
        confidence(plan)
    with st.expander("Sources of every constant", icon=":material/menu_book:"):
        constants(plan["provenance"])


def constants(rows: list[Json]) -> None:
    """Rows of a plan's provenance."""
    components.table(
        [
            {
                "quantity": " ".join(TERMS.get(word, word) for word in row["quantity"].split(" ")),
                "value": digits(row["value"]) if isinstance(row["value"], (int, float)) else str(row["value"]),
                "unit": row["unit"],
                "kind": row["kind"],
                "date": dated(row["date"]) if row["unit"].startswith("USD") else row["date"],
                "source": row["source"],
            }
            for row in rows
        ],
        "Constants with value, unit, kind, date and source",
    )
