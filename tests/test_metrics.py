"""Latencies as they are defined, percentiles as they are pooled, and when enough is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_scheduler import Affine, Case, random_case

from planner.kv_cache import KvCache
from planner.metrics import (
    Promise,
    backlog_growth,
    binding,
    by_class,
    decided,
    gaps_s,
    good_requests,
    known,
    overloaded,
    promises,
    quantiles,
    reached,
    settled,
    summarize,
    t975,
    t_interval,
    window,
)
from planner.scenario import PriorityClass, Slo, Workload
from planner.scheduler import FAILED, FINISHED, Ledger, Limits, Replica, Timeline, simulate
from planner.workload import Request, Source, requests

API_S = 7e-3


def served(rate: float | None, n: int, seed: int = 0, blocks: int = 11_250, seats: int = 128, record: bool = True, **traffic) -> Timeline:
    """One run of a crowded engine whose capacity is about 15.6 requests/s."""
    lengths = {
        "input_len": {"kind": "uniform", "mean": 1000, "half_width": 0.5},
        "output_len": {"kind": "uniform", "mean": 250, "half_width": 0.5},
    }
    w = Workload(request_rate=rate, num_prompts=n, seed=seed, **(lengths | traffic))
    source = Source(requests(w), max_concurrency=w.max_concurrency, deadline_s=w.deadline_s, priority_classes=w.priority_classes)
    limits = Limits(max_num_seqs=seats, max_num_batched_tokens=2048)
    return simulate(source, Replica(Affine(pair_s=0.0), limits, KvCache(blocks, 16), record_steps=record))


def by_hand(*rows: dict) -> Timeline:
    """A timeline of requests given by their columns."""
    ledger = Ledger()
    for number, row in enumerate(rows):
        request = Request(number, row["arrival_s"], row.get("input_tokens", 10), row.get("output_tokens", 5), 4)
        for name, value in row.items():
            setattr(request, name, value)
        ledger.add(request)
    return ledger.timeline([])


THREE = by_hand(
    {"arrival_s": 0.0, "scheduled_s": 0.1, "first_token_s": 0.5, "answer_s": 0.6, "finish_s": 0.9, "status": "finished"},
    {
        "arrival_s": 1.0,
        "scheduled_s": 1.0,
        "first_token_s": 1.2,
        "answer_s": 1.2,
        "finish_s": 1.2,
        "status": "finished",
        "output_tokens": 1,
    },
    {"arrival_s": 2.0, "finish_s": 3.0, "status": "cancelled"},
)


def test_latencies_mean_what_they_say() -> None:
    latency = summarize([THREE], Slo(), "benchmark", api_s=0.0).latency
    assert latency.ttft_s.mean == pytest.approx((0.5 + 0.2) / 2)
    assert latency.ttft_answer_s.mean == pytest.approx((0.6 + 0.2) / 2)
    assert latency.tpot_s.mean == pytest.approx(0.4 / 4), "one value a request, answers of one token left out"
    assert latency.e2e_s.mean == pytest.approx((0.9 + 0.2) / 2)
    assert latency.queue_s.mean == pytest.approx(0.05)
    assert latency.itl_s is None, "no steps, no gaps"


def test_the_api_constant_is_in_ttft_and_e2e_and_nowhere_else() -> None:
    without, with_api = (summarize([THREE], Slo(), "benchmark", api_s=api_s).latency for api_s in (0.0, API_S))
    assert with_api.ttft_s.p50 - without.ttft_s.p50 == pytest.approx(API_S)
    assert with_api.e2e_s.p50 - without.e2e_s.p50 == pytest.approx(API_S)
    assert with_api.tpot_s == without.tpot_s
    assert with_api.queue_s == without.queue_s


def test_benchmark_mode_divides_by_the_whole_run() -> None:
    throughput = summarize([THREE], Slo(ttft_s=0.3), "benchmark", api_s=0.0).throughput
    assert throughput.requests_per_s == pytest.approx(2 / 3)
    assert throughput.output_tokens_per_s == pytest.approx(6 / 3)
    assert throughput.input_tokens_per_s == pytest.approx(20 / 3)
    assert throughput.goodput_requests_per_s == pytest.approx(1 / 3)
    assert throughput.good_share == pytest.approx(1 / 3)
    assert throughput.failed == 1


def test_goodput_needs_every_promise_at_once() -> None:
    def good(**promise: float | None) -> list[bool]:
        return good_requests(THREE, Slo(**({"ttft_s": None, "tpot_s": None} | promise)), api_s=0.0).tolist()

    assert good() == [True, True, False], "what did not finish is a miss even without a promise"
    assert good(ttft_s=0.3) == [False, True, False]
    assert good(tpot_s=0.09) == [False, True, False], "an answer of one token has no time per token to miss"
    assert good(ttft_s=0.5, tpot_s=0.11, e2e_s=0.5) == [False, True, False]


def test_a_priority_class_is_held_to_its_own_promise() -> None:
    classes = replace(THREE, priority_class=np.array([0, 1, 1]))
    strict = Slo(ttft_s=0.1, tpot_s=None)
    assert good_requests(classes, Slo(ttft_s=1.0, tpot_s=None), [PriorityClass(), PriorityClass(slo=strict)], api_s=0.0).tolist() == [
        True,
        False,
        False,
    ]


def test_latency_by_class_is_the_latency_of_its_own_requests() -> None:
    timeline = replace(THREE, priority_class=np.array([0, 1, 1]))
    urgent, other = by_class(
        [timeline], [PriorityClass(priority=-1), PriorityClass(slo=Slo(ttft_s=0.3, tpot_s=None))], Slo(ttft_s=0.3), "benchmark", api_s=0.0
    )
    assert (urgent.priority, urgent.share, urgent.ttft_s.mean) == (-1, pytest.approx(1 / 3), pytest.approx(0.5))
    assert urgent.good_share == 0.0
    assert (other.share, other.ttft_s.mean, other.e2e_s.mean) == (pytest.approx(2 / 3), pytest.approx(0.2), pytest.approx(0.2))
    assert other.good_share == 0.5, "the cancelled one is a miss"
    assert other.tpot_s is None, "its one answer has one token"
    (nobody,) = by_class([replace(THREE, priority_class=np.array([1, 1, 1]))], [PriorityClass()], Slo(), "benchmark")
    assert (nobody.share, nobody.good_share, nobody.ttft_s) == (0.0, None, None)


def test_the_classes_together_are_the_whole_and_the_urgent_one_waits_less() -> None:
    classes = [PriorityClass(share=0.2, priority=-1), PriorityClass(share=0.8, priority=1)]
    run = served(17.0, 1500, priority_classes=classes)
    urgent, patient = by_class([run], classes, Slo())
    whole = summarize([run], Slo()).latency.ttft_s
    assert urgent.share + patient.share == pytest.approx(1.0)
    assert urgent.ttft_s.p95 < patient.ttft_s.p95
    done = window(run, "planning")
    mine = [float((done.done & (run.priority_class == i)).sum()) for i in (0, 1)]
    assert np.average([urgent.ttft_s.mean, patient.ttft_s.mean], weights=mine) == pytest.approx(whole.mean)


def test_quantiles_of_weighted_values_equal_those_written_out() -> None:
    rng = np.random.default_rng(2)
    values, weights = rng.random(50), rng.integers(0, 9, 50)
    np.testing.assert_allclose(quantiles(values, weights), quantiles(np.repeat(values, weights)))
    assert np.isnan(quantiles(np.empty(0))).all()


@pytest.mark.parametrize("degrees", [1, 2, 5, 10, 11, 30, 400])
def test_t_quantile(degrees: int) -> None:
    assert t975(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=2e-4)


def test_t_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    covered = sum(low <= 3.0 <= high for low, high in (t_interval(rng.normal(3.0, 1.0, 6)) for _ in range(2000)))
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_known_to_ten_percent() -> None:
    assert not known([1.0])
    assert known([1.0, 1.01, 0.99, 1.0, 1.0])
    assert not known([1.0, 1.5, 0.7, 1.2, 0.9])
    assert not known([1.0, 1.0, float("inf")])


@pytest.mark.parametrize("seed", range(200, 215))
def test_pooled_gaps_are_those_between_the_emissions_of_every_request(seed: int) -> None:
    case = random_case(seed)
    oracle = case.oracle()
    oracle.run()
    timeline = simulate(case.source(), case.replica())
    whole = window(timeline, "benchmark")
    finished = timeline.number[whole.done].tolist()
    truth = np.concatenate([np.empty(0), *(np.diff(oracle.emission_times[number]) for number in finished)])
    gaps, counts = gaps_s(whole)
    np.testing.assert_allclose(np.sort(np.repeat(gaps, counts)), np.sort(truth), rtol=1e-9, atol=1e-12)


def test_planning_drops_warm_up_and_drain() -> None:
    timeline = served(9.0, 1000)
    part = window(timeline, "planning")
    assert part.start_s > timeline.arrival_s[0] + 2 * 2.0
    assert timeline.arrival_s[-1] - 4 * 2.0 < part.end_s < timeline.arrival_s[-1] - 2.0
    whole, steady = summarize([timeline], Slo(), "benchmark"), summarize([timeline], Slo(), "planning")
    assert steady.simulation.warmup_s == pytest.approx(part.start_s - timeline.arrival_s[0])
    assert whole.simulation.warmup_s == 0.0
    assert steady.throughput.requests_per_s == pytest.approx(9.0, rel=0.05)
    assert whole.throughput.requests_per_s < steady.throughput.requests_per_s


def test_a_run_that_starts_all_at_once_is_kept_whole() -> None:
    timeline = served(None, 200, max_concurrency=200)
    metrics = summarize([timeline], Slo(), "planning")
    assert metrics.throughput.requests_per_s == pytest.approx(200 / timeline.end_s)
    assert not metrics.simulation.overloaded


def test_throughput_counts_what_the_engine_did() -> None:
    timeline = served(9.0, 1000)
    seen = summarize([timeline], Slo(), "planning").throughput
    assert seen.output_tokens_per_s / seen.requests_per_s == pytest.approx(250, rel=0.03)
    assert seen.input_tokens_per_s / seen.requests_per_s == pytest.approx(1000, rel=0.03)
    assert seen.acceptance_length == 1.0
    assert 0.9 < seen.busy <= 1.0
    assert seen.occupancy == 1.0
    # What decodes at once holds half its output on average beside its prompt.
    assert seen.kv_utilization == pytest.approx(seen.mean_batch * 1125 / (11_250 * 16), rel=0.15)
    assert seen.kv_waste == pytest.approx(8 / 1125, rel=0.3)


def test_metrics_without_step_records_lack_only_the_gaps() -> None:
    full, bare = (summarize([served(9.0, 400, record=r)], Slo(), "benchmark") for r in (True, False))
    assert bare.latency.itl_s is None
    assert full.latency.itl_s is not None
    assert bare.latency.ttft_s == full.latency.ttft_s
    assert bare.throughput.mean_batch == pytest.approx(full.throughput.mean_batch)
    assert bare.throughput.busy == pytest.approx(full.throughput.busy, rel=5e-3)


def test_replications_give_intervals_and_settle() -> None:
    runs = [served(8.0, 600, seed, output_len=60.0) for seed in range(6)]
    slo = Slo(ttft_s=1.0, tpot_s=0.05)
    metrics = summarize(runs, slo)
    p95 = metrics.latency.ttft_s.p95
    low, high = metrics.latency.ttft_s.p95_ci
    assert low < p95 < high
    assert p95 == pytest.approx(np.mean([np.percentile(w_ttft(t), 95) for t in runs]))
    assert settled(runs, promises(slo))
    assert metrics.simulation.stable
    assert not settled(runs[:4], promises(slo)), "five at least"


def test_a_promise_is_decided_once_it_lies_beside_what_was_seen() -> None:
    runs = [served(8.0, 600, seed, output_len=60.0) for seed in range(5)]
    at_s = float(np.mean([reached(t, promises(Slo(ttft_s=1.0, tpot_s=None)))[0].at_s for t in runs]))
    easy, hopeless, close = (promises(Slo(ttft_s=at_s * factor, tpot_s=None)) for factor in (3.0, 0.3, 1.0))
    assert decided(runs, easy)
    assert decided(runs, hopeless)
    assert not decided(runs, close), "the limit lies inside the interval"
    assert not decided(runs[:4], easy), "five at least"
    assert decided(runs[:1], ()), "nothing is promised"
    broken = promises(Slo(ttft_s=at_s * 0.3, tpot_s=None)) + close
    assert decided(runs, broken), "one that is broken is enough"


def w_ttft(timeline: Timeline) -> np.ndarray:
    return (timeline.first_token_s - timeline.arrival_s)[window(timeline, "planning").done]


def test_a_promise_that_some_never_see_has_no_finite_percentile() -> None:
    (never,) = reached(THREE, promises(Slo(ttft_s=1.0, tpot_s=None)), mode="benchmark")
    assert never.at_s == never.strain == np.inf
    seen = reached(served(6.0, 100), promises(Slo(ttft_s=1.0, tpot_s=0.1, e2e_s=9.0)))
    assert [kept.promise.name for kept in seen] == ["ttft_s", "tpot_s", "e2e_s"]


def test_a_class_with_a_promise_of_its_own_is_held_to_that_and_leaves_the_common_one_to_the_others() -> None:
    first, second = PriorityClass(priority=0, slo=Slo(ttft_s=0.1, tpot_s=None, percentile=50)), PriorityClass(priority=1)
    given = promises(Slo(ttft_s=2.0, tpot_s=None), [first, second])
    assert given == (Promise("ttft_s", 2.0, 95, (1,)), Promise("ttft_s", 0.1, 50, (0,), "priority 0"))
    run = served(6.0, 200)
    run = replace(run, priority_class=np.arange(len(run)) % 2)
    common, own = reached(run, given, api_s=0.0, mode="benchmark")
    ttft_s = run.first_token_s - run.arrival_s
    assert common.at_s == pytest.approx(np.percentile(ttft_s[1::2], 95))
    assert own.at_s == pytest.approx(np.percentile(ttft_s[::2], 50))
    assert own.strain == pytest.approx(own.at_s / 0.1)
    assert promises(Slo(ttft_s=2.0, tpot_s=None), [first]) == (Promise("ttft_s", 0.1, 50, (0,), "priority 0"),), "nobody else is there"
    assert len(reached(run, promises(Slo(), [first, second, first]), mode="benchmark")) == 3, (
        "one given to nobody is neither kept nor broken"
    )


@pytest.mark.parametrize(("rate", "excess"), [(10.0, 0.0), (14.0, 0.0), (20.0, 0.22), (31.0, 0.5)])
def test_overload_is_told_and_measured(rate: float, excess: float) -> None:
    runs = [served(rate, 600, seed) for seed in range(3)]
    assert overloaded(*runs) == (excess > 0)
    assert overloaded(runs[0]) == (excess > 0)
    assert np.mean([backlog_growth(t)[0] for t in runs]) == pytest.approx(excess, abs=0.07)
    metrics = summarize(runs, Slo())
    assert metrics.simulation.overloaded == (excess > 0)
    if excess:
        assert metrics.simulation.limited_by == "max_num_seqs"
        assert not metrics.simulation.stable


def test_what_holds_requests_back_is_named() -> None:
    assert binding([served(20.0, 300)]) == "max_num_seqs"
    assert binding([served(20.0, 300, blocks=3000)]) == "kv_cache"
    assert binding([served(20.0, 300, seats=2000, blocks=10**6, input_len=4000.0, output_len=2.0)]) == "max_num_batched_tokens"


def test_losing_requests_to_deadlines_is_overload() -> None:
    run = served(25.0, 400, deadline_s=4.0)
    assert np.mean(run.status > FAILED) > 0.1
    assert overloaded(run)


def test_a_closed_loop_is_never_overloaded() -> None:
    assert not overloaded(served(None, 800, max_concurrency=400))


def test_statuses_are_counted() -> None:
    case = Case(Workload(num_prompts=40, request_rate=50.0, deadline_s=0.4, output_len=40.0, input_len=90.0), Limits(max_num_seqs=4), 400)
    timeline = simulate(case.source(), case.replica())
    assert 0 < (timeline.status == FINISHED).sum() < 40
    assert summarize([timeline], Slo(), "benchmark").throughput.failed == (timeline.status != FINISHED).sum()


def test_nothing_to_summarise_is_an_error() -> None:
    with pytest.raises(ValueError, match="no request"):
        summarize([Ledger().timeline([])], Slo())
