"""Fleets and two pools with a step of one second, counted on fingers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from planner import fleet
from planner.fleet import disaggregated
from planner.fleet.routing import prefix_hits
from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scenario import Workload
from planner.scheduler import Limits, Replica
from planner.traces import Trace
from planner.workload import Source, requests


class Second:
    """Every step takes one second."""

    def __call__(self, shape: StepShape) -> float:
        return 1.0

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        return 1.0


def build(seats: int = 8, blocks: int = 100) -> Replica:
    return Replica(Second(), Limits(max_num_seqs=seats), KvCache(blocks, 16, prefix=True))


def arriving(times: Sequence[float], **fields: Any) -> Source:
    workload = Workload(request_rate=1.0, num_prompts=len(times), **{"input_len": 20, "output_len": 4, **fields})
    return Source(replace(requests(workload), session_start_s=np.array(times, float)), block_size=16)


def test_paid_hours_run_from_the_order_to_the_end() -> None:
    """One of two is lost at 2 s and a spare steps in; its replacement is ordered then and is ready at 12 s, after the run has ended."""
    run = fleet.simulate(arriving([0.0, 0.5, 8.0]), build, 2, spares=1, startup_s=10.0, losses=(2.0,))
    assert [(s.asked_s, s.ready_s, s.gone_s) for s in run.spans] == [(0, 0, inf), (0, 0, 2), (0, 0, inf), (2, 12, inf)]
    assert run.rerouted == 1
    assert run.timeline.finish_s.tolist() == [6.5, 4.5, 12.0], "it starts again beside the second, in the step that begins at 2.5 s"
    assert run.timeline.end_s == 12.0
    assert run.replica_hours() == pytest.approx((2 + 12 + 12 + 10) / 3600)


def test_a_spare_that_was_ordered_is_there_for_the_next_loss() -> None:
    """It is ordered at 2 s and ready at 12 s; the loss at 20 s finds it, and the request at 20.5 s does not wait."""
    run = fleet.simulate(arriving([0.0, 20.5]), build, 1, spares=1, startup_s=10.0, losses=(2.0, 20.0))
    assert run.timeline.finish_s.tolist() == [6.0, 24.5]
    assert [(s.asked_s, s.gone_s) for s in run.spans] == [(0, 20), (0, 2), (2, inf), (20, inf)]


def test_a_loss_that_finds_nobody_takes_nobody() -> None:
    run = fleet.simulate(arriving([0.0]), build, 1, startup_s=10.0, losses=(1.5, 2.0))
    assert [(s.asked_s, s.ready_s, s.gone_s) for s in run.spans] == [(0, 0, 1.5), (1.5, 11.5, inf)]
    assert run.timeline.finish_s.tolist() == [11.5 + 4]


def test_replicas_are_ordered_by_the_last_minute_and_let_go_one_by_one() -> None:
    """Two a second for a quarter of a minute want four replicas at half of one a second each; then the minute runs out over them.

    Decisions fall every 15 s: at 15 s thirty requests in 15 s (four wanted), at 30 s thirty in 30 s (two), at 45 s 2/3 a second (two),
    at 60 s half a second (one), at 75 s none of the last minute. Fewer have been enough since 15 s, so after 30 s of patience one goes at
    each decision, the last that joined first.
    """
    scaling = fleet.Autoscaling(1.0, target_utilization=0.5, patience_s=30.0)
    times = [0.5 * i for i in range(30)]
    run = fleet.simulate(arriving([*times, 100.0]), lambda: build(64, 1000), 1, startup_s=5.0, autoscaling=scaling)
    assert [(s.asked_s, s.ready_s, s.gone_s) for s in run.spans] == [(0, 0, inf), (15, 20, 75), (15, 20, 60), (15, 20, 45)]
    assert run.timeline.finished.all()


def test_an_autoscaler_without_settings_is_kubernetes() -> None:
    """kube-controller-manager's defaults: a sync period of 15 s, a downscale stabilisation of five minutes."""
    plain = fleet.Autoscaling(1.0)
    assert (plain.interval_s, plain.patience_s) == (15.0, 300.0)
    assert [plain.wanted(rate) for rate in (0.0, 0.7, 0.71, 7.0)] == [1, 1, 2, 10]
    assert [fleet.Autoscaling(1.0, min_replicas=3).wanted(rate) for rate in (0.0, 0.7, 7.0)] == [3, 3, 10], "a floor needs no ceiling"
    assert fleet.Autoscaling(1.0, min_replicas=0).wanted(0.0) == 1, "somebody has to answer"


def test_interruptions_of_an_hour() -> None:
    """A chance of 99 % an hour is a rate of ln 100 an hour for each replica."""
    taken = fleet.interruptions(np.random.default_rng(3), 10, 0.99, 3600 * 100)
    assert len(taken) == pytest.approx(10 * 100 * np.log(100), rel=0.05)
    assert max(taken) < 3600 * 100
    assert len(fleet.interruptions(np.random.default_rng(3), 1, 1.0, 3600.0)) > 10, "certain loss is a high rate, not an infinite one"


