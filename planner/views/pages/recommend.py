"""Recommend: the cheapest fleets that keep the promise, and why each other design is out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from planner import recommend
from planner.problems import InputError
from planner.recommend import Exclusion, Option, Progress, Recommendation
from planner.scenario import Scenario
from planner.views import components, state
from planner.views.text import compact, digits, percent, plain, seconds, usd

COMMON = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "l40s")
STAGES = {
    "illegal": "layout not possible",
    "memory": "does not fit",
    "latency": "too slow even alone",
    "price": "no known price",
    "cost": "dearer than the best",
    "simulation": "misses the promise under load",
    "not simulated": "not reached by the search",
}


@dataclass
class Search:
    """What a search has found so far, kept for the session."""

    scenario: Scenario
    gpus: tuple[str, ...]
    options: list[Option] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    result: Recommendation | None = None


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario, "What is the cheapest fleet that keeps the promise?")
    slo = scenario.slo
    promised = [
        f"{name} at most {seconds(limit)}"
        for name, limit in (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("whole answer", slo.e2e_s))
        if limit
    ]
    arriving = (
        f"{digits(scenario.workload.request_rate)} requests/s"
        if scenario.workload.request_rate
        else f"{scenario.workload.max_concurrency or 0:,} clients"
    )
    promise = f"{', '.join(promised)} for {slo.percentile} % of requests" if promised else "no promise"
    st.markdown(
        plain(f"For {scenario.model.name} at {arriving} with {promise}. Load, promise and allowed precisions come from the sidebar.")
    )
    _search(scenario)


@st.fragment
def _search(scenario: Scenario) -> None:
    """Choose the space, run the search with progress, show what it has found."""
    offered = list(recommend.default_gpus(scenario))
    usual = [gpu for gpu in dict.fromkeys((scenario.hardware.gpu, *COMMON)) if gpu in offered]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gpus = st.multiselect(
            "GPUs to consider", offered, default=usual[:4], key="recommend.gpus", help="Those with a known price and measured kernels."
        )
        go = st.button("Find the cheapest fleets", type="primary", disabled=not gpus)
    if not gpus:
        st.info("Choose at least one GPU.")
        return
    held: Search | None = st.session_state.get("_search")
    if go:
        held = st.session_state["_search"] = Search(scenario, tuple(gpus))
        _run(held)
    if held is None:
        st.info(
            "The search weighs every layout, precision and batching limit by closed forms and simulates the promising ones: between seconds and a minute or two."
        )
        return
    if (held.scenario, held.gpus) != (scenario, tuple(gpus)):
        st.warning("These results are for the settings before the last change. Search again to update them.")
    elif held.result is None:
        st.warning("The search was stopped before its end; this is what it had found.")
    _show(held)


def _run(search: Search) -> None:
    bar = st.progress(0.0, "Weighing every design by closed forms…")
    try:
        for event in recommend.recommend(search.scenario, recommend.Space(gpus=search.gpus)):
            if isinstance(event, Progress):
                best = f"; best so far {usd(event.best_usd_per_month)} a month" if event.best_usd_per_month else ""
                done = event.excluded / max(event.considered, 1)
                bar.progress(min(done, 1.0), f"{event.considered:,} designs, {event.excluded:,} out, {event.simulated:,} simulations{best}")
            elif isinstance(event, Option):
                search.options.append(event)
            elif isinstance(event, Exclusion):
                search.exclusions.append(event)
            else:
                search.result = event
    except InputError as error:
        st.error(plain(error))
    bar.empty()


def _show(search: Search) -> None:
    options = list(search.result.options) if search.result else sorted(search.options, key=lambda o: o.usd_per_month)
    if not options:
        st.error("Nothing in this space keeps the promise. The reasons are below; loosen the promise, allow other precisions or add GPUs.")
    else:
        best = options[0]
        ties = sum(o.tie for o in options) - 1
        more = f" {ties} other designs cost the same within what is known: choose among them by other reasons." if ties > 0 else ""
        st.success(
            plain(f"{best.replicas} × {best.label} for {usd(best.usd_per_month)} a month; binding: {best.binding}.{more}"),
            icon=":material/check_circle:",
        )
        with st.container(horizontal=True):
            for i, option in enumerate(options[:3]):
                st.button(
                    plain(f"Adopt {option.replicas} × {option.label}"),
                    key=f"recommend.adopt.{i}",
                    on_click=state.adopt,
                    args=(option.scenario,),
                )
        components.table([_row(o) for o in options], "Fleets that keep the promise, cheapest first")
    counts: dict[str, int] = {}
    for out in search.exclusions:
        counts[out.stage] = counts.get(out.stage, 0) + out.candidates
    st.subheader("Why the others are out", anchor=False)
    st.markdown(
        plain(
            ", ".join(f"{count:,} {STAGES.get(stage, stage)}" for stage, count in sorted(counts.items(), key=lambda c: -c[1]))
            + " (batching limits counted one by one)."
        )
    )
    wanted = st.text_input("Look up a design", key="recommend.find", placeholder="h200-sxm TP4")
    rows = [
        {"design": o.label, "stage": STAGES.get(o.stage, o.stage), "reason": o.reason}
        for o in search.exclusions
        if wanted.lower() in o.label.lower()
    ]
    components.table(
        rows[:500] or [{"design": "none matches", "stage": "", "reason": ""}], "Designs that are out, with the stage and the reason"
    )


def _row(option: Option) -> dict[str, Any]:
    return {
        "fleet": f"{option.replicas} × {option.label}",
        "GPUs": option.gpus,
        "per month": usd(option.usd_per_month),
        "$ per M": usd(option.usd_per_mtok_blended),
        "TTFT": seconds(option.ttft_s),
        "TPOT": seconds(option.tpot_s),
        "margin": percent(1 - option.strain),
        "binding": option.binding,
        "tie": "tie with the best" if option.tie else "",
        "sequences": compact(option.scenario.engine.max_num_seqs),
        "notes": "; ".join(option.notes),
    }
