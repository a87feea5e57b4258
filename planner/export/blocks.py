"""What a document is made of, whatever its format: sections of text, tables, charts and code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.export.figures import Cell, cell

Tone = Literal["plain", "good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph; `tone` sets it apart as a verdict or a warning."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns. `slug` names the CSV file and the JSON table."""

    slug: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    wide: bool = False
    """Long tables that print in small type."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy: a command, a manifest, a configuration."""

    slug: str
    title: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite specification with its data inside, and what it shows in words."""

    slug: str
    title: str
    takeaway: str
    spec: Mapping[str, Any]


Block = Text | Table | Code | Chart


@dataclass(frozen=True, slots=True)
class Section:
    """One numbered part of a document."""

    number: int
    title: str
    blocks: tuple[Block, ...]

    @property
    def slug(self) -> str:
        return f"section-{self.number}"


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document, once for every format."""

    title: str
    subtitle: str
    head: Table
    sections: tuple[Section, ...]
    link: str
    """Query string that restores the plan, or an empty string where several plans are added up."""
    payload: Mapping[str, Any] = field(default_factory=dict)
    """The machine-readable form: the plan's JSON with its acceptance test. Reading a document back starts here."""
    requests: tuple[Mapping[str, Any], ...] = ()
    """Simulated requests, one row each, for the formats that hold data."""

    def tables(self) -> Iterator[Table]:
        """Every table, the head first."""
        yield self.head
        for section in self.sections:
            yield from (block for block in section.blocks if isinstance(block, Table))


def table(slug: str, title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], note: str = "", wide: bool = False) -> Table:
    """A table from plain values and cells; a bare value becomes a cell of words or a plain number."""
    return Table(slug, title, tuple(columns), tuple(tuple(cell(value) for value in row) for row in rows), note, wide)


def missing(what: str, why: str) -> Text:
    """The one line that stands where a part does not apply."""
    return Text(f"{what}: not part of this plan, because {why}.")
