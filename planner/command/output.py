"""What a command prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

STOPPED = 130
"""Exit status of a command that its user stopped: the shell's for an interrupt."""


def print_json(data: Any) -> None:
    """Print JSON that every parser accepts: no NaN, no infinity."""
    print(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print left-aligned columns; numbers keep their own formatting."""
    cells = [[str(c) for c in header], *[["" if c is None else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for i, row in enumerate(cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if i == 0:
            print("  ".join("-" * width for width in widths))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on a terminal what is under way, and take it back when it is done; piped output and error logs stay clean."""
    shown_to_somebody = sys.stderr.isatty()
    if shown_to_somebody:
        print(f"{what}…", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown_to_somebody:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """Results as JSON data: dataclasses, tuples and arrays written out, what is not finite as null."""
    from planner.plan import plain as plan_plain

    return plan_plain(value.tolist() if hasattr(value, "tolist") else value)


def shown(value: Any) -> Any:
    """A cell of a table: four digits, yes or no, lists in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(value) if isinstance(value, list) else value
