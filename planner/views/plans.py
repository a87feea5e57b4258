"""Plans for pages: a quick estimate at once, the replicated plan from one background process when it is ready.

The page never waits for the long one. Changing a setting drops what has not started yet, so dragging a slider queues nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import streamlit as st

from planner import bounds, plan
from planner.plan import Deployment, Plan
from planner.plan import deployment as deployments
from planner.problems import InputError
from planner.scenario import Scenario
from planner.views.text import plain
from planner.worker import Worker

Json = dict[str, Any]
KEPT = 128
"""Plans of each kind kept as JSON for all sessions together, about 90 kB each."""
LOOK_EVERY_S = 0.5
"""How often a page looks for its full plan, per page that waits for one: the more wait, the later any of them can come."""
LOOK_EVERY_AT_MOST_S = 4.0


@st.cache_resource(max_entries=24, show_spinner=False)
def quick_plan(scenario: Scenario) -> Plan:
    """The plan of one simulated run, with its timeline. Read-only: every session shares it."""
    return plan(scenario, effort="quick")


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def quick(scenario: Scenario) -> Json:
    """Its JSON. Read-only."""
    return quick_plan(scenario).to_dict()


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def replica(scenario: Scenario) -> Deployment | None:
    """One replica, or None where the layout is not possible or does not fit."""
    if any(p.severity == "error" for p in deployments.problems(scenario)):
        return None
    found = deployments.of(scenario)
    return found if found.memory.fits else None


class Refiner:
    """Full plans by scenario, computed by processes in the background, first come, first served.

    Each process has a thread that feeds it; nothing waits for those threads when the dashboard ends.
    """

    def __init__(self, workers: int = bounds.WORKERS) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[tuple[Scenario, Future[Json]]] = SimpleQueue()
        self._asked: OrderedDict[Scenario, Future[Json]] = OrderedDict()
        for _ in range(workers):
            threading.Thread(target=self._work, args=(Worker(),), name="full plan", daemon=True).start()

    def _work(self, process: Worker) -> None:
        while True:
            scenario, future = self._queue.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(_full(scenario, process))
                except Exception as error:  # whatever it is, the page says so and the next plan is made
                    future.set_exception(error)

    def ready(self, scenario: Scenario) -> Json | None:
        """The full plan, if it has been computed."""
        with self._lock:
            future = self._asked.get(scenario)
        return future.result() if future and future.done() and not future.cancelled() and not future.exception() else None

    def failure(self, scenario: Scenario) -> str:
        """Why the full plan could not be made, in a word; empty when nothing went wrong."""
        with self._lock:
            future = self._asked.get(scenario)
        error = future.exception() if future and future.done() and not future.cancelled() else None
        return "" if error is None else str(error) if isinstance(error, RuntimeError) else type(error).__name__

    def ask(self, scenario: Scenario) -> bool:
        """Have the full plan computed; whether it is finished, well or badly."""
        with self._lock:
            future = self._asked.get(scenario)
            if future is None or future.cancelled():
                future = self._asked[scenario] = Future()
                self._queue.put((scenario, future))
            self._asked.move_to_end(scenario)
            while len(self._asked) > KEPT:
                self._asked.popitem(last=False)[1].cancel()
        return future.done()

    def look_every_s(self) -> float:
        """How long a page may rest before it looks for its plan again."""
        with self._lock:
            waiting = sum(not future.done() for future in self._asked.values())
        return min(LOOK_EVERY_S * max(1, waiting), LOOK_EVERY_AT_MOST_S)

    def drop(self, scenario: Scenario) -> None:
        """Forget a plan that nobody waits for any more, unless it has started."""
        with self._lock:
            future = self._asked.get(scenario)
            if future and future.cancel():
                del self._asked[scenario]


def _full(scenario: Scenario, process: Worker) -> Json:
    trace = scenario.workload.trace
    if trace is not None and trace.content_hash:
        return plan(scenario, effort="full").to_dict()  # the upload is known to this process alone
    return process.plan(scenario)


@st.cache_resource
def refiner() -> Refiner:
    """The background of all sessions."""
    return Refiner()


def best(scenario: Scenario) -> tuple[Json, bool]:
    """The full plan if it is ready, else the quick one; whether it is the full one."""
    ready = refiner().ready(scenario)
    return (ready, True) if ready else (quick(scenario), False)


def refused(scenario: Scenario) -> str | None:
    """Why no plan can be made of this scenario (a trace that must be uploaded again), or None."""
    try:
        quick(scenario)
    except InputError as error:
        return str(error)
    return None


def refine(scenario: Scenario) -> None:
    """Ask for the full plan once the settings have rested for a look's interval, and show it when it is there."""
    st.fragment(_look, run_every=refiner().look_every_s())(scenario)


def _look(scenario: Scenario) -> None:
    asked: Scenario | None = st.session_state.get("refining")
    if asked != scenario:
        if asked is not None:
            refiner().drop(asked)
        st.session_state["refining"] = scenario
    elif refiner().ask(scenario) and refiner().ready(scenario):
        st.rerun()  # not control flow: the fragment's only way to tell the page that its figures have arrived
    if failure := refiner().failure(scenario):
        what = f"Repeated runs and the capacity search failed on this server ({failure})."
        st.caption(plain(f"Estimate from one run of the simulator. {what}"))
    else:
        st.caption("Estimate from one run of the simulator. Repeated runs and the capacity search are under way…")
