import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_oracle import BlockwiseCache

from planner.kv_cache import KvCache, Tier, tiers_of
from planner.scenario import OffloadTier


def freed(kv: KvCache, call: Callable[[], None]) -> int:
    """By how many blocks `free_blocks` grows in a call."""
    before = kv.free_blocks
    call()
    return kv.free_blocks - before


def test_anonymous_blocks_are_two_counters():
    kv = KvCache(total_blocks=10, block_size=16)
    kv.take(7)
    assert (kv.used_blocks, kv.free_blocks) == (7, 3)
    kv.give(2)
    assert (kv.used_blocks, kv.free_blocks) == (5, 5)
    with pytest.raises(ValueError, match="6 KV blocks taken, 5 free"):
        kv.take(6)
    with pytest.raises(ValueError, match="6 KV blocks given back, 5 held"):
        kv.give(6)
    assert [kv.blocks(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_prefix_stays_readable_until_space_is_wanted():
    kv = KvCache(10, 16, prefix=True)
    kv.take(4)
    assert freed(kv, lambda: kv.publish(["a", "b", "c"])) == 0
    kv.give(1)
    assert freed(kv, lambda: kv.release(["a", "b", "c"], now=1.0)) == 3
    assert (kv.free_blocks, kv.idle_blocks) == (10, 3)
    assert kv.match(["a", "b", "x", "c"], now=2.0) == 2
    kv.take(8)
    assert kv.match(["a", "b", "c"], now=3.0) == 2, "the end of a prompt is evicted before its beginning"
    kv.take(2)
    assert kv.match(["a"], now=3.0) == 0


def test_a_shared_prefix_is_held_once():
    kv = KvCache(10, 16, prefix=True)
    kv.take(3)
    kv.publish([1, 2, 3])
    assert kv.cost([1, 2, 3]) == 0
    assert freed(kv, lambda: kv.hold([1, 2, 3])) == 0
    assert kv.used_blocks == 3
    kv.release([1, 2, 3], now=1.0)
    assert kv.used_blocks == 3, "the second sequence still reads it"
    kv.release([1, 2, 3], now=2.0)
    assert kv.used_blocks == 0
    assert freed(kv, lambda: kv.hold([1, 2])) == -2
    assert (kv.used_blocks, kv.idle_blocks) == (2, 1)


def test_two_sequences_that_computed_the_same_prompt_end_with_one_copy():
    kv = KvCache(10, 16, prefix=True)
    kv.take(6)
    assert freed(kv, lambda: kv.publish([1, 2, 3])) == 0
    assert freed(kv, lambda: kv.publish([1, 2, 4])) == 2
    assert kv.used_blocks == kv.keyed_blocks == 4
    kv.release([1, 2, 3], now=0.0)
    kv.release([1, 2, 4], now=0.0)
    assert (kv.used_blocks, kv.idle_blocks) == (0, 4)


def test_republishing_an_idle_block_frees_the_copy_and_revives_the_original():
    kv = KvCache(4, 16, prefix=True)
    kv.take(1)
    kv.publish(["a"])
    kv.release(["a"], now=0.0)
    kv.take(1)
    assert freed(kv, lambda: kv.publish(["a"])) == 0
    assert (kv.used_blocks, kv.idle_blocks) == (1, 0)


def test_order_of_eviction_is_order_of_last_use():
    kv = KvCache(3, 16, prefix=True)
    for at, key in enumerate("abc"):
        kv.take(1)
        kv.publish([key])
        kv.release([key], now=at)
    kv.hold(["a"])
    kv.release(["a"], now=3)
    kv.take(1)
    assert [kv.match([key], now=4) for key in "abc"] == [1, 0, 1]


def test_lifetime_counts_from_last_use_and_spares_what_is_in_use():
    kv = KvCache(8, 16, prefix=True, ttl_s=300)
    kv.take(2)
    kv.publish(["a", "b"])
    assert kv.match(["a", "b"], now=1e6) == 2, "held blocks do not age"
    kv.release(["a", "b"], now=100.0)
    assert kv.match(["a", "b"], now=400.0) == 2
    assert kv.match(["a", "b"], now=400.1) == 0
    kv.hold(["a"])
    kv.release(["a"], now=350.0)
    assert kv.match(["a", "b"], now=500.0) == 1


def test_without_a_prefix_cache_nothing_is_named():
    kv = KvCache(8, 16)
    kv.take(2)
    assert freed(kv, lambda: kv.publish(["a", "b"])) == 0
    assert kv.match(["a", "b"], now=0.0) == 0
    kv.give(2)
    assert kv.free_blocks == 8


def test_evicted_blocks_wait_in_the_tiers_and_cost_their_fetch():
    kv = KvCache(2, 16, prefix=True, tiers=(Tier("cpu", 2, 0.001), Tier("ssd", 1, 0.01)))
    for at, key in enumerate("abcdef"):
        kv.take(1)
        kv.publish([key])
        kv.release([key], now=at)
    assert [kv.match([key], now=9) for key in "abcdef"] == [0, 1, 1, 1, 1, 1], "2 on the GPU, 2 in memory, 1 on disk, the oldest gone"
    assert [kv.fetch_s([key]) for key in "bcdef"] == [0.01, 0.001, 0.001, 0.0, 0.0]
    assert freed(kv, lambda: kv.hold(["b"])) == -1
    assert kv.fetch_s(["b"]) == 0.0
    assert kv.used_blocks == 1
    assert kv.match(["e"], now=11) == 1
    assert kv.fetch_s(["e"]) == 0.001, "the block that had to make room went one tier down"


def test_the_end_of_a_prompt_that_fell_into_a_tier_is_nobodys_and_comes_back_with_its_beginning():
    kv = KvCache(4, 16, prefix=True, tiers=(Tier("cpu", 9, 0.5),))
    kv.take(3)
    kv.publish(["a", "b", "c"])
    kv.release(["a", "b", "c"], now=0.0)
    kv.take(3)
    assert (kv.idle_blocks, kv.fetch_s(["a", "b", "c"])) == (1, 1.0)
    kv.give(3)
    assert kv.cost(["a", "b", "c"]) == 3, "one block idle, two to be read back"
    kv.hold(["a", "b", "c"])
    assert (kv.used_blocks, kv.keyed_blocks, kv.fetch_s(["a", "b", "c"])) == (3, 3, 0.0)


def test_tier_sizes_follow_the_scenario():
    (tier,) = tiers_of([OffloadTier(tier="cpu", gib=1.0, gb_s=10.0)], block_bytes=2**21)
    assert tier == Tier("cpu", 512, 2**21 / 10e9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kv: kv.hold(["z"]), "'z' is held but not cached"),
        (lambda kv: kv.release(["z"], 0.0), "'z' is released but not held"),
        (lambda kv: kv.publish(["z"]), "1 KV blocks published, 0 anonymous"),
    ],
)
def test_wrong_calls_say_what_is_wrong_and_change_nothing(call, message):
    kv = KvCache(4, 16, prefix=True)
    with pytest.raises(ValueError, match=message):
        call(kv)
    assert (kv.free_blocks, kv.idle_blocks, kv.keyed_blocks) == (4, 0, 0)


