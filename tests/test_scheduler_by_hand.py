"""The step loop with a step of one second: everything it reports can be counted on fingers.

The oracle checks times, rows and blocks of whole runs; here stand the sums that a run leaves behind, and the doors it does not use.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan
from typing import Any

import pytest

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scenario import Engine
from planner.scheduler import POLICIES, EngineLog, Limits, Replica, limits_of
from planner.workload import Request


class Second:
    """Every step takes one second."""

    def __call__(self, shape: StepShape) -> float:
        return 1.0

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        return 1.0


def request(number: int, input_tokens: int, output_tokens: int, arrival_s: float = 0.0, **more: Any) -> Request:
    return Request(number, arrival_s, input_tokens, output_tokens, more.pop("decode_steps", output_tokens - 1), **more)


def run(replica: Replica, *requests: Request) -> EngineLog:
    for each in requests:
        replica.admit(each, each.arrival_s)
    while replica.advance(inf):
        pass
    assert replica.kv.used_blocks == 0
    return replica.log()


def test_a_replica_has_the_limits_of_an_engine_with_no_settings() -> None:
    assert Limits() == replace(limits_of(Engine()), async_scheduling=False)


def test_what_one_request_leaves_in_the_log() -> None:
    """Twenty tokens of prompt and four of output: one step computes the prompt, three decode over 21, 22 and 23 tokens, in two blocks."""
    one = request(7, 20, 4)
    log = run(Replica(Second(), Limits(), KvCache(10, 16)), one)
    assert (log.steps, log.decode_steps, log.decode_rows, log.padding_rows) == (4, 3, 3, 0)
    assert (log.kv_block_s, log.kv_token_s) == (2 * 4, 20 + 21 + 22 + 23)
    assert (log.busy_s, log.end_s, log.seats, log.total_blocks, log.block_size) == (4, 4, 256, 10, 16)
    assert (one.first_token_s, one.finish_s) == (1, 4)
    assert log.records is not None
    runs = (log.records.run_number, log.records.run_first, log.records.run_last, log.records.run_start_s)
    assert [column.tolist() for column in runs] == [[7], [0], [3], [1.0]]


def test_a_block_taken_on_the_way_counts_from_then_on() -> None:
    """The prompt of 15 fills a block with its first new token; the second one needs another block, for three of the five steps."""
    log = run(Replica(Second(), Limits(), KvCache(10, 16)), request(0, 15, 5))
    assert log.kv_block_s == 1 + 1 + 2 + 2 + 2
    assert log.records is not None
    assert log.records.kv_used_blocks.tolist() == [1, 1, 2, 2, 2]


def test_rows_of_a_static_batch_run_on_after_their_end() -> None:
    """Outputs of two and four tokens: three decode steps of two rows, of which the last two are padding."""
    short, long = request(0, 10, 2), request(1, 10, 4)
    replica = Replica(Second(), Limits(max_num_seqs=2), KvCache(10, 16), POLICIES["static"])
    log = run(replica, short, long)
    assert (log.steps, log.decode_steps, log.decode_rows, log.padding_rows) == (4, 3, 6, 2)
    assert (short.finish_s, long.finish_s) == (2, 4)


def test_blocks_that_speculating_sequences_take_on_the_way_come_back() -> None:
    """Two of them, two tokens a step: an eighth of a block each. One block serves both, and the rest of the second's way."""
    replica = Replica(Second(), Limits(num_speculative_tokens=1), KvCache(10, 16))
    log = run(replica, request(0, 10, 3, decode_steps=1), request(1, 10, 9, decode_steps=4))
    assert log.records is not None
    assert log.records.kv_used_blocks.tolist() == [2, 3, 2, 2, 2]


@pytest.mark.parametrize(("tokens", "blocks"), [(13, 1), (14, 2)])
def test_drafts_need_room_behind_the_prompt(tokens: int, blocks: int) -> None:
    """Three drafts may follow the last token: 13 + 3 fill a block of sixteen, 14 + 3 do not fit into it."""
    replica = Replica(Second(), Limits(num_speculative_tokens=3), KvCache(10, 16))
    replica.admit(request(0, tokens, 2, decode_steps=1), 0.0)
    replica.advance(0.5)
    assert replica.kv.used_blocks == blocks


