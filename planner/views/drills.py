"""A bad day for the fleet, run when asked for: a replica is lost, spot capacity is taken away, demand doubles at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import streamlit as st

from planner import lessons
from planner.lessons import Drill
from planner.metrics.window import ttft_s
from planner.problems import InputError
from planner.scenario import Scenario, set_path
from planner.views import components, weeks
from planner.views.charts import fleet as charts
from planner.views.text import digits, percent, plain, seconds

LOSS, SPOT, RISE = "A replica is lost", "Spot is taken away", "Demand doubles"
MOST_REQUESTS = 10_000
SLICES = 40
"""Points of a line over the run."""


@dataclass(frozen=True, slots=True)
class Story:
    """What a drill showed, small enough to keep."""

    takeaway: str
    lines: list[dict[str, Any]]
    """{t, s, who}: the slowest first tokens of each slice of the run."""
    events_s: tuple[float, ...]
    """When a replica was asked for."""
    phases: list[dict[str, Any]]
    note: str


def tab(found: weeks.Fleet, plan: components.Json, scenario: Scenario) -> None:
    """The choice, the run, what came of it."""
    _drill(scenario, found.capacity.requests_per_s)


@st.fragment
def _drill(scenario: Scenario, capacity_requests_per_s: float) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = (
            st.segmented_control("What happens", list(STORIES), default=LOSS, required=True, key="fleet.drill", bind="query-params") or LOSS
        )
        key = (kind, scenario)
        st.button("Run the drill", type="primary", on_click=_ask, args=key)
    held: tuple[Any, Story] | None = st.session_state.get("_drill")
    if st.session_state.get("_drill_asked") == key and (held is None or held[0] != key):
        # Asked for rather than clicked just now: when the full plan arrives in the middle of it, the page starts over and so does this.
        try:
            with st.spinner(f"Simulating each of {scenario.fleet.replicas + scenario.fleet.spares} replicas by itself…", show_time=True):
                held = st.session_state["_drill"] = (key, STORIES[kind](scenario, capacity_requests_per_s))
        except InputError as error:
            st.warning(plain(error))
            return
    if held is None or held[0] != key:
        st.info("Every replica is simulated by itself, behind this scenario's router: seconds to half a minute.")
        return
    story = held[1]
    components.chart(charts.drill(story.lines, story.events_s, scenario.slo.ttft_s, components.ink()), story.takeaway)
    components.table(story.phases, "Requests before, while and after a replica starts, and the share that kept the promise")
    st.caption(plain(story.note))


def _ask(kind: str, scenario: Scenario) -> None:
    st.session_state["_drill_asked"] = (kind, scenario)


def _loss(scenario: Scenario, _: float) -> Story:
    scenario = _long_enough(scenario)
    calm, lost, spared = lessons.replica_loss(scenario, 0.25)
    count = scenario.fleet.replicas
    takeaway = (
        f"One of {count} replica{'s' if count > 1 else ''} goes: {_kept(lost)} of requests keep the promise, {_kept(calm)} had it stayed"
    )
    takeaway += f", {_kept(spared)} with one more spare." if abs(spared.kept - lost.kept) > 0.001 else "; one more spare changes nothing."
    return _story(takeaway, scenario, calm, lost, spared)


def _spot(scenario: Scenario, _: float) -> Story:
    scenario = _long_enough(scenario)
    per_hour = scenario.fleet.interruption_per_hour or weeks.SPOT_INTERRUPTIONS_PER_HOUR
    scenario = set_path(scenario, "fleet.interruption_per_hour", per_hour)
    hours = 3 / (per_hour * scenario.fleet.replicas)
    calm, spot = lessons.undisturbed(scenario), lessons.spot_interruptions(scenario, hours, scenario.workload.seed)
    takeaway = f"Through {spot.label} {_kept(spot)} of requests keep the promise, {_kept(calm)} on capacity that stays."
    note = (
        f"What {digits(hours)} hours bring at {percent(per_hour)} an hour and replica, within {seconds(lessons.arrivals_s(scenario))}: "
        "harder than a real day."
    )
    return _story(takeaway, scenario, calm, spot, note=note)


def _rise(scenario: Scenario, capacity_requests_per_s: float) -> Story:
    load, fleet = scenario.workload, scenario.fleet
    if load.request_rate is None:
        raise InputError("clients send as fast as they are answered, so their demand cannot double; choose a rate in the sidebar")
    needed = max(1, ceil(load.request_rate / (fleet.target_utilization * capacity_requests_per_s) - 1e-9))
    half_s = min(4 * fleet.startup_s + 60.0, MOST_REQUESTS / (3 * load.request_rate))
    jump = {"demand_curve": (2 / 3,) * 12 + (4 / 3,) * 12, "replicas": needed, "min_replicas": needed}
    busy = {"request_rate": 1.5 * load.request_rate, "num_prompts": int(3 * load.request_rate * half_s)}
    scenario = scenario.model_copy(update={"fleet": fleet.model_copy(update=jump), "workload": load.model_copy(update=busy)})
    fixed = lessons.fixed_on_demand(scenario, half_s / 12)
    scaled = lessons.autoscaled(scenario, capacity_requests_per_s, half_s / 12)
    takeaway = f"Demand doubles half-way: {_kept(scaled)} of requests keep the promise if replicas follow, {_kept(fixed)} if not."
    note = f"From {digits(load.request_rate)} to {digits(2 * load.request_rate)} requests/s at once; {needed} to begin with."
    return _story(takeaway, scenario, fixed, scaled, note=note)


STORIES = {LOSS: _loss, SPOT: _spot, RISE: _rise}


def _long_enough(scenario: Scenario) -> Scenario:
    """The scenario with enough requests to see a start-up begin and end, where the bound allows."""
    wanted = 3 * scenario.fleet.startup_s * (scenario.workload.request_rate or 0.0)
    return set_path(scenario, "workload.num_prompts", int(min(max(scenario.workload.num_prompts, wanted), MOST_REQUESTS)))


def _kept(drill: Drill) -> str:
    return percent(drill.kept)


def _story(takeaway: str, scenario: Scenario, *drills: Drill, note: str = "") -> Story:
    phases = [
        {
            "drill": drill.label,
            "phase": {"during": "while a replica starts"}.get(phase.name, phase.name),
            "requests": phase.requests,
            "first token p95": seconds(phase.ttft_p95_s),
            "whole answer p95": seconds(phase.e2e_p95_s),
            "kept the promise": percent(phase.kept),
        }
        for drill in drills
        for phase in drill.phases
    ]
    events = sorted({round(s.asked_s, 3) for drill in drills for s in drill.run.spans if s.asked_s > 0})
    note = f"Dashes: a replica is asked for; it starts in {seconds(scenario.fleet.startup_s)}. Red: the promise. {note}".strip()
    return Story(takeaway, [row for drill in drills for row in _line(drill)], tuple(events[:12]), phases, note)


def _line(drill: Drill) -> list[dict[str, Any]]:
    """p95 of the first tokens of each slice of the arrivals."""
    run = drill.run.timeline
    waits = ttft_s(run)
    seen = np.isfinite(waits) & (waits > 0)
    if not seen.any():
        return []
    edges = np.linspace(0.0, float(run.arrival_s[seen].max()) + 1e-9, SLICES + 1)
    slices = np.digitize(run.arrival_s, edges)
    return [
        {"t": float(edges[i]), "s": float(np.percentile(waits[here], 95)), "who": drill.label}
        for i in range(1, SLICES + 1)
        if (here := seen & (slices == i)).any()
    ]
