"""Simulate: what happens inside the engine, step by step and request by request."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.scheduler import Timeline
from planner.views import components, plans, runs, state, verdict
from planner.views.charts import latency, timeline
from planner.views.text import compact, digits, plain, seconds

Json = dict[str, Any]
METRICS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "whole answer": "e2e_s"}


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario, "What happens inside the engine?")
    if not verdict.runs(plan):
        components.cannot_run(plan, scenario)
        return
    load = plans.quick_plan(scenario).load
    engine = runs.busiest(load.timelines[0]) if load else None
    if load is None or engine is None:
        st.info("No request arrives, so nothing is simulated. Give a request rate or clients in the sidebar.")
        return
    run = load.timelines[0]
    components.problems(plan, folded=True)
    _moment(run, engine)
    names = ["Latency distributions", "Slowest requests", "Against load"]
    for tab, body in zip(
        st.tabs(names, key="simulate.tab", on_change="rerun", bind="query-params"), (_distributions, _slowest, _against_load), strict=True
    ):
        if tab.open:
            with tab:
                body(run, plan, scenario)


@st.fragment
def _moment(run: Timeline, engine: Any) -> None:
    """Load over the run, and the steps around a chosen moment."""
    last = float(engine.records.end_s[-1])
    start = min(max(round(runs.interesting_s(engine), 2), 0.0), round(last, 2))
    if st.session_state.get("simulate.at_s") is not None:
        st.session_state["simulate.at_s"] = min(max(float(st.session_state["simulate.at_s"]), 0.0), round(last, 2))
    step = round(max(last / 200, 0.01), 2)
    at_s = st.slider("Moment, seconds into the run", 0.0, max(round(last, 2), 0.01), start, step, key="simulate.at_s", bind="query-params")
    left, right = st.columns([2, 3], gap="large")
    with left:
        st.subheader("Load over the run", anchor=False)
        rows = runs.over_time(engine)
        longest = int(engine.records.waiting.max())
        queue = f"The queue reaches {longest:,}" if longest else "Nobody ever waits for a place"
        fullest = 100 * float(engine.records.kv_used_blocks.max()) / max(engine.total_blocks, 1)
        components.chart(
            timeline.over_time(rows, at_s, components.ink()),
            f"{queue}; at most {int(engine.records.decode_sequences.max()):,} decode at once and {digits(fullest)} % of the cache is used.",
        )
    with right:
        st.subheader(f"Steps around {seconds(at_s)}", anchor=False)
        near = runs.window(engine, at_s)
        arrivals = [{"t": float(t)} for t in run.arrival_s]
        chunks = [r for r in near if r["chunk"]]
        plainly = [r["end"] - r["start"] for r in near if not r["chunk"]]
        mixed = [r["end"] - r["start"] for r in chunks if r["sequences"]]
        takeaway = f"{len(near)} steps, {len(chunks)} of them with a prompt chunk."
        if plainly and mixed:
            takeaway += (
                f" A decode step takes {seconds(sum(plainly) / len(plainly))}; with a chunk in it, everyone "
                f"waits {seconds(sum(mixed) / len(mixed))}."
            )
        components.chart(timeline.steps(near, arrivals, components.ink()), takeaway + " Triangles are arrivals; scroll to zoom.")


def _distributions(run: Timeline, plan: Json, scenario: Scenario) -> None:
    for column, (name, key) in zip(st.columns(3, gap="medium"), METRICS.items(), strict=True):
        with column:
            rows = runs.distribution(run, key)
            if not rows:
                st.info(f"No request of this run has a {name}.")
                continue
            promise = getattr(scenario.slo, key)
            within = next((r["share"] for r in reversed(rows) if promise and r["s"] <= promise), 0.0)
            takeaway = (
                f"{digits(within)} % of requests keep the promised {seconds(promise)}."
                if promise
                else f"Half of the requests take at most {seconds(rows[len(rows) // 2]['s'])}."
            )
            components.chart(timeline.distribution(rows, promise, scenario.slo.percentile, name, components.ink()), takeaway)
    st.caption("One run, ramp and drain included. The percentiles on the Plan page leave the warm-up out and repeat the run.")


def _slowest(run: Timeline, plan: Json, scenario: Scenario) -> None:
    by = st.segmented_control("Slowest by", list(METRICS), default="whole answer", required=True, key="simulate.by", bind="query-params")
    rows = runs.slowest(run, METRICS[by or "whole answer"])
    if not rows:
        st.info("No request finished in this run.")
        return
    components.chart(timeline.waterfall(rows, components.ink()), f"The slowest request: {rows[0]['reason']}.")


def _against_load(run: Timeline, plan: Json, scenario: Scenario) -> None:
    """Latency bands at shares of the stated load; computed when asked for, one short run a point."""
    rate = scenario.workload.request_rate
    if not rate:
        st.info("A closed loop has no arrival rate to vary: change the number of clients in the sidebar instead.")
        return
    with st.spinner("Running the simulator at eight loads…", show_time=True):
        points = _loads(scenario)
    left, right = st.columns(2, gap="large")
    for column, key, title in ((left, "ttft", "TTFT"), (right, "tpot", "TPOT")):
        with column:
            rows = [
                {"load": p["load"], "p50": p[f"{key}_p50_s"], "p90": p[f"{key}_p95_s"], "p99": p[f"{key}_p99_s"]}
                for p in points
                if p[f"{key}_p50_s"]
            ]
            if rows:
                promise = getattr(scenario.slo, f"{key}_s")
                kept = [r["load"] for r in rows if promise and r["p90"] <= promise]
                takeaway = f"{title}: line p50, bands to p95 and p99."
                takeaway += f" p95 keeps {seconds(promise)} up to about {compact(max(kept))} requests/s." if kept else ""
                components.chart(latency.against_load(rows, promise, title, components.ink()), plain(takeaway).replace("\\", ""))


@st.cache_resource(max_entries=64, show_spinner=False)
def _loads(scenario: Scenario) -> list[Json]:
    from planner import sweep

    rate = scenario.workload.request_rate or 1.0
    rates = [rate * share for share in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)]
    return [sweep.point(scenario, [("workload.request_rate", r)], "quick") | {"load": r} for r in rates]
