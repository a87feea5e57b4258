"""Where queueing theory or plain arithmetic knows the answer, the simulation gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from test_scheduler import Affine, random_case

from planner.kv_cache import KvCache
from planner.metrics import t_interval
from planner.roofline import StepShape
from planner.scenario import Workload
from planner.scheduler import FINISHED, POLICIES, UNFINISHED, Limits, Replica, Timeline, simulate
from planner.workload import Source, requests

ROOMY = 10**6
"""KV blocks that never run out."""


def run(workload: Workload, limits: Limits, step_time=None, policy: str = "mixed", blocks: int = ROOMY) -> Timeline:
    source = Source(requests(workload), max_concurrency=workload.max_concurrency)
    return simulate(source, Replica(step_time or Affine(), limits, KvCache(blocks, 16), POLICIES[policy]))


@dataclass
class Constant:
    """Every step takes as long."""

    seconds: float

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        return self.seconds

    def __call__(self, shape: StepShape) -> float:
        return self.seconds


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_lone_request_takes_exactly_its_steps(policy: str, async_scheduling: bool) -> None:
    step_time = Affine()
    limits = Limits(max_num_batched_tokens=400, async_scheduling=async_scheduling)
    one = run(Workload(num_prompts=1, input_len=1000.0, output_len=50.0), limits, step_time, policy)
    chunks = [(400, 0), (400, 400), (200, 800)]
    ttft_s = sum(step_time(StepShape(chunks=(chunk,), logit_rows=chunk == chunks[-1])) for chunk in chunks)
    decode_s = sum(step_time.decode(1, 1000 + i, 0) for i in range(1, 50))
    assert one.first_token_s[0] - one.arrival_s[0] == pytest.approx(ttft_s, rel=1e-12)
    assert one.finish_s[0] - one.first_token_s[0] == pytest.approx(decode_s, rel=1e-12)


def test_with_asynchronous_scheduling_ttft_is_the_rest_of_a_step_one_more_and_its_own() -> None:
    """Two and a half steps on average for a request that meets a decoding engine."""
    w = Workload(num_prompts=800, request_rate=1 / 3.7, input_len=1.0, output_len=100.0)
    ttft = {}
    for lag in (False, True):
        busy = run(w, Limits(async_scheduling=lag), Constant(0.1))
        met = np.flatnonzero(busy.arrival_s[1:] < busy.finish_s[:-1]) + 1
        ttft[lag] = float((busy.first_token_s - busy.arrival_s)[met].mean())
    assert ttft[False] == pytest.approx(1.5 * 0.1, rel=0.05)
    assert ttft[True] == pytest.approx(2.5 * 0.1, rel=0.05)


def md1_waits(load: float, n: int, seed: int) -> tuple[Timeline, np.ndarray]:
    """One seat, a fixed service of 20 ms: the run, and waits in services."""
    w = Workload(num_prompts=n, request_rate=load / 0.02, input_len=10.0, output_len=1.0, seed=seed)
    served = run(w, Limits(max_num_seqs=1), Constant(0.02))
    return served, (served.scheduled_s - served.arrival_s) / 0.02


def test_one_seat_and_a_fixed_service_obey_lindleys_recursion() -> None:
    served, waits = md1_waits(0.9, 1500, 0)
    truth = [0.0]
    for gap_s in np.diff(served.arrival_s):
        truth.append(max(0.0, truth[-1] + 1 - gap_s / 0.02))
    np.testing.assert_allclose(waits, truth, atol=1e-9)


@pytest.mark.parametrize(
    ("load", "n", "runs"),
    [(0.5, 1200, 6), pytest.param(0.8, 10_000, 20, marks=pytest.mark.slow), pytest.param(0.9, 10_000, 20, marks=pytest.mark.slow)],
)
def test_one_seat_and_a_fixed_service_wait_as_long_as_theory_says(load: float, n: int, runs: int) -> None:
    """M/D/1: mean wait = load / (2 (1 − load)) services (Pollaczek and Khinchine)."""
    low, high = t_interval([float(md1_waits(load, n, seed)[1][n // 10 :].mean()) for seed in range(runs)])
    assert low <= load / (2 * (1 - load)) <= high
    assert high - low < 0.3 * load / (2 * (1 - load))


def test_a_saturated_engine_delivers_its_batch_every_step() -> None:
    """1,024 prompts of one token, 500 tokens each, 128 seats: whole batches, so tokens per second are batch over mean step."""
    step_time = Affine()
    w = Workload(num_prompts=1024, request_rate=None, max_concurrency=1024, input_len=1.0, output_len=500.0)
    served = run(w, Limits(max_num_seqs=128), step_time)
    mean_step_s = np.mean([step_time.decode(128, 128 * (1 + i), 0) for i in range(1, 500)])
    assert served.output_tokens.sum() / served.end_s == pytest.approx(128 / mean_step_s, rel=5e-3)


@pytest.mark.parametrize("policy", ["mixed", "prefill_first"])
def test_littles_law(policy: str) -> None:
    """Rows of the steps, over time, against rate × time spent decoding: two countings that share no code."""
    served = run(
        Workload(num_prompts=800, request_rate=10.0, input_len=800.0, output_len=120.0), Limits(max_num_batched_tokens=2048), policy=policy
    )
    records = served.engines[0].records
    if policy == "mixed":
        in_decode = float((records.decode_sequences * records.seconds.astype(float)).sum())
        assert in_decode == pytest.approx(float((served.finish_s - served.first_token_s).sum()), rel=1e-6)
    moments = np.linspace(10.0, 70.0, 4001)
    in_system = np.searchsorted(served.arrival_s, moments, side="right") - np.searchsorted(np.sort(served.finish_s), moments, side="right")
    here = (served.arrival_s > 10.0) & (served.arrival_s < 70.0)
    rate, stay_s = here.sum() / 60.0, float((served.finish_s - served.arrival_s)[here].mean())
    assert in_system.mean() == pytest.approx(rate * stay_s, rel=0.05)


@pytest.mark.parametrize("seed", range(300, 320))
def test_tokens_blocks_and_requests_are_conserved(seed: int) -> None:
    case = random_case(seed)
    replica = case.replica()
    served = simulate(case.source(), replica)
    records = served.engines[0].records
    assert len(np.unique(served.number)) == len(served)
    assert replica.kv.free_blocks == case.total_blocks
    assert (records.kv_used_blocks <= case.total_blocks).all()
    assert (np.diff(records.end_s) > 0).all()
    assert (records.decode_sequences <= case.limits.seats).all()
    budget = case.limits.max_num_batched_tokens
    if case.limits.enable_chunked_prefill:
        assert (records.decode_sequences + records.chunk_tokens <= max(budget, case.limits.seats)).all() or case.policy == "static"
    done = served.status == FINISHED
    assert (served.scheduled_s[done] >= served.arrival_s[done]).all()
    assert (served.first_token_s[done] > served.scheduled_s[done]).all()
    assert (served.answer_s[done] >= served.first_token_s[done]).all()
    assert (served.finish_s[done] >= served.answer_s[done]).all()
    assert (served.cached_tokens <= served.input_tokens).all()
    if done.all() and not served.preemptions.any():
        padding = served.engines[0].padding_rows
        assert records.decode_sequences.sum() - padding == (served.output_tokens - 1).sum()
        assert records.chunk_tokens.sum() == (served.input_tokens - served.cached_tokens).sum()
    total = served.engines[0]
    assert total.busy_s == pytest.approx(float(records.seconds.astype(float).sum()), rel=1e-5)
    assert min(total.output_busy_s, total.input_busy_s, total.cached_busy_s) >= 0


@pytest.mark.parametrize("seed", range(15))
def test_blocks_and_requests_are_conserved_under_speculation(seed: int) -> None:
    case = random_case(500 + seed)
    case.limits = replace(case.limits, num_speculative_tokens=2)
    replica = case.replica()
    columns = requests(case.workload, acceptance_rates=(0.7, 0.5))
    block_size = case.block_size if case.prefix else 0
    source = Source(columns, block_size, case.workload.max_concurrency, case.workload.priority_classes, case.workload.deadline_s)
    served = simulate(source, replica)
    assert (served.status != UNFINISHED).all()
    assert len(np.unique(served.number)) == len(served)
    assert replica.kv.free_blocks == case.total_blocks
    assert (served.engines[0].records.kv_used_blocks <= case.total_blocks).all()
    done = served.finished
    assert (served.finish_s[done] >= served.first_token_s[done]).all()
    assert (served.answer_s[done] <= served.finish_s[done]).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    case = random_case(400 + seed)
    first, second = (simulate(case.source(), case.replica()) for _ in range(2))
    for column in ("finish_s", "first_token_s", "preemptions", "cached_tokens"):
        np.testing.assert_array_equal(getattr(first, column), getattr(second, column))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("load", [{"request_rate": 40.0}, {"request_rate": None, "max_concurrency": 24}], ids=["open", "closed"])
@pytest.mark.parametrize("blocks", [ROOMY, 300], ids=["roomy", "tight"])
def test_a_faster_gpu_never_serves_less(policy: str, load: dict, blocks: int) -> None:
    w = Workload(
        num_prompts=200,
        input_len={"kind": "uniform", "mean": 200, "half_width": 0.8},
        output_len={"kind": "uniform", "mean": 60, "half_width": 0.9},
        **load,
    )
    limits = Limits(max_num_seqs=32, max_num_batched_tokens=512, static_timeout_s=0.3 if policy == "static" else 0.0)
    ends = []
    for scale in (1.0, 0.9, 0.75, 0.5, 0.25):
        slow = Affine()
        faster = Affine(slow.base_s * scale, slow.token_s * scale, slow.context_s * scale, slow.windowed_s * scale, slow.pair_s * scale)
        ends.append(run(w, limits, faster, policy, blocks).end_s)
    assert all(later <= earlier * (1 + 1e-3) for earlier, later in pairwise(ends)), ends


def test_a_static_batch_is_as_full_as_its_lengths_allow() -> None:
    """Occupancy of batches taken in order: Σ tokens over rows × longest."""
    w = Workload(
        num_prompts=160, request_rate=None, max_concurrency=160, input_len=20.0, output_len={"kind": "lognormal", "mean": 80, "cv": 1.1}
    )
    served = run(w, Limits(max_num_seqs=16), policy="static")
    batches = (served.output_tokens - 1).reshape(-1, 16)
    engine = served.engines[0]
    assert 1 - engine.padding_rows / engine.decode_rows == pytest.approx(batches.sum() / (16 * batches.max(axis=1)).sum(), rel=1e-12)
    # Everybody in a batch waits for the longest member of the one before.
    first = served.scheduled_s.reshape(-1, 16)
    assert (first[1:].min(axis=1) >= served.finish_s.reshape(-1, 16).max(axis=1)[:-1]).all()


def test_contiguous_reservation_wastes_what_lengths_leave_and_paging_gains_it() -> None:
    w = Workload(num_prompts=300, request_rate=None, max_concurrency=300, input_len=300.0, output_len=100.0)
    contiguous = run(w, Limits(max_num_seqs=300, contiguous=True, max_model_len=2048), blocks=1280)
    paged = run(w, Limits(max_num_seqs=300, max_model_len=2048), blocks=1280)
    reserved, held = contiguous.engines[0], paged.engines[0]
    assert reserved.decode_rows / reserved.decode_steps == pytest.approx(10, rel=0.02), "1,280 blocks of 16 are 10 × 2,048 tokens"
    assert reserved.kv_token_s / (reserved.kv_block_s * 16) == pytest.approx(350 / 2048, rel=0.03)
    assert held.kv_token_s / (held.kv_block_s * 16) > 0.95
    assert contiguous.end_s / paged.end_s > 2.5
    assert contiguous.preemptions.sum() == 0 < paged.preemptions.sum()


def test_the_loop_without_chunks_to_plan_equals_the_loop_that_plans_every_step() -> None:
    """`advance` in slices shorter than any step forbids runs of decode steps, and changes nothing."""
    case = random_case(11)
    whole = simulate(case.source(), case.replica())
    sliced = case.replica()
    source, step = case.source(), sliced.advance
    sliced.advance = lambda until: step(min(until, sliced.now_s + 1e-9) if not sliced.idle else until)  # type: ignore[method-assign]
    np.testing.assert_array_equal(drained(source, sliced), whole.finish_s)


def drained(source: Source, replica: Replica) -> np.ndarray:
    finish_s: dict[int, float] = {}
    while True:
        arrival_s = source.peek()
        steps = replica.steps
        for request in (ended := replica.advance(arrival_s)):
            finish_s[request.number] = request.finish_s
            source.finished(request)
        if not ended and replica.steps == steps:
            if arrival_s == float("inf"):
                return np.array([finish_s[n] for n in sorted(finish_s)])
            replica.admit(source.next(), arrival_s)
