"""Recommend: the cheapest fleets that keep the promise, and why each other design is out."""

from __future__ import annotations

import streamlit as st

from planner import recommend
from planner.problems import InputError
from planner.recommend import Exclusion, Option, Progress
from planner.scenario import Scenario
from planner.views import components, state, verdict
from planner.views.search import Search, show
from planner.views.text import digits, plain, seconds, usd

COMMON = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x", "l40s")


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
    if verdict.runs(plan) and plan["cost"]["usd_per_month"]:
        kept = verdict.promise_kept(plan)
        state_of_it = f" and {verdict.as_verb(kept)}" if kept else ""
        gpus = plan["cost"]["gpus"]
        st.markdown(
            plain(f"The present plan costs {usd(plan['cost']['usd_per_month'])} a month for {gpus} GPU{'s' * (gpus != 1)}{state_of_it}.")
        )
    _search(scenario)


@st.fragment
def _search(scenario: Scenario) -> None:
    """Choose the space, run the search with progress, show what it has found."""
    state.show_adopted()
    offered = list(recommend.default_gpus(scenario))
    usual = [gpu for gpu in dict.fromkeys((scenario.hardware.gpu, *COMMON)) if gpu in offered]
    wide, narrow = st.columns([4, 1], vertical_alignment="bottom")
    with wide:
        gpus = st.multiselect(
            "GPUs to consider",
            offered,
            default=usual[:4],
            key="recommend.gpus",
            bind="query-params",
            help="Those with a known price and measured kernels.",
        )
    with narrow:
        go = st.button("Find the cheapest fleets", type="primary", width="stretch", disabled=not gpus)
    if not gpus:
        st.info("Choose at least one GPU.")
        return
    held: Search | None = st.session_state.get("_search")
    if go:
        held = st.session_state["_search"] = Search(scenario, tuple(gpus))
        st.query_params[state.SEARCHING] = "true"
        _run(held)
    if held is not None and state.SEARCHING in st.query_params:
        del st.query_params[state.SEARCHING]
    if held is None and state.SEARCHING in st.query_params:
        st.warning(
            "A search was running here when the server or the connection to it ended, and what it had found is gone. "
            "The scenario and everything saved are as they were; search again."
        )
        return
    if held is None:
        st.info(
            "The search looks at every split over GPUs, precision and batch limit. Most are ruled out by arithmetic, the promising ones "
            "are simulated: seconds to a minute or two."
        )
        return
    if held.gpus == tuple(gpus) and any(scenario == option.scenario for option in held.options):
        st.info("You have adopted one of these: Plan shows it in full, Share and export hands it on.")
    elif (held.scenario, held.gpus) != (scenario, tuple(gpus)):
        st.warning("These results are for the settings before the last change. Search again to update them.")
    elif held.result is None:
        st.warning("The search was stopped before its end; this is what it had found.")
    show(held)


def _run(search: Search) -> None:
    bar = st.progress(0.0, "Ruling out designs by arithmetic…")
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
