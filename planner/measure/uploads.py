"""Files that a user uploads on a page: measured rows, what they say about the scenario, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.measure import importers, metrics_text
from planner.measure.compare import Findings, Predict, compare
from planner.measure.metrics_text import Facts
from planner.measure.rows import Row
from planner.problems import InputError
from planner.scenario import Scenario

MOST_FILES = 50


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What uploaded files hold. Nothing in it raises: a file that cannot be read is in `refused`, with its reason."""

    rows: tuple[Row, ...]
    facts: tuple[tuple[str, Facts], ...]
    """(file, what its /metrics text says)."""
    findings: Findings | None
    """The rows over the plan, with the calibration on offer; None when no row could be compared."""
    refused: tuple[tuple[str, str], ...]
    """(file, one sentence)."""


def uploaded(files: Iterable[tuple[str, str]], scenario: Scenario, predict: Predict | None = None) -> Uploaded:
    """Read (name, text) pairs of benchmark results, measured rows and /metrics pages, and lay the rows over `scenario`'s plan."""
    rows: list[Row] = []
    facts: list[tuple[str, Facts]] = []
    refused: list[tuple[str, str]] = []
    for i, (name, text) in enumerate(files):
        if i >= MOST_FILES:
            refused.append((name, f"only the first {MOST_FILES} files are read"))
            continue
        try:
            if importers.is_metrics_text(text):
                facts.append((name, metrics_text.facts(text)))
            else:
                rows += importers.from_text(text, name)
        except InputError as error:
            refused.append((name, str(error)))
    findings = None
    if rows:
        try:
            findings = compare(rows, scenario, predict)
        except InputError as error:
            refused.append(("comparison", str(error)))
    return Uploaded(tuple(rows), tuple(facts), findings, tuple(refused))


def calibrated(scenario: Scenario, findings: Findings) -> Scenario:
    """The scenario with the calibration on offer taken."""
    if findings.calibration is None:
        raise InputError("the rows hold no TPOT, so there is no calibration to take; measure time per output token")
    return scenario.model_copy(update={"calibration": findings.calibration})
