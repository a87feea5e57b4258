"""Slider move → new numbers, as ratios within one run: python tests/bench/bench_page.py [--browser] [--moves 20]

Script time is CPU time of the script's thread under AppTest: a page with its sidebar against the same sidebar over an empty
page. Each page is told twice, when a setting moves (the quick simulation is part of it, and measured apart) and when nothing
the plan depends on moves. With --browser, wall time from a key press until the script rests, as Chromium sees it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "browser")]

SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
started = time.thread_time()
import streamlit as st
from planner.views import components, sidebar, state
state.open_link()
sidebar.render()
components.notes()
{body}
st.session_state["_cpu_s"] = time.thread_time() - started
"""
EMPTY = "st.write(state.scenario().workload.request_rate)"
PAGES = ("plan", "simulate", "compare", "recommend", "fleet", "lessons", "accuracy", "assumptions")


def script(body: str) -> str:
    return SCRIPT.format(root=str(ROOT), body=body)


def page(name: str) -> str:
    return f"from planner.views.pages import {name}\n{name}.render()"


def measure(body: str, moves: int, first: float = 4.0) -> tuple[float, float]:
    """(median CPU seconds of a move, of a rerun without one)."""
    from streamlit.testing.v1 import AppTest

    at = AppTest.from_string(script(body), default_timeout=120).run()
    assert not at.exception
    moved, still = [], []
    for i in range(moves):
        at.number_input(key="workload.request_rate").set_value(first + 0.01 * (i + 1)).run()
        moved.append(at.session_state["_cpu_s"])
        at.run()
        still.append(at.session_state["_cpu_s"])
    return statistics.median(moved[1:]), statistics.median(still[1:])


def simulation(moves: int) -> float:
    """Median CPU seconds of the quick plan at the same settings, from scratch."""
    from planner import Scenario, plan
    from planner.scenario import set_path

    times = []
    for i in range(moves):
        scenario = set_path(Scenario(), "workload.request_rate", 5.05 + 0.1 * i)
        started = time.thread_time()
        plan(scenario, effort="quick").to_dict()
        times.append(time.thread_time() - started)
    return statistics.median(times[1:])


def in_browser(path: str, moves: int, address: str) -> float:
    """Median seconds from a key press to the script's rest."""
    from conftest import CHROMIUM, settle
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(address + path)
        settle(tab)
        box = tab.get_by_label("Requests/s", exact=True)
        for i in range(moves):
            box.fill(f"{4.2 + 0.1 * i:.1f}")
            started = time.perf_counter()
            box.press("Enter")
            tab.wait_for_selector("[data-testid=stApp][data-test-script-state=running]", timeout=5000)
            tab.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
            times.append(time.perf_counter() - started)
            settle(tab)
        browser.close()
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=12)
    parser.add_argument("--browser", action="store_true")
    arguments = parser.parse_args()
    _, empty = measure(EMPTY, arguments.moves)
    simulated = simulation(arguments.moves)
    print(f"empty page with the sidebar {1000 * empty:.0f} ms, quick plan {1000 * simulated:.0f} ms (CPU)")
    print(f"{'page':<12} {'move':>8} {'less the plan':>14} {'÷ empty':>8} {'rerun':>8} {'÷ empty':>8}")
    for number, name in enumerate(PAGES):
        moved, still = measure(page(name), arguments.moves, first=4.0 + number)  # rates of its own: pages share a cache of plans
        rest = moved - simulated
        print(f"{name:<12} {1000 * moved:6.0f}ms {1000 * rest:12.0f}ms {rest / empty:8.2f} {1000 * still:6.0f}ms {still / empty:8.2f}")
    if arguments.browser:
        from conftest import running_app

        with running_app() as address:
            wall = in_browser("/?workload.num_prompts=500", arguments.moves, address)
            print(f"in Chromium, key press to rest: {1000 * wall:.0f} ms")


if __name__ == "__main__":
    main()
