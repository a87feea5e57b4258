"""How long asking for a step's time takes: `python tests/bench/bench_steptime.py`. Targets: 2 µs a decode step, 4 µs one with a chunk."""

from __future__ import annotations

import time
from collections.abc import Callable

from planner import architecture, hardware, roofline, sharding
from planner.roofline import StepShape
from planner.scenario import Scenario

CASES = {
    "textbook, dense": {"fidelity": "textbook"},
    "datasheet, dense": {"fidelity": "datasheet"},
    "calibrated, dense": {},
    "calibrated, experts TP2": {"model": {"name": "mixtral-8x7b"}, "parallel": {"tensor_parallel_size": 2}},
    "calibrated, windows": {"model": {"name": "gpt-oss-120b"}, "precision": {"weights": "auto"}},
    "calibrated, latent DP8 EP8": {
        "model": {"name": "deepseek-v3"},
        "hardware": {"gpu": "h200-sxm"},
        "parallel": {"data_parallel_size": 8, "enable_expert_parallel": True},
    },
    "calibrated, EAGLE-3": {"speculative": {"method": "eagle3", "acceptance_rate": 0.6}},
}
CALLS = 100_000


def best_us(ask: Callable[[], None], calls: int) -> float:
    """Microseconds a call, best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        ask()
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e6


def main() -> None:
    print(f"{'':28}{'build ms':>10}{'decode µs':>11}{'chunk µs':>10}{'explain µs':>12}")
    for name, fields in CASES.items():
        s = Scenario.model_validate(fields)
        arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
        shard = sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware)
        start = time.perf_counter()
        step = roofline.step_time(s, arch, shard, gpu)
        build_ms = (time.perf_counter() - start) * 1e3
        verify = 64 * s.speculative.num_speculative_tokens if s.speculative else 0
        shapes = [StepShape(64, 64 * 1200 + i, 64 * 128, ((512 + i % 64, 0),), 65, verify) for i in range(CALLS // 10)]

        def decode(step=step) -> None:  # type: ignore[no-untyped-def]
            for i in range(CALLS):
                step.decode(1 + i % 256, 76_800 + i, 0)

        def chunk(step=step, shapes=shapes) -> None:  # type: ignore[no-untyped-def]
            for shape in shapes:
                step(shape)

        def explain(step=step, shapes=shapes) -> None:  # type: ignore[no-untyped-def]
            for shape in shapes[:200]:
                step.explain(shape)

        print(f"{name:28}{build_ms:10.1f}{best_us(decode, CALLS):11.2f}{best_us(chunk, len(shapes)):10.2f}{best_us(explain, 200):12.1f}")


if __name__ == "__main__":
    main()
