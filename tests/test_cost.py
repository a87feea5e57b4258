"""Dollars: the chapter's floor prices, the at-load split, list prices and break-even, owned hardware, stale prices."""

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import cost
from planner.catalog import list_prices, tco
from planner.problems import InputError
from planner.scenario import Scenario, parse

CHAPTER = Scenario.model_validate(
    {
        "model": {"name": "llama-3.1-405b"},
        "parallel": {"tensor_parallel_size": 8},
        "price": {"usd_per_gpu_hour": 3.0},
        "workload": {"input_len": 4000, "output_len": 4192},
    }
)
CHAPTER_STEP_S = 405e9 / (8 * 3.35e12)
USERS_API = {"label": "list", "input": 0.55, "cached_input": 0.14, "output": 2.19}


def chat(**changes: object) -> Scenario:
    """70B on two H100 at $2.50 beside a list price of 0.14 / 0.55 / 2.19."""
    base = {
        "model": {"name": "llama-3.3-70b"},
        "parallel": {"tensor_parallel_size": 2},
        "price": {"usd_per_gpu_hour": 2.5, "compare_to": [USERS_API]},
        "workload": {"input_len": 1155, "output_len": 211},
    }
    return Scenario.model_validate(base | changes)


def test_chapter_output_floor() -> None:
    prices = [round(cost.floor_usd_per_mtok(24.0, batch / CHAPTER_STEP_S), 2) for batch in (1, 8, 64, 256)]
    assert prices == [100.75, 12.59, 1.57, 0.39]


def test_chapter_input_floor() -> None:
    assert cost.floor_usd_per_mtok(24.0, 4938) == pytest.approx(1.35, abs=0.005)


def test_chapter_through_the_plan_part() -> None:
    part = cost.cost(CHAPTER, decode_tokens_per_s=64 / CHAPTER_STEP_S, prefill_tokens_per_s=4938)
    assert part.usd_per_hour == 24.0
    assert part.usd_per_month == 24 * 730
    assert part.floor.usd_per_mtok_output == pytest.approx(1.5742, abs=1e-3)
    assert part.floor.usd_per_mtok_input == pytest.approx(1.35, abs=0.005)
    assert part.usd_per_mtok_output is None
    assert [row.label.split(":")[0] for row in part.list_prices] == ["nebius", "aws", "fireworks", "together"]


def test_utilization_divides_the_floor_once_and_the_load_never() -> None:
    busy, half = chat(), chat(price={"usd_per_gpu_hour": 2.5, "utilization": 0.5})
    load = cost.Load(3600, 1000, 1e6, 0, 2e5, 100, 0, 300)
    full, halved = (cost.cost(s, 1000, 5000, load) for s in (busy, half))
    assert halved.floor.usd_per_mtok_output == pytest.approx(2 * full.floor.usd_per_mtok_output)
    assert halved.usd_per_mtok_output == full.usd_per_mtok_output
    assert halved.usd_per_hour == full.usd_per_hour


def test_at_load_split_by_hand() -> None:
    load = cost.Load(duration_s=1800, requests=900, input_tokens=1e6, cached_tokens=5e5, output_tokens=2e5,
                     input_busy_s=300, cached_busy_s=100, output_busy_s=600)  # fmt: skip
    prices = cost.at_load_prices(5.0, load)
    assert prices.input == pytest.approx(0.75)
    assert prices.cached_input == pytest.approx(0.5)
    assert prices.output == pytest.approx(7.5)
    assert prices.blended == pytest.approx(2.5 / 1.7)
    assert cost.cost(chat(), 1000, 5000, load).usd_per_request == pytest.approx(2.5 / 900)


amounts = st.floats(1e-3, 1e9) | st.just(0.0)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1e4), st.floats(1, 1e6), st.lists(amounts, min_size=3, max_size=3), st.lists(amounts, min_size=3, max_size=3))
def test_prices_times_tokens_are_the_bill(usd_per_hour: float, duration_s: float, tokens: list[float], busy: list[float]) -> None:
    prices = cost.at_load_prices(usd_per_hour, cost.Load(duration_s, 1, *tokens, *busy))
    if prices.blended is None:
        assert sum(b for t, b in zip(tokens, busy, strict=True) if t > 0) == 0
        return
    kinds = (prices.input, prices.cached_input, prices.output)
    paid = sum(price * t / 1e6 for price, t in zip(kinds, tokens, strict=True) if price is not None)
    assert paid == pytest.approx(usd_per_hour * duration_s / 3600)


