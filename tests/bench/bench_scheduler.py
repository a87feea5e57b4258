"""How fast the step loop is: against published simulators, against the loop that touches every sequence, and as runs grow.

    python tests/bench/bench_scheduler.py            all of it, about two minutes on one core
    python tests/bench/bench_scheduler.py --quick    smaller counts, a few seconds

CPU time of this process, best of a few runs, so that a busy machine disturbs little. Published figures are those of BLIS (Go) and
Vidur (Python) on 1,000 requests of 1,000 in and 250 out, Poisson at 8/s, Llama-3.1-8B bf16 on one H100, measured 2026-11-29.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from oracle import Oracle, Pool  # noqa: E402

from planner import architecture, hardware, roofline, sharding  # noqa: E402
from planner.kv_cache import KvCache  # noqa: E402
from planner.scenario import Scenario, Workload  # noqa: E402
from planner.scheduler import Limits, Replica, simulate  # noqa: E402
from planner.workload import Source, requests  # noqa: E402

PUBLISHED = {"BLIS, Go, 64 MB": (530, 7800), "Vidur, Python, 500 MB": (560, 4000)}
"""Requests and steps per second."""

LIMITS = Limits(max_num_seqs=128, max_num_batched_tokens=2048)
POOL_BLOCKS, BLOCK_SIZE = 11_250, 16
"""180,000 tokens."""


def real_step_time() -> roofline.StepTime:
    """Llama-3.1-8B in bf16 on one H100, calibrated: the scenario's defaults."""
    scenario = Scenario()
    arch, gpu = architecture.of(scenario.model), hardware.of(scenario.hardware)
    return roofline.step_time(scenario, arch, sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware), gpu)


def traffic(rate: float | None, n: int, spread: bool = True) -> Workload:
    """Prompts of 1,000 and answers of 250 tokens, even or spread by half to either side; no rate means all at time zero."""
    half = 0.5 if spread else 0.0
    return Workload(
        request_rate=rate,
        max_concurrency=n if rate is None else None,
        num_prompts=n,
        input_len={"kind": "uniform", "mean": 1000, "half_width": half},
        output_len={"kind": "uniform", "mean": 250, "half_width": half},
    )


def best(run: Callable[[], int], times: int = 3) -> tuple[float, int]:
    """Least CPU seconds of a few runs, and the steps they took."""
    seconds, steps = math.inf, 0
    for _ in range(times):
        start = process_time()
        steps = run()
        seconds = min(seconds, process_time() - start)
    return seconds, steps


def calendar(step_time: roofline.StepTime, workload: Workload, limits: Limits = LIMITS, record: bool = True) -> Callable[[], int]:
    """The step loop under test, traffic included."""

    def run() -> int:
        replica = Replica(step_time, limits, KvCache(POOL_BLOCKS, BLOCK_SIZE), record_steps=record)
        return simulate(Source(requests(workload), max_concurrency=workload.max_concurrency), replica).steps

    return run


def naive(step_time: roofline.StepTime, workload: Workload) -> Callable[[], int]:
    """The oracle: the same rules and the same step time, every sequence touched in every step."""

    def run() -> int:
        source = Source(requests(workload), max_concurrency=workload.max_concurrency)
        oracle = Oracle(source, step_time, LIMITS, Pool(POOL_BLOCKS, BLOCK_SIZE, False), "mixed")
        oracle.run()
        return len(oracle.steps)

    return run


def published_case(step_time: roofline.StepTime) -> None:
    print("\n1,000 requests, 1,000 in, 250 out, Poisson 8/s, Llama-3.1-8B bf16, one H100, the real step time")
    n = 1000
    limits = Limits(max_num_seqs=256, max_num_batched_tokens=2048, async_scheduling=True)
    seconds, steps = best(calendar(step_time, traffic(8.0, n, spread=False), limits), 5)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {steps:,} steps in {seconds:.3f} s: {n / seconds:,.0f} requests/s (goal 10,000), {seconds / steps * 1e6:.2f} µs a step (goal 6)"
    )
    print(f"  process memory at its peak {memory_mb:.0f} MB (goal below 150)")
    for name, (requests_per_s, steps_per_s) in PUBLISHED.items():
        print(f"  {n / seconds / requests_per_s:5.1f} × the requests/s and {steps / seconds / steps_per_s:5.1f} × the steps/s of {name}")


def against_naive(step_time: roofline.StepTime, n: int) -> None:
    print(f"\nAgainst the loop that touches every sequence in every step ({n:,} requests, 128 seats, 180,000 KV tokens)")
    for label, rate, goal in (("9 requests/s", 9.0, 4), ("all at time zero", None, 12)):
        fast, steps = best(calendar(step_time, traffic(rate, n)), 2)
        slow, slow_steps = best(naive(step_time, traffic(rate, n)), 2)
        assert steps == slow_steps, "both loops must take the same steps"
        per_step = f"{fast / steps * 1e6:.2f} µs against {slow / steps * 1e6:.1f} µs a step"
        print(f"  {label}: {steps:,} steps, {per_step}: {slow / fast:.1f} × (goal {goal})")


def growth(step_time: roofline.StepTime, counts: tuple[int, ...]) -> None:
    print("\nAs runs grow (9 requests/s)")
    points = []
    for n in counts:
        seconds, steps = best(calendar(step_time, traffic(9.0, n)), 3 if n < 50_000 else 1)
        points.append((math.log(n), math.log(seconds)))
        print(
            f"  {n:>7,} requests, {steps:>9,} steps: {seconds:6.2f} s, {n / seconds:,.0f} requests/s, {seconds / steps * 1e6:.2f} µs a step"
        )
    x, y = (sum(v) / len(points) for v in zip(*points, strict=True))
    exponent = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    print(f"  time grows with requests to the power of {exponent:.3f} (goal 1)")


def memory(step_time: roofline.StepTime) -> None:
    print("\nMemory without step records (1,000 requests, then ten times the tokens each, then ten times the requests)")
    for label, n, output in (("250 tokens out", 1000, 250.0), ("2,500 tokens out", 1000, 2500.0), ("250 tokens out", 10_000, 250.0)):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        workload = Workload(request_rate=4.0, num_prompts=n, input_len=1000.0, output_len=output)
        calendar(step_time, workload, Limits(max_num_batched_tokens=4096), record=False)()
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"  {n:>6,} requests, {label}: peak up by {grown_mb:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller counts")
    quick = parser.parse_args().quick
    step_time = real_step_time()
    published_case(step_time)
    memory(step_time)
    against_naive(step_time, 1000 if quick else 4000)
    growth(step_time, (1000, 4000) if quick else (2000, 20_000, 200_000))


if __name__ == "__main__":
    main()