def test_a_speculating_sequence_takes_a_block_every_so_many_tokens() -> None:
    """Prompt of 16, forty more tokens in twenty steps of two: half a block every four steps, so one more after 0, 8 and 16 of them."""
    replica = Replica(Second(), Limits(num_speculative_tokens=1), KvCache(10, 16))
    log = run(replica, request(0, 15, 41, decode_steps=20))
    assert log.records is not None
    assert log.records.kv_used_blocks.tolist() == [1] + [2] * 8 + [3] * 8 + [4] * 4
    assert log.kv_token_s == 15 + sum(16 + 2 * step for step in range(20))


@pytest.mark.parametrize(
    ("asynchronous", "arrival_s", "scheduled_s"), [(False, 3.0, 3.0), (False, 3.5, 4.0), (True, 3.0, 4.0), (True, 2.5, 4.0)]
)
def test_who_comes_as_a_step_begins_is_in_it_unless_it_was_planned_before(asynchronous: bool, arrival_s: float, scheduled_s: float) -> None:
    late = request(1, 10, 2, arrival_s=arrival_s)
    run(Replica(Second(), Limits(async_scheduling=asynchronous), KvCache(10, 16)), request(0, 10, 9), late)
    assert late.scheduled_s == scheduled_s


def test_a_request_may_fill_the_pool_to_its_last_token() -> None:
    """Twenty tokens of prompt and thirteen of output, of which the last is sent and not kept: 32 in two blocks."""
    fits, exceeds = request(0, 20, 13), request(1, 20, 14)
    run(Replica(Second(), Limits(), KvCache(2, 16)), fits, exceeds)
    assert (fits.status, fits.preemptions, exceeds.status) == ("finished", 0, "failed")
    assert exceeds.reason == "a request of 34 tokens needs 3 KV blocks of 16, the pool has 2"
    assert Limits(max_model_len=32).reserved_tokens(10, 5) == 32
    assert Limits(max_output_len=7).reserved_tokens(10, 5) == 17
    assert Limits().reserved_tokens(10, 5) == 15


def test_an_output_ends_with_the_longest_sequence_and_takes_its_steps_and_thinking_along() -> None:
    """Of 11 tokens in ten steps after the first, a limit of 16 leaves six: five after the first, in five steps."""
    cut = request(0, 10, 11, thinking_tokens=9)
    speculated = request(1, 10, 11, decode_steps=4)
    run(Replica(Second(), Limits(max_model_len=16), KvCache(10, 16)), cut, speculated)
    assert (cut.output_tokens, cut.decode_steps, cut.thinking_tokens, cut.truncated) == (6, 5, 5, True)
    assert (speculated.output_tokens, speculated.decode_steps) == (6, 2)
    assert cut.answer_s == cut.finish_s == 6


