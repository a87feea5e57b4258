"""The five broken systems behave as described, and the two measurements come out as a client would see them."""

import pytest

from planner import lessons
from planner.catalog.quality import quality_note, quality_rows
from planner.problems import InputError
from planner.scenario import parse


def figures(lesson):
    return {figure.name: figure for figure in lesson.run()}


@pytest.mark.parametrize(("batch", "occupancy"), [(16, 0.42), (64, 0.34)])
def test_static_batching_leaves_seats_idle_and_makes_others_wait(batch, occupancy):
    found = figures(lessons.static_batching(batch))
    generating = found["share of the batch still generating"]
    assert generating.broken == pytest.approx(occupancy, abs=0.02)
    assert generating.sound == 1.0
    assert found["output tokens per second"].ratio > 2.0
    assert found["TTFT, median"].broken > 30 * found["TTFT, median"].sound


@pytest.mark.parametrize(("max_model_len", "waste"), [(4_096, 0.70), (8_192, 0.85), (16_384, 0.93)])
def test_contiguous_reservation_wastes_what_is_never_written(max_model_len, waste):
    found = figures(lessons.contiguous_reservation(max_model_len))
    unused = found["share of the reserved cache that holds no token"]
    assert unused.broken == pytest.approx(waste, abs=0.03)
    assert unused.sound < 0.02


def test_paging_gains_two_to_four_times_at_equal_memory():
    gain = figures(lessons.contiguous_reservation())["output tokens per second"].ratio
    assert 2.0 <= gain <= 4.0


def test_accepting_every_draft_is_fast_and_another_models_text():
    found = figures(lessons.accept_every_draft())
    assert found["tokens per verified step"].broken == 5.0
    assert found["tokens per verified step"].sound == pytest.approx(3.36, abs=0.01)
    assert found["time per output token, median"].ratio > 1.2
    distance = found["distance of the output from the target's distribution (two toy models)"]
    assert distance.broken > 5 * distance.sound
    broken, sound = lessons.accept_every_draft().scenarios()
    assert (broken.speculative.verify, sound.speculative.verify) == ("accept_all", "exact")


def test_four_bits_cost_a_small_model_more_than_a_large_one():
    recovery = figures(lessons.small_model_in_four_bits())["worst published 4-bit recovery, 8B against 405B"]
    assert (recovery.broken, recovery.sound) == (93.0, 98.5)


def test_quality_notes_follow_size_and_precision_and_name_their_source():
    small, large = quality_note("int4", 8e9), quality_note("int4", 405e9)
    assert "90.9 to 98.9 %" in small
    assert "97.4 to 100 %" in large
    assert "lossless" in quality_note("fp8", 8e9)
    assert quality_note("bf16", 8e9) == ""
    for row in quality_rows():
        assert 50 < row.recovery_percent <= 101
        assert row.source
        assert row.date


def test_a_long_prompt_in_one_piece_stalls_everybody():
    found = figures(lessons.unchunked_prefill())
    stall = found["longest wait for a next token"]
    assert stall.broken > 3.0, "the seconds its prefill takes"
    assert stall.sound < 0.3
    assert found["TTFT of the long prompt"].ratio == pytest.approx(1.0, abs=0.2)


def test_every_lesson_is_two_valid_scenarios_that_differ_in_one_idea():
    for lesson in lessons.broken_systems():
        broken, sound = lesson.scenarios()
        differing = {
            f"{section}.{field}"
            for section, part in broken.model_dump().items()
            if isinstance(part, dict)
            for field, value in part.items()
            if value != sound.model_dump()[section][field]
        }
        assert len(differing) == 1, lesson.slug
        assert lesson.idea.endswith(".")


def test_ttft_grows_with_the_prompt_and_tpot_hardly():
    measured = lessons.by_prompt_length(parse({}))
    assert [m.input_tokens for m in measured] == [50, 500, 5_000]
    ttft = [m.ttft_s for m in measured]
    assert ttft == sorted(ttft)
    assert ttft[2] > 4 * ttft[0]
    assert measured[2].tpot_s < 1.1 * measured[0].tpot_s


def test_a_repeated_prompt_is_read_from_the_cache():
    first, second = lessons.repeated_prompt(parse({}))
    assert first.cached_tokens == 0
    assert second.cached_tokens == 4_992, "all full blocks but the one with the last token"
    assert second.ttft_s < first.ttft_s / 4
    assert second.tpot_s == pytest.approx(first.tpot_s)
    uncached = lessons.repeated_prompt(parse({"engine": {"enable_prefix_caching": False}}))
    assert uncached[1].cached_tokens == 0
    assert uncached[1].ttft_s == pytest.approx(uncached[0].ttft_s)


FLEET = parse({"workload": {"request_rate": 60.0, "num_prompts": 900}, "fleet": {"replicas": 3, "startup_s": 60.0}})


def test_a_lost_replica_is_felt_and_a_spare_covers_it():
    calm, lost, covered = lessons.replica_loss(FLEET)
    assert calm.rerouted == 0
    assert lost.rerouted == covered.rerouted > 0
    assert calm.ttft_p95_s <= covered.ttft_p95_s < lost.ttft_p95_s
    assert calm.kept >= covered.kept > lost.kept
    for drill in (calm, lost, covered):
        assert drill.run.timeline.finished.all()


def test_interruptions_come_from_the_scenario():
    spot = FLEET.model_copy(update={"fleet": FLEET.fleet.model_copy(update={"interruption_per_hour": 0.5})})
    assert lessons.spot_interruptions(FLEET, hours=1.0).rerouted == 0
    drill = lessons.spot_interruptions(spot, hours=1.0, seed=1)
    assert drill.rerouted > 0
    assert drill.run.timeline.finished.all()


def test_autoscaling_follows_the_demand_of_the_scenario():
    rising = {"demand_curve": (0.3,) * 12 + (1.7,) * 12, "startup_s": 3.0}
    scenario = parse({"workload": {"request_rate": 12.0, "num_prompts": 900}, "fleet": rising})
    drill = lessons.autoscaled(scenario, capacity_requests_per_s=5.0, interval_s=3.0)
    assert drill.run.timeline.finished.all()
    assert len(drill.run.spans) >= 3
    assert min(span.asked_s for span in drill.run.spans[3:]) > 36.0, "the fourth replica is asked for once the demand has risen"


def test_drills_need_one_router():
    with pytest.raises(InputError, match="set disaggregation to null"):
        lessons.replica_loss(parse({"disaggregation": {}}))
