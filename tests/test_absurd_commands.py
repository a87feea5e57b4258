"""Absurd but legal questions through the command line: a right answer or a named limit in one line, without NaN or infinity."""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hostile import finite, one_sentence
from test_bounds import ABSURD, SMALL

from planner import bounds
from planner.command import main

COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("--quick",),
    "compare": ("chat-70b-2xh100", "--quick"),
    "sweep": ("--axis", "workload.request_rate=0,1,1e6"),
    "recommend": ("--gpus", "h100-sxm", "--tensor-parallel", "1,8"),
    "breakeven": (),
    "week": (),
    "sensitivity": ("--no-flips",),
    "seats": ("--requests-per-minute", "5"),
    "batch": ("--documents", "1000", "--hours", "1"),
    "drill": ("--kind", "loss"),
    "fleet": (),
    "launch": (),
}
QUESTIONS = (
    "a trillion parameters",
    "a trillion parameters by hand",
    "ten million tokens of context",
    "ten million tokens that fit",
    "no request ever",
    "a million requests a second",
    "10^15 requests a second",
    "free GPUs",
    "100,000 replicas and spares",
    "a million clients",
    "answers of ten million tokens",
)
ASKED_EVERY_DAY = {("recommend", "no request ever"), ("sensitivity", "a trillion parameters")}
SLOWEST_S = 60.0


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL.items():
        monkeypatch.setattr(bounds, name, value)
    monkeypatch.setattr(bounds, "MAX_WORK_PER_SEARCH", 100_000)


@pytest.mark.parametrize(
    ("command", "question"),
    [
        pytest.param(command, question, marks=() if (command, question) in ASKED_EVERY_DAY else pytest.mark.slow)
        for command in COMMANDS
        for question in QUESTIONS
    ],
)
def test_every_command_answers_or_says_why_not(command: str, question: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps(ABSURD[question][0]))
    for more in ((), ("--json",)):
        out, err, began_s = io.StringIO(), io.StringIO(), time.thread_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([command, str(asked), *COMMANDS[command], *more])
        assert time.thread_time() - began_s < SLOWEST_S
        assert status in (0, 1, 2)
        if status == 2:
            one_sentence(err.getvalue().removesuffix("\n"))
        elif more:
            answer: Any = json.loads(out.getvalue())
            finite(answer)
        else:
            words = set(out.getvalue().lower().replace(",", " ").replace("%", " ").split())
            assert not words & {"nan", "inf", "-inf", "$nan", "$inf", "none"} - ({"none"} if command == "sensitivity" else set())