class Sequences:
    """Sequences that start and finish on a pool and, with the same moves, on the block-by-block truth."""

    def __init__(self, kv: KvCache) -> None:
        self.kv, self.truth = kv, BlockwiseCache(kv.total_blocks, kv.ttl_s, kv.tiers)
        self.running, self.prompts, self.clock = [], set(), 0.0

    def start(self, prompt: tuple[int, ...], extra: int, chunk: int) -> None:
        kv, truth, now = self.kv, self.truth, self.clock
        self.prompts.add(prompt)
        matched = kv.match(prompt, now)
        wanted = kv.cost(prompt[:matched]) + len(prompt) - matched + extra
        if wanted > kv.free_blocks:
            return
        before = kv.free_blocks
        kv.hold(prompt[:matched])
        truth.hold(prompt[:matched])
        kv.take(len(prompt) - matched + extra)
        truth.take(len(prompt) - matched + extra)
        assert before - kv.free_blocks == wanted
        self.running.append([prompt, matched, extra])
        self.compute(-1, chunk)

    def compute(self, index: int, chunk: int) -> None:
        """Publish the next `chunk` blocks of a running sequence's prompt."""
        if self.running:
            sequence = self.running[index % len(self.running)]
            prompt, published, _ = sequence
            self.kv.publish(prompt[published : published + chunk])
            self.truth.publish(prompt[published : published + chunk])
            sequence[1] = min(len(prompt), published + chunk)

    def finish(self, index: int) -> None:
        if self.running:
            prompt, published, extra = self.running.pop(index % len(self.running))
            self.kv.give(len(prompt) - published + extra)
            self.truth.give(len(prompt) - published + extra)
            self.kv.release(prompt[:published], self.clock)
            self.truth.release(prompt[:published], self.clock)

    def check(self) -> None:
        kv, truth = self.kv, self.truth
        keyed = {key for prompt, published, _ in self.running for key in prompt[:published]}
        assert kv.keyed_blocks == len(keyed) == len(truth.references)
        assert kv.used_blocks == len(keyed) + sum(len(prompt) - published + extra for prompt, published, extra in self.running)
        assert kv.used_blocks + kv.free_blocks == kv.total_blocks
        assert kv.free_blocks == truth.free_blocks
        assert kv.idle_blocks == len(truth.idle) <= kv.free_blocks
        for prompt in self.prompts:
            matched = kv.match(prompt, self.clock)
            assert matched == truth.match(prompt, self.clock)
            assert kv.fetch_s(prompt[:matched]) == pytest.approx(truth.fetch_s(prompt[:matched]))


