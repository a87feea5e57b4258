"""Document → one HTML file: offline, charts inside, no script, prints to A4."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.export.blocks import Chart, Code, Document, Table, Text
from planner.export.figures import ABSENT
from planner.export.svg import svg
from planner.problems import InputError

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).with_name("templates")
LONGEST_SHORT = 14
UNSAFE_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html(document: Document) -> bytes:
    """UTF-8 bytes. A chart that cannot be drawn here is replaced by its sentence."""
    text = _template().render(
        document=document, kind=_kind, chart=_chart, column_class=_column_class, payload=script_json(document.payload)
    )
    return text.encode("utf-8")


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise InputError("HTML needs the package jinja2; run `pip install jinja2`, or export Markdown, CSV or JSON") from error

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("document.html")


def script_json(data: Any) -> Any:
    """JSON that can stand inside a script element: nothing in it can end the element."""
    from markupsafe import Markup

    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup("".join(UNSAFE_IN_SCRIPT.get(character, character) for character in text))


def _chart(block: Chart) -> Any:
    from markupsafe import Markup

    try:
        return Markup(svg(block.spec, block.slug))
    except InputError as error:
        return str(error)


def _kind(block: Any) -> str:
    return {Text: "text", Table: "table", Code: "code", Chart: "chart"}[type(block)]


def _column_class(t: Table, column: int) -> str:
    """n for numbers (to the right), s for short words (never broken), nothing for running text."""
    cells = [row[column] for row in t.rows if row[column].text != ABSENT]
    if cells and all(c.number is not None for c in cells):
        return "n"
    return "s" if cells and all(len(c.text) <= LONGEST_SHORT for c in cells) else ""
