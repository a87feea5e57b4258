"""Predictions against measured rows: what each row's deployment should have shown, and how far off that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from planner.problems import InputError
from planner.validate.points import Point, measured_points
from planner.validate.predict import Prediction, predict
from planner.validate.report import Report, Scored
from planner.validate.rows import METRICS, Row, read
from planner.validate.scenarios import CannotModel, Case, case_of

__all__ = [
    "METRICS",
    "CannotModel",
    "Case",
    "Point",
    "Prediction",
    "Report",
    "Row",
    "Scored",
    "case_of",
    "measured_points",
    "predict",
    "read",
    "score",
    "validate",
]


def validate(measured: str | Path, configs: str | Path | None = None, fidelity: str = "calibrated", processes: int = 1) -> Report:
    """Scores every row of a measured table. `configs` holds `<org>__<name>.json` files of models that the catalogue lacks.

    Raises InputError when the table cannot be read; rows that cannot be modelled are counted by reason.
    """
    return score(read(measured), Path(configs) if configs else None, fidelity, processes)


def score(rows: Iterable[Row], configs: Path | None = None, fidelity: str = "calibrated", processes: int = 1) -> Report:
    """The same for rows in memory. With more than one process, rows are shared out in chunks."""
    rows = list(rows)
    if processes > 1:
        try:
            from joblib import Parallel, delayed
        except ImportError as error:
            raise InputError("several processes need the package joblib; run `pip install joblib`, or use one") from error

        order = sorted(range(len(rows)), key=lambda i: rows[i].model)  # a model's rows share its deployments
        chunks = [order[i::processes] for i in range(processes)]
        found = Parallel(n_jobs=processes)(delayed(_outcomes)([rows[i] for i in chunk], configs, fidelity) for chunk in chunks)
        outcomes: list[Scored | tuple[Row, str]] = [None] * len(rows)  # type: ignore[list-item]
        for chunk, part in zip(chunks, found, strict=True):
            for i, outcome in zip(chunk, part, strict=True):
                outcomes[i] = outcome
    else:
        outcomes = _outcomes(rows, configs, fidelity)
    skipped = [o for o in outcomes if isinstance(o, tuple)]
    return Report(
        rows=tuple(o for o in outcomes if isinstance(o, Scored)),
        skipped=tuple((row.id, row.tier, reason) for row, reason in skipped),
        fidelity=fidelity,
    )


def _outcomes(rows: list[Row], configs: Path | None, fidelity: str) -> list[Scored | tuple[Row, str]]:
    out: list[Scored | tuple[Row, str]] = []
    for row in rows:
        try:
            case = case_of(row, configs, fidelity)
            out.append(Scored.of(case, predict(case)))
        except CannotModel as reason:
            out.append((row, str(reason)))
    return out
