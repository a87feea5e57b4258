"""Steady states against the simulation they stand in for, and the frontier drawn from them."""

import pytest

from planner.economics import frontier, operating
from planner.plan import deployment, plan
from planner.plan.alone import lone_ttft_s
from planner.scenario import Scenario

CHAT = Scenario.model_validate(
    {
        "model": {"name": "llama-3.1-8b"},
        "workload": {"input_len": 1000, "output_len": 200, "request_rate": None, "max_concurrency": 64, "num_prompts": 800},
        "simulation": {"mode": "benchmark"},
        "price": {"usd_per_gpu_hour": 2.5},
    }
)


def test_steady_state_agrees_with_a_closed_loop_of_as_many_clients() -> None:
    simulated = plan(CHAT, "quick").load.metrics
    at = operating.operating(deployment.of(CHAT), 62)
    assert at.output_tokens_per_s == pytest.approx(simulated.throughput.output_tokens_per_s, rel=0.08)
    assert at.tpot_s == pytest.approx(simulated.latency.tpot_s.mean, rel=0.10)


def test_more_sequences_carry_more_and_answer_slower() -> None:
    replica = deployment.of(CHAT)
    states = [operating.operating(replica, batch) for batch in (1, 4, 16, 64, 256)]
    assert [s.tpot_s for s in states] == sorted(s.tpot_s for s in states)
    assert [s.requests_per_s for s in states] == sorted(s.requests_per_s for s in states)


def test_fullest_state_within_a_promise() -> None:
    replica = deployment.of(CHAT)
    within = operating.best_within(replica, 0.015)
    assert within.tpot_s <= 0.015 < operating.operating(replica, within.batch + 4).tpot_s
    assert operating.best_within(replica, 1e-4) is None
    assert operating.best_within(replica, None).batch == 256


def test_a_pool_that_only_decodes_is_faster() -> None:
    replica = deployment.of(CHAT)
    assert operating.operating(replica, 64, prefill=False).tpot_s < operating.operating(replica, 64).tpot_s
    assert operating.operating(replica, 64, prefill=False).prefill_share == 0


def test_lone_request_is_the_sum_of_its_steps() -> None:
    replica = deployment.of(CHAT)
    chunked = replica.scenario.engine.model_copy(update={"max_num_batched_tokens": 400})
    slow = deployment.of(CHAT.model_copy(update={"engine": chunked}))
    assert operating.chunks_of(1000, 0, 400) == [(400, 0), (400, 400), (200, 800)]
    assert operating.chunks_of(1000, 900, 400) == [(100, 900)]
    assert lone_ttft_s(slow, 1000) > lone_ttft_s(replica, 1000) > replica.step_time.api_s


def test_pareto_keeps_what_nothing_beats() -> None:
    items = [(1, 5), (2, 4), (3, 6), (2, 3), (4, 9), (4, 8)]
    assert frontier.pareto(items, lambda i: i[0], lambda i: i[1]) == [(4, 8), (3, 6), (2, 3)]


def test_frontier_over_layouts() -> None:
    points = frontier.points(CHAT, gpus=("h100-sxm", "l40s"), tensor_parallel_sizes=(1, 2, 3), batches=(1, 16, 64))
    assert {p.tensor_parallel_size for p in points} == {1, 2}
    best = [p for p in points if p.on_frontier]
    for p in points:
        beaten = any(q.tokens_per_s_per_user > p.tokens_per_s_per_user and q.usd_per_mtok < p.usd_per_mtok for q in points)
        assert beaten or p.on_frontier
    speeds = sorted(best, key=lambda p: p.tokens_per_s_per_user)
    assert [p.usd_per_mtok for p in speeds] == sorted(p.usd_per_mtok for p in speeds)
    productive = sorted((p for p in points if p.on_throughput_frontier), key=lambda p: p.tokens_per_s_per_user)
    assert [p.output_tokens_per_s_per_gpu for p in productive] == sorted((p.output_tokens_per_s_per_gpu for p in productive), reverse=True)
    chosen = frontier.cheapest_at(points, speeds[0].tokens_per_s_per_user)
    assert chosen.usd_per_mtok == min(p.usd_per_mtok for p in best)
    assert frontier.cheapest_at(points, 1e9) is None
    assert plan(chosen.scenario, "quick").fits
