"""How fast is `recommend` on the chat job, per candidate? Run: python -m tests.bench.recommend

A published configurator answers a comparable question with 116 results in 3.8 s (33 ms a result).
"""

import time

from planner import presets, recommend

PUBLISHED_S, PUBLISHED_RESULTS = 3.8, 116


def main() -> None:
    """Time one cold search over the default space."""
    scenario = presets.load("chat-70b-2xh100")
    start = time.perf_counter(), time.process_time()
    found = recommend.best(scenario)
    wall_s, cpu_s = time.perf_counter() - start[0], time.process_time() - start[1]
    print(f"{found.considered:,} candidates, {found.simulated} simulated: {wall_s:.1f} s wall, {cpu_s:.1f} s CPU")
    published_ms = PUBLISHED_S / PUBLISHED_RESULTS * 1e3
    print(f"{cpu_s / found.considered * 1e3:.2f} ms a candidate; published configurator {published_ms:.0f} ms a result")
    for option in found.options:
        tie = ", tie" if option.tie else ""
        print(f"${option.usd_per_month:,.0f} a month: {option.replicas} x {option.label}, {option.worst_promise}{tie}")


if __name__ == "__main__":
    main()