class Noted(Second):
    """Every step takes one second and is written down."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, float, float]] = []

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        self.steps.append((decode_sequences, context_tokens, windowed_context_tokens))
        return 1.0


def test_a_window_fills_in_the_middle_of_a_steps_tokens() -> None:
    """Two tokens a step over a window of 24: contexts of 21, 23, 25 and 27 read 21, 23, 24 and 24 of it; one beyond it always 24."""
    step_time = Noted()
    short, long = request(0, 20, 9, decode_steps=4), request(1, 40, 13, decode_steps=6)
    run(Replica(step_time, Limits(window=24, num_speculative_tokens=1), KvCache(20, 16)), short, long)
    both = [(2, 21 + 41, 21 + 24), (2, 23 + 43, 23 + 24), (2, 25 + 45, 24 + 24), (2, 27 + 47, 24 + 24)]
    assert step_time.steps == [*both, (1, 49, 24), (1, 51, 24)]


@pytest.mark.parametrize(("tokens", "scheduled_s"), [(90, 10.0), (104, 10.0), (105, 11.0)])
def test_a_whole_prompt_joins_a_step_when_what_is_not_cached_fits_beside_the_others(tokens: int, scheduled_s: float) -> None:
    """Of a budget of 100 tokens one prompt takes 60; of the other 64 are cached, and at most 40 may be left to compute."""
    limits = Limits(max_num_batched_tokens=100, enable_chunked_prefill=False)
    other = request(2, tokens, 1, arrival_s=10.0, keys=(0, 1, 2, 3, 9))
    log = run(
        Replica(Second(), limits, KvCache(100, 16, prefix=True)),
        request(0, 65, 1, keys=(0, 1, 2, 3)),
        request(1, 60, 1, arrival_s=10.0),
        other,
    )
    assert (other.cached_tokens, other.scheduled_s) == (64, scheduled_s)
    assert log.records is not None
    together = [60 + tokens - 64] if scheduled_s == 10 else [60, tokens - 64]
    assert log.records.chunk_tokens.tolist() == [65, *together]


def test_a_client_that_gives_up_before_the_engine_has_seen_it_leaves_nothing_behind() -> None:
    replica = Replica(Second(), Limits(), KvCache(10, 16))
    brief = request(1, 10, 5, arrival_s=0.25, deadline_s=0.75)
    run(replica, request(0, 10, 4), brief, request(2, 10, 5, arrival_s=0.5))
    assert (brief.status, brief.finish_s) == ("cancelled", 0.75)
    assert (replica.queue_length, replica.unfinished, replica.next_start_s()) == (0, [], inf)


def test_a_client_does_not_wait_for_the_company_of_a_static_batch() -> None:
    """The batch would start after ten seconds; of the two that wait for it one leaves after five."""
    brief, patient = request(0, 10, 3, deadline_s=5.0), request(1, 10, 3)
    log = run(Replica(Second(), Limits(max_num_seqs=3, static_timeout_s=10.0), KvCache(10, 16), POLICIES["static"]), brief, patient)
    assert (brief.status, brief.finish_s, patient.scheduled_s, patient.finish_s) == ("cancelled", 5.0, 10.0, 13.0)
    assert isnan(brief.scheduled_s)
    assert log.records is not None
    assert log.records.chunk_tokens.tolist() == [10, 0, 0]


def test_a_step_that_took_a_preemption_seats_nobody() -> None:
    """As in vLLM's scheduler, which looks at its waiting queue only when it has preempted no one.

    Two sequences hold six blocks of six when the first wants another at 2 s; the second goes, and what it held would be enough for the
    urgent third, which waits for two blocks since it came. It gets them a step later.
    """
    first, second = request(0, 31, 20, priority=1), request(1, 48, 4, priority=1)
    urgent = request(2, 32, 2, arrival_s=0.5, priority=0)
    run(Replica(Second(), Limits(), KvCache(6, 16)), first, second, urgent)
    assert (first.preemptions, second.preemptions, urgent.preemptions) == (0, 1, 0)
    assert urgent.scheduled_s == 3.0


def test_a_prompt_takes_even_the_last_token_of_a_budget() -> None:
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=4)
    log = run(Replica(Second(), limits, KvCache(10, 16)), request(0, 3, 1), request(1, 10, 1))
    assert log.records is not None
    assert log.records.chunk_tokens.tolist() == [4, 4, 4, 1]


def test_a_last_token_that_a_second_prefill_emits_is_a_run_without_steps() -> None:
    """The second has one token left when the first takes its block at 2 s; it comes back when that has ended at 20 s, and ends at 21 s."""
    first, second = request(0, 31, 20), request(1, 48, 3)
    log = run(Replica(Second(), Limits(), KvCache(6, 16)), first, second)
    assert (first.finish_s, second.preemptions, second.finish_s) == (20, 1, 21)
    assert log.records is not None
    runs = (log.records.run_number, log.records.run_first, log.records.run_last, log.records.run_start_s)
    assert [column.tolist() for column in runs] == [[1, 0, 1], [0, 0, 19], [1, 19, 19], [1.0, 1.0, 21.0]]
