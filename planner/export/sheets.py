"""Document → XLSX: a sheet a section, every input, the requests, and the plan's JSON. Numbers are numbers, text is only text."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any

from planner.export.blocks import Chart, Code, Document, Section, Table, Text
from planner.export.extras import REQUEST_COLUMNS
from planner.export.figures import ABSENT, UNITS, Cell
from planner.export.sections.evidence import flat, text_of
from planner.export.tables import columns
from planner.problems import InputError

MOST_CELL_CHARACTERS = 32_000
"""Excel holds 32,767 in a cell."""
JSON_SHEET = "Plan JSON"
OPTIONS = {
    "in_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    "nan_inf_to_errors": False,
}
CREATED = datetime(2000, 1, 1)
MOST_WIDTH = 60


def xlsx(document: Document) -> bytes:
    """The workbook's bytes, the same for the same document."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise InputError("XLSX needs the package xlsxwriter; run `pip install xlsxwriter`, or export CSV, Markdown or JSON") from error

    buffer = io.BytesIO()
    book = xlsxwriter.Workbook(buffer, OPTIONS)
    book.set_properties({"title": document.title[:255], "created": CREATED})
    styles = Styles(book)
    _front(book, styles, document)
    for section in document.sections:
        _sheet(book, styles, section)
    _inputs(book, styles, document)
    _requests(book, styles, document)
    _machine(book, document)
    book.close()
    return buffer.getvalue()


class Styles:
    """Cell formats, made once each."""

    def __init__(self, book: Any) -> None:
        self._book = book
        self._numbers: dict[str, Any] = {}
        self.title = book.add_format({"bold": True, "font_size": 16})
        self.heading = book.add_format({"bold": True, "font_size": 12})
        self.head = book.add_format({"bold": True, "text_wrap": True, "bottom": 1, "valign": "top"})
        self.words = book.add_format({"text_wrap": True, "valign": "top"})
        self.code = book.add_format({"font_name": "Courier New", "font_size": 9})

    def number(self, c: Cell) -> Any:
        """The format that shows a number with the digits, sign and unit of its text."""
        decimals = len(c.number.partition(".")[2]) if c.number else 0
        kind = UNITS[c.unit]
        pattern = "#,##0" + ("." + "0" * decimals if decimals else "")
        after = kind.name if kind.name in ("%", "×") else f" {kind.name}" if kind.name else ""
        quoted = f'"{after}"' if after else ""
        pattern = f"{chr(34) + kind.before + chr(34) if kind.before else ''}{pattern}{quoted}"
        if pattern not in self._numbers:
            self._numbers[pattern] = self._book.add_format({"num_format": pattern, "align": "left", "valign": "top"})
        return self._numbers[pattern]


def _front(book: Any, styles: Styles, document: Document) -> None:
    sheet = book.add_worksheet("Summary")
    sheet.write_string(0, 0, document.title, styles.title)
    sheet.write_string(1, 0, document.subtitle)
    # The answer stands on the sheet that opens: the verdict and the table of the first section, above who made it and when.
    row, shown = 3, [document.head]
    for block in document.sections[0].blocks if document.sections else ():
        if isinstance(block, Text):
            sheet.write_string(row, 0, block.text[:MOST_CELL_CHARACTERS], styles.heading)
            row += 2
        elif isinstance(block, Table):
            row, shown = _table(sheet, styles, block, row) + 1, [block, document.head]
            break
    row = _table(sheet, styles, document.head, row)
    if document.link:
        sheet.write_string(row + 1, 0, "Link that restores the plan, to append to the page's address", styles.heading)
        sheet.write_string(row + 2, 0, document.link[:MOST_CELL_CHARACTERS])
    _widths(sheet, shown)


