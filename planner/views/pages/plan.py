"""Plan: does it fit, what limits it, how long do people wait, what does a token cost."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.views import components, explanations, frontier, state, verdict
from planner.views.charts import latency, memory, prices, steps
from planner.views.components import Card
from planner.views.text import compact, digits, percent, plain, rate, seconds, usd

Json = dict[str, Any]


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario)
    if not verdict.runs(plan):
        components.cannot_run(plan, scenario)
        return
    st.markdown(plain(verdict.binding(plan, scenario)))
    components.cards(cards(plan, scenario))
    components.estimate(scenario)
    components.problems(plan)
    components.chart(memory.bar(plan, components.ink()), memory.takeaway(plan))
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Cost against speed", anchor=False)
        frontier.render(plan, scenario)
    with right:
        st.subheader("How long people wait", anchor=False)
        components.chart(latency.percentiles(plan, components.ink()), _wait_takeaway(plan))
    _below(plan, scenario)


def cards(plan: Json, scenario: Scenario) -> list[Card]:
    """The figures above the fold."""
    cost, load, roof, point = plan["cost"], plan["throughput"], plan["roofline"], f"p{scenario.slo.percentile}"
    ttft, tpot = plan["latency"]["ttft_s"] or {}, plan["latency"]["tpot_s"] or {}
    needed = verdict.replicas_needed(plan, scenario)
    return [
        Card(
            "$ / M output",
            usd(cost["usd_per_mtok_output"]),
            f"floor {usd(cost['floor']['usd_per_mtok_output'])}",
            "Dollars per million output tokens at this load, idle time and spares included. The floor is a machine that only decodes, always busy.",
        ),
        Card(
            "Batch",
            f"{roof['batch']:,} of {plan['memory']['cache_limited_batch']:,}",
            f"{digits(load['mean_batch'])} on average" if load["mean_batch"] else "",
            "Sequences in a step, and how many the KV cache holds at their final length.",
        ),
        Card(
            f"TTFT {point}",
            seconds(ttft.get(point)),
            f"promised {seconds(scenario.slo.ttft_s)}" if scenario.slo.ttft_s else "no promise",
            "Arrival at the server to the first token: queue, prompt, one step.",
        ),
        Card(
            f"TPOT {point}",
            seconds(tpot.get(point)),
            f"promised {seconds(scenario.slo.tpot_s)}" if scenario.slo.tpot_s else "no promise",
            "Time per output token after the first, one value a request.",
        ),
        Card(
            "Throughput",
            rate(load["output_tokens_per_s"], "tok/s"),
            f"{percent(load['utilization'])} of capacity" if load["utilization"] else f"{digits(load['requests_per_s'])} requests/s",
            "Output tokens per second of the whole fleet.",
        ),
        Card(
            "Fleet per month",
            usd(cost["usd_per_month"]),
            f"{needed} replica{'s' if needed != 1 else ''} needed" if needed else f"{cost['gpus']} GPUs",
            "730 hours, every GPU paid for, spares included.",
        ),
    ]


def _wait_takeaway(plan: Json) -> str:
    point = f"p{plan['scenario']['slo']['percentile']}"
    parts = [
        f"{name} {seconds((plan['latency'][key] or {}).get(point))}"
        for key, name in (("ttft_s", "first token"), ("tpot_s", "each further token"), ("e2e_s", "whole answer"))
        if plan["latency"][key]
    ]
    promised = " Red ticks are the promises." if any(plan["scenario"]["slo"][key] for key in ("ttft_s", "tpot_s", "e2e_s")) else ""
    return f"At {point}: {', '.join(parts)}.{promised}" if parts else "Nothing was simulated."


def _below(plan: Json, scenario: Scenario) -> None:
    """Tabs; only the open one is computed."""
    names = ["Price beside list", "One step", "Batch table", "Explain every number"]
    tabs = st.tabs(names, key="plan.tab", on_change="rerun")
    bodies = (_list_prices, _one_step, _batch_table, lambda p, s: explanations.everything(p, s))
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open:
            with tab:
                body(plan, scenario)


def _list_prices(plan: Json, scenario: Scenario) -> None:
    cost = plan["cost"]
    st.markdown(
        plain(
            f"At this load a million input tokens cost {usd(cost['usd_per_mtok_input'])}, cached {usd(cost['usd_per_mtok_cached_input'])}, output {usd(cost['usd_per_mtok_output'])}; a request {usd(cost['usd_per_request'])}."
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
            "$ in": p["input"],
            "$ cached": p["cached_input"],
            "$ out": p["output"],
            "$ blended": p["blended"],
            "times this plan": p["ratio"],
            "break-even, requests a day": (cost["break_even_requests_per_day"].get(p["label"]) or {}).get("uncached"),
            "date": p["date"],
            "source": p["source"],
        }
        for p in cost["list_prices"]
    ]
    components.table(rows, "List prices of the same model beside this plan, dollars per million tokens", **money_columns())


def money_columns() -> dict[str, Any]:
    """Formats of price columns."""
    money = st.column_config.NumberColumn(format="$%.3g")
    return {name: money for name in ("$ in", "$ cached", "$ out", "$ blended")} | {
        "times this plan": st.column_config.NumberColumn(format="%.3g"),
        "break-even, requests a day": st.column_config.NumberColumn(format="localized", step=1),
    }


def _one_step(plan: Json, scenario: Scenario) -> None:
    roof = plan["roofline"]
    st.markdown(
        plain(
            f"A decode step of {roof['batch']:,} sequences at {digits(roof['context_tokens'])} tokens of context takes {seconds(roof['decode_step_s'])}; a prompt takes {seconds(roof['prefill_s'])} alone."
        )
    )
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Decode step, by kernel**")
        rows = steps.term_rows(plan, "decode")
        components.chart(
            steps.terms(plan, "decode", components.ink()),
            f"{rows[0]['name']} takes most, {rows[0]['time']}, bound by {rows[0]['bound']}." if rows else "No terms.",
        )
    with right:
        st.markdown("**Roofline of one GPU**")
        frontier.roofline(plan, scenario)


def _batch_table(plan: Json, scenario: Scenario) -> None:
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
