"""The capacity search against queues whose answer is known."""

import math

import pytest

from planner.capacity import Probe, crossing, largest_rate, strain_at


def mm1(service_rate: float, promise_s: float):
    """Mean time in an M/M/1 queue over the promise; the answer is service_rate - 1 / promise_s."""
    return lambda rate: math.inf if rate >= service_rate else 1 / (service_rate - rate) / promise_s


@pytest.mark.parametrize("start", [0.01, 1.0, 7.9, 400.0])
def test_finds_the_knee_from_any_start(start: float) -> None:
    found = largest_rate(mm1(10.0, 0.5), start, tolerance=0.02, max_probes=40)
    assert found.rate == pytest.approx(8.0, rel=0.02)
    assert found.rate <= 8.0 <= found.limit


def test_takes_few_probes_from_a_fair_guess() -> None:
    assert len(largest_rate(mm1(10.0, 0.5), 6.0).probes) <= 8


def test_a_promise_that_one_request_breaks_is_infeasible() -> None:
    found = largest_rate(mm1(10.0, 0.05), 4.0)
    assert found.rate == 0.0
    assert found.limit is not None
    assert len(found.probes) <= 16


def test_stops_at_the_most_that_can_be_offered() -> None:
    found = largest_rate(lambda rate: 0.1, 1.0, at_most=5.0)
    assert (found.rate, found.limit) == (5.0, None)


def test_a_cliff_is_bracketed_too() -> None:
    found = largest_rate(lambda rate: 0.3 if rate < 3.3 else math.inf, 1.0)
    assert found.rate < 3.3 <= found.limit <= found.rate * 1.03
    assert [p.rate for p in found.probes] == sorted(p.rate for p in found.probes)


def test_the_crossing_lies_on_the_line_between_the_probes_beside_it() -> None:
    probes = [Probe(4.0, 4.0), Probe(1.0, 0.25), Probe(9.0, math.inf)]
    assert crossing(probes) == pytest.approx(2.0), "a line between logarithms"
    assert crossing(probes[1:]) == 1.0, "beyond which nothing drains"
    assert crossing([Probe(1.0, 0.5), Probe(2.0, 0.9)]) == 2.0, "nothing broke"
    assert crossing([Probe(1.0, 1.01), Probe(2.0, math.inf)]) is None
    assert crossing([]) is None
    assert crossing([Probe(1.0, 0.0), Probe(2.0, 3.0)]) == 1.0, "nothing promised there"


def test_strain_between_probes_lies_on_the_same_line() -> None:
    probes = [Probe(4.0, 4.0), Probe(1.0, 0.25), Probe(9.0, math.inf)]
    assert strain_at(probes, 2.0) == pytest.approx(1.0)
    assert strain_at(probes, 1.0) == 0.25
    assert strain_at(probes, 4.0) == 4.0
    assert strain_at(probes, 5.0) is None, "nothing drains beside it"
    assert strain_at(probes, 0.5) is None, "beyond them"
