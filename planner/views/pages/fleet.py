"""Fleet and price: a week of demand, how to pay for it, own fleet or API, from floor to bill."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.scenario import Scenario
from planner.views import components, decision, drills, fleet_tabs, state, verdict, weeks
from planner.views.components import Card
from planner.views.text import digits, percent, plain, rate, usd

Json = dict[str, Any]


def render() -> None:
    """Draw the page."""
    scenario = state.scenario()
    plan = components.planned(scenario)
    if plan is None:
        return
    components.header(plan, scenario, "How many replicas, at what price?")
    if not verdict.runs(plan):
        components.cannot_run(plan, scenario)
        return
    components.estimate(scenario)
    found = weeks.fleet(plan, scenario)
    if found is None:
        st.info(
            "A fleet needs traffic, a promise that one replica can keep, and a price of a GPU-hour. One "
            "of them is missing: see the Plan page."
        )
        return
    _answer(found, scenario)
    names = [
        "A week of demand",
        "How to pay",
        "Own fleet or API",
        "What moves it",
        "Failure drills",
        "From floor to bill",
        "GPU prices",
        "Power and carbon",
    ]
    bodies = (
        fleet_tabs.week,
        fleet_tabs.payment,
        fleet_tabs.api,
        decision.tab,
        drills.tab,
        fleet_tabs.waterfall,
        fleet_tabs.prices,
        fleet_tabs.power,
    )
    for tab, body in zip(st.tabs(names, key="fleet.tab", on_change="rerun", bind="query-params"), bodies, strict=True):
        if tab.open:
            with tab:
                body(found, plan, scenario)


def _replicas(count: int) -> str:
    return f"{count:,} replica{'' if count == 1 else 's'}"


def _answer(found: weeks.Fleet, scenario: Scenario) -> None:
    static, scaled, one = found.static, found.scaled, found.capacity
    how = "simulated" if one.simulated else "by arithmetic, the simulated figure follows"
    sized = (
        f"One replica carries {rate(one.requests_per_s, 'requests/s')} within the promise ({how}). "
        f"The busiest minute takes {_replicas(static.peak_replicas)}, {percent(static.busy)} busy over the week"
    )
    idle = Card(
        "Paid but idle", usd(weeks.idle_usd_per_month(found)), "of the fixed fleet", "What the fixed fleet pays for capacity nobody uses."
    )
    fixed = Card(
        "Fixed fleet, a month",
        usd(static.usd_per_month),
        _replicas(static.peak_replicas),
        "Sized once for the busiest minute at the target utilization, spares included; it runs all the time.",
    )
    if weeks.constant(found):
        st.markdown(plain(f"{sized}. Demand is constant in this scenario, so autoscaling has nothing to follow."))
        components.cards([fixed, idle])
        return
    saved = 1 - scaled.usd / static.usd if static.usd else 0.0
    st.markdown(
        plain(
            f"{sized}; autoscaling pays for {digits(scaled.mean_replicas)} on average, {percent(saved)} less, and "
            f"{percent(scaled.missed_share)} of requests meet a fleet that is still starting."
        )
    )
    most = scenario.fleet.max_replicas or "any number of"
    components.cards(
        [
            fixed,
            Card(
                "Autoscaled, a month",
                usd(scaled.usd_per_month),
                f"{digits(scaled.mean_replicas)} on average",
                f"Start-up {digits(scenario.fleet.startup_s)} s, between {scenario.fleet.min_replicas} and {most} replicas.",
            ),
            idle,
            Card(
                "Peak over mean",
                digits(float(found.rates.max() / found.rates.mean())),
                scenario.fleet.demand_curve if isinstance(scenario.fleet.demand_curve, str) else "your curve",
                "Of the week of demand, minute by minute; choose one in the sidebar.",
            ),
        ]
    )
