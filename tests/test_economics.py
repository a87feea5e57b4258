"""Weeks of demand, payment mixes, break-even, waterfall, power, seats, bursts and batch jobs: against hand sums and brute force."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from planner import cost, traces
from planner.economics import breakeven, burst, mix, offline, power, seats, waterfall, week
from planner.problems import InputError
from planner.scenario import Scenario

FLAT = [1.0] * 168
OFFICE = [1.0 if h % 24 in range(8, 18) and h < 120 else 0.1 for h in range(168)]


def test_minutes_keep_mean_shape_and_seed() -> None:
    rates = week.rates_by_minute(OFFICE, 4.0)
    assert len(rates) == 168 * 60
    assert rates.mean() == pytest.approx(4.0)
    assert rates.max() / rates.mean() == pytest.approx(max(OFFICE) / np.mean(OFFICE), rel=0.01)
    bursty = week.rates_by_minute(OFFICE, 4.0, burst_cv=0.5, seed=3)
    assert (bursty == week.rates_by_minute(OFFICE, 4.0, burst_cv=0.5, seed=3)).all()
    assert bursty.mean() == pytest.approx(4.0)


@pytest.mark.parametrize("shares", [[1.0] * 24, [0.0] * 168, [-1.0] + [1.0] * 167])
def test_a_week_that_is_none_is_refused(shares: list[float]) -> None:
    with pytest.raises(InputError, match="demand_curve"):
        week.rates_by_minute(shares, 1.0)


def test_published_fleet_following_demand_against_its_peak() -> None:
    """226.75 nodes on average and 278 at peak, 8 GPUs each at $2: $87,072 and $106,752 a day."""
    nodes = np.concatenate([np.full(600, 278.0), np.full(840, 190.14285714285714)])
    # A node carries one unit at full target, so demand in nodes is the fleet in nodes; fractions stand for part hours.
    scaled = {"capacity": 1e-4, "target_utilization": 1.0, "spares": 0, "usd_per_replica_hour": 16.0 * 1e-4}
    follows = week.autoscaled_week(nodes, startup_s=0, **scaled)
    peak = week.static_week(nodes, **scaled)
    assert follows.mean_replicas * 1e-4 == pytest.approx(226.75, abs=0.01)
    assert follows.usd == pytest.approx(87_072, rel=1e-4)
    assert peak.usd == pytest.approx(106_752)


def test_static_fleet_is_busy_by_mean_over_peak() -> None:
    rates = week.rates_by_minute(OFFICE, 10.0)
    fleet = week.static_week(rates, capacity=0.01, target_utilization=1.0, spares=0, usd_per_replica_hour=1.0)
    assert fleet.busy == pytest.approx(rates.mean() / rates.max(), rel=0.01)
    assert fleet.missed_share == 0.0
    assert fleet.usd_per_month == pytest.approx(fleet.peak_replicas * 730)


def test_start_up_lag_costs_misses_and_headroom_buys_them_back() -> None:
    rates = week.rates_by_minute(OFFICE, 10.0)
    common = {"capacity": 1.0, "spares": 0, "usd_per_replica_hour": 5.0}
    misses = [week.autoscaled_week(rates, target_utilization=0.95, startup_s=s, **common).missed_share for s in (0, 300, 900)]
    assert misses[0] == 0.0 < misses[1] < misses[2]
    roomy = week.autoscaled_week(rates, target_utilization=0.6, startup_s=300, **common)
    assert roomy.missed_share < misses[1]
    assert roomy.usd < week.static_week(rates, target_utilization=0.6, **common).usd
    steady = week.autoscaled_week(week.rates_by_minute(FLAT, 10.0), target_utilization=0.95, startup_s=900, **common)
    assert steady.missed_share == 0.0


def test_backlog_misses_last_until_it_is_served() -> None:
    rates = np.array([1.0, 1.0, 3.0, 1.0, 1.0, 1.0])
    fleet = week.autoscaled_week(rates, 2.0, 1.0, 0, 1.0, startup_s=0, min_replicas=1, max_replicas=1, interval_s=60)
    # One minute 60 requests over what a replica carries, cleared by the next one.
    assert fleet.missed_share == pytest.approx(3 / 8)


OFFERS = (
    mix.Offer("reserved_1y", 6.0, committed=True),
    mix.Offer("on_demand", 10.0),
    mix.Offer("spot", 5.0, interruption_per_hour=0.05),
)


@pytest.mark.parametrize("api", [None, 0.0005, 0.003, 0.02])
@pytest.mark.parametrize("max_spot_share", [0.0, 0.5])
def test_cheapest_mix_matches_trying_everything(api: float | None, max_spot_share: float) -> None:
    rates = np.array([1.0, 0.2, 2.9, 4.6, 3.1, 0.4, 1.5, 2.2] * 21)
    found = mix.cheapest_mix(rates, 1.2, OFFERS, api, startup_s=600, max_spot_share=max_spot_share, interval_s=3600)
    peak = math.ceil(4.6 / 1.2)
    best = math.inf
    for cut in range(peak + 1) if api is not None else [peak]:
        for choice in itertools.product(OFFERS, repeat=cut):
            if sum(o.basis == "spot" for o in choice) > int(max_spot_share * cut):
                continue
            usd = 0.0
            for n, offer in enumerate(choice):
                hours = 168 if offer.committed else (rates > n * 1.2).sum()
                usd += offer.usd_per_replica_hour * hours * (1 + offer.interruption_per_hour * 600 / 3600)
            usd += (np.clip(rates - cut * 1.2, 0, None).sum() * 3600) * (api or 0.0)
            best = min(best, usd)
    assert found.usd == pytest.approx(best)
    assert sum(level.usd for level in found.levels) == pytest.approx(found.usd)
    assert found.usd <= min(usd for basis, usd in found.usd_all.items() if basis != "spot") + 1e-9


def test_reserved_floor_with_elastic_tops() -> None:
    rates = week.rates_by_minute(OFFICE, 10.0)
    bought = mix.cheapest_mix(rates, 1.0, OFFERS[:2])
    choices = [level.choice for level in bought.levels]
    assert choices == sorted(choices, reverse=True)
    assert set(choices) == {"reserved_1y", "on_demand"}
    assert all((level.hours > 168 * 0.6) == (level.choice == "reserved_1y") for level in bought.levels)


def test_break_even_of_the_chat_service_with_steps() -> None:
    carried = breakeven.replica_requests_per_day(6.0, peak_to_mean=3)
    assert carried == 172_800
    steps = [breakeven.step(r, 5.0, 0.0010973, carried) for r in (1, 2, 3)]
    assert steps[0].break_even_requests_per_day == pytest.approx(109_400, rel=1e-3)
    assert steps[0].utilization_at_break_even == pytest.approx(0.633, abs=1e-3)
    assert breakeven.break_even(steps) == steps[0].break_even_requests_per_day
    # Adding the second replica at 172,800 a day loses to the API until it, too, is filled.
    assert breakeven.always_above(steps) == pytest.approx(2 * 109_360, rel=1e-3)
    pair = breakeven.step(1, 5.0, 0.0010973, carried, spares=1)
    assert pair.break_even_requests_per_day == pytest.approx(218_800, rel=1e-3)
    assert not pair.pays


def test_cost_curve_has_the_steps_and_crosses_at_break_even() -> None:
    points = breakeven.curve([50_000, 109_400, 172_800, 172_801], 5.0, 0.0010973, 172_800)
    assert [p.replicas for p in points] == [1, 1, 1, 2]
    assert points[0].own_usd_per_month == pytest.approx(3650)
    assert points[0].own_usd_per_month > points[0].api_usd_per_month
    assert points[1].own_usd_per_month == pytest.approx(points[1].api_usd_per_month, rel=1e-3)
    assert points[3].own_usd_per_month == pytest.approx(7300)


def test_an_api_that_nothing_beats() -> None:
    steps = [breakeven.step(r, 50.0, 0.0001, 10_000) for r in (1, 2)]
    assert breakeven.break_even(steps) is None
    assert breakeven.always_above(steps) is None


CHAT = Scenario.model_validate(
    {
        "parallel": {"tensor_parallel_size": 2},
        "fleet": {"replicas": 2, "spares": 1},
        "price": {
            "usd_per_gpu_hour": 2.5,
            "other_usd_per_hour": 1.0,
            "utilization": 0.5,
            "compare_to": [{"label": "a", "input": 0.55, "output": 2.19}],
        },
        "workload": {"input_len": 1155, "output_len": 211},
    }
)


def test_waterfall_adds_up_to_the_at_load_price_and_ends_at_the_list() -> None:
    load = cost.Load(1000, 4000, 4000 * 1155, 0, 4000 * 211, 300, 0, 500)
    part = cost.cost(CHAT, decode_tokens_per_s=2000, prefill_tokens_per_s=12_000, load=load)
    bars = waterfall.waterfall(part, cost.fleet_hour(CHAT), cost.mix_of(CHAT, load), 4.0, busy=0.4, utilization=0.5)
    assert [b.name for b in bars] == ["floor", "real batches", "idle time", "spares", "everything else", "margin to list"]
    assert bars[0].usd_per_request == pytest.approx((1155 / 12_000 + 211 / 2000) * 5 / 3600)
    assert bars[4].total_usd_per_request == pytest.approx(part.usd_per_request)
    assert bars[5].total_usd_per_request == pytest.approx(part.list_prices[0].usd_per_request)
    assert sum(b.usd_per_request for b in bars) == pytest.approx(bars[-1].total_usd_per_request)


def test_power_by_hand() -> None:
    drawn = power.power(CHAT, busy=0.5, requests_per_s=2.0, region="france")
    each = 10.2 / 8
    assert drawn.kw == pytest.approx(each * (4 * (0.35 + 0.65 * 0.5) + 2 * 0.35) * 1.25)
    assert drawn.peak_kw == pytest.approx(each * 6 * 1.25)
    assert drawn.kwh_per_month == pytest.approx(drawn.kw * 730)
    assert drawn.kg_co2e_per_month == pytest.approx(drawn.kwh_per_month * 0.056)
    assert drawn.kg_co2e_per_thousand_requests == pytest.approx(drawn.kg_co2e_per_month / (2 * 730 * 3600) * 1000)
    with pytest.raises(InputError, match="france"):
        power.power(CHAT, 0.5, region="frence")
    tpu = CHAT.model_copy(update={"hardware": CHAT.hardware.model_copy(update={"gpu": "tpu-v5e"})})
    assert power.power(tpu, 0.5) is None


def test_grid_rows_are_sourced() -> None:
    for row in power.grids().values():
        assert 0 < row.kg_co2e_per_kwh < 1.2
        assert row.source
        assert row.date


def test_seats_without_risk_are_the_capacity() -> None:
    sold = seats.seats(10.0, 1366, requests_per_minute=60, activity=1.0, max_risk=0.01)
    assert (sold.tenants, sold.oversubscription, sold.risk) == (10, 1.0, 0.0)
    assert sold.tokens_per_minute == 60 * 1366


def test_idle_tenants_are_sold_again_within_the_risk() -> None:
    sold = seats.seats(10.0, 1366, requests_per_minute=60, activity=0.1, max_risk=0.01)
    assert sold.tenants > 40
    assert sold.risk <= 0.01 < seats.overload_risk(sold.tenants + 1, 10, 0.1)
    exact = sum(math.comb(sold.tenants, k) * 0.1**k * 0.9 ** (sold.tenants - k) for k in range(11, sold.tenants + 1))
    assert sold.risk == pytest.approx(exact)


@pytest.mark.parametrize(("field", "value"), [("activity", 0.0), ("max_risk", 1.0), ("requests_per_minute", 0.0)])
def test_seats_refuse_nonsense(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        seats.seats(10.0, 1366, **({"requests_per_minute": 60, "activity": 0.1, "max_risk": 0.01} | {field: value}))


@pytest.mark.parametrize(("promise_s", "ratio", "alone"), [(0.25, 1.11, 16_300), (1.0, 1.34, 6_400)])
def test_chat_bursts_cost_little(promise_s: float, ratio: float, alone: float) -> None:
    trace = traces.shipped("azure-2023-conv")
    paid = burst.burst_cost(trace.arrival_s, trace.input_tokens, promise_s)
    assert paid.ratio == pytest.approx(ratio, rel=0.03)
    assert paid.no_queue_tokens_per_s == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize(("promise_s", "ratio"), [(0.25, 2.79), (1.0, 5.22)])
def test_code_bursts_cost_several_times(promise_s: float, ratio: float) -> None:
    trace = traces.shipped("azure-2023-code")
    assert burst.burst_cost(trace.arrival_s, trace.input_tokens, promise_s).ratio == pytest.approx(ratio, rel=0.06)


def test_time_in_system_is_the_queue_by_hand() -> None:
    arrivals, tokens = np.array([0.0, 1.0, 1.5]), np.array([20.0, 10.0, 10.0])
    assert burst.time_in_system(arrivals, tokens, 10.0, 100) == pytest.approx(2.5)


JOB = offline.Job(documents=10e6, input_tokens=3000, output_tokens=300, window_s=8 * 3600)


def test_batch_job_rates_are_the_division() -> None:
    assert JOB.input_tokens_per_s == pytest.approx(1.04e6, rel=0.002)
    assert JOB.output_tokens_per_s == pytest.approx(104e3, rel=0.002)
    assert offline.api_usd(JOB, 0.05, 0.08) == pytest.approx(1740)


def test_interruptions_lengthen_and_cost() -> None:
    calm = offline.finish(JOB, 30, 14.0, 2.0)
    rough = offline.finish(JOB, 30, 14.0, 0.8, interruption_per_hour=0.05, restart_s=600)
    assert calm.mean_s == pytest.approx(10e6 / 14 / 30)
    assert calm.p95_s == calm.mean_s
    assert rough.mean_s == pytest.approx(600 + 10e6 / 14 / 30 * (1 + 0.05 / 6))
    assert rough.p95_s > rough.mean_s
    assert rough.usd < calm.usd


def test_fewest_replicas_end_on_time_and_one_less_does_not() -> None:
    conditions = {"interruption_per_hour": 0.05, "restart_s": 600.0}
    ended = offline.fewest_replicas(JOB, 14.0, 0.8, **conditions)
    assert ended.on_time
    assert not offline.finish(JOB, ended.replicas - 1, 14.0, 0.8, **conditions).on_time


def test_shipped_weeks_have_the_published_peaks() -> None:
    file = Path(cost.__file__).parent.parent / "catalog" / "demand.json"
    code = json.loads(file.read_text())["azure-2024-code"]["weekly"]
    assert code["weekday_peak"] / code["mean"] == pytest.approx(3.54, abs=0.01)


def test_uploaded_week_in_every_shape() -> None:
    hours = [float(h % 24 + 1) for h in range(168)]
    assert week.parse_shares("\n".join(map(str, hours))) == tuple(hours)
    assert week.parse_shares(",".join(map(str, hours))) == tuple(hours)
    assert week.parse_shares("hour;rate\n" + "\n".join(f"{i};{v}" for i, v in enumerate(hours))) == tuple(hours)
    assert week.parse_shares("\n".join(map(str, hours[:24]))) == tuple(hours)
    tens = [v for v in hours for _ in range(6)]
    assert week.parse_shares("\n".join(map(str, tens * 2)), steps_per_hour=6) == pytest.approx(tuple(hours))


@pytest.mark.parametrize("text", ["", "1\n2\n3", "\n".join(["1"] * 167 + ["x"]), "\n".join(["-1"] * 168), "\n".join(["0"] * 168)])
def test_uploaded_week_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="demand file"):
        week.parse_shares(text)


@pytest.mark.parametrize(("api", "most"), [(None, 20_000), (0.01, 4_000)])
def test_payments_are_mixed_for_a_bounded_number_of_replicas(api: float | None, most: int) -> None:
    with pytest.raises(InputError, match=f"needs {most + 1:,} replicas, and payments are mixed for at most {most:,}"):
        mix.cheapest_mix(np.array([most + 1.0]), 1.0, OFFERS, api)
