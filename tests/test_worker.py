"""Full plans come from a process beside the dashboard, which may die: pages go on, and say what happened."""

from __future__ import annotations

import threading

import pytest

from planner.plan import plan
from planner.scenario import parse
from planner.views import plans
from planner.worker import Worker

SMALL = parse({"workload": {"num_prompts": 10, "output_len": 10}})


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.close()


@pytest.mark.slow
def test_they_come_as_the_library_makes_them():
    refiner = plans.Refiner(1)
    assert refiner.ready(SMALL) is None
    refiner.ask(SMALL)
    refiner._asked[SMALL].exception(timeout=120)
    assert refiner.ready(SMALL) == plan(SMALL, effort="full").to_dict()
    assert refiner.failure(SMALL) == ""
    assert refiner.ask(SMALL)


def test_what_nobody_waits_for_is_never_started(monkeypatch):
    refiner = plans.Refiner(1)
    busy = threading.Event()
    monkeypatch.setattr(plans, "_full", lambda scenario, _: busy.wait(60) and {"name": scenario.name})
    first, second, third = (SMALL.model_copy(update={"name": name}) for name in "abc")
    for scenario in (first, second, third):
        refiner.ask(scenario)
    refiner.drop(second)
    busy.set()
    assert refiner._asked[third].result(timeout=60) == {"name": "c"}
    assert second not in refiner._asked
    assert refiner.ready(first) == {"name": "a"}


def test_pages_look_less_often_the_more_of_them_wait(monkeypatch):
    refiner = plans.Refiner(1)
    busy = threading.Event()
    monkeypatch.setattr(plans, "_full", lambda scenario, _: busy.wait(60) and {"name": scenario.name})
    assert refiner.look_every_s() == plans.LOOK_EVERY_S
    many = [SMALL.model_copy(update={"name": str(i)}) for i in range(50)]
    seen = []
    for scenario in many:
        refiner.ask(scenario)
        seen.append(refiner.look_every_s())
    assert seen == sorted(seen)
    assert seen[0] == plans.LOOK_EVERY_S
    assert seen[-1] == plans.LOOK_EVERY_AT_MOST_S
    busy.set()
    assert refiner._asked[many[-1]].result(timeout=60) == {"name": "49"}
    assert refiner.look_every_s() == plans.LOOK_EVERY_S


def test_a_failure_is_told_and_the_next_plan_is_made(monkeypatch):
    refiner = plans.Refiner(1)

    def fails_once(scenario, _):
        if scenario == SMALL:
            raise RuntimeError("its process ended")
        return {}

    monkeypatch.setattr(plans, "_full", fails_once)
    other = SMALL.model_copy(update={"name": "other"})
    refiner.ask(SMALL)
    refiner.ask(other)
    assert refiner._asked[other].result(timeout=60) == {}
    assert refiner.ready(SMALL) is None
    assert refiner.failure(SMALL) == "its process ended"


@pytest.mark.slow
def test_a_process_that_was_killed_is_started_again(worker):
    worker._running().kill()
    assert worker.plan(SMALL)["memory"]["fits"]
    first = worker._running().pid
    assert worker.plan(SMALL)["memory"]["fits"]
    assert worker._running().pid == first


def test_one_that_dies_over_a_plan_gives_up(worker, monkeypatch):
    monkeypatch.setattr(worker, "_line", lambda _: "")
    with pytest.raises(RuntimeError, match="its process ended"):
        worker.plan(SMALL)


@pytest.mark.slow
def test_what_it_refuses_has_a_name(worker):
    with pytest.raises(RuntimeError, match="InputError"):
        worker.plan(SMALL.model_copy(update={"hardware": SMALL.hardware.model_copy(update={"gpu": "nothing"})}))


@pytest.mark.slow
def test_the_process_ends_with_its_input(worker):
    process = worker._running()
    process.stdin.close()
    assert process.wait(timeout=60) == 0
