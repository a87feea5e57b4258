"""The step loop with a step of one second: everything it reports can be counted on fingers.

The oracle checks times, rows and blocks of whole runs; here stand the sums that a run leaves behind, and the doors it does not use.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scenario import Engine
from planner.scheduler import EngineLog, Limits, Replica, limits_of, static
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
    replica = Replica(Second(), Limits(max_num_seqs=2), KvCache(10, 16), static)
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
