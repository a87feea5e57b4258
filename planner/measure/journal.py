"""Results kept while a run goes on, so that a killed run loses nothing that was measured."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.measure import charts
from planner.measure.experiment import Run
from planner.measure.rows import to_csv, with_context
from planner.measure.summary import document, rows
from planner.problems import InputError

SHARE_OF_TIME = 0.05
"""Writing may take this share of the time at most; a small run is written after every request."""


class Journal:
    """Writes a run to files after its requests: JSON (also without a suffix), JSON lines of requests, or rows as CSV, by suffix.

    Each file is replaced whole and at once, so a reader never sees half of one. Charts (`.svg`, `.html`, `.vl.json`) are
    written at the end. A path without a folder is wrong input; one that cannot be written is told once and skipped.
    """

    def __init__(self, paths: list[Path], predicted: charts.Predict | None = None, context: Mapping[str, Any] | None = None) -> None:
        for path in paths:
            if path.suffix and path.suffix.lower() not in SUFFIXES:
                raise InputError(f"--out {str(path)!r} ends in {path.suffix}; choose one of {', '.join(SUFFIXES)}")
            if not path.parent.is_dir() or path.is_dir():
                raise InputError(f"--out {str(path)!r} cannot be written: its folder does not exist or it is a folder; choose another path")
        self._tables = [path for path in paths if not charts.is_chart(path)]
        self._charts = [path for path in paths if charts.is_chart(path)]
        self._predicted = predicted
        self._context = dict(context or {})
        self._next_s = 0.0
        self._told: set[Path] = set()

    def save(self, run: Run) -> None:
        """Write now, unless the last writing was so recent that it would take too much of the run's time."""
        now_s = time.monotonic()
        if run.finished or now_s >= self._next_s:
            for path in self._tables:
                self._try(path, table_text(path, run, self._context))
            spent_s = time.monotonic() - now_s
            self._next_s = now_s + spent_s / SHARE_OF_TIME

    def finish(self, run: Run) -> None:
        """Write everything, the charts too."""
        self._next_s = 0.0
        self.save(run)
        if self._charts:
            try:
                data = charts.chart_data(run.requests, self._predicted)
            except InputError as error:
                print(f"the plots hold no prediction: {error}", file=sys.stderr)
                data = charts.chart_data(run.requests)
            for path in self._charts:
                try:
                    self._try(path, charts.render(path, data))
                except InputError as error:
                    print(error, file=sys.stderr)

    def _try(self, path: Path, content: str) -> None:
        try:
            write_whole(path, content)
        except OSError as error:
            if path not in self._told:
                self._told.add(path)
                print(f"{path} cannot be written ({error.strerror or error}); measuring goes on", file=sys.stderr)


SUFFIXES = (".json", ".jsonl", ".csv", ".svg", ".html")


def table_text(path: Path, run: Run, context: Mapping[str, Any] | None = None) -> str:
    """The run in the format of the file's suffix."""
    if path.suffix.lower() == ".csv":
        return to_csv(with_context(rows(run), context or {}))
    if path.suffix.lower() == ".jsonl":
        return "".join(json.dumps(request.to_dict()) + "\n" for request in run.requests)
    return json.dumps(document(run, context), indent=1) + "\n"


def write_whole(path: Path, content: str) -> None:
    """Replace a file in one step: the new text is complete before the old one goes."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:60]}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def fallback() -> Path:
    """A file in the temporary folder for runs without `--out`, so that a kill loses nothing."""
    handle, name = tempfile.mkstemp(prefix="planner-measure-", suffix=".json")
    os.close(handle)
    return Path(name)
