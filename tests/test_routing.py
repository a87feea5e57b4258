"""Routers, and the published table of prefix hits by routing on the Mooncake conversation trace."""

import numpy as np
import pytest

from planner import traces
from planner.fleet.routing import Router, prefix_hits

ROUTINGS = ("round_robin", "sticky", "longest_prefix")
ALL_12_031 = {
    (1, 0.5): (4.5, 4.5, 4.5),
    (4, 0.5): (5.4, 8.9, 8.5),
    (8, 0.5): (6.2, 17.2, 17.7),
    (16, 0.5): (6.1, 26.0, 26.4),
    (8, 2.6): (10.8, 35.4, 35.7),
    (8, 5.1): (12.9, 36.8, 36.8),
}
"""Percent of prompt tokens hit by (replicas, pool in million tokens), in the order of ROUTINGS."""
FIRST_4_251 = {
    (1, 0.5): (4.2, 4.2, 4.2),
    (4, 0.5): (5.0, 8.4, 7.8),
    (8, 0.5): (5.6, 16.3, 16.0),
    (16, 0.5): (5.7, 24.4, 24.8),
    (8, 2.6): (10.3, 32.4, 32.7),
    (8, 5.1): (11.5, 33.3, 33.3),
}


def percent_hit(requests: int, replicas: int, pool_mtok: float) -> list[float]:
    trace = traces.shipped("mooncake-conversation").head(requests)
    return [100 * prefix_hits(trace, replicas, int(pool_mtok * 1e6), routing).hit_rate for routing in ROUTINGS]


@pytest.mark.slow
@pytest.mark.parametrize("case", [(8, 0.5)])
def test_prefix_hits_by_routing_on_the_first_third(case):
    assert percent_hit(4_251, *case) == pytest.approx(FIRST_4_251[case], abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST_4_251)
def test_prefix_hits_by_routing_on_every_case_of_the_first_third(case):
    assert percent_hit(4_251, *case) == pytest.approx(FIRST_4_251[case], abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL_12_031)
def test_prefix_hits_by_routing_on_the_whole_trace(case):
    assert percent_hit(12_031, *case) == pytest.approx(ALL_12_031[case], abs=0.5)


def test_sticky_keeps_work_nearly_even():
    trace = traces.shipped("mooncake-conversation").head(4_251)
    assert prefix_hits(trace, 4, 500_000, "sticky").imbalance < 1.2


def test_a_trace_without_content_has_no_prefixes_to_hit():
    with pytest.raises(ValueError, match="no block ids"):
        prefix_hits(traces.shipped("azure-2023-conv"), 1, 500_000, "sticky")


def choices(routing, requests, names, load=lambda i: 0.0, match=lambda i: 0):
    router = Router(routing)
    return [router.choose(keys, names, load, match) for keys in requests]


def test_round_robin_takes_turns_and_least_loaded_the_idlest():
    assert choices("round_robin", [()] * 5, range(3)) == [0, 1, 2, 0, 1]
    assert choices("least_loaded", [()] * 2, range(3), load=[2.0, 1.0, 1.0].__getitem__) == [1, 2]


def test_sticky_follows_the_first_private_block_and_moves_little_when_a_replica_is_lost():
    requests = [(0, session, session + 1) for session in range(100, 400)]
    before = choices("sticky", requests, range(8))
    assert len(set(before)) == 8, "the common first block does not send all to one"
    assert choices("sticky", requests, range(8)) == before
    remaining = [name for name in range(8) if name != 3]
    after = [remaining[i] for i in choices("sticky", requests, remaining)]
    moved = np.array(after) != np.array(before)
    # The first two requests find out what is common to all; every later one moves only when its replica is gone.
    assert (moved[2:] == (np.array(before)[2:] == 3)).all()


def test_longest_prefix_ignores_what_everybody_shares_and_breaks_ties_by_load():
    requests = [(0, 1), (0, 2), (0, 3, 4)]
    load = [5.0, 1.0].__getitem__
    assert choices("longest_prefix", requests, range(2), load, match=[1, 0].__getitem__)[1:] == [1, 1]
    assert choices("longest_prefix", requests, range(2), load, match=[2, 1].__getitem__)[1:] == [0, 0]
