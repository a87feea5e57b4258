"""The acceptance test of a document is the one that `check` reads: a result as predicted passes, a slow one fails."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from planner import export
from planner.export import acceptance
from planner.export.subject import Subject
from planner.measure import check
from planner.problems import InputError

KEPT = Path(__file__).parent / "data" / "documents"


@pytest.fixture(scope="module")
def subject():
    plan = json.loads((KEPT / "plan-and-what-ifs.json").read_text("utf-8"))
    return Subject(plan, export.extras_of(plan))


@pytest.fixture(scope="module")
def carried(subject):
    return json.loads(export.build(subject.plan, "json", subject.extras))


def result(point, factor=1.0):
    """A benchmark's row with the predicted figures, times `factor` for latencies and divided by it for throughput."""
    row = {"id": f"run-{point.tag}", "load_kind": "rate", "load_value": point.load.request_rate, "isl_mean": 1024.0, "osl_mean": 60.0}
    for e in point.expect:
        if e.metric == "throughput":
            row["out_tok_s_total"] = e.predicted / factor
        else:
            row[f"{e.metric}_{e.statistic}_ms"] = e.predicted * factor * 1000
    return row


def test_three_loads_with_bands_around_the_prediction(subject):
    points = acceptance.points(subject)
    assert [p.share for p in points] == [0.5, 1.0, 1.2]
    peak = 2.0 * subject.peak_to_mean
    assert subject.peak_to_mean == pytest.approx(6 / (73 / 24))
    assert [p.load.request_rate for p in points] == pytest.approx([peak / 2, peak, peak * 1.2], rel=1e-5)
    for p in points:
        assert {(e.metric, e.statistic) for e in p.expect} == {
            ("ttft", "p50"),
            ("ttft", "p95"),
            ("tpot", "p50"),
            ("tpot", "p95"),
            ("throughput", "mean"),
        }
        for e in p.expect:
            assert 0 < e.low <= e.predicted <= e.high


def test_a_result_as_predicted_passes_and_a_slow_one_fails(subject, carried):
    points = acceptance.points(subject)
    good = check.check(carried, [result(p) for p in points])
    assert good.passed
    assert len(good.verdicts) == 15
    slow = check.check(carried, [result(p, 2.0) for p in points])
    assert not slow.passed
    assert {v.status for v in slow.verdicts} == {"fail"}
    assert check.check(carried, [result(p, 0.7) for p in points]).passed, "better than the band is no failure"


def test_a_promise_closes_the_band_where_it_is_tighter(subject):
    plan = json.loads(json.dumps(subject.plan))
    seen = subject.at_peak("ttft_s")
    plan["scenario"]["slo"]["ttft_s"] = seen * 1.01
    tight = acceptance.points(Subject(plan, subject.extras))[1]
    ttft = next(e for e in tight.expect if (e.metric, e.statistic) == ("ttft", "p95"))
    assert ttft.high == pytest.approx(seen * 1.01)
    assert "promise" in ttft.why


def test_without_other_loads_only_the_plans_own_is_tested(subject):
    (alone,) = acceptance.points(Subject(subject.plan))
    assert alone.load.request_rate == 2.0
    ttft = next(e for e in alone.expect if (e.metric, e.statistic) == ("ttft", "p95"))
    assert ttft.predicted == subject.plan["latency"]["ttft_s"]["p95"]


def test_nothing_simulated_means_no_test(subject):
    plan = {**subject.plan, "latency": dict.fromkeys(subject.plan["latency"])}
    assert acceptance.points(Subject(plan)) == ()
    section = export.document(plan, export.Extras()).sections[-1]
    assert "not part of this plan" in section.blocks[0].text


def test_throughput_is_centred_on_what_arrives_with_the_spread_of_the_run(subject):
    plan = json.loads(json.dumps(subject.plan))
    work = plan["scenario"]["workload"]
    work |= {"request_rate": 2.1, "output_len": {"kind": "lognormal", "mean": 28, "cv": 1.0}, "burstiness": 0.5}
    # One realisation happened to put out more than arrives on average.
    plan["throughput"] |= {"output_tokens_per_s": 68.0, "requests_per_s": 2.3}
    (point,) = acceptance.points(Subject(plan))
    (found,) = [e for e in point.expect if e.metric == "throughput"]
    assert found.predicted == pytest.approx(2.1 * 28, rel=0.005)
    chance = acceptance.CLIENT_SPREAD + 2 * (3 / point.load.num_prompts) ** 0.5
    assert found.high == pytest.approx(found.predicted * (1 + chance), rel=1e-3)
    assert found.low < found.predicted * (1 - chance)
    assert "by chance" in found.why
    plan["problems"] = [{"code": "overloaded", "severity": "warning", "field": "", "message": "", "remedy": ""}]
    (point,) = acceptance.points(Subject(plan))
    assert next(e for e in point.expect if e.metric == "throughput").predicted == 68.0


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_the_asked_for_length_land_in_the_throughput_band(subject, seed):
    """A server that keeps up answers each request as it comes: what one run puts out is its draws over their span."""
    plan = json.loads(json.dumps(subject.plan))
    plan["scenario"]["workload"] |= {"request_rate": 2.1, "output_len": {"kind": "lognormal", "mean": 28, "cv": 1.5}}
    (point,) = acceptance.points(Subject(plan))
    (band,) = [e for e in point.expect if e.metric == "throughput"]
    rng, n, runs = np.random.default_rng(seed), point.load.num_prompts, 400
    sigma = math.sqrt(math.log1p(1.5**2))
    tokens = rng.lognormal(math.log(28) - sigma**2 / 2, sigma, (runs, n)).sum(axis=1)
    spans = rng.exponential(1 / 2.1, (runs, n)).sum(axis=1) + plan["latency"]["e2e_s"]["p95"] / 2
    inside = (tokens / spans >= band.low) & (tokens / spans <= band.high)
    assert inside.mean() > 0.95


def test_a_run_of_long_tailed_lengths_still_counts_as_the_planned_load(subject):
    plan = json.loads(json.dumps(subject.plan))
    plan["scenario"]["workload"]["input_len"] = {"kind": "lognormal", "mean": 1130, "cv": 1.9}
    carried = json.loads(export.build(plan, "json", export.Extras()))
    (point,) = acceptance.points(Subject(plan))
    assert carried["acceptance"]["points"][0]["input_len_stdev"] == pytest.approx(2147, rel=0.01)
    near = result(point) | {"isl_mean": 1130 * 1.2, "n_requests": 500}
    assert check.check(carried, [near]).passed
    with pytest.raises(InputError, match="no result was measured at a load of the plan"):
        check.check(carried, [near | {"n_requests": 50_000}])
