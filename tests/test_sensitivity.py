"""What moves a decision: each input by itself, and where it flips."""

import pytest

from planner.economics import sensitivity as sens
from planner.problems import InputError
from planner.scenario import Lengths, Scenario

CHAT = Scenario.model_validate(
    {
        "model": {"name": "llama-3.1-8b"},
        "workload": {"input_len": 1000, "output_len": 150, "request_rate": 12.0, "num_prompts": 120, "shared_prefix_len": 200},
        "slo": {"ttft_s": 0.5, "tpot_s": 0.02},
        "simulation": {"mode": "benchmark"},
        "price": {"usd_per_gpu_hour": 2.0, "compare_to": [{"label": "api", "input": 0.05, "output": 0.10}]},
        "speculative": {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5},
    }
)
CASE = sens.Case(CHAT, peak_to_mean=2.0, hit_rate=0.2)


def test_outcome_by_hand() -> None:
    now = sens.outcome(CASE)
    assert now.replicas >= 1
    assert now.own_usd_per_month == pytest.approx(now.replicas * 2.0 * 730)
    assert now.api_usd_per_month == pytest.approx((1000 * 0.05 + 150 * 0.10) / 1e6 * 12 * 730 * 3600)


def test_tornado_moves_what_each_input_touches() -> None:
    bars = {b.name: b for b in sens.tornado(CASE, efficiency_band=(0.9, 1.1))}
    expected = {"GPU price", "volume", "peak over mean", "input length", "output length", "efficiency", "list price", "prefix hit rate"}
    assert set(bars) == expected | {"acceptance", "efficiency (model error)"}
    price = bars["GPU price"]
    assert price.high.own_usd_per_month == pytest.approx(price.low.own_usd_per_month * 1.2 / 0.8)
    assert price.low.replicas == price.high.replicas
    listed = bars["list price"]
    assert listed.swing_usd == 0
    assert listed.high.api_usd_per_month == pytest.approx(listed.low.api_usd_per_month * 1.5)
    assert bars["volume"].low.replicas <= bars["volume"].high.replicas
    assert bars["efficiency"].low.replicas >= bars["efficiency"].high.replicas
    assert (price.low_label, price.high_label) == ("-20%", "+20%")


def test_flip_of_a_price_is_where_the_bills_meet() -> None:
    now = sens.outcome(CASE)
    (flip,) = sens.flips(CASE, names=["GPU price"])
    assert flip.factor == pytest.approx(now.api_usd_per_month / now.own_usd_per_month, rel=0.03)
    assert "GPU price: at" in flip.message


def test_flip_that_does_not_exist_is_said() -> None:
    free = sens.Case(CHAT.model_copy(update={"price": CHAT.price.model_copy(update={"usd_per_gpu_hour": 1e-6})}))
    (flip,) = sens.flips(free, names=["list price"], furthest=2.0)
    assert flip.factor is None
    assert "no value" in flip.message


def test_nearest_flip_is_found_when_decisions_flip_twice() -> None:
    decides = lambda factor: 1.3 < factor < 1.6  # noqa: E731
    assert sens._nearest(decides, False, 8.0, 0.01) == pytest.approx(1.3, rel=0.02)


def test_infeasible_promises_buy_nothing() -> None:
    hopeless = CHAT.model_copy(update={"slo": CHAT.slo.model_copy(update={"ttft_s": 1e-3})})
    result = sens.outcome(sens.Case(hopeless))
    assert (result.replicas, result.buys) == (0, False)


def test_lengths_of_every_kind_stretch() -> None:
    assert sens.scaled_length(100.0, 1.2) == pytest.approx(120.0)
    points = Lengths(kind="percentiles", points=((0.0, 10.0), (1.0, 30.0)))
    assert sens.scaled_length(points, 2.0).points == ((0.0, 20.0), (1.0, 60.0))
    assert sens.scaled_length(Lengths(kind="empirical", values=(5.0, 7.0)), 2.0).values == (10.0, 14.0)
    assert sens.scaled_length(Lengths(kind="lognormal", mean=50.0, cv=1.0, max=400.0), 0.5).max == 200.0


def test_heat_map_divides_by_use_and_scales_with_price() -> None:
    cells = sens.heat_map(0.10, 2.0, utilizations=(0.5, 1.0), prices=(2.0, 4.0))
    assert cells == ((0.2, 0.4), (0.1, 0.2))


def test_a_closed_loop_has_no_volume() -> None:
    loop = CHAT.model_copy(update={"workload": CHAT.workload.model_copy(update={"request_rate": None, "max_concurrency": 8})})
    with pytest.raises(InputError, match="request_rate"):
        sens.outcome(sens.Case(loop))
