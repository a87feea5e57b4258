"""Figures for people, comparisons and charts as data: nothing here draws."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import plan, presets
from planner.scenario import Scenario, set_path
from planner.views import arrivals, comparison, components, drills, runs, verdict, words
from planner.views.charts import Ink, accuracy, decades, latency, memory, prices, ratios, simple, steps, timeline
from planner.views.charts import fleet as fleet_charts
from planner.views.text import cell, compact, digits, gibibytes, percent, plain, rate, seconds, usd

SMALL = set_path(Scenario(), "workload.num_prompts", 60)


@pytest.fixture(scope="module")
def answer():
    return plan(SMALL, effort="quick")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0151, "0.0151"), (15.1234, "15.1"), (1570, "1,570"), (0, "0"), (None, "–"), (math.nan, "–"), (math.inf, "–"), (999.6, "1,000"),
        (0.9996, "1.00"), (1e-9, "1.00e-09"), (-3.14159, "-3.14"), (1e20, "1.00e+20"), (99.96, "100"), (123456789, "123,000,000"),
    ],
)  # fmt: skip
def test_three_significant_figures(value, text):
    assert digits(value) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (usd(1.5731), "$1.57"), (usd(0.00321), "$0.00321"), (usd(11712.3), "$11,700"), (usd(-0.5), "−$0.500"), (usd(None), "–"),
        (seconds(0.0151), "15.1 ms"), (seconds(1.2345), "1.23 s"), (seconds(200), "3.33 min"),
        (seconds(7200), "2.00 h"), (seconds(3e-6), "3.00 µs"),
        (seconds(0), "0 s"), (compact(405e9), "405 B"), (compact(1234), "1,230"), (compact(12345), "12.3 k"),
        (gibibytes(80 * 2**30), "80.0 GiB"), (gibibytes(748.69 * 2**30), "749 GiB"), (gibibytes(0.205 * 2**30), "0.20 GiB"),
        (percent(0.7341), "73.4 %"), (rate(937, "tok/s"), "937 tok/s"), (rate(None, "tok/s"), "–"),
    ],
)  # fmt: skip
def test_units(shown, text):
    assert shown.replace("\u202f", " ") == text


@settings(max_examples=60)
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_breaks_a_figure(value):
    for show in (digits, compact, usd, seconds, gibibytes, percent):
        assert show(value)


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_text_from_outside_holds_no_live_markdown(text):
    shown = plain(text)
    bare = shown
    for mark in "\\`*_{}[]()<>#+-.!|~:$@&/\"'=;,?%^":
        bare = bare.replace("\\" + mark, "")
    assert not set(bare) & set("\\`*_{}[]()<>#+-.!|~:$@&/")
    assert "\n" not in shown


def test_charts_are_json_without_zeros_on_log_axes(answer):
    data, ink = answer.to_dict(), Ink.of(True)
    run = answer.load.timelines[0]
    engine = runs.busiest(run)
    slow = runs.slowest(run, "e2e_s")
    specs = [
        memory.bar(data, ink),
        steps.terms(data, "decode", ink),
        steps.batch_curve(data, ink),
        steps.roofline([{"name": "decode", "phase": "decode", "intensity": 1.0, "flops": 1e12}], 1e15, 3e12, ink),
        latency.percentiles(data, ink),
        latency.against_load([{"load": 1.0, "p50": 0.1, "p90": 0.2, "p99": 0.3}], 1.0, "TTFT", ink),
        prices.beside_list(data, ink),
        prices.frontier([{"gpu": "a", "tp": 1, "batch": 1, "speed": 10.0, "usd": 1.0, "edge": True}], {"speed": 5.0, "usd": 2.0}, ink),
        timeline.steps(runs.window(engine, runs.interesting_s(engine)), [{"t": 0.1}], ink),
        timeline.over_time(runs.over_time(engine), 1.0, ink),
        timeline.distribution(runs.distribution(run, "ttft_s"), 1.0, 95, "TTFT", ink),
        timeline.waterfall(slow, ink),
        ratios.dots([{"figure": "x", "who": "B", "ratio": 0.5, "text": "×0.5"}], ink),
        simple.lines([{"x": 1, "y": 1.0, "series": "a"}, {"x": 2, "y": 2.0, "series": "a"}], "x", "y", ink, log_x=True, log_y=True, at=1),
        simple.bars([{"name": "a", "value": 1.0, "text": "1"}], "y", ink),
        simple.stacked([{"name": "a", "part": "p", "value": 1.0, "text": "1"}], "y", ["p"], ink),
        accuracy.against_measured([{"measured": 1.0, "predicted": 1.1, "kind": "comparable", "name": "x"}], "speed-up", ink),
        fleet_charts.week([{"hour": 0, "demand": 1.0, "scaled": 2.0, "static": 3.0}], ink),
        fleet_charts.break_even([{"volume": 1.0, "own": 2.0, "api": 3.0}], [{"volume": 1.0, "label": "x"}], ink),
        fleet_charts.waterfall([{"name": "floor", "low": 0.0, "high": 1.0, "text": "1", "why": "", "kind": "total"}], ink),
    ]
    for spec in specs:
        json.dumps(spec, allow_nan=False)
        for layers in _layers(spec):
            for channel in ("x", "y"):
                titles = {layer["encoding"][channel].get("title", "") for layer in layers if channel in layer.get("encoding", {})} - {""}
                assert len(titles) < 2, titles  # None in one layer takes the title from all
        for scale in _scales(spec):
            if scale.get("type") == "log":
                assert all(bound > 0 for bound in scale["domain"])


def _layers(node):
    if isinstance(node, dict):
        if "layer" in node:
            yield node["layer"]
        for value in node.values():
            yield from _layers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _layers(value)


def _scales(node):
    if isinstance(node, dict):
        if "scale" in node and isinstance(node["scale"], dict):
            yield node["scale"]
        for value in node.values():
            yield from _scales(value)
    elif isinstance(node, list):
        for value in node:
            yield from _scales(value)


def test_ticks_of_a_log_axis_lie_inside_it():
    assert decades(0.02, 40) == pytest.approx([0.03, 0.1, 0.3, 1, 3, 10, 30])


def test_the_memory_bar_shows_what_is_missing(answer):
    over = plan(set_path(SMALL, "model.name", "llama-3.3-70b"), effort="quick").to_dict()
    parts = {row["part"]: row["gib"] for row in memory.parts(over)}
    assert parts[memory.BEYOND] > 50
    assert "does not fit" in memory.takeaway(over)
    inside = sum(row["gib"] for row in memory.parts(answer.to_dict()))
    assert inside == pytest.approx(answer.to_dict()["memory"]["gpu_memory_bytes"] / 2**30, rel=1e-3)


def test_a_run_is_told_by_steps_curves_and_slow_requests(answer):
    run = answer.load.timelines[0]
    engine = runs.busiest(run)
    near = runs.window(engine, 0.0)
    assert len(near) <= runs.WINDOW_STEPS
    assert [step["end"] for step in near] == sorted(step["end"] for step in near)
    assert max(r["value"] for r in runs.over_time(engine) if r["what"] == "decoding") == engine.records.decode_sequences.max()
    shares = [r["share"] for r in runs.distribution(run, "tpot_s")]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    totals = {}
    for row in runs.slowest(run, "e2e_s", count=5):
        totals[row["request"]] = totals.get(row["request"], 0) + row["s"]
    assert list(totals.values()) == sorted(totals.values(), reverse=True)


class TestComparison:
    def test_text_is_a_preset_a_link_or_changes(self):
        assert comparison.read("beacon-405b-8xh100-fp8", SMALL)[0] == presets.load("beacon-405b-8xh100-fp8")
        assert comparison.read("?fleet.replicas=3", SMALL)[0].fleet.replicas == 3
        changed, notes = comparison.read("hardware.gpu=h200-sxm; price.usd_per_gpu_hour=", SMALL)
        assert notes == ()
        assert (changed.hardware.gpu, changed.workload.num_prompts) == ("h200-sxm", 60)
        assert comparison.read("what", SMALL)[1]

    def test_every_what_if_is_usable(self):
        for text in comparison.WHAT_IFS.values():
            assert comparison.read(text, SMALL)[1] == ()

    def test_only_differences_and_ratios(self, answer):
        other = set_path(SMALL, "precision.weights", "fp8")
        plans = [answer.to_dict(), plan(other, effort="quick").to_dict()]
        assert [row["setting"] for row in comparison.differences([SMALL, other])] == ["Weights"]
        rows = {row["figure"]: row["B"] for row in comparison.table(plans, 95)}
        assert "×" in rows["TPOT p95"]
        assert "(tie)" in rows["$ per month"]
        assert comparison.sentence(1, [SMALL, other], plans).startswith("B changes Weights bf16 → fp8")
        assert comparison.sentence(1, [SMALL, SMALL], plans[:1] * 2) == "B is the same scenario as A."


def test_the_verdict_names_state_and_limit(answer):
    data = answer.to_dict()
    assert [badge.text for badge in verdict.badges(data)][:2] == ["Fits", "Keeps the promise"]
    assert "“Most sequences”" in verdict.binding(data, SMALL)
    late = set_path(SMALL, "slo.ttft_s", 0.001)
    missed = plan(late, effort="quick").to_dict()
    assert verdict.promise_kept(missed).text == "Misses TTFT"
    assert "of the time to the first token" in verdict.binding(missed, late)


def test_the_verdict_keeps_bands_of_means_apart_from_percentiles(answer):
    data = answer.to_dict()
    said = verdict.how_wrong(data)
    assert said.startswith("How wrong this may be, for means: $ per M output")
    assert "The p95 above has no band of its own" in said
    ttft = next(band for band in verdict.bands(data) if band.figure == "TTFT")
    assert ttft.mean == seconds(data["latency"]["ttft_s"]["mean"])


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (cell(None), "–"), (cell(""), "–"), (cell(True), "yes"), (cell(0.12345), "0.123"), (cell(12345), "12,345"), (cell("x"), "x"),
        (cell("2026-11-20"), "2026\u201111\u201120"), (plain("15\u202fms  and\nmore"), "15\u202fms and more"),
    ],
)  # fmt: skip
def test_cells(shown, text):
    assert shown == text


def test_messages_speak_the_words_of_the_sidebar():
    assert words.spoken("every seat of max_num_seqs is taken") == "every seat of “Most sequences” is taken"
    assert words.spoken("set price.usd_per_gpu_hour or engine.block_size") == "set “$ per GPU-hour” or “Block, tokens”"
    assert words.spoken("prices, block_sizes and a.engine.block_size.x") == "prices, block_sizes and a.engine.block_size.x"
    assert words.layout("h100-sxm TP4 PP2, fp8 weights") == "h100-sxm × 4 in 2 stages, fp8 weights"
    assert words.layout("h200-sxm TP8 EP8 2P1D, fp8 weights") == "h200-sxm × 8 × 8 ranks, 2 prefill and 1 decode, fp8 weights"


def test_arrivals_are_one_choice_that_keeps_what_is_stated():
    assert arrivals.choice(SMALL) == "Rate"
    clients = arrivals.choose(SMALL, "Clients")
    assert arrivals.choice(clients) == "Clients"
    assert (clients.workload.request_rate, clients.workload.max_concurrency) == (None, arrivals.CLIENTS)
    both = arrivals.choose(clients, "Both")
    assert arrivals.choice(both) == "Both"
    assert both.workload.max_concurrency == arrivals.CLIENTS
    assert arrivals.choose(both, "Rate") == SMALL
    recorded = set_path(SMALL, "workload.trace", {"name": "azure-2023-code"})
    assert arrivals.choice(arrivals.choose(recorded, "Trace")) == "Trace"


@pytest.mark.slow
def test_drills_tell_what_clients_saw():
    brief = set_path(SMALL, "fleet.startup_s", 2.0)
    loss = drills.STORIES[drills.LOSS](brief, 20.0)
    assert loss.takeaway.startswith("One of 1 replica goes:")
    assert {row["phase"] for row in loss.phases} >= {"before", "while a replica starts"}
    assert loss.events_s
    busy = set_path(brief, "workload.request_rate", 20.0)
    doubled = drills.STORIES[drills.RISE](busy, 12.0)
    assert "requests keep the promise if replicas follow" in doubled.takeaway
    assert {row["who"] for row in doubled.lines} == {"3 replicas", "autoscaled"}
    json.dumps(fleet_charts.drill(doubled.lines, doubled.events_s, 1.0, Ink.of(True)), allow_nan=False)


def test_a_name_keeps_its_small_letter_at_the_start_of_a_sentence():
    told = components.sentence({"message": "llama-3.1-405b does not fit.", "remedy": "split it over more GPUs"})
    assert told == "llama-3.1-405b does not fit. Split it over more GPUs."
    assert components.sentence({"message": "the queue grows", "remedy": "more replicas"}, way_out=False) == "The queue grows."


def test_a_disaggregated_plan_says_so_and_counts_the_spares_of_both_pools():
    split = set_path(set_path(Scenario(), "disaggregation.prefill.replicas", 2), "fleet.spares", 1)
    assert verdict.title({}, split) == "llama-3.1-8b in bf16 on 2 × h100-sxm for prefill + 1 × h100-sxm for decode + 2 spare"


def test_a_provider_with_one_price_needs_no_model_beside_its_bar():
    assert prices.short(["a:m-1", "b:m-1", "b:m-2"]) == {"a:m-1": "a", "b:m-1": "b:m-1", "b:m-2": "b:m-2"}


def test_this_plan_is_named_inside_the_chart_wherever_it_stands():
    points = [{"gpu": "a", "tp": 1, "batch": 1, "speed": speed, "usd": 1.0, "edge": True} for speed in (10.0, 100.0)]
    for speed, side in ((11.0, "left"), (90.0, "right")):
        words = prices.frontier(points, {"speed": speed, "usd": 2.0}, Ink.of(True))["layer"][-1]["mark"]
        assert words["align"] == side


def test_the_extrapolated_gpu_is_not_sold_as_the_cheapest_without_a_word():
    from planner.views import frontier

    assert frontier.measured("h100-sxm", "vllm")
    assert not frontier.measured("mi300x", "vllm")


def test_a_comparison_names_what_moves_with_both_values(answer):
    fp8 = set_path(SMALL, "precision.kv_cache", "fp8")
    told = comparison.sentence(1, [SMALL, fp8], [answer.to_dict(), plan(fp8, effort="quick").to_dict()])
    assert "Cache-limited batch 355 → " in told
    assert told.endswith("It keeps the promise.")


def test_figures_that_differ_from_the_plan_page_are_explained_with_its_figures(answer):
    shown = answer.to_dict()
    assert comparison.beside_the_plan_page(shown, shown, 95) == ""
    repeated = json.loads(json.dumps(shown))
    repeated["latency"]["ttft_s"]["p95"] = 0.857
    assert "TTFT p95 857" in comparison.beside_the_plan_page(shown, repeated, 95)


def test_words_on_a_chart_are_drawn_once():
    rows = [{"volume": float(v), "own": 2.0, "api": 3.0} for v in range(1, 50)]
    layers = fleet_charts.break_even(rows, [{"volume": 9.0, "label": "this plan"}], Ink.of(False))["layer"]
    words = [layer for layer in layers if layer["mark"]["type"] in ("text", "rule")]
    assert len(words) == 2
    assert all(len(layer["data"]["values"]) == 1 for layer in words)
