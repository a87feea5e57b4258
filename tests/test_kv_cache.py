import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.kv_cache import KvCache, Tier, tiers_of
from planner.scenario import OffloadTier


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
    assert kv.publish(["a", "b", "c"], now=0.0) == 0
    kv.give(1)
    assert kv.release(["a", "b", "c"], now=1.0) == 3
    assert (kv.free_blocks, kv.idle_blocks) == (10, 3)
    assert kv.match(["a", "b", "x", "c"], now=2.0) == 2
    kv.take(8)
    assert kv.match(["a", "b", "c"], now=3.0) == 2, "the end of a prompt is evicted before its beginning"
    kv.take(2)
    assert kv.match(["a"], now=3.0) == 0


def test_a_shared_prefix_is_held_once():
    kv = KvCache(10, 16, prefix=True)
    kv.take(3)
    kv.publish([1, 2, 3], now=0.0)
    assert kv.cost([1, 2, 3]) == 0
    assert kv.hold([1, 2, 3], now=0.0) == 0
    assert kv.used_blocks == 3
    kv.release([1, 2, 3], now=1.0)
    assert kv.used_blocks == 3, "the second sequence still reads it"
    kv.release([1, 2, 3], now=2.0)
    assert kv.used_blocks == 0
    assert kv.hold([1, 2], now=3.0) == 2
    assert (kv.used_blocks, kv.idle_blocks) == (2, 1)


def test_two_sequences_that_computed_the_same_prompt_end_with_one_copy():
    kv = KvCache(10, 16, prefix=True)
    kv.take(6)
    assert kv.publish([1, 2, 3], now=0.0) == 0
    assert kv.publish([1, 2, 4], now=0.0) == 2
    assert kv.used_blocks == 4
    kv.release([1, 2, 3], now=0.0)
    kv.release([1, 2, 4], now=0.0)
    assert (kv.used_blocks, kv.idle_blocks) == (0, 4)


def test_republishing_an_idle_block_frees_the_copy_and_revives_the_original():
    kv = KvCache(4, 16, prefix=True)
    kv.take(1)
    kv.publish(["a"], now=0.0)
    kv.release(["a"], now=0.0)
    kv.take(1)
    assert kv.publish(["a"], now=1.0) == 0
    assert (kv.used_blocks, kv.idle_blocks) == (1, 0)


def test_order_of_eviction_is_order_of_last_use():
    kv = KvCache(3, 16, prefix=True)
    for at, key in enumerate("abc"):
        kv.take(1)
        kv.publish([key], now=at)
        kv.release([key], now=at)
    kv.hold(["a"], now=3)
    kv.release(["a"], now=3)
    kv.take(1)
    assert [kv.match([key], now=4) for key in "abc"] == [1, 0, 1]


def test_lifetime_counts_from_last_use_and_spares_what_is_in_use():
    kv = KvCache(8, 16, prefix=True, ttl_s=300)
    kv.take(2)
    kv.publish(["a", "b"], now=0.0)
    assert kv.match(["a", "b"], now=1e6) == 2, "held blocks do not age"
    kv.release(["a", "b"], now=100.0)
    assert kv.match(["a", "b"], now=400.0) == 2
    assert kv.match(["a", "b"], now=400.1) == 0
    kv.hold(["a"], now=350.0)
    kv.release(["a"], now=350.0)
    assert kv.match(["a", "b"], now=500.0) == 1


def test_without_a_prefix_cache_nothing_is_named():
    kv = KvCache(8, 16)
    kv.take(2)
    assert kv.publish(["a", "b"], now=0.0) == 0
    assert kv.match(["a", "b"], now=0.0) == 0
    kv.give(2)
    assert kv.free_blocks == 8