def prompts(branches: list[int]) -> tuple[int, ...]:
    """Content keys of a prompt whose blocks are `branches`: each names all up to it."""
    return tuple(hash(tuple(branches[: i + 1])) for i in range(len(branches)))


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 30),
    ttl_s=st.sampled_from([None, 5.0]),
    tiers=st.sampled_from([(), (Tier("cpu", 4, 0.1),), (Tier("cpu", 3, 0.1), Tier("ssd", 0, 1.0), Tier("remote", 5, 1.0))]),
    moves=st.lists(
        st.tuples(
            st.sampled_from(["start", "compute", "finish"]), st.lists(st.integers(0, 1), max_size=9), st.integers(0, 4), st.integers(0, 3)
        ),
        max_size=50,
    ),
)
def test_every_block_is_accounted_for_as_if_kept_one_by_one(total, ttl_s, tiers, moves):
    sequences = Sequences(KvCache(total, 16, prefix=True, ttl_s=ttl_s, tiers=tiers))
    for move, branches, number, pause in moves:
        sequences.clock += pause
        if move == "start":
            sequences.start(prompts(branches), number, chunk=2 + pause)
        elif move == "compute":
            sequences.compute(number, chunk=2 + pause)
        else:
            sequences.finish(number)
        sequences.check()
    while sequences.running:
        sequences.finish(0)
        sequences.check()
    assert sequences.kv.free_blocks == total


def test_a_thousand_blocks_cost_little_more_than_ten():
    """Blocks are kept as runs: the time of a request's life in the cache hardly depends on the length of its prompt."""

    def calls(blocks: int) -> int:
        kv = KvCache(100_000, 16, prefix=True)
        keys = list(range(blocks))
        kv.take(blocks)
        kv.publish(keys)
        kv.release(keys, 0.0)
        seen = 0

        def count(frame, event, argument):
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            kv.hold(keys[: kv.match(keys, 1.0)])
            kv.release(keys, 2.0)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(1_000) == calls(10)
