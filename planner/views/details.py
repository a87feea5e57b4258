"""What stands below the fold of the Plan page: list prices, one step, the batch table."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.catalog.rental import dated
from planner.scenario import Scenario
from planner.views import components, frontier
from planner.views.charts import prices, steps
from planner.views.text import compact, digits, percent, plain, seconds, usd

Json = dict[str, Any]


def list_prices(plan: Json, scenario: Scenario) -> None:
    cost = plan["cost"]
    if cost["usd_per_request"]:
        cached = f"cached {usd(cost['usd_per_mtok_cached_input'])}, " if cost["usd_per_mtok_cached_input"] else ""
        st.markdown(
            plain(
                f"At this load a million input tokens cost {usd(cost['usd_per_mtok_input'])}, {cached}output "
                f"{usd(cost['usd_per_mtok_output'])}; a thousand requests {usd(1000 * cost['usd_per_request'])}."
            )
        )
    if not cost["list_prices"]:
        st.info("Nobody lists this model. Name providers or your own prices under More settings, price.compare_to.")
        return
    best = min((p for p in cost["list_prices"] if p["blended"]), key=lambda p: p["blended"], default=None)
    own = cost["usd_per_mtok_blended"]
    if best and own:
        cheaper = (
            f"this plan costs {digits(own / best['blended'])} times the cheapest list price"
            if own > best["blended"]
            else f"this plan costs {percent(own / best['blended'])} of the cheapest list price"
        )
        components.chart(
            prices.beside_list(plan, components.ink()),
            f"At the same mix of tokens {cheaper}, {best['label']} at {usd(best['blended'])} per M.",
        )
    rows = [
        {
            "list price": p["label"],
            "$ in": usd(p["input"]),
            "$ cached": usd(p["cached_input"]) if any(q["cached_input"] for q in cost["list_prices"]) else None,
            "$ out": usd(p["output"]),
            "$ blended": usd(p["blended"]),
            "times this plan": p["ratio"],
            "own fleet pays from (requests a day)": compact((cost["break_even_requests_per_day"].get(p["label"]) or {}).get("uncached")),
            "source": f"{p['source']}, {dated(p['date'], 'yours')}",
        }
        for p in cost["list_prices"]
    ]
    components.table(rows, "List prices of the same model beside this plan, dollars per million tokens")


def one_step(plan: Json, scenario: Scenario) -> None:
    roof = plan["roofline"]
    st.markdown(
        plain(
            f"A decode step of {roof['batch']:,} sequences at {digits(roof['context_tokens'])} tokens of "
            f"context takes {seconds(roof['decode_step_s'])}; a prompt takes {seconds(roof['prefill_s'])} "
            "alone."
        )
    )
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Decode step, by kernel**")
        rows = steps.term_rows(plan, "decode")
        components.chart(
            steps.terms(plan, "decode", components.ink()),
            f"Most time goes to {rows[0]['name']}, {seconds(rows[0]['total'] / 1e3)}, mainly bound by {rows[0]['bound']}."
            if rows
            else "No terms.",
        )
    with right:
        st.markdown("**Roofline of one GPU**")
        frontier.roofline(plan, scenario)


def batch_table(plan: Json, scenario: Scenario) -> None:
    rows = plan["roofline"]["batch_table"]
    components.chart(
        steps.batch_curve(plan, components.ink()),
        "Doubling the batch nearly halves the price of an output token until reading the cache, arithmetic or memory stops it.",
    )
    components.table(
        [
            {
                "batch": r["batch"],
                "step": seconds(r["decode_step_s"]),
                "output tokens/s": compact(r["decode_tokens_per_s"]),
                "$ per M output": usd(r["usd_per_mtok_output"]),
                "$ per M input": usd(r["usd_per_mtok_input"]),
                "KV cache": f"{digits(r['kv_bytes'] / 1e9)} GB",
                "fits": "yes" if r["fits"] else "no",
                "bound by": r.get("bound", ""),
            }
            for r in rows
        ],
        "Batch, step time, tokens per second, floor prices and cache size",
    )