def test_evicted_blocks_wait_in_the_tiers_and_cost_their_fetch():
    kv = KvCache(2, 16, prefix=True, tiers=(Tier("cpu", 2, 0.001), Tier("ssd", 1, 0.01)))
    for at, key in enumerate("abcdef"):
        kv.take(1)
        kv.publish([key], now=at)
        kv.release([key], now=at)
    assert [kv.match([key], now=9) for key in "abcdef"] == [0, 1, 1, 1, 1, 1], "2 on the GPU, 2 in memory, 1 on disk, the oldest gone"
    assert [kv.fetch_s([key]) for key in "bcdef"] == [0.01, 0.001, 0.001, 0.0, 0.0]
    assert kv.hold(["b"], now=10) == 1
    assert kv.fetch_s(["b"]) == 0.0
    assert kv.used_blocks == 1
    assert kv.match(["e"], now=11) == 1
    assert kv.fetch_s(["e"]) == 0.001, "the block that had to make room went one tier down"


def test_tier_sizes_follow_the_scenario():
    (tier,) = tiers_of([OffloadTier(tier="cpu", gib=1.0, gb_s=10.0)], block_bytes=2**21)
    assert tier == Tier("cpu", 512, 2**21 / 10e9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kv: kv.hold(["z"], 0.0), "'z' is held but not cached"),
        (lambda kv: kv.release(["z"], 0.0), "'z' is released but not held"),
        (lambda kv: kv.publish(["z"], 0.0), "1 KV blocks published, 0 anonymous"),
    ],
)
def test_wrong_calls_say_what_is_wrong_and_change_nothing(call, message):
    kv = KvCache(4, 16, prefix=True)
    with pytest.raises(ValueError, match=message):
        call(kv)
    assert (kv.free_blocks, kv.idle_blocks, kv.keyed_blocks) == (4, 0, 0)


class Sequences:
    """What an engine does with a pool, kept as plain lists beside it: the slow truth."""

    def __init__(self, kv: KvCache) -> None:
        self.kv, self.running, self.clock = kv, [], 0.0

    def start(self, prompt: list[int], extra: int) -> None:
        kv, now = self.kv, self.clock
        matched = prompt[: kv.match(prompt, now)]
        wanted = kv.cost(matched) + len(prompt) - len(matched) + extra
        if wanted > kv.free_blocks:
            return
        before = kv.free_blocks
        kv.hold(matched, now)
        kv.take(len(prompt) - len(matched) + extra)
        assert before - kv.free_blocks == wanted
        kv.publish(prompt[len(matched) :], now)
        self.running.append((prompt, extra))

    def finish(self, index: int) -> None:
        if self.running:
            prompt, extra = self.running.pop(index % len(self.running))
            self.kv.give(extra)
            self.kv.release(prompt, self.clock)

    def check(self) -> None:
        kv = self.kv
        keyed = {tuple(prompt[: i + 1]) for prompt, _ in self.running for i in range(len(prompt))}
        used = len(keyed) + sum(extra for _, extra in self.running)
        assert kv.used_blocks == used
        assert kv.used_blocks + kv.free_blocks == kv.total_blocks
        assert 0 <= kv.idle_blocks <= kv.free_blocks
        assert kv.keyed_blocks == len(keyed)


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 30),
    ttl_s=st.sampled_from([None, 5.0]),
    tiers=st.sampled_from([(), (Tier("cpu", 4, 0.1),), (Tier("cpu", 3, 0.1), Tier("ssd", 0, 1.0), Tier("remote", 5, 1.0))]),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 9), st.integers(0, 4), st.integers(0, 3)), max_size=60),
)
def test_every_block_is_accounted_for_whatever_happens(total, ttl_s, tiers, moves):
    sequences = Sequences(KvCache(total, 16, prefix=True, ttl_s=ttl_s, tiers=tiers))
    for starts, family, length, extra, pause in moves:
        sequences.clock += pause
        if starts:
            tree = [(family if depth >= 3 else 0, depth) for depth in range(length)]
            sequences.start([hash(tuple(tree[: i + 1])) for i in range(length)], extra)
        else:
            sequences.finish(family)
        sequences.check()
    while sequences.running:
        sequences.finish(0)
        sequences.check()
    assert sequences.kv.free_blocks == total
