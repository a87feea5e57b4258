"""Traffic: what is drawn, what a seed fixes, and how clients answer a finish."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np
import pytest

from planner.problems import InputError
from planner.scenario import Lengths, Workload, mean_length
from planner.workload import Request, Source, Trace, draw_arrivals, draw_lengths, requests, stream, trace_keys


def end(source: Source, request: Request, at_s: float, status: str = "finished") -> None:
    request.status, request.finish_s = status, at_s
    source.finished(request)


LENGTHS = [
    Lengths(kind="fixed", mean=300),
    Lengths(kind="uniform", mean=300, half_width=0.5),
    Lengths(kind="lognormal", mean=300, cv=0.8),
    Lengths(kind="percentiles", points=((0.0, 10), (0.5, 200), (0.9, 800), (1.0, 2000))),
    Lengths(kind="empirical", values=(10, 200, 900)),
]


@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: length.kind)
def test_lengths_have_the_mean_they_promise(length: Lengths) -> None:
    drawn = draw_lengths(np.random.default_rng(1), length, 40_000)
    assert drawn.dtype.kind == "i"
    assert drawn.min() >= 1
    assert drawn.mean() == pytest.approx(mean_length(length), rel=0.02)


def test_lengths_are_cut_at_max_and_never_empty() -> None:
    rng = np.random.default_rng(1)
    assert draw_lengths(rng, Lengths(kind="lognormal", mean=300, cv=2.0, max=500), 5000).max() == 500
    assert draw_lengths(rng, 0.0, 3).tolist() == [1, 1, 1]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, 10_000.0])
def test_gaps_are_gamma_with_the_burstiness_as_shape(burstiness: float) -> None:
    gaps = np.diff(draw_arrivals(np.random.default_rng(3), 5.0, burstiness, 40_000), prepend=0.0)
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_one_seed_is_one_traffic_whatever_else_changes() -> None:
    plain = Workload(num_prompts=200, input_len=LENGTHS[2], output_len=LENGTHS[1], seed=7)
    slow = requests(plain)
    fast = requests(plain, rate_scale=2.0)
    np.testing.assert_allclose(fast.session_start_s * 2, slow.session_start_s)
    other = requests(plain.model_copy(update={"output_len": 10.0, "prefix_groups": 5}))
    for same in (fast, other):
        assert same.input_tokens.tolist() == slow.input_tokens.tolist()
    assert requests(plain, seed=8).input_tokens.tolist() != slow.input_tokens.tolist()


def test_speculation_leaves_lengths_alone_and_shortens_decoding() -> None:
    plain = Workload(num_prompts=500, output_len=200.0)
    drawn = requests(plain, acceptance_rates=(0.8, 0.6))
    assert drawn.output_tokens.tolist() == requests(plain).output_tokens.tolist()
    assert requests(plain).decode_steps.tolist() == [199] * 500
    assert 199 / drawn.decode_steps.mean() == pytest.approx(1 + 0.8 + 0.6, rel=0.02)


def test_outputs_are_cut_and_counted_and_always_leave_an_answer_after_thinking() -> None:
    drawn = requests(Workload(num_prompts=300, output_len=LENGTHS[1], max_output_len=250, thinking_share=1.0))
    assert drawn.output_tokens.max() == 250
    assert 0 < drawn.truncated.sum() < 300
    assert (drawn.output_tokens[drawn.truncated] == 250).all()
    assert (drawn.thinking_tokens < drawn.output_tokens).all()


def test_each_turn_sends_the_whole_history_without_the_thinking() -> None:
    drawn = requests(Workload(num_prompts=10, turns=5, input_len=100.0, output_len=40.0, thinking_share=0.25, shared_prefix_len=60))
    assert drawn.first_row.tolist() == [0, 5, 10]
    # A later turn adds its own 40 new tokens (the system prompt of 60 comes once) to the prompt and the answer of 30 before it.
    assert drawn.input_tokens.tolist() == [100, 170, 240, 310, 380] * 2


def test_a_next_turn_finds_the_blocks_of_the_last_one_by_their_keys() -> None:
    drawn = requests(Workload(num_prompts=6, turns=3, input_len=100.0, output_len=40.0, shared_prefix_len=40, prefix_groups=1))
    keys = [drawn.keys(row, row // 3, 16) for row in range(6)]
    for row in (0, 1, 3, 4):
        full = (int(drawn.input_tokens[row]) + 40 - 1) // 16
        assert len(keys[row]) == full
        assert list(keys[row]) == list(keys[row + 1][:full])
    shared = [a == b for a, b in zip(keys[0], keys[3], strict=True)]
    assert shared == [True, True] + [False] * (len(shared) - 2)


def test_prefix_groups_share_within_and_not_between() -> None:
    drawn = requests(Workload(num_prompts=40, input_len=100.0, shared_prefix_len=64, prefix_groups=3))
    firsts = {row: drawn.keys(row, row, 16)[0] for row in range(40)}
    assert len(set(firsts.values())) == len(set(drawn.prefix_group.tolist())) == 3
    assert len({drawn.keys(row, row, 16)[4] for row in range(40)}) == 40


def test_traffic_without_common_content_has_no_keys() -> None:
    assert Source(requests(Workload(num_prompts=3)), block_size=16).next().keys == ()
    assert Source(requests(Workload(num_prompts=3, shared_prefix_len=32)), block_size=0).next().keys == ()


TRACE = Trace(
    name="four rows",
    arrival_s=np.array([5.0, 6.0, 9.5, 11.0]),
    input_tokens=np.array([1000, 1100, 600, 512]),
    output_tokens=np.array([7, 0, 9, 11]),
    hash_ids=((1, 2), (1, 2, 3), (1, 4), (1,)),
)


def test_a_trace_is_replayed_as_it_was_recorded() -> None:
    w = Workload(num_prompts=100, max_output_len=10)
    drawn = requests(w, trace=TRACE)
    assert drawn.session_start_s.tolist() == [0.0, 1.0, 4.5, 6.0]
    assert drawn.input_tokens.tolist() == [1000, 1100, 600, 512]
    assert drawn.output_tokens.tolist() == [7, 1, 9, 10]
    assert requests(w, trace=TRACE, rate_scale=2.0).session_start_s.tolist() == [0.0, 0.5, 2.25, 3.0]


def test_a_stretch_of_a_long_trace_starts_where_the_seed_says() -> None:
    w = Workload(num_prompts=2, seed=3)
    assert requests(w, trace=TRACE).input_tokens.tolist() == [1000, 1100]
    stretches = {tuple(requests(w, seed=s, trace=TRACE).input_tokens.tolist()) for s in range(40)}
    assert stretches == {(1000, 1100), (1100, 600), (600, 512)}


def test_trace_ids_become_keys_at_any_block_size() -> None:
    assert trace_keys((1, 2), 512, 512, 1000) == [1]
    assert len(trace_keys((1, 2), 512, 16, 1000)) == 62
    assert trace_keys((1, 2), 512, 16, 1000)[:32] == trace_keys((1, 4), 512, 16, 600)[:32]
    assert not set(trace_keys((1, 2), 512, 16, 1000)[32:]) & set(trace_keys((1, 4), 512, 16, 600)[32:])


def test_an_open_loop_sends_on_whatever_happens() -> None:
    source = Source(requests(Workload(num_prompts=50, request_rate=10.0)))
    sent = [source.next() for _ in range(50)]
    assert source.peek() == inf
    assert all(a.arrival_s < b.arrival_s for a, b in pairwise(sent))
    assert [r.number for r in sent] == list(range(50))


def test_a_closed_loop_keeps_its_clients_busy_and_no_more() -> None:
    source = Source(requests(Workload(num_prompts=7, request_rate=None, max_concurrency=3)), max_concurrency=3)
    flying = [source.next() for _ in range(3)]
    assert [r.arrival_s for r in flying] == [0.0, 0.0, 0.0]
    assert source.peek() == inf
    end(source, flying[1], 2.5)
    assert source.peek() == 2.5
    assert source.next().number == 3
    end(source, flying[0], 4.0, "failed")
    assert source.next().arrival_s == 4.0


def test_a_rate_with_a_concurrency_cap_waits_at_the_client() -> None:
    source = Source(requests(Workload(num_prompts=3, request_rate=1.0, max_concurrency=1)), max_concurrency=1)
    due = requests(Workload(num_prompts=3, request_rate=1.0)).session_start_s
    first = source.next()
    assert first.arrival_s == due[0]
    assert source.peek() == inf
    end(source, first, due[1] + 5.0)
    second = source.next()
    assert second.arrival_s == due[1] + 5.0
    end(source, second, second.arrival_s)
    assert source.next().arrival_s == max(due[2], due[1] + 5.0)


def test_sessions_pause_between_turns_and_hold_their_client() -> None:
    w = Workload(num_prompts=4, request_rate=None, max_concurrency=1, turns=2, think_time_s=3.0)
    source = Source(requests(w), max_concurrency=1)
    first = source.next()
    end(source, first, 10.0)
    second = source.next()
    assert (second.session, second.row) == (0, 1)
    assert second.arrival_s == 10.0 + requests(w).think_s[1]
    end(source, second, 20.0)
    assert (source.peek(), source.next().session) == (20.0, 1)


def test_think_times_are_exponential_with_the_given_mean() -> None:
    pauses = requests(Workload(num_prompts=20_000, turns=2, think_time_s=4.0)).think_s
    assert pauses.mean() == pytest.approx(4.0, rel=0.03)
    assert pauses.std() == pytest.approx(4.0, rel=0.05)


def test_a_failed_turn_ends_its_session() -> None:
    source = Source(requests(Workload(num_prompts=2, turns=2)))
    end(source, source.next(), 1.0, "failed")
    assert source.peek() == inf


def test_what_can_never_run_is_not_sent_again() -> None:
    source = Source(requests(Workload(num_prompts=2)), retry_rate=1.0)
    refused = source.next()
    end(source, refused, refused.arrival_s, "failed")
    assert source.next().row == 1
    assert source.peek() == inf


def test_clients_retry_what_missed_its_deadline_but_not_for_ever() -> None:
    w = Workload(num_prompts=3, request_rate=None, max_concurrency=1, deadline_s=1.0)
    source = Source(requests(w), max_concurrency=1, deadline_s=1.0, retry_rate=1.0, max_requests=10)
    rows = []
    while source.peek() < inf:
        request = source.next()
        rows.append(request.row)
        assert request.deadline_s == request.arrival_s + 1.0
        end(source, request, request.deadline_s, "cancelled")
    assert rows == [0] * 10
    assert source.exhausted
    never = Source(requests(w), max_concurrency=1, deadline_s=1.0, retry_rate=0.0)
    end(never, never.next(), 1.0, "cancelled")
    assert never.next().row == 1


def test_priority_classes_come_in_their_shares() -> None:
    w = Workload(num_prompts=5000, priority_classes=[{"share": 0.25, "priority": 2}, {"share": 0.75, "priority": -1}])
    source = Source(requests(w), priority_classes=w.priority_classes)
    sent = [source.next() for _ in range(5000)]
    assert np.mean([r.priority_class for r in sent]) == pytest.approx(0.75, abs=0.02)
    assert {(r.priority_class, r.priority) for r in sent} == {(0, 2), (1, -1)}


def test_streams_of_one_seed_are_independent() -> None:
    a, b = stream(5, 0).random(4000), stream(5, 1).random(4000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.05


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: requests(Workload(request_rate=0)), "request_rate is 0"),
        (lambda: requests(Workload(), trace=Trace("empty", np.empty(0), np.empty(0), np.empty(0))), "has no rows"),
        (lambda: requests(Workload(priority_classes=[{"share": 0}, {"share": 0}])), "sum to 0"),
    ],
)
def test_impossible_traffic_is_refused_with_a_way_out(build, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build()


STEADY = Workload(turns=10, input_len=200, output_len=50, think_time_s=20.0, request_rate=8.0, num_prompts=4000, shared_prefix_len=64)


def test_a_steady_start_has_littles_number_of_sessions_under_way() -> None:
    counts = []
    for seed in range(20):
        drawn = requests(STEADY, seed, turn_s=25.0)
        assert drawn.histories is not None
        counts.append(len(drawn.histories.session))
    # 8/s × 25 s, but those that send their first turn next have no history.
    assert np.mean(counts) == pytest.approx(8 * 25 * 9 / 10, rel=0.05)


def test_a_steady_start_sends_at_the_same_rate_from_the_first_second() -> None:
    arrivals = []
    for seed in range(10):
        source, answer_s = Source(requests(STEADY, seed, turn_s=25.0), block_size=16), 5.0
        while source.peek() < np.inf:
            request = source.next()
            request.status, request.finish_s = "finished", request.arrival_s + answer_s
            arrivals.append(request.arrival_s)
            source.finished(request)
    counts, _ = np.histogram(arrivals, 10, (0, 500))
    # The answers under way at time 0 end with nobody's next turn until 5 s have passed: their sessions are due a pause later.
    assert counts / 10 / 50 == pytest.approx(np.full(10, 8.0), rel=0.1)
    assert max(arrivals) <= 4000 / 8


def test_rows_of_a_steady_start_go_on_from_their_history_and_find_its_blocks() -> None:
    drawn = requests(STEADY, 3, turn_s=25.0)
    assert drawn.histories is not None
    assert (np.diff(drawn.session_start_s) >= 0).all()
    assert (np.diff(drawn.histories.used_s) >= 0).all()
    checked = 0
    for session, tokens in zip(drawn.histories.session.tolist(), drawn.histories.tokens.tolist(), strict=True):
        if session + 1 < len(drawn.first_row):
            row = int(drawn.first_row[session])
            assert drawn.input_tokens[row] == tokens + 1 + 200 - 64
            history = drawn.session_keys(session, 64, tokens, 16)
            assert list(drawn.keys(row, session, 16))[: len(history)] == history
            checked += 1
    assert checked > 100
    within = np.diff(drawn.input_tokens)
    inside = np.ones(len(within), dtype=bool)
    inside[drawn.first_row[1:-1] - 1] = False
    assert (within[inside] == 200 - 64 + 50).all()


def test_a_steady_start_leaves_out_sessions_that_the_engine_has_ended() -> None:
    drawn = requests(STEADY, 0, turn_s=25.0, longest=1000)
    assert drawn.histories is not None
    assert drawn.histories.prompt_tokens.max() < 1000
    assert drawn.expected_requests < 0.7 * requests(STEADY, 0, turn_s=25.0).expected_requests


def test_a_steady_start_of_hostile_size_is_bounded() -> None:
    w = Workload(turns=10_000, think_time_s=1e9, request_rate=1e5, num_prompts=10_000)
    drawn = requests(w, 0, turn_s=1e9)
    assert len(drawn) < 200_000


def test_a_stretch_without_requests_begins_with_a_first_turn_instead() -> None:
    w = Workload(turns=8, request_rate=0.001, num_prompts=1)
    assert all(len(requests(w, seed, turn_s=1.0)) for seed in range(20))
