"""The fewest replicas that keep a promise: exact in small fleets, close in large ones, and never beyond the bound of work."""

from __future__ import annotations

from functools import lru_cache

import pytest

from planner import bounds
from planner.economics import sensitivity, sizing
from planner.economics.sizing import OutOfWork, Work
from planner.scenario import Scenario

CARRIES = 25.7
"""Requests a second of one replica of the made-up system."""
COST = 1000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fleets that were simulated, of a system that carries CARRIES a replica and costs COST to try; answers are kept as in the real one."""
    counts: list[int] = []

    @lru_cache(maxsize=1024)
    def tried(_scenario: Scenario, rate: float, count: int) -> tuple[bool, int]:
        counts.append(count)
        return rate <= CARRIES * count, COST

    monkeypatch.setattr(sizing, "_tried", tried)
    monkeypatch.setattr(sizing, "holds_alone", lambda _scenario: True)
    return counts


def test_small_fleets_are_sized_to_the_replica(asked: list[int]) -> None:
    assert [sizing.replicas_needed(Scenario(), rate) for rate in (25.7, 26.0, 100.0, 2000.0)] == [1, 2, 4, 78]
    assert len(asked) < 4 * 15


def test_a_large_fleet_is_sized_by_what_one_of_its_replicas_carries(asked: list[int]) -> None:
    assert 38_911 <= sizing.replicas_needed(Scenario(), 1e6) <= 38_911 * sizing.TOLERANCE * 1.001
    assert max(asked) <= 2 * sizing.LARGE_FLEET
    first = len(asked)
    assert sizing.replicas_needed(Scenario(), 2e5) == pytest.approx(7783, rel=0.006)
    assert len(asked) - first < 10, "what one replica carries is found once"
    assert sizing.replicas_needed(Scenario(), 1e8) == 0


def test_work_ends_a_search_at_the_same_place_whatever_is_known_from_before(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WORK_PER_SEARCH", 5 * COST)
    for _ in range(2):
        work = Work()
        with pytest.raises(OutOfWork, match="PLANNER_MAX_WORK_PER_SEARCH = 5,000"):
            sizing.replicas_needed(Scenario(), 2000.0, work)
        assert work.out
    assert len(asked) == 6


@pytest.mark.usefixtures("asked")
def test_a_tornado_gives_the_bars_that_work_allows_and_names_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Scenario().model_copy(update={"workload": Scenario().workload.model_copy(update={"request_rate": 2000.0})})
    case = sensitivity.Case(busy)
    everything = list(sensitivity.tornado(case))
    assert [bar.name for bar in everything] == list(sensitivity.inputs(case))
    assert not sensitivity.left_out(case, [bar.name for bar in everything])
    monkeypatch.setattr(bounds, "MAX_WORK_PER_SEARCH", 60 * COST)
    some = list(sensitivity.tornado(case))
    assert 0 < len(some) < len(everything)
    assert some == everything[: len(some)]
    told = sensitivity.left_out(case, [bar.name for bar in some])
    assert all((bar.name in told) == (bar not in some) for bar in everything)
    flips = list(sensitivity.flips(case))
    assert [flip.name for flip in flips] == list(sensitivity.inputs(case))
    assert "within the work that one search may cause" in flips[-1].message
