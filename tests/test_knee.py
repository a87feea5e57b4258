"""The capacity of a plan agrees with the plan's own verdict, and with itself from wherever it is asked."""

from __future__ import annotations

import pytest

from planner import Plan, plan
from planner.capacity import Probe
from planner.metrics import Kept, Promise
from planner.plan import knee as search
from planner.plan.knee import stretched, worst
from planner.scenario import Scenario, parse

TTFT, TPOT = Promise("ttft_s", 1.0, 95), Promise("tpot_s", 0.1, 95)


def test_the_worst_promise_is_judged_by_its_mean_over_runs() -> None:
    runs = [(Kept(TTFT, 0.2), Kept(TPOT, 0.09)), (Kept(TTFT, 1.0), Kept(TPOT, 0.05))]
    assert worst(runs) == pytest.approx(0.7), "the mean of the largest would be 0.95"
    assert worst([()]) == 0.0


def test_a_curve_is_stretched_as_a_whole() -> None:
    assert stretched([Probe(3.0, 2.0), Probe(1.0, 0.5)], 1.5) == (Probe(1.0, 0.75), Probe(3.0, 3.0))


def test_the_worst_bursts_at_the_anchor_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth run is one whose queue grows to its end: it breaks off a probe, and stays among the many runs at one rate."""
    monkeypatch.setattr(search, "overloaded", lambda seed: seed % 5 == 4)
    monkeypatch.setattr(search, "work", lambda *_: 1.0)
    monkeypatch.setattr(search._Runs, "kept", lambda _, seed: (Kept(TTFT, 3.0 if seed % 5 == 4 else 0.5),))
    runs = search._Runs(lambda seed, *_: seed, Scenario(), 1.0, 0.0, 100, 0.0)  # type: ignore[arg-type, return-value]
    assert runs.probe(2.0) == 0.5
    rate, many = runs.anchor(2.1)
    assert rate == 2.0
    assert worst(many) == pytest.approx(0.5 + 2.5 / 5)


def heavy_tailed(rate: float, seed: int) -> Plan:
    """Bursts of long prompts: one run in ten sees three times the p95 of the others."""
    traffic = {
        "request_rate": rate,
        "seed": seed,
        "num_prompts": 120,
        "input_len": {"kind": "lognormal", "mean": 1155, "cv": 1.86, "max": 16000},
        "output_len": {"kind": "lognormal", "mean": 60, "cv": 0.6, "max": 600},
    }
    return plan(parse({"workload": traffic, "slo": {"ttft_s": 0.3, "tpot_s": None}, "engine": {"max_num_seqs": 64}}), "full")


@pytest.mark.slow
def test_the_capacity_cannot_contradict_the_verdict_and_is_found_from_afar() -> None:
    far = heavy_tailed(4.0, 1)
    assert far.load is not None
    knee, interval = far.load.capacity_requests_per_s, far.load.capacity_interval
    assert knee is not None
    assert interval is not None
    assert interval[0] < knee < interval[1]
    for share in (0.9, 1.1):
        near = heavy_tailed(share * knee, 2).load
        assert near is not None
        if near.overloaded:
            continue
        keeps = all(kept.strain <= 1 for kept in near.kept)
        assert keeps == (near.capacity_requests_per_s >= near.offered_requests_per_s)
        assert near.capacity_interval is not None
        assert near.capacity_interval[0] < interval[1]
        assert interval[0] < near.capacity_interval[1]