def _sheet(book: Any, styles: Styles, section: Section) -> None:
    sheet = book.add_worksheet(f"{section.number} {section.title}"[:31])
    sheet.write_string(0, 0, f"{section.number} {section.title}", styles.title)
    row, tables = 2, []
    for block in section.blocks:
        if isinstance(block, Table):
            tables.append(block)
            row = _table(sheet, styles, block, row) + 2
        elif isinstance(block, Text):
            sheet.write_string(row, 0, block.text[:MOST_CELL_CHARACTERS])
            row += 2
        elif isinstance(block, Chart):
            sheet.write_string(row, 0, f"{block.title} (chart in the HTML form): {block.takeaway}")
            row += 2
        elif isinstance(block, Code):
            sheet.write_string(row, 0, block.title, styles.heading)
            for line in block.text.splitlines():
                row += 1
                sheet.write_string(row, 0, line[:MOST_CELL_CHARACTERS], styles.code)
            row += 2
    _widths(sheet, tables)
    sheet.set_landscape()
    sheet.set_paper(9)
    sheet.fit_to_pages(1, 0)


def _table(sheet: Any, styles: Styles, t: Table, row: int) -> int:
    """Write a table from `row` on; the row after its last one."""
    sheet.write_string(row, 0, t.title, styles.heading)
    row += 1
    if any(t.columns):
        for i, name in enumerate(columns(t)):
            sheet.write_string(row, i, name, styles.head)
        row += 1
    for cells in t.rows:
        for i, c in enumerate(cells):
            if c.number is not None:
                sheet.write_number(row, i, float(c.number), styles.number(c))
            elif c.text != ABSENT:
                sheet.write_string(row, i, c.text[:MOST_CELL_CHARACTERS], styles.words)
        row += 1
    if t.note:
        sheet.write_string(row, 0, t.note)
        row += 1
    return row


def _widths(sheet: Any, tables: list[Table]) -> None:
    widest: dict[int, int] = {}
    for t in tables:
        for cells in (*t.rows, tuple(Cell(c) for c in t.columns)):
            for i, c in enumerate(cells):
                widest[i] = max(widest.get(i, 10), min(MOST_WIDTH, len(c.text) + 2))
    for i, width in widest.items():
        sheet.set_column(i, i, width)


def _inputs(book: Any, styles: Styles, document: Document) -> None:
    sheet = book.add_worksheet("Inputs")
    for i, name in enumerate(("Field", "Value")):
        sheet.write_string(0, i, name, styles.head)
    for row, (path, value) in enumerate(flat(document.payload.get("scenario") or {}), 1):
        sheet.write_string(row, 0, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            sheet.write_number(row, 1, value)
        else:
            sheet.write_string(row, 1, text_of(value, MOST_CELL_CHARACTERS))
    sheet.set_column(0, 0, 40)
    sheet.set_column(1, 1, MOST_WIDTH)
    sheet.freeze_panes(1, 0)


def _requests(book: Any, styles: Styles, document: Document) -> None:
    sheet = book.add_worksheet("Requests")
    if not document.requests:
        sheet.write_string(0, 0, "Requests: not part of this document, because it was made from a plan without its simulated runs.")
        return
    for i, name in enumerate(REQUEST_COLUMNS):
        sheet.write_string(0, i, name, styles.head)
    for row, request in enumerate(document.requests, 1):
        for i, name in enumerate(REQUEST_COLUMNS):
            value = request.get(name)
            if isinstance(value, int | float):
                sheet.write_number(row, i, value)
            elif value is not None:
                sheet.write_string(row, i, str(value))
    sheet.freeze_panes(1, 0)


def _machine(book: Any, document: Document) -> None:
    """The payload in the first column, cut into cells; joined again it is the JSON."""
    sheet = book.add_worksheet(JSON_SHEET)
    text = json.dumps(document.payload, separators=(",", ":"), allow_nan=False)
    for row, start in enumerate(range(0, len(text), MOST_CELL_CHARACTERS)):
        sheet.write_string(row, 0, text[start : start + MOST_CELL_CHARACTERS])