def test_spares_and_everything_else_are_in_the_bill_and_not_in_the_floor() -> None:
    plain, padded = chat(), chat(fleet={"replicas": 3, "spares": 1}, price={"usd_per_gpu_hour": 2.5, "other_usd_per_hour": 4.0})
    assert cost.cost(plain).usd_per_hour == 5.0
    assert cost.cost(padded).usd_per_hour == 4 * 5.0 + 4.0
    assert cost.cost(padded).gpus == 8
    assert cost.cost(padded, 1000).floor == cost.cost(plain, 1000).floor


def test_disaggregated_pools_pay_their_own_gpus() -> None:
    split = chat(
        disaggregation={
            "prefill": {"gpu": "h200-sxm", "parallel": {"tensor_parallel_size": 2}, "replicas": 2},
            "decode": {"gpu": "h100-sxm", "parallel": {"tensor_parallel_size": 4}, "replicas": 1},
        },
        price={},
    )
    part = cost.cost(split, decode_tokens_per_s=1000, prefill_tokens_per_s=10_000)
    assert part.usd_per_hour == pytest.approx(4 * 4.79 + 4 * 3.945)
    assert part.floor.usd_per_mtok_input == pytest.approx(2 * 4.79 / 3600 / 10_000 * 1e6)
    assert part.floor.usd_per_mtok_output == pytest.approx(4 * 3.945 / 3600 / 1000 * 1e6)


def test_commitments_pay_for_their_share() -> None:
    mixed = chat(
        fleet={
            "replicas": 5,
            "commitments": [{"share": 0.6, "usd_per_gpu_hour": 1.5}, {"basis": "spot", "gpus": 2, "usd_per_gpu_hour": 1.0}],
        }
    )
    assert cost.cost(mixed).usd_per_hour == pytest.approx(6 * 1.5 + 2 * 1.0 + 2 * 2.5)


def test_api_bill_of_the_chat_service() -> None:
    (price,) = cost.listed(chat())
    mix = cost.Mix(1155, 0, 211)
    assert 1000 * cost.usd_per_request(price, mix) == pytest.approx(1.097, abs=5e-4)
    assert 1000 * cost.usd_per_request(price, mix.at_hit_rate(0.563)) == pytest.approx(0.831, abs=5e-4)
    assert 1e5 * 30.4 * cost.usd_per_request(price, mix) == pytest.approx(3336, abs=1)


def test_break_even_of_one_replica_and_of_the_pair() -> None:
    load = cost.Load(3600, 1000, 1155e3 * 0.437, 1155e3 * 0.563, 211e3, 1, 1, 1)
    alone = cost.cost(chat(), load=load).break_even_requests_per_day["list"]
    pair = cost.cost(chat(fleet={"spares": 1}), load=load).break_even_requests_per_day["list"]
    assert alone["uncached"] == pytest.approx(109_400, rel=1e-3)
    assert alone["at_hit_rate"] == pytest.approx(144_500, rel=1e-3)
    assert pair["uncached"] == pytest.approx(2 * alone["uncached"])


@pytest.mark.parametrize(("prompt", "output", "blended"), [(2048, 28, 0.57), (1155, 211, 0.80), (1598, 1692, 1.39)])
def test_blend_moves_with_the_shape_of_traffic(prompt: float, output: float, blended: float) -> None:
    (row,) = cost.compare(cost.listed(chat()), cost.Mix(prompt, 0, output), None)
    assert row.blended == pytest.approx(blended, abs=0.005)


def test_ratio_is_list_over_own_and_absent_without_an_own_price() -> None:
    (row,) = cost.compare(cost.listed(chat()), cost.Mix(1155, 0, 211), 0.4)
    assert row.ratio == pytest.approx(row.blended / 0.4)
    assert cost.compare(cost.listed(chat()), cost.Mix(1155, 0, 211), None)[0].ratio is None


def test_cache_writes_are_charged_where_they_are_sold() -> None:
    opus = list_prices.find("anthropic:claude-opus-5")
    assert cost.usd_per_request(opus, cost.Mix(1e6, 0, 0)) == pytest.approx(5.0)
    assert cost.usd_per_request(opus, cost.Mix(1e6, 1e6, 0)) == pytest.approx(6.25 + 0.5)
    assert cost.usd_per_request(cost.batch_price(opus), cost.Mix(1e6, 0, 1e6)) == pytest.approx(2.5 + 12.5)


