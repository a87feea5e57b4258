"""Fleets and disaggregated pools on a step time simple enough to reason about."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from planner import demand, fleet
from planner.fleet import disaggregated
from planner.kv_cache import KvCache
from planner.scenario import Workload
from planner.scheduler import Limits, Replica, simulate
from planner.workload import Source, requests

KV_BYTES_PER_TOKEN = 131_072


class Affine:
    """6 ms a step, 33 µs a token, 39 ns a token of context: about Llama-3.1-8B on one H100."""

    def __call__(self, shape):
        sequences, context, _, chunks, *_ = shape
        new, cached = sum(n for n, _ in chunks), sum(c for _, c in chunks)
        return 6e-3 + 33e-6 * (sequences + new) + 39e-9 * (context + cached)

    def decode(self, sequences, context, windowed):
        return 6e-3 + 33e-6 * sequences + 39e-9 * context


def build(blocks=12_000, seats=128, prefix=True):
    return Replica(Affine(), Limits(max_num_seqs=seats, max_num_batched_tokens=2048), KvCache(blocks, 16, prefix=prefix))


def traffic(n=300, rate=32.0, seed=1, **fields):
    workload = Workload(request_rate=rate, num_prompts=n, **{"input_len": 1000, "output_len": 250, **fields})
    return Source(requests(workload, seed=seed), block_size=16, max_concurrency=workload.max_concurrency)


def ttft(timeline):
    return timeline.first_token_s - timeline.arrival_s


def same(a, b):
    return np.array_equal(a.finish_s, b.finish_s) and np.array_equal(a.first_token_s, b.first_token_s)


def test_a_fleet_of_one_is_the_replica_itself():
    run = fleet.simulate(traffic(rate=8), build)
    assert same(run.timeline, simulate(traffic(rate=8), build()))


@pytest.mark.parametrize("answering", [False, True])
def test_round_robin_is_as_many_separate_replicas(answering):
    source = traffic()
    columns = source.requests
    together = fleet.simulate(source, build, 3).timeline
    if answering:
        Waiting = type("Waiting", (Source,), {"answering": True})
        stepwise = fleet.simulate(Waiting(columns, block_size=16), build, 3).timeline
        assert same(together, stepwise), "stepping in lockstep changes nothing when nobody answers"
    for third in range(3):
        replica = build()
        alone = Source(columns, block_size=16)
        mine = [alone.next() for _ in range(300)][third::3]
        finish_s = {}
        for request in mine:
            while ended := replica.advance(request.arrival_s):
                finish_s.update({r.number: r.finish_s for r in ended})
            replica.admit(request, request.arrival_s)
        while ended := replica.advance(inf):
            finish_s.update({r.number: r.finish_s for r in ended})
        assert [finish_s[r.number] for r in mine] == together.finish_s[third::3].tolist()


def test_a_lost_replica_costs_time_and_no_request():
    calm = fleet.simulate(traffic(600), build, 3)
    lost = fleet.simulate(traffic(600), build, 3, losses=(8.0,), startup_s=1e6)
    covered = fleet.simulate(traffic(600), build, 3, spares=1, losses=(8.0,), startup_s=1e6)
    assert lost.rerouted == covered.rerouted > 0
    for run in (calm, lost, covered):
        assert run.timeline.finished.all()
        assert (run.timeline.first_token_s > run.timeline.arrival_s).all()
        assert (np.diff(run.timeline.arrival_s) >= 0).all(), "a request that starts again keeps its arrival"
    worst = [ttft(run.timeline).max() for run in (calm, covered, lost)]
    assert worst[0] < worst[1] < worst[2]
    assert lost.spans[0].gone_s == 8.0
    assert len(covered.timeline.engines) == 4


def test_a_spare_that_steps_in_is_replaced_by_a_new_spare():
    run = fleet.simulate(traffic(900), build, 3, spares=1, losses=(5.0, 15.0), startup_s=2.0)
    assert run.timeline.finished.all()
    assert [(span.asked_s, span.gone_s) for span in run.spans[4:]] == [(5.0, inf), (15.0, inf)]


def test_when_all_are_lost_requests_wait_for_the_replacement():
    run = fleet.simulate(traffic(50, rate=8), build, 1, losses=(2.0,), startup_s=60.0)
    after = run.timeline.arrival_s > 2.0
    assert run.timeline.finished.all()
    assert (run.timeline.first_token_s[after] > 62.0).all()


def test_interruptions_come_at_their_rate():
    rng = np.random.default_rng(0)
    assert fleet.interruptions(rng, 8, 0.0, 1e6) == []
    taken = fleet.interruptions(rng, 20, 0.05, 1000 * 3600.0)
    assert len(taken) == pytest.approx(20 * 1000 * -np.log(0.95), rel=0.1)
    assert taken == sorted(taken)


def test_autoscaling_wants_what_the_load_needs():
    scaling = fleet.Autoscaling(2.0, target_utilization=0.5, min_replicas=2, max_replicas=8)
    assert [scaling.wanted(rate) for rate in (0.0, 2.0, 2.1, 6.5, 100.0)] == [2, 2, 3, 7, 8]


def test_start_up_time_is_paid_in_latency_and_the_ceiling_in_queue():
    def run(**options):
        scaling = fleet.Autoscaling(9.0, max_replicas=options.pop("ceiling", None))
        return fleet.simulate(traffic(1_500), build, 1, autoscaling=scaling, **options)

    fast, slow, capped = run(startup_s=1.0), run(startup_s=25.0), run(startup_s=1.0, ceiling=2)
    assert len(fast.spans) >= 4
    worst = [np.percentile(ttft(r.timeline), 95) for r in (fast, slow, capped)]
    assert worst[0] < min(worst[1:])
    assert len(capped.spans) == 2


def test_autoscaling_lets_replicas_go_when_the_load_is_over():
    scaling = fleet.Autoscaling(4.0, patience_s=30.0)
    run = fleet.simulate(traffic(400, rate=2.0), build, 4, autoscaling=scaling)
    assert run.timeline.finished.all()
    assert sum(span.gone_s < inf for span in run.spans) == 3
    assert run.replica_hours() < 0.75 * 4 * run.timeline.end_s / 3600


def test_autoscaling_lags_behind_a_rising_demand():
    source = traffic(1_600, rate=12.0)
    columns = source.requests
    # A minute and a half of quiet, then three times as much.
    curve = np.repeat([0.5, 1.5], 3)
    moved = replace(columns, session_start_s=demand.follow(columns.session_start_s, curve, interval_s=30.0))

    def run(startup_s):
        scaling = fleet.Autoscaling(9.0)
        result = fleet.simulate(Source(moved, block_size=16), build, 1, startup_s=startup_s, autoscaling=scaling)
        return (ttft(result.timeline) > 0.5).mean(), result

    (few, quick), (many, slow) = run(2.0), run(90.0)
    assert quick.timeline.finished.all()
    assert slow.timeline.finished.all()
    assert few < 0.05 < many, "the time to start is paid in missed promises"


def test_sessions_hit_their_prefix_only_where_they_have_been():
    def hits(routing):
        source = traffic(320, rate=6.0, input_len=600, output_len=20, turns=8, think_time_s=2.0)
        timeline = fleet.simulate(source, lambda: build(blocks=3_000), 4, routing=routing).timeline
        assert timeline.finished.all()
        return timeline.cached_tokens.sum() / timeline.input_tokens.sum()

    by_routing = {routing: hits(routing) for routing in ("round_robin", "sticky", "longest_prefix")}
    assert by_routing["sticky"] > by_routing["round_robin"] + 0.15
    assert by_routing["longest_prefix"] > by_routing["round_robin"] + 0.15


def test_a_closed_loop_never_has_more_under_way_than_clients():
    timeline = fleet.simulate(traffic(200, rate=None, max_concurrency=12), build, 3, routing="least_loaded").timeline
    under_way = (timeline.arrival_s[:, None] >= timeline.arrival_s) & (timeline.arrival_s[:, None] < timeline.finish_s)
    assert under_way.sum(axis=1).max() == 12
    assert timeline.finished.all()


def test_a_fleet_that_cannot_drain_is_stopped():
    run = fleet.simulate(traffic(300, rate=500), build, 2, max_steps=200)
    assert run.timeline.stopped.startswith("stopped after 200 steps")
    assert len(run.timeline) <= 300
    assert not run.timeline.finished.all()


def kv_bytes(tokens):
    return tokens * KV_BYTES_PER_TOKEN


NVLINK = disaggregated.Link("NVLink", 450e9)


def pools(source, prefill, decode, link=NVLINK, **options):
    run = disaggregated.simulate(source, prefill, decode, kv_bytes, link, **options)
    for replica in prefill:
        assert replica.kv.used_blocks == 0, "every prompt's KV was given back after its move"
    return run


def test_a_lone_request_pays_its_prefill_its_transfer_and_its_decode():
    link = disaggregated.Link("25 GbE", 3e9, latency_s=1e-3)
    run = pools(traffic(1, output_len=11), [build()], [build()], link)
    timeline, step = run.timeline, Affine()
    prefill_s = step((0, 0, 0, ((1000, 0),)))
    transfer_s = 1e-3 + 1000 * KV_BYTES_PER_TOKEN / 3e9
    decode_s = sum(step.decode(1, 1001 + i, 0) for i in range(10))
    assert ttft(timeline)[0] == pytest.approx(prefill_s + transfer_s)
    assert timeline.finish_s[0] - timeline.first_token_s[0] == pytest.approx(decode_s)
    assert run.transfers.mean_bytes == 131_072_000
    assert run.transfers.mean_s == pytest.approx(transfer_s)
    assert run.transfers.blocked_s == 0


def test_an_answer_of_one_token_needs_no_decode():
    run = pools(traffic(20, output_len=1), [build()], [build()])
    assert run.timeline.finished.all()
    assert run.transfers.count == 0
    assert run.timeline.engines[1].steps == 0


def test_decode_alone_is_smoother_than_decode_between_prompts():
    def tpot(timeline):
        return np.mean((timeline.finish_s - timeline.first_token_s) / (timeline.output_tokens - 1))

    mixed = fleet.simulate(traffic(400, rate=9), build, 1).timeline
    apart = pools(traffic(400, rate=9), [build()], [build()]).timeline
    assert tpot(apart) < 0.8 * tpot(mixed)
    assert (apart.output_tokens == mixed.output_tokens).all()
    assert (apart.finish_s > apart.first_token_s).all()


def test_the_link_is_a_queue_of_its_own():
    seconds = [
        np.median(ttft(pools(traffic(200, rate=8), [build()], [build()], disaggregated.Link("link", bytes_s)).timeline))
        for bytes_s in (450e9, 3e9, 1.0e9)
    ]
    assert seconds[1] - seconds[0] == pytest.approx(131_072_000 / 3e9, rel=0.25)
    assert seconds[2] > 1.0, "131 MB eight times a second do not fit through 1 GB/s"


@pytest.mark.parametrize("small", [{"blocks": 1_200}, {"seats": 16}])
def test_a_full_decode_pool_backs_up_into_prefill(small):
    run = pools(traffic(300, rate=8), [build(blocks=2_000)], [build(**small)])
    assert run.timeline.finished.all()
    assert run.transfers.blocked_s > 1.0
    assert run.transfers.queue_s >= run.transfers.blocked_s
    free = pools(traffic(300, rate=8), [build(blocks=2_000)], [build()])
    assert np.percentile(ttft(run.timeline), 95) > 2 * np.percentile(ttft(free.timeline), 95)


def test_what_can_never_fit_fails_with_the_reason():
    run = pools(traffic(10, rate=8), [build()], [build(blocks=40)])
    assert not run.timeline.finished.any()
    assert "the pool has 40" in run.timeline.reasons[0]


def test_prefix_hits_and_thinking_survive_the_move():
    source = traffic(100, rate=8, shared_prefix_len=512, thinking_share=0.5)
    timeline = pools(source, [build()], [build(), build()]).timeline
    assert (timeline.cached_tokens[1:] == 512).all()
    assert (timeline.answer_s > timeline.first_token_s).all()
    assert (timeline.answer_s < timeline.finish_s).all()


def test_more_pool_is_used_evenly():
    run = pools(traffic(300, rate=16), [build(), build()], [build(), build()])
    prefill, decode = run.timeline.engines[:2], run.timeline.engines[2:]
    assert prefill[0].busy_s == pytest.approx(prefill[1].busy_s, rel=0.2)
    assert decode[0].decode_rows == pytest.approx(decode[1].decode_rows, rel=0.2)