def two_pools(source: Source, prefill: int, decode: int, seats: int = 8, blocks: int = 100) -> disaggregated.DisaggregatedRun:
    """Each cache of 20 tokens moves in half a second and 20 bytes at 10 a second; `seats` of the decode pool, `blocks` of the other."""
    link = disaggregated.Link("wire", 10.0, 0.5)
    pools = [build(blocks=blocks) for _ in range(prefill)], [build(seats) for _ in range(decode)]
    return disaggregated.simulate(source, *pools, lambda tokens: float(tokens), link)


def test_caches_of_one_replica_move_one_after_the_other() -> None:
    """Both prompts end at 1 s; the moves take until 3.5 and 6 s, and three steps of decoding follow each."""
    run = two_pools(arriving([0.0, 0.0], input_len=20), 1, 2)
    assert run.timeline.first_token_s.tolist() == [3.5, 6.0]
    assert run.timeline.finish_s.tolist() == [6.5, 9.0]
    t = run.transfers
    assert (t.count, t.total_bytes, t.busy_s, t.queue_s, t.blocked_s) == (2, 40.0, 5.0, 2.5, 0.0)
    assert (t.mean_bytes, t.mean_s) == (20.0, 2.5)
    assert [engine.steps for engine in run.timeline.engines] == [1, 3, 3]


def test_two_ends_move_at_once_and_a_receiver_takes_one_at_a_time() -> None:
    run = two_pools(arriving([0.0, 0.0]), 2, 2)
    assert run.timeline.first_token_s.tolist() == [3.5, 3.5]
    assert run.transfers.queue_s == 0
    one = two_pools(arriving([0.0, 0.0]), 2, 1)
    assert one.timeline.first_token_s.tolist() == [3.5, 6.0]
    assert (one.transfers.queue_s, one.transfers.blocked_s) == (2.5, 0.0)


def test_a_full_decode_replica_blocks_the_move() -> None:
    """One seat: the second cache leaves when the first request has ended at 6.5 s, 5.5 s after its prefill."""
    run = two_pools(arriving([0.0, 0.0]), 1, 1, seats=1)
    assert run.timeline.first_token_s.tolist() == [3.5, 9.0]
    assert (run.transfers.queue_s, run.transfers.blocked_s) == (5.5, 5.5)
    assert run.timeline.finish_s.tolist() == [6.5, 12.0]


def test_a_prompt_holds_its_blocks_until_it_has_moved() -> None:
    """Room for one prompt: the second is computed when the first has left at 3.5 s, and leaves at 4.5 s itself."""
    run = two_pools(arriving([0.0, 0.0]), 1, 1, blocks=2)
    assert run.timeline.scheduled_s.tolist() == [0.0, 3.5]
    assert run.timeline.first_token_s.tolist() == [3.5, 7.0]
    assert (run.transfers.queue_s, run.transfers.blocked_s) == (0, 0)


def test_a_client_of_two_pools_sends_again_when_its_answer_has_come() -> None:
    workload = Workload(max_concurrency=1, num_prompts=2, input_len=20, output_len=4)
    run = two_pools(Source(requests(workload), block_size=16, max_concurrency=1), 1, 1)
    first, second = run.timeline.arrival_s
    assert run.timeline.finish_s - run.timeline.arrival_s == pytest.approx([6.5, 6.5])
    assert second == pytest.approx(first + 6.5)


def test_nothing_moved_has_no_mean() -> None:
    run = two_pools(arriving([0.0], output_len=1), 1, 1)
    assert run.timeline.finish_s.tolist() == [1.0]
    assert (run.transfers.mean_bytes, run.transfers.mean_s) == (0.0, 0.0)


def test_hits_and_balance_of_a_trace_of_five_prompts() -> None:
    """Blocks of ten tokens on two replicas by turns: the third prompt finds two blocks of the first, the fifth one of the third."""
    ids = ((1, 2), (7, 8), (1, 2, 3), (9,), (1, 4))
    tokens = np.array([20, 20, 25, 10, 20])
    trace = Trace("by hand", np.arange(5.0), tokens, np.ones(5, int), ids, 10)
    hits = prefix_hits(trace, 2, 100, "round_robin")
    assert hits.hit_rate == pytest.approx((20 + 10) / 95)
    work = (20 + 5 + 10, 20 + 10)
    assert hits.imbalance == pytest.approx(max(work) / (sum(work) / 2))
    assert prefix_hits(trace, 2, 10, "round_robin").hit_rate == pytest.approx(20 / 95), "a pool of one block keeps one of each prompt"
    whole = Trace("whole", np.arange(2.0), np.array([15, 15]), np.ones(2, int), ((1, 2), (1, 2)), 10)
    assert prefix_hits(whole, 1, 100, "round_robin").hit_rate == 0.5, "no more tokens than the prompt has"