def test_an_unknown_list_price_is_wrong_input() -> None:
    with pytest.raises(InputError, match=r"price\.compare_to"):
        cost.cost(chat(price={"compare_to": ["nobody:nothing"]}))


@pytest.mark.parametrize("example", tco.tables()["worked_examples"], ids=lambda e: f"{e['gpu']}-{e['utilisation']}")
def test_owned_hardware_matches_the_worked_examples(example: dict) -> None:
    bought = cost.owned_usd_per_gpu_hour(
        Scenario.model_validate({"price": {"owned": {"usd_per_gpu": example["capex"] / 8, "power_kw": example["kw"] / 8}}}).price.owned,
        busy=example["utilisation"],
    )
    assert bought / example["utilisation"] == pytest.approx(example["usd_per_useful_gpu_hour"], abs=0.001)


def test_owned_basis_takes_the_catalogue_s_server_and_says_so() -> None:
    owned = cost.gpu_hour("b200-sxm", chat(price={"basis": "owned"}).price)
    assert owned.usd == pytest.approx(2.608, abs=0.001)
    assert owned.kind == "derived"
    assert owned.low < owned.usd < owned.high
    assert cost.gpu_hour("rtx-3090", chat(price={"basis": "owned"}).price) is None


def test_stale_and_missing_prices_are_named() -> None:
    today = date(2026, 11, 29)
    fresh = chat(price={})
    assert [p.code for p in cost.problems(fresh, cost.cost(fresh), today)] == []
    reserved = chat(price={"basis": "reserved_1y"})
    (stale,) = cost.problems(reserved, cost.cost(reserved), today)
    assert stale.code == "stale_price"
    assert "h100-sxm reserved_1y ($2.35 per GPU-hour, 2026-03)" in stale.message
    later = cost.problems(fresh, cost.cost(fresh), date(2027, 6, 1))
    assert "groq:llama-3.3-70b-versatile (2026-11-20)" in later[0].message
    unpriced = chat(hardware={"gpu": "h20"}, price={})
    part = cost.cost(unpriced)
    assert (part.usd_per_hour, part.floor.usd_per_mtok_output, part.break_even_requests_per_day) == (None, None, {})
    assert [p.code for p in cost.problems(unpriced, part, today)] == ["no_price"]
    assumed = chat(hardware={"gpu": "b200-sxm"}, price={"basis": "reserved_1y"})
    assert [p.code for p in cost.problems(assumed, cost.cost(assumed), today)] == ["assumed_price", "stale_price"]


CONTRACT = """
    usd_per_hour usd_per_month usd_per_mtok_input usd_per_mtok_cached_input usd_per_mtok_output usd_per_mtok_blended usd_per_request
    floor list_prices break_even_requests_per_day
"""
LISTED = "label provider model input cached_input output blended ratio date source"


def test_part_has_the_contract_s_keys() -> None:
    keys = cost.cost(chat(), 1000, 5000, cost.Load(1, 1, 1, 1, 1, 1, 1, 1)).to_dict()
    assert set(CONTRACT.split()) <= keys.keys()
    assert set(LISTED.split()) <= keys["list_prices"][0].keys()


def test_a_commitment_is_bought_once_for_both_pools() -> None:
    split = {
        "prefill": {"replicas": 2, "parallel": {"tensor_parallel_size": 2}},
        "decode": {"replicas": 4, "parallel": {"tensor_parallel_size": 2}},
    }
    part = {"disaggregation": split, "price": {"usd_per_gpu_hour": 3}, "fleet": {"commitments": [{"gpus": 8, "usd_per_gpu_hour": 1}]}}
    found = cost.fleet_hour(parse(part))
    assert found is not None
    assert found.total_usd == pytest.approx(8 * 1 + 4 * 3)
    assert found.unit_usd == pytest.approx(20)


def test_a_fleet_grows_by_replicas_and_a_disaggregated_one_by_all_its_pools() -> None:
    fleet = cost.fleet_hour(parse({"fleet": {"replicas": 5, "spares": 1}, "price": {"usd_per_gpu_hour": 2}}))
    assert fleet is not None
    assert (fleet.units, fleet.unit_usd, fleet.total_usd) == (5, 2.0, 12.0)
