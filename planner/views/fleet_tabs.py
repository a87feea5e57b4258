"""The tabs of the Fleet page: the week, how to pay, own fleet or API, from floor to bill, prices, power."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import catalog, cost, demand
from planner.catalog.rental import BASES, dated
from planner.cost import Load, mix_of
from planner.economics import power as electricity
from planner.economics import waterfall as economics
from planner.economics.breakeven import DAYS_PER_MONTH
from planner.scenario import Scenario, set_path
from planner.views import components, plans, state, weeks
from planner.views.charts import fleet as charts
from planner.views.components import Card
from planner.views.text import compact, digits, percent, plain, usd

Json = dict[str, Any]


def week(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    if weeks.constant(found):
        st.info("Demand is the same in every minute. Real services sleep at night: choose a week to see what that costs and saves.")
        with st.container(horizontal=True):
            for name, row in demand.index().items():
                if name != "flat":
                    args = (set_path(scenario, "fleet.demand_curve", name),)
                    st.button(plain(row["title"]), key=f"fleet.curve.{name}", on_click=state.adopt, args=args)
        return
    takeaway = (
        f"The autoscaled fleet runs {digits(scenario.fleet.startup_s)} s behind demand: "
        f"{percent(found.scaled.missed_share)} of requests arrive while it is short."
    )
    components.chart(charts.week(weeks.hourly(found), components.ink()), takeaway)


def payment(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    listed = plan["cost"]["list_prices"]
    overflow = st.toggle("Let an API take the tip of the peaks", key="fleet.overflow", bind="query-params", disabled=not listed)
    api = min((p["usd_per_request"] for p in listed), default=None) if overflow else None
    best = weeks.payment(found, scenario, api)
    if best is None:
        st.info("No basis has a price for this GPU.")
        return
    names = {
        "on_demand": "on demand",
        "reserved_1y": "reserved for a year",
        "reserved_3y": "reserved for three years",
        "spot": "spot",
        "api": "API",
    }
    parts = ", ".join(f"{count} {names.get(choice, choice)}" for choice, count in best.replicas().items())
    single = min(best.usd_all.items(), key=lambda item: item[1])
    month = 730 / 168
    st.markdown(
        plain(
            f"Cheapest: {parts}, {usd(best.usd * month)} a month; everything "
            f"{names.get(single[0], single[0])} would cost {usd(single[1] * month)}."
        )
    )
    components.table(
        [
            {
                "replica": level.number,
                "needed, hours a week": digits(level.hours),
                "pay as": names.get(level.choice, level.choice),
                "per month": usd(level.usd * month),
            }
            for level in best.levels
        ],
        "Each replica of the fleet, how many hours a week demand needs it, and the cheapest way to pay for it",
    )
    components.table(
        [{"everything": names.get(k, k), "per month": usd(v * month)} for k, v in sorted(best.usd_all.items(), key=lambda i: i[1])],
        "Bill when everything is paid one way",
    )
    st.caption("Spot pays for at most half of the fleet and loses start-up time at each interruption.")


def api(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    listed = {p["label"]: p for p in plan["cost"]["list_prices"]}
    if not listed:
        st.info("Nobody lists this model. Name a price of your own under More settings, price.compare_to.")
        return
    label = st.selectbox("API", list(listed), key="fleet.api", bind="query-params")
    price = listed[label]
    found_even = weeks.break_even(found, scenario, price["usd_per_request"])
    rows = [{"volume": p.requests_per_day, "own": p.own_usd_per_month, "api": p.api_usd_per_month} for p in found_even.points]
    marks = [{"volume": found_even.today, "label": f"this plan, {compact(found_even.today)} a day"}]
    if found_even.first:
        marks.append({"volume": found_even.first, "label": f"break-even, {compact(found_even.first)} a day"})
        takeaway = f"The fleet pays from {compact(found_even.first)} requests a day on"
        takeaway += (
            f", and whatever is added from {compact(found_even.always)}."
            if found_even.always and found_even.always > found_even.first
            else "."
        )
    else:
        takeaway = (
            f"At {usd(1000 * price['usd_per_request'])} per 1,000 requests the API is cheaper at every volume that these replicas carry."
        )
    api_usd_per_month = found_even.today * price["usd_per_request"] * DAYS_PER_MONTH
    saved = api_usd_per_month - found.static.usd_per_month
    st.markdown(
        plain(
            f"At this plan's {compact(found_even.today)} requests a day the {'own fleet' if saved > 0 else 'API'} is cheaper: "
            f"{usd(found.static.usd_per_month)} a month for {found.static.peak_replicas:,} "
            f"replica{'s' * (found.static.peak_replicas != 1)} of one's own, {usd(api_usd_per_month)} for the API."
        )
    )
    components.chart(charts.break_even(rows, marks, components.ink()), takeaway)
    st.caption(
        plain(
            f"{label}: {usd(price['input'])} in, {usd(price['cached_input'])} cached, "
            f"{usd(price['output'])} out per M, {dated(price['date'], 'yours')}, {price['source']}. The plan's "
            "own hit rate counts."
        )
    )


def waterfall(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    answer = plans.quick_plan(scenario)
    load: Load | None = answer.load.cost_load if answer.load else None
    if load is None:
        st.info("Nothing is served, so nothing can be split.")
        return
    bars = economics.waterfall(
        answer.cost,
        found.hour,
        mix_of(scenario, load),
        load.requests / load.duration_s,
        plan["throughput"]["busy"] or 0.0,
        scenario.price.utilization,
    )
    if not bars:
        st.info("No price is known for this GPU.")
        return
    rows, before = [], 0.0
    for bar in bars:
        low, high = sorted((before, bar.total_usd_per_request)) if bar.name != "floor" else (0.0, bar.usd_per_request)
        kind = "total" if bar.name == "floor" else "adds" if bar.usd_per_request >= 0 else "takes off"
        rows.append(
            {
                "name": bar.name,
                "low": 1000 * low,
                "high": 1000 * high,
                "text": f"{'+' if bar.usd_per_request >= 0 and bar.name != 'floor' else ''}{usd(1000 * bar.usd_per_request)}",
                "why": bar.why,
                "kind": kind,
            }
        )
        before = bar.total_usd_per_request
    largest = max(bars[1:], key=lambda b: b.usd_per_request, default=bars[0])
    components.chart(charts.waterfall(rows, components.ink()), f"Most is added by {largest.name}: {largest.why}.")


def prices(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    rows = []
    for basis in BASES:
        price = catalog.rental_price(scenario.hardware.gpu, basis)
        if price:
            rows.append(
                {
                    "basis": basis,
                    "typical": usd(price.usd),
                    "low": usd(price.low),
                    "high": usd(price.high),
                    "kind": price.kind,
                    "date": dated(price.date),
                    "source": price.source,
                }
            )
    owned = cost.gpu_hour(scenario.hardware.gpu, scenario.price.model_copy(update={"basis": "owned", "usd_per_gpu_hour": None}))
    if owned:
        rows.append(
            {
                "basis": "owned",
                "typical": usd(owned.usd),
                "low": "",
                "high": "",
                "kind": owned.kind,
                "date": dated(owned.date),
                "source": owned.source,
            }
        )
    st.markdown(plain(f"What an hour of {scenario.hardware.gpu} costs, by how it is paid for."))
    components.table(rows, "Prices of a GPU-hour by basis, with spread, date and source")
    with st.expander("Every observation"):
        components.table(
            [
                {
                    "provider": r.provider,
                    "basis": r.basis,
                    "$/GPU-hour": r.usd_per_gpu_hour,
                    "date": dated(r.date),
                    "source": r.source,
                    "left out because": r.excluded,
                }
                for r in catalog.rental_prices(scenario.hardware.gpu)
            ],
            "Observed prices of this GPU by provider",
        )


def power(found: weeks.Fleet, plan: Json, scenario: Scenario) -> None:
    regions = list(electricity.grids())
    region = st.selectbox(
        "Grid", regions, index=regions.index("world") if "world" in regions else 0, key="fleet.region", bind="query-params"
    )
    answer = electricity.power(scenario, plan["throughput"]["busy"] or 0.0, plan["throughput"]["requests_per_s"], region)
    if answer is None:
        st.info("The power of this GPU is not known.")
        return
    carbon = answer.kg_co2e_per_thousand_requests
    components.cards(
        [
            Card("Mean power", f"{digits(answer.kw)} kW", f"{digits(answer.peak_kw)} kW at full load", "At the wall, cooling included."),
            Card("Electricity", f"{compact(answer.kwh_per_month)} kWh", "per month"),
            Card("Carbon", f"{compact(answer.kg_co2e_per_month)} kg CO2e", "per month"),
            Card(
                "Carbon per 1,000 requests",
                f"{digits(carbon)} kg" if carbon else "–",
                f"{digits(answer.grid.kg_co2e_per_kwh)} kg/kWh, {answer.grid.year}",
            ),
        ]
    )
    st.caption(plain(f"{answer.basis}. Grid: {answer.grid.source}, {answer.grid.date}."))
