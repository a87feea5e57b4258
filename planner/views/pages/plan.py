"""Plan: does it fit, what limits it, how long do people wait, what does a token cost."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.views import components, details, explanations, frontier, state, verdict
from planner.views.charts import latency, memory
from planner.views.components import Card
from planner.views.text import MISSING, digits, percent, plain, rate, seconds, usd

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
    components.cards([card for card in cards(plan, scenario) if card.value != MISSING])
    if wrong := verdict.how_wrong(plan):
        st.caption(plain(wrong))
    components.estimate(scenario)
    components.problems(plan)
    components.chart(memory.bar(plan, components.ink()), memory.takeaway(plan))
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Cost against speed", anchor=False)
        frontier.render(plan, scenario)
    with right:
        st.subheader("How long people wait", anchor=False)
        if latency.rows(plan):
            components.chart(latency.percentiles(plan, components.ink()), _wait_takeaway(plan))
        else:
            st.info("No request arrives, so nobody waits. Give a rate or clients in the sidebar.")
    _below(plan, scenario)


def cards(plan: Json, scenario: Scenario) -> list[Card]:
    """The figures above the fold."""
    cost, load, roof, point = plan["cost"], plan["throughput"], plan["roofline"], f"p{scenario.slo.percentile}"
    ttft, tpot = plan["latency"]["ttft_s"] or {}, plan["latency"]["tpot_s"] or {}
    needed, used = verdict.replicas_needed(plan, scenario), verdict.useful_share(plan)
    endless = "overloaded" in verdict.codes(plan)
    return [
        Card(
            "$ per M output",
            usd(cost["usd_per_mtok_output"]),
            f"at best {usd(cost['floor']['usd_per_mtok_output'])}",
            (
                "Dollars per million output tokens at this load, idle time and spares included. At best (the floor): "
                "a machine that only decodes, with a full batch, always busy."
            ),
        ),
        Card(
            "Requests at once",
            f"{digits(load['mean_batch'])} of {roof['batch']:,}" if load["mean_batch"] else f"up to {roof['batch']:,}",
            f"cache holds {plan['memory']['cache_limited_batch']:,}",
            "The batch: requests that share a step on average, of as many as the engine and the KV cache allow.",
        ),
        Card(
            f"First token {point}",
            "grows" if endless else seconds(ttft.get(point)),
            "without end" if endless else promised("TTFT", scenario.slo.ttft_s),
            "TTFT: arrival at the server to the first token: queue, prompt, one step.",
        ),
        Card(
            f"Next tokens {point}",
            seconds(tpot.get(point)),
            promised("TPOT", scenario.slo.tpot_s),
            "TPOT: time per output token after the first, one value a request.",
        ),
        Card(
            "Throughput",
            rate(load["output_tokens_per_s"], "tok/s"),
            f"{percent(used)} of capacity" if used else rate(load["requests_per_s"], "requests/s"),
            "Output tokens per second of the whole fleet.",
        ),
        Card(
            "Fleet per month",
            usd(cost["usd_per_month"]),
            f"{needed} replica{'s' if needed != 1 else ''} needed" if needed else f"{cost['gpus']} GPU{'s' if cost['gpus'] != 1 else ''}",
            "730 hours, every GPU paid for, spares included.",
        ),
    ]


def promised(name: str, limit_s: float | None) -> str:
    """The promise under a card."""
    return f"{name} ≤ {seconds(limit_s)}" if limit_s else f"no {name} promise"


def _wait_takeaway(plan: Json) -> str:
    point = f"p{plan['scenario']['slo']['percentile']}"
    parts = [
        f"{name} {seconds((plan['latency'][key] or {}).get(point))}"
        for key, name in (("ttft_s", "first token"), ("tpot_s", "next tokens"), ("e2e_s", "whole answer"))
        if plan["latency"][key]
    ]
    promised = " Red ticks are the promises." if any(plan["scenario"]["slo"][key] for key in ("ttft_s", "tpot_s", "e2e_s")) else ""
    if "overloaded" in verdict.codes(plan):
        return f"The queue grows for as long as the load lasts; these are the waits of one run.{promised}"
    return f"At {point}: {', '.join(parts)}.{promised}" if parts else "Nothing was simulated."


def _below(plan: Json, scenario: Scenario) -> None:
    """Tabs; only the open one is computed."""
    names = ["Price beside list", "One step", "Batch table", "Explain every number"]
    tabs = st.tabs(names, key="plan.tab", on_change="rerun", bind="query-params")
    bodies = (details.list_prices, details.one_step, details.batch_table, explanations.everything)
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open:
            with tab:
                body(plan, scenario)
