"""How light is one answer on the command line? Whole-process CPU time against importing numpy and pydantic alone, in turn.

python tests/bench/bench_cli.py [RUNS]
"""

import os
import statistics
import subprocess
import sys

PLAN = [sys.executable, "-m", "planner", "plan", "beacon-405b-8xh100-fp8", "--json"]
BASE = [sys.executable, "-c", "import numpy, pydantic"]


def cpu_s(command: list[str]) -> float:
    """User and system seconds of one run."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    cpu_s(PLAN), cpu_s(BASE)
    pairs = [(cpu_s(PLAN), cpu_s(BASE)) for _ in range(runs)]
    ratios = sorted(plan / base for plan, base in pairs)
    plan_s, base_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"plan {plan_s:.3f} s, import numpy and pydantic {base_s:.3f} s CPU (medians of {runs})")
    print(f"ratio pair by pair: median {statistics.median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
