"""The step loop against the oracle, step for step, and what must hold in every run."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from oracle import Oracle, Pool

from planner.kv_cache import KvCache
from planner.roofline import StepShape
from planner.scenario import Workload
from planner.scheduler import POLICIES, Limits, Replica, Timeline, simulate
from planner.workload import Source, requests


@dataclass
class Affine:
    """A step time made of round figures (6 ms + 33 µs a token + 39 ns a context token): nothing but the loop is under test."""

    base_s: float = 6e-3
    token_s: float = 33e-6
    context_s: float = 39e-9
    windowed_s: float = 11e-9
    pair_s: float = 2e-9
    """Attention of a chunk, per pair of tokens."""

    def decode(self, decode_sequences: int, context_tokens: float, windowed_context_tokens: float) -> float:
        return self(StepShape(decode_sequences, context_tokens, windowed_context_tokens))

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
    assert replica.outstanding_tokens == 0
    return timeline


@pytest.mark.parametrize("seed", range(int(__import__("os").environ.get("N0", "0")), int(__import__("os").environ.get("N1", "60"))))
def test_agrees_with_the_oracle_on_random_scenarios(seed: int) -> None:
    assert_same(random_case(seed))
