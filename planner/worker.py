"""A process that answers scenarios: one JSON line in, one JSON line out. `python -m planner.worker`.

The dashboard keeps one beside itself for full plans, so that simulating never holds up a page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from planner.plan import plan
from planner.scenario import Scenario, parse

MOST_PLANS = 500
"""Plans after which a process makes room for a fresh one: whatever memory it has gathered goes with it."""
NICENESS = 5
"""Pages come first."""


class Worker:
    """One such process, started when it is first asked and again when it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def plan(self, scenario: Scenario) -> dict[str, Any]:
        """The full plan's JSON. Raises RuntimeError with a word when it cannot be made, or when the process dies over it twice."""
        answer = self._line(scenario) or self._line(scenario)
        if not answer:
            raise RuntimeError("its process ended")
        data: dict[str, Any] = json.loads(answer)
        if "failed" in data:
            raise RuntimeError(data["failed"])
        return data

    def _line(self, scenario: Scenario) -> str:
        """The answer as it came, or nothing when the process has ended."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(scenario.model_dump_json() + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        if answer.endswith("\n"):
            return answer
        self.close()
        return ""

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            found = str(Path(__file__).resolve().parent.parent)
            paths = os.pathsep.join(filter(None, (found, os.environ.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "planner.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": paths},
                start_new_session=True,  # Ctrl-C ends the dashboard; this process ends when its input does
            )
        return self._process


def main() -> int:
    """Answer lines until there are no more."""
    os.nice(NICENESS)
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers goes where answers go
    for _, line in zip(range(MOST_PLANS), sys.stdin, strict=False):
        try:
            answer = plan(parse(json.loads(line)), effort="full").to_dict()
        except Exception as error:
            answer = {"failed": type(error).__name__}
        print(json.dumps(answer, ensure_ascii=False, allow_nan=False), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
