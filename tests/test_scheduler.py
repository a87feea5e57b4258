"""The step loop against the oracle, step for step, and what must hold in every run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from oracle import Oracle, Pool

from planner.kv_cache import KvCache, Tier
from planner.roofline import StepShape
from planner.scenario import Workload
from planner.scheduler import FAILED, POLICIES, Limits, Replica, Timeline, simulate
from planner.workload import Request, Source, requests


@dataclass
class Affine:
    """A step time made of round figures (6 ms + 33 µs a token + 39 ns a context token): nothing but the loop is under test."""

    base_s: float = 6e-3
    token_s: float = 33e-6
    context_s: float = 39e-9
    windowed_s: float = 11e-9
    pair_s: float = 2e-9
    """Attention of a chunk, per pair of tokens."""
    drafts: int = 0

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        return self(StepShape(decode_sequences, context_tokens, windowed_context_tokens, verify_tokens=self.drafts * decode_sequences))

    def __call__(self, shape: StepShape) -> float:
        tokens = shape.decode_sequences + shape.verify_tokens + sum(new for new, _ in shape.chunks)
        pairs = sum(new * (cached + new / 2) for new, cached in shape.chunks)
        attention_s = self.context_s * shape.context_tokens + self.windowed_s * shape.windowed_context_tokens + self.pair_s * pairs
        return self.base_s + self.token_s * tokens + attention_s


@dataclass
class Case:
    """Everything one simulation needs."""

    workload: Workload
    limits: Limits
    total_blocks: int
    block_size: int = 16
    policy: str = "mixed"
    prefix: bool = False
    ttl_s: float | None = None

    def source(self) -> Source:
        w = self.workload
        return Source(
            requests(w),
            block_size=self.block_size if self.prefix else 0,
            max_concurrency=w.max_concurrency,
            priority_classes=w.priority_classes,
            deadline_s=w.deadline_s,
            retry_rate=w.retry_rate,
            seed=w.seed,
        )

    def replica(self) -> Replica:
        kv = KvCache(self.total_blocks, self.block_size, prefix=self.prefix, ttl_s=self.ttl_s)
        return Replica(Affine(), self.limits, kv, POLICIES[self.policy])

    def oracle(self) -> Oracle:
        ttl_s = inf if self.ttl_s is None else self.ttl_s
        return Oracle(self.source(), Affine(), self.limits, Pool(self.total_blocks, self.block_size, self.prefix, ttl_s), self.policy)


def random_case(seed: int) -> Case:
    """A small, crowded scenario with a random choice of every feature."""
    r = Random(seed)
    policy = r.choice(["mixed", "mixed", "prefill_first", "static"])
    contiguous = r.random() < 0.2
    load: dict[str, Any] = {"request_rate": r.choice([5.0, 20.0, 200.0])}
    if r.random() < 0.4:
        load = {"request_rate": r.choice([None, 30.0]), "max_concurrency": r.choice([1, 3, 12])}
    if r.random() < 0.3:
        load |= {"priority_classes": [{"share": 0.3, "priority": 0}, {"share": 0.7, "priority": 5}]}
    if r.random() < 0.2:
        load |= {"deadline_s": r.choice([0.3, 2.0]), "retry_rate": r.choice([0.0, 0.5])}
    prefix = not contiguous and r.random() < 0.5
    if r.random() < 0.5:
        load |= {"turns": r.choice([1, 2, 5]), "think_time_s": r.choice([0.0, 0.5]), "shared_prefix_len": r.choice([0, 30, 64])}
        load |= {"prefix_groups": r.choice([1, 3])}
    workload = Workload(
        num_prompts=r.choice([20, 60]),
        input_len={"kind": "lognormal", "mean": r.choice([20, 120]), "cv": 1.0, "max": 400},
        output_len={"kind": "uniform", "mean": r.choice([2, 30, 60]), "half_width": 1.0},
        max_output_len=r.choice([None, 50]),
        thinking_share=r.choice([0.0, 0.0, 0.7]),
        burstiness=r.choice([0.3, 1.0]),
        seed=seed,
        **load,
    )
    limits = Limits(
        max_num_seqs=r.choice([1, 4, 16, 64]),
        max_num_batched_tokens=r.choice([64, 100, 256, 2048]),
        enable_chunked_prefill=r.random() < 0.7,
        max_model_len=r.choice([None, None, 512]),
        contiguous=contiguous,
        max_output_len=r.choice([None, 130]) if contiguous else None,
        static_timeout_s=r.choice([0.0, 0.2, 1.0]) if policy == "static" else 0.0,
        async_scheduling=r.random() < 0.5,
        window=r.choice([None, 48, 128]),
    )
    block_size = r.choice([1, 4, 16])
    total_blocks = max(8, r.choice([260, 700, 4000]) // block_size)
    return Case(workload, limits, total_blocks, block_size, policy, prefix, r.choice([None, None, 0.4]))


def assert_same(case: Case) -> Timeline:
    """The loop and the oracle agree on every request and on every step, to the last bit of a sum."""
    replica = case.replica()
    timeline = simulate(case.source(), replica)
    oracle = case.oracle()
    truth = oracle.run()
    assert timeline.number.tolist() == [s.request.number for s in truth]
    names = ("finished", "failed", "cancelled")
    assert [names[i] for i in timeline.status] == [s.status for s in truth]
    assert timeline.preemptions.tolist() == [s.preemptions for s in truth]
    assert timeline.cached_tokens.tolist() == [s.cached_tokens for s in truth]
    for column in ("scheduled_s", "first_token_s", "answer_s", "finish_s"):
        np.testing.assert_allclose(getattr(timeline, column), [getattr(s, column) for s in truth], rtol=1e-12, atol=0, err_msg=column)
    records = timeline.engines[0].records
    assert records is not None
    end_s, rows, chunk_tokens, used = np.array(oracle.steps or np.empty((0, 4))).T
    np.testing.assert_allclose(records.end_s, end_s, rtol=1e-12, atol=0)
    assert records.decode_sequences.tolist() == rows.tolist()
    assert records.chunk_tokens.tolist() == chunk_tokens.tolist()
    assert records.kv_used_blocks.tolist() == used.tolist()
    assert replica.kv.used_blocks == 0
    assert not replica._scheduler.batch.appointments
    return timeline


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_the_oracle_on_random_scenarios(seed: int) -> None:
    assert_same(random_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_agrees_with_the_oracle_on_many_more_random_scenarios(seed: int) -> None:
    assert_same(random_case(seed))


def test_a_crowd_of_preemptions_agrees_with_the_oracle() -> None:
    lengths = {"kind": "uniform", "half_width": 0.5}
    w = Workload(
        num_prompts=400, request_rate=None, max_concurrency=400, input_len=lengths | {"mean": 100}, output_len=lengths | {"mean": 60}
    )
    served = assert_same(Case(w, Limits(max_num_seqs=64, max_num_batched_tokens=512), total_blocks=300))
    assert served.preemptions.sum() > 100


# Speculation: the oracle draws what every single step accepts, the loop knows only how many steps that took.


def emissions(row: int, output_tokens: int, rates: tuple[float, ...]) -> list[int]:
    """Tokens of each verified step of one request, by the rates, up to its last token."""
    r, steps, left = Random(row), [], output_tokens - 1
    while left > 0:
        chance = r.random()
        steps.append(min(left, 1 + sum(chance < rate for rate in rates)))
        left -= steps[-1]
    return steps


def speculated(policy: str, rate: float, blocks: int, n: int) -> tuple[Timeline, Oracle]:
    """The same traffic with three drafts a step, through the loop and through the oracle."""
    w = Workload(
        num_prompts=n,
        request_rate=rate,
        input_len={"kind": "uniform", "mean": 300, "half_width": 0.5},
        output_len={"kind": "uniform", "mean": 120, "half_width": 0.5},
        thinking_share=0.4,
    )
    limits = Limits(max_num_seqs=64, max_num_batched_tokens=1024, num_speculative_tokens=3, window=256)
    columns = requests(w)
    drawn = [emissions(row, int(output), (0.8, 0.6, 0.45)) for row, output in enumerate(columns.output_tokens)]
    columns = replace(columns, decode_steps=np.array([len(steps) for steps in drawn]))
    step_time = Affine(base_s=8e-3, token_s=100e-6, drafts=3)
    replica = Replica(step_time, limits, KvCache(blocks, 16), POLICIES[policy])
    timeline = simulate(Source(columns), replica)
    oracle = Oracle(Source(columns), step_time, limits, Pool(blocks, 16, False), policy, lambda request: list(drawn[request.row]))
    oracle.run()
    assert replica.kv.used_blocks == 0
    return timeline, oracle


def assert_close(timeline: Timeline, oracle: Oracle, within: float, columns: tuple[str, ...]) -> None:
    truth = sorted(oracle.ended, key=lambda s: s.request.number)
    for name in columns:
        ours = getattr(timeline, name) - timeline.arrival_s
        theirs = np.array([getattr(s, name) - s.request.arrival_s for s in truth])
        for percentile in (50, 90, 95, 99):
            assert np.percentile(ours, percentile) == pytest.approx(np.percentile(theirs, percentile), rel=within), (name, percentile)
    tpot = (timeline.finish_s - timeline.first_token_s) / (timeline.output_tokens - 1)
    true_tpot = np.array([(s.finish_s - s.first_token_s) / (s.request.output_tokens - 1) for s in truth])
    assert np.percentile(tpot, 95) == pytest.approx(np.percentile(true_tpot, 95), rel=within)
    assert timeline.end_s == pytest.approx(oracle.now_s, rel=0.01)


def test_speculation_keeps_the_oracles_latencies() -> None:
    assert_close(*speculated("mixed", 9.0, 20_000, 300), 0.02, ("finish_s",))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "blocks"), [(9.0, 20_000), (60.0, 1000)], ids=["roomy", "tight"])
@pytest.mark.parametrize("policy", ["mixed", "prefill_first"])
def test_speculation_stays_within_two_percent_on_every_percentile(policy: str, rate: float, blocks: int) -> None:
    timeline, oracle = speculated(policy, rate, blocks, 4000)
    assert (timeline.preemptions.sum() > 100) == (blocks == 1000)
    assert_close(timeline, oracle, 0.02, ("first_token_s", "answer_s", "finish_s"))


# Limits and refusals.


def served(workload: Workload, limits: Limits, blocks: int = 1000, policy: str = "mixed", **more: Any) -> Timeline:
    case = Case(workload, limits, blocks, 16, policy, **more)
    return simulate(case.source(), case.replica())


def test_what_can_never_run_fails_at_once_with_the_reason() -> None:
    too_big = served(Workload(num_prompts=2, input_len=15_000.0, output_len=2000.0), Limits())
    assert too_big.status.tolist() == [FAILED] * 2
    assert (too_big.finish_s == too_big.arrival_s).all()
    assert too_big.reasons == ("a request of 17000 tokens needs 1063 KV blocks of 16, the pool has 1000",)
    too_long = served(Workload(num_prompts=2, input_len=4096.0), Limits(max_model_len=4096))
    assert too_long.reasons == ("a prompt of 4096 tokens leaves no room for output within max_model_len 4096",)
    reserved = served(Workload(num_prompts=1, input_len=10.0), Limits(contiguous=True, max_model_len=20_000))
    assert reserved.status.tolist() == [FAILED]


def test_outputs_are_cut_at_max_model_len_and_counted() -> None:
    cut = served(Workload(num_prompts=3, input_len=100.0, output_len=100.0, thinking_share=0.9), Limits(max_model_len=150))
    assert cut.output_tokens.tolist() == [50] * 3
    assert cut.truncated.all()
    assert np.isfinite(cut.answer_s).all()


def test_a_prompt_over_the_budget_goes_whole_without_chunked_prefill() -> None:
    whole = served(
        Workload(num_prompts=1, input_len=5000.0, output_len=3.0), Limits(max_num_batched_tokens=2048, enable_chunked_prefill=False)
    )
    assert whole.engines[0].records.chunk_tokens.tolist() == [5000, 0, 0]
    chunked = served(Workload(num_prompts=1, input_len=5000.0, output_len=3.0), Limits(max_num_batched_tokens=2048))
    assert chunked.engines[0].records.chunk_tokens.tolist() == [2048, 2048, 904, 0, 0]


def test_speculation_leaves_room_for_every_draft_in_the_budget() -> None:
    assert Limits(max_num_seqs=256, max_num_batched_tokens=100, num_speculative_tokens=3).seats == 25
    assert Limits(max_num_seqs=16, max_num_batched_tokens=2048).seats == 16


def test_high_priority_goes_first_and_is_preempted_last() -> None:
    w = Workload(
        num_prompts=120,
        request_rate=60.0,
        input_len=100.0,
        output_len=60.0,
        priority_classes=[{"share": 0.5, "priority": 0}, {"share": 0.5, "priority": 1}],
    )
    crowd = served(w, Limits(max_num_seqs=8, max_num_batched_tokens=512), blocks=60)
    ttft_s = crowd.first_token_s - crowd.arrival_s
    urgent = crowd.priority_class == 0
    assert ttft_s[urgent].mean() < 0.5 * ttft_s[~urgent].mean()
    assert crowd.preemptions[urgent].sum() < crowd.preemptions[~urgent].sum()


def test_a_static_batch_waits_for_company_and_then_for_its_timeout() -> None:
    w = Workload(num_prompts=6, request_rate=2.0, input_len=10.0, output_len=5.0)
    patient = served(w, Limits(max_num_seqs=3, static_timeout_s=1000.0), policy="static")
    assert patient.scheduled_s.tolist() == [*[patient.arrival_s[2]] * 3, *[patient.arrival_s[5]] * 3]
    hasty = served(w, Limits(max_num_seqs=3, static_timeout_s=0.25), policy="static")
    assert hasty.scheduled_s[0] == min(hasty.arrival_s[0] + 0.25, hasty.arrival_s[2])


def test_records_are_optional_and_change_nothing() -> None:
    case = random_case(3)
    bare = case.replica()
    without = simulate(case.source(), Replica(Affine(), case.limits, bare.kv, bare.policy, record_steps=False))
    full = simulate(case.source(), case.replica())
    np.testing.assert_array_equal(without.finish_s, full.finish_s)
    assert without.engines[0].records is None
    assert without.output_busy_s == full.output_busy_s
    assert without.steps == full.steps == len(full.engines[0].records.end_s)
    part = full.engines[0].records.between(full.end_s * 0.25, full.end_s * 0.5)
    assert ((part["end_s"] > full.end_s * 0.25) & (part["end_s"] <= full.end_s * 0.5)).all()
    assert len({len(column) for column in part.values()}) == 1


# Bounds: nothing hangs.


def test_a_run_that_would_not_end_is_stopped_and_says_so() -> None:
    endless = Workload(num_prompts=1, request_rate=1.0, input_len=10.0, output_len=1e8)
    case = Case(endless, Limits(), 10**8)
    timeline = simulate(case.source(), case.replica(), max_steps=1000)
    assert timeline.steps == 1000
    assert timeline.stopped == "stopped after 1,000 steps with 1 requests unfinished"
    assert not timeline.finished.any()


def test_a_storm_of_retries_is_stopped_and_says_so() -> None:
    w = Workload(num_prompts=30, request_rate=100.0, input_len=100.0, output_len=100.0, deadline_s=0.5, retry_rate=1.0)
    storm = served(w, Limits(max_num_seqs=1))
    assert len(storm) <= 300
    assert storm.stopped == "stopped after 300 requests: retries keep coming"


# Doors for a fleet: KV that comes along, stays behind, or is fetched back.


def request(number: int, input_tokens: int, output_tokens: int, arrival_s: float = 0.0, **more: Any) -> Request:
    return Request(number, arrival_s, input_tokens, output_tokens, output_tokens - 1, **more)


def test_a_prompt_computed_elsewhere_decodes_at_once() -> None:
    step_time, kv = Affine(), KvCache(100, 16)
    replica = Replica(step_time, Limits(), kv)
    moved = request(0, 160, 5, has_kv=True, first_token_s=0.0)
    replica.admit(moved, 0.0)
    assert replica.advance(inf) == [moved]
    assert moved.finish_s == pytest.approx(sum(step_time.decode(1, 160 + i, 0) for i in range(1, 5)), rel=1e-12)
    assert (moved.cached_tokens, kv.used_blocks) == (160, 0)
    done = request(1, 160, 1, has_kv=True)
    replica.admit(done, 1.0)
    assert replica.advance(inf) == [done]


def test_kv_of_a_prefill_stays_until_it_is_moved() -> None:
    kv = KvCache(10, 16)
    replica = Replica(Affine(), Limits(), kv)
    first, second = request(0, 100, 1, keeps_kv=True), request(1, 100, 1, keeps_kv=True)
    for r in (first, second):
        replica.admit(r, 0.0)
    assert replica.advance(inf) == [first]
    assert kv.used_blocks == 7
    assert replica.advance(inf) == [], "no room until the first one's KV has gone"
    replica.free(first, 3.0)
    assert replica.advance(inf) == [second]
    assert second.scheduled_s == 3.0
    replica.free(second, second.finish_s)
    assert kv.used_blocks == 0


def test_a_prefix_in_a_slower_tier_is_fetched_before_it_is_used() -> None:
    kv = KvCache(20, 16, prefix=True, tiers=(Tier("cpu", 100, 0.25),))
    replica = Replica(Affine(), Limits(), kv)
    asked, flushing = tuple(range(10)), tuple(range(100, 119))
    for number, keys in enumerate((asked, flushing)):
        replica.admit(request(number, 16 * len(keys) + 1, 1, keys=keys), float(number))
        replica.advance(inf)
    in_tier = sum(not kv.match((key,), 2.0) or kv.fetch_s((key,)) > 0 for key in asked)
    assert in_tier >= 9, "the second prompt has pushed the first one's blocks out"
    again = request(2, 161, 1, arrival_s=2.0, keys=asked)
    replica.admit(again, 2.0)
    replica.advance(2.5)
    assert (replica.running_count, replica.idle, replica.next_start_s()) == (1, True, 2.0 + 0.25 * in_tier)
    assert replica.advance(inf) == [again]
    assert again.cached_tokens == 160
    assert again.first_token_s == pytest.approx(2.0 + 0.25 * in_tier + Affine()(StepShape(chunks=((1, 160),))), rel=1e-9)


def test_a_fetch_holds_nobody_else_up() -> None:
    kv = KvCache(100, 16, prefix=True, tiers=(Tier("cpu", 100, 0.25),))
    replica = Replica(Affine(), Limits(), kv)
    asked = tuple(range(10))
    replica.admit(request(0, 161, 1, keys=asked), 0.0)
    replica.advance(inf)
    kv.take(95)
    kv.give(95)
    slow, quick = request(1, 161, 1, arrival_s=1.0, keys=asked), request(2, 50, 3, arrival_s=1.5)
    replica.admit(slow, 1.0)
    assert replica.advance(1.5) == []
    replica.admit(quick, 1.5)
    assert replica.advance(inf) == [quick]
    assert quick.scheduled_s == 1.5
    assert replica.advance(inf) == [slow]
    assert slow.finish_s > 1.0 + 0.25


def test_a_router_sees_how_loaded_a_replica_is() -> None:
    replica = Replica(Affine(), Limits(max_num_seqs=2), KvCache(100, 16))
    assert (replica.queue_length, replica.running_count, replica.next_start_s()) == (0, 0, inf)
    for number in range(3):
        replica.admit(request(number, 32, 10), 0.0)
    assert (replica.queue_length, replica.running_count) == (3, 0)
    replica.advance(1e-9)
    assert (replica.queue_length, replica.running_count, replica.free_seats, replica.kv.free_blocks) == (1, 2, 0, 96)
    assert replica.now_s == replica.next_start_s() > 0
    assert [r.number for r in replica.unfinished] == [0, 1, 2]
    while replica.advance(inf):
        pass
    assert (replica.unfinished, replica.idle) == ([], True)


def test_at_load_time_is_split_between_output_input_and_cached_input() -> None:
    """One decoding sequence meets a prompt half of which is cached: each second has one owner."""
    step_time = Affine()
    kv = KvCache(1000, 16, prefix=True)
    replica = Replica(step_time, Limits(), kv)
    replica.admit(request(0, 161, 1, keys=tuple(range(10))), 0.0)
    replica.advance(inf)
    replica.admit(request(1, 50, 40, arrival_s=0.5), 0.5)
    replica.advance(0.55)
    before = replica.log()
    replica.admit(request(2, 321, 1, arrival_s=0.55, keys=tuple(range(20))), 0.55)
    replica.advance(inf)
    after = replica.log()
    decode_s = step_time.decode(1, replica._scheduler.batch.context_tokens - 1, 0)
    with_prefix = step_time(StepShape(1, 0, 0, ((161, 160),), 2, 0)) - step_time(StepShape(1, 0, 0, ((161, 0),), 2, 0))
    assert after.cached_busy_s - before.cached_busy_s == pytest.approx(with_prefix, rel=1e-9)
    chunk = step_time(StepShape(0, 0, 0, ((161, 0),))) - step_time.base_s
    assert after.input_busy_s - before.input_busy_s == pytest.approx(chunk, rel=1e-9)
    assert after.output_busy_s - before.output_busy_s == pytest.approx(decode_s, rel=1e-9)


def test_prompts_computed_elsewhere_wait_for_a_seat() -> None:
    pool = Replica(Affine(), Limits(max_num_seqs=2), KvCache(1000, 16))
    moved = [request(number, 160, 9, has_kv=True, first_token_s=0.0) for number in range(5)]
    for each in moved:
        pool.admit(each, 0.0)
    while pool.advance(inf):
        assert pool.running_count <= 2
    ends = [each.finish_s for each in moved]
    assert ends[0] == ends[1] < ends[2] == ends[3] < ends[4]
    assert moved[2].scheduled_s == ends[0]
