import numpy as np
import pytest

from planner import demand
from planner.catalog.workloads import workload, workloads
from planner.problems import InputError
from planner.scenario import mean_length, parse

FIGURES = {"azure-2024-code": (1667, 5900, 1400, 100), "azure-2024-conv": (2709, 5200, 5200, 1000)}


@pytest.mark.parametrize("name", demand.index())
def test_every_shipped_week_has_168_hours_of_mean_one_and_a_source(name):
    week = demand.curve(name)
    assert week.shape == (168,)
    assert week.mean() == pytest.approx(1.0)
    assert (week >= 0).all()
    assert demand.index()[name]["source"]
    assert demand.index()[name]["kind"] in ("measured", "derived", "assumed")


@pytest.mark.parametrize("name", FIGURES)
def test_derived_weeks_have_the_figures_that_were_read(name):
    mean, peak, weekend_peak, trough = FIGURES[name]
    week = demand.curve(name) * mean
    assert week.max() == pytest.approx(peak, rel=1e-6)
    assert week[120:].max() == pytest.approx(weekend_peak, rel=1e-6)
    assert week.min() == pytest.approx(trough, rel=1e-6)


def test_a_week_of_ones_own_or_a_day_repeated():
    assert demand.curve(None).tolist() == [1.0] * 168
    assert demand.curve([2.0] * 168).tolist() == [1.0] * 168
    day = demand.curve(range(24))
    assert day[:24].tolist() == day[144:].tolist()
    assert day.mean() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([1.0] * 7, "has 7 values"),
        ([-1.0] * 168, "negative"),
        ([0.0] * 24, "only zeros"),
        ([np.nan] * 24, "not finite"),
        ("azure-2024-cod", "azure-2024-code"),
    ],
)
def test_other_weeks_say_what_is_wrong(shares, message):
    with pytest.raises(InputError, match=message):
        demand.curve(shares)


MEANS = {
    "chat": (1155, 211),
    "code-completion": (2048, 28),
    "long-chat": (12_035, 343),
    "reasoning": (1598, 1692),
    "classification": (128, 18),
    "rag": (4256, 256),
    "summarise": (4096, 512),
}


def test_workload_presets_are_valid_scenarios_with_sources():
    assert len(workloads()) == 9
    for preset in workloads().values():
        parse(preset.scenario_part)
        assert preset.source, preset.slug
        assert preset.kind in ("measured", "published", "derived", "assumed")
    with pytest.raises(InputError, match="classification"):
        workload("clasification")


@pytest.mark.parametrize("slug", MEANS)
def test_workload_presets_have_the_lengths_of_their_source(slug):
    traffic = parse(workload(slug).scenario_part).workload
    assert mean_length(traffic.input_len) == pytest.approx(MEANS[slug][0], rel=0.055)
    assert mean_length(traffic.output_len) == pytest.approx(MEANS[slug][1], rel=0.04)


def test_agents_grow_from_11k_to_56k():
    traffic = parse(workload("agents").scenario_part).workload
    new = mean_length(traffic.input_len) - traffic.shared_prefix_len + mean_length(traffic.output_len)
    assert traffic.shared_prefix_len + traffic.turns * new == pytest.approx(56_000, rel=0.02)


def test_arrivals_follow_a_curve_and_keep_their_number():
    rng = np.random.default_rng(0)
    steady = rng.exponential(1.0, 100_000).cumsum()
    multipliers = demand.curve("azure-2024-code")[:24]
    multipliers = multipliers / multipliers.mean()
    moved = demand.follow(steady, multipliers)
    assert (np.diff(moved) >= 0).all()
    hours = np.histogram(moved[moved < 86_400], 24, (0, 86_400))[0]
    assert hours == pytest.approx(3600 * multipliers, rel=0.2, abs=60)


def test_a_flat_curve_changes_nothing_and_an_empty_hour_is_skipped():
    times = np.array([0.0, 10.0, 5_000.0, 90_000.0])
    assert demand.follow(times, np.ones(24)) == pytest.approx(times)
    assert demand.follow(np.array([3_600.0, 5_400.0]), np.array([0.0, 2.0])) == pytest.approx([5_400.0, 6_300.0])
