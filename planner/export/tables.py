"""Document → CSV: every table as a file of its own in a zip, or all of them in one long table."""

from __future__ import annotations

import csv
import io
import json
import zipfile

from planner.export.blocks import Document, Table
from planner.export.extras import REQUEST_COLUMNS
from planner.export.figures import ABSENT, UNITS, Cell

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""Archives carry no time of day, so that the same plan gives the same bytes."""


def one_csv(document: Document) -> bytes:
    """Long form: one row a cell, with its table, row, column, value and unit."""
    rows: list[list[str]] = [["table", "row", "column", "value", "unit"]]
    for t in document.tables():
        for number, row in enumerate(t.rows, 1):
            for name, c in zip(columns(t), row, strict=True):
                rows.append([t.slug, str(number), words(name), value(c), unit(c)])
    return _text(rows)


def csv_zip(document: Document) -> bytes:
    """One CSV a table, and the plan's JSON."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for t in document.tables():
            _add(archive, f"{t.slug}.csv", table_csv(t))
        if document.requests:
            _add(archive, "requests.csv", _requests(document))
        _add(archive, "plan.json", json.dumps(document.payload, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    return buffer.getvalue()


def table_csv(t: Table) -> bytes:
    """One table: values in columns, each numeric column followed by none or one column of units."""
    mixed = [{unit(row[i]) for row in t.rows if row[i].number is not None} for i in range(len(t.columns))]
    heads: list[str] = []
    for name, units in zip(columns(t), mixed, strict=True):
        only = next(iter(units)) if len(units) == 1 else ""
        heads.append(words(f"{name} ({only})" if only else name))
        if len(units) > 1:
            heads.append(words(f"{name}: unit"))
    rows = [heads]
    for row in t.rows:
        line: list[str] = []
        for c, units in zip(row, mixed, strict=True):
            line.append(value(c))
            if len(units) > 1:
                line.append(unit(c))
        rows.append(line)
    return _text(rows)


def _requests(document: Document) -> bytes:
    rows = [list(REQUEST_COLUMNS)]
    rows += [["" if request[name] is None else str(request[name]) for name in REQUEST_COLUMNS] for request in document.requests]
    return _text(rows)


def columns(t: Table) -> list[str]:
    """Column names; nameless ones are numbered, since a reader of data needs a name."""
    return [name or f"column {i}" for i, name in enumerate(t.columns, 1)]


def value(c: Cell) -> str:
    """Plain digits of a number, words made harmless, nothing for what is absent."""
    if c.number is not None:
        return c.number
    return "" if c.text == ABSENT else words(c.text)


def unit(c: Cell) -> str:
    """Unit of a number in words: ms, GiB, %, USD."""
    if c.number is None:
        return ""
    kind = UNITS[c.unit]
    return "USD" if kind.before == "$" else kind.name


def words(text: str) -> str:
    """Text that no spreadsheet takes for a formula: a leading apostrophe where it would."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _text(rows: list[list[str]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue().encode("utf-8")


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, ZIP_DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, data)
