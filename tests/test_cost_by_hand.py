"""Every dollar of a plan worked out by hand, with round numbers: bills, token prices, comparisons, what is said of missing prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from planner import cost
from planner.catalog import list_prices, tco
from planner.scenario import Owned, Price, Scenario

MTOK, MONTH_H = 1e6, 730


def scenario(**parts: Any) -> Scenario:
    return Scenario.model_validate(parts)


def a_load(**changes: float) -> cost.Load:
    """Two hours in which 7,200 requests of 800 computed, 200 cached and 100 generated tokens kept the steps busy for an hour."""
    made = cost.Load(7200.0, 7200.0, 800.0 * 7200, 200.0 * 7200, 100.0 * 7200, 900.0, 180.0, 2520.0)
    return replace(made, **changes)


def a_list_price(**changes: Any) -> list_prices.ListPrice:
    own = {"label": "x", "input": 2.0, "cached_input": 0.5, "cache_write": 2.5, "output": 8.0}
    (made,) = cost.listed(scenario(price={"compare_to": [own]}))
    return replace(made, **changes)


def test_floors() -> None:
    """3.60 $/h are 0.1 cent a second: at 1,000 tokens/s a token costs a millionth of a dollar."""
    assert cost.floor_usd_per_mtok(3.6, 1000.0) == pytest.approx(1.0)
    assert cost.floor_usd_per_mtok(3.6, 1000.0, 0.25) == pytest.approx(4.0)
    assert cost.floor_usd_per_mtok(3.6, 0.0) is None
    assert cost.floor_usd_per_mtok(3.6, 0.5) == pytest.approx(2000.0)


def test_the_bill_of_a_load_is_split_by_busy_time() -> None:
    """10 $/h for two hours: 900, 180 and 2,520 of 3,600 busy seconds are 5, 1 and 14 dollars."""
    prices = cost.at_load_prices(10.0, a_load())
    assert prices.input == pytest.approx(5 / (800 * 7200) * MTOK)
    assert prices.cached_input == pytest.approx(1 / (200 * 7200) * MTOK)
    assert prices.output == pytest.approx(14 / (100 * 7200) * MTOK)
    assert prices.blended == pytest.approx(20 / (1100 * 7200) * MTOK)
    assert a_load().tokens == 1100 * 7200
    uncached = cost.at_load_prices(10.0, a_load(cached_tokens=0.0))
    assert uncached.cached_input is None
    assert uncached.input == pytest.approx(20 * 900 / 3420 / (800 * 7200) * MTOK), "time without tokens is nobody's"
    one = cost.at_load_prices(10.0, a_load(cached_tokens=1.0))
    assert one.cached_input == pytest.approx(1.0 * MTOK)
    nothing = cost.at_load_prices(10.0, cost.Load(3600.0, 0, 0, 0, 0, 0, 0, 0))
    assert nothing == cost.TokenPrices(None, None, None, None)


def test_the_bill_of_a_fleet() -> None:
    """Three replicas of two GPUs and one spare at 2 $ beside 5 $ of other things."""
    s = scenario(
        price={"usd_per_gpu_hour": 2.0, "other_usd_per_hour": 5.0, "utilization": 0.5},
        fleet={"replicas": 3, "spares": 1},
        parallel={"tensor_parallel_size": 2},
    )
    hour = cost.fleet_hour(s)
    assert hour is not None
    assert (hour.serving_usd, hour.spares_usd, hour.other_usd, hour.total_usd) == (12.0, 4.0, 5.0, 21.0)
    assert (hour.replica_usd, hour.gpus, hour.units, hour.unit_usd) == ((4.0,), 8, 3, 4.0)
    part = cost.cost(s, decode_tokens_per_s=1000.0, prefill_tokens_per_s=10_000.0, load=a_load())
    assert (part.usd_per_hour, part.usd_per_month, part.gpus) == (21.0, 21.0 * MONTH_H, 8)
    assert part.usd_per_request == pytest.approx(21.0 / 3600)
    assert part.usd_per_mtok_blended == pytest.approx(42.0 / (1100 * 7200) * MTOK)
    assert part.floor.usd_per_mtok_output == pytest.approx(4.0 / 3600 / 1000 * MTOK / 0.5)
    assert part.floor.usd_per_mtok_input == pytest.approx(4.0 / 3600 / 10_000 * MTOK / 0.5)
    silent = cost.cost(s)
    assert silent.floor == cost.Floor(None, None)
    assert silent.usd_per_request is None
    assert silent.break_even_requests_per_day == {}
    idle = cost.cost(s, load=a_load(duration_s=0.0))
    assert idle.usd_per_request is None


def test_pools_pay_each_for_their_own() -> None:
    """One prefill replica of one GPU, three decode replicas of two; a spare of each."""
    s = scenario(
        price={"usd_per_gpu_hour": 2.0},
        fleet={"spares": 1},
        disaggregation={"prefill": {"replicas": 1}, "decode": {"replicas": 3, "parallel": {"tensor_parallel_size": 2}}},
    )
    hour = cost.fleet_hour(s)
    assert hour is not None
    assert (hour.serving_usd, hour.spares_usd, hour.gpus, hour.units) == (2.0 + 12.0, 2.0 + 4.0, 2 + 8, 1)
    assert hour.replica_usd == (2.0, 4.0)
    part = cost.cost(s, decode_tokens_per_s=1000.0, prefill_tokens_per_s=1000.0)
    assert part.floor.usd_per_mtok_input == pytest.approx(2.0 / 3.6)
    assert part.floor.usd_per_mtok_output == pytest.approx(4.0 / 3.6)


def test_commitments_by_share_and_by_number() -> None:
    """Of ten GPUs at 4 $, half at 1 $ by share, or three at 1 $ by number; what is committed beyond the fleet is not paid here."""

    def rate(*commitments: dict[str, Any]) -> float:
        s = scenario(fleet={"replicas": 10, "commitments": list(commitments)}, price={"usd_per_gpu_hour": 4.0})
        found = cost.fleet_hour(s)
        assert found is not None
        return found.serving_usd

    assert rate({"share": 0.5, "usd_per_gpu_hour": 1.0}) == pytest.approx(5 * 1 + 5 * 4)
    assert rate({"gpus": 3, "usd_per_gpu_hour": 1.0}) == pytest.approx(3 * 1 + 7 * 4)
    assert rate({"gpus": 30, "usd_per_gpu_hour": 1.0}) == pytest.approx(10)
    assert rate({"share": 1.0, "usd_per_gpu_hour": 1.0}) == pytest.approx(10)
    assert rate({"share": 0.5, "usd_per_gpu_hour": 1.0}, {"gpus": 2, "usd_per_gpu_hour": 2.0}) == pytest.approx(5 + 2 * 2 + 3 * 4)


def test_a_commitment_that_covers_everything_needs_no_other_price() -> None:
    s = scenario(hardware={"gpu": "gb300-nvl72"}, price={"basis": "spot"}, fleet={"commitments": [{"share": 1.0, "usd_per_gpu_hour": 3.0}]})
    unpriced = s.model_copy(update={"fleet": s.fleet.model_copy(update={"commitments": ()})})
    if cost.fleet_hour(unpriced) is None:
        found = cost.fleet_hour(s)
        assert found is not None
        assert found.serving_usd == 3.0
        partly = scenario(
            hardware={"gpu": "gb300-nvl72"}, price={"basis": "spot"}, fleet={"commitments": [{"share": 0.5, "usd_per_gpu_hour": 3.0}]}
        )
        assert cost.fleet_hour(partly) is None


def test_an_owned_gpu() -> None:
    """Straight line over 4 years, half the interest, 1.2 kW: 36,000 / 48 + 36,000 × 10 % / 2 / 12 a month and so on."""
    own = Owned(
        usd_per_gpu=36_000,
        years=4,
        interest_rate=0.1,
        opex_share_per_year=0.02,
        colocation_usd_per_kw_month=100,
        power_kw=1.2,
        pue=1.5,
        usd_per_kwh=0.1,
    )
    month = 36_000 / 48 + 36_000 * 0.1 / 2 / 12 + 1.2 * 100 + 36_000 * 0.02 / 12
    assert cost.owned_usd_per_gpu_hour(own) == pytest.approx((month + 1.2 * 1.5 * MONTH_H * 0.1) / MONTH_H)
    half = cost.owned_usd_per_gpu_hour(own, busy=0.5, idle_power_share=0.4)
    assert half == pytest.approx((month + 1.2 * 0.7 * 1.5 * MONTH_H * 0.1) / MONTH_H)
    idle = tco.default("idle_power_fraction")
    assert cost.owned_usd_per_gpu_hour(own, busy=0.0) == pytest.approx((month + 1.2 * idle * 1.5 * MONTH_H * 0.1) / MONTH_H)
    mine = cost.gpu_hour("h100-sxm", Price(basis="owned", owned=own))
    assert mine is not None
    assert mine.usd == mine.low == mine.high == cost.owned_usd_per_gpu_hour(own)
    typical = cost.gpu_hour("h100-sxm", Price(basis="owned"))
    bought = tco.capex("h100-sxm")
    assert typical is not None
    assert bought is not None
    for figure, factor in ((typical.low, 0.7), (typical.usd, 1.0), (typical.high, 1.3)):
        own_server = Owned(usd_per_gpu=bought.usd_per_gpu * factor, power_kw=bought.power_kw)
        assert figure == pytest.approx(cost.owned_usd_per_gpu_hour(own_server))


def test_a_request_at_a_list_price() -> None:
    """2 $ in, 0.5 $ cached, 2.5 $ to write the cache, 8 $ out, a million tokens: 800 + 200 in, 100 out."""
    mix = cost.Mix(800.0, 200.0, 100.0)
    assert mix.tokens == 1100
    assert cost.usd_per_request(a_list_price(), mix) == pytest.approx((800 * 2.5 + 200 * 0.5 + 100 * 8) / MTOK)
    assert cost.usd_per_request(a_list_price(), mix.uncached()) == pytest.approx((1000 * 2 + 100 * 8) / MTOK)
    assert cost.usd_per_request(a_list_price(), cost.Mix(800.0, 1.0, 0.0)) == pytest.approx((800 * 2.5 + 0.5) / MTOK)
    assert cost.usd_per_request(a_list_price(cache_write=None), mix) == pytest.approx((800 * 2 + 200 * 0.5 + 800) / MTOK)
    assert cost.usd_per_request(a_list_price(cached_input=None), mix) == pytest.approx((1000 * 2 + 800) / MTOK)
    assert cost.usd_per_request(a_list_price(cached_input=0.0, cache_write=None), mix) == pytest.approx((800 * 2 + 800) / MTOK)
    assert mix.uncached() == cost.Mix(1000.0, 0.0, 100.0)
    assert mix.at_hit_rate(0.25) == cost.Mix(750.0, 250.0, 100.0)


def test_comparisons() -> None:
    mix = cost.Mix(800.0, 200.0, 100.0)
    (row,) = cost.compare((a_list_price(),), mix, 1.0)
    request = (800 * 2.5 + 200 * 0.5 + 100 * 8) / MTOK
    assert (row.usd_per_request, row.blended) == (pytest.approx(request), pytest.approx(request / 1100 * MTOK))
    assert row.ratio == pytest.approx(row.blended)
    assert cost.compare((a_list_price(),), mix, 2.0)[0].ratio == pytest.approx((row.blended or 0) / 2)
    assert cost.compare((a_list_price(),), mix, None)[0].ratio is None
    assert cost.compare((a_list_price(),), mix, 0.0)[0].ratio is None, "free tokens have no ratio"
    assert cost.compare((a_list_price(),), cost.Mix(0.0, 0.0, 0.0), 1.0)[0].blended is None
    assert (row.label, row.date) == ("x", None)
    assert not a_list_price().outlier, "one's own price is never left out"


def test_batch_interfaces() -> None:
    assert cost.batch_price(a_list_price()) is None
    assert cost.batch_price(a_list_price(batch_input=1.0)) is None
    assert cost.batch_price(a_list_price(batch_output=4.0)) is None
    sold = cost.batch_price(a_list_price(batch_input=1.0, batch_output=4.0))
    assert sold is not None
    assert (sold.input, sold.output, sold.cached_input, sold.cache_write, sold.note) == (1.0, 4.0, None, None, "batch interface")


def test_break_even() -> None:
    """10 $/h are 240 $ a day: 240,000 requests at a tenth of a cent."""
    assert cost.requests_per_day_to_break_even(10.0, 0.001) == pytest.approx(240_000)
    assert cost.requests_per_day_to_break_even(10.0, 0.0) is None
    mix = cost.Mix(800.0, 200.0, 100.0)
    found = cost.break_even((a_list_price(),), mix, 10.0)["x"]
    assert found["uncached"] == pytest.approx(240 / ((1000 * 2 + 800) / MTOK))
    assert found["at_hit_rate"] == pytest.approx(240 / ((800 * 2.5 + 100 + 800) / MTOK))


def test_the_mix_is_what_was_served_else_what_is_asked() -> None:
    s = scenario(workload={"input_len": 500, "output_len": 50})
    assert cost.mix_of(s) == cost.Mix(500.0, 0.0, 50.0)
    assert cost.mix_of(s, a_load()) == cost.Mix(800.0, 200.0, 100.0)
    assert cost.mix_of(s, a_load(requests=0.0)) == cost.Mix(500.0, 0.0, 50.0)
    assert cost.mix_of(s, a_load(requests=1.0)).output_tokens == 720_000


def test_what_is_said_of_prices() -> None:
    fresh = scenario(price={"usd_per_gpu_hour": 2.0})
    assert cost.problems(fresh, replace(cost.cost(fresh), list_prices=()), date(2030, 1, 1)) == ()
    rented = scenario(hardware={"gpu": "h100-sxm"})
    part = cost.cost(rented)
    (hour,) = part.gpu_hours
    day = date.fromisoformat(hour.date or "")
    prices = replace(part, list_prices=())
    assert "stale_price" not in {p.code for p in cost.problems(rented, prices, date.fromordinal(day.toordinal() + 90))}
    late = cost.problems(rented, prices, date.fromordinal(day.toordinal() + 91))
    assert [p.code for p in late] == ["stale_price"]
    assert f"h100-sxm on_demand (${hour.usd:.2f} per GPU-hour, {hour.date})" in late[0].message
    nobody = scenario(hardware={"gpu": "h100-sxm"}, fleet={"replicas": 3, "spares": 2}, parallel={"tensor_parallel_size": 2})
    empty = replace(cost.cost(nobody), usd_per_hour=None, gpu_hours=())
    assert "no_price" in {p.code for p in cost.problems(nobody, empty, day)}
