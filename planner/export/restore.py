"""A document of any format → what made it. Every way in ends in the same checks as a link or a preset."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from planner import migrate
from planner.export.document import document
from planner.files import from_json
from planner.problems import InputError
from planner.scenario import Scenario, parse

MOST_BYTES = 32_000_000
JSON_SHEET_FILE = re.compile(r"xl/worksheets/sheet\d+\.xml")
FORMAT_VERSION = 1
FIGURES = (1e-100, 1e100)
"""Sizes between which every figure of a plan lies, by far."""
DAMAGED = (ValueError, KeyError, IndexError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile)
"""What decoders raise on broken files: bad UTF-8 and JSON, missing parts, unknown compression, nesting too deep."""
UNSHOWABLE = (RecursionError, TypeError, KeyError, ValueError, AttributeError, IndexError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a document held."""

    scenario: Scenario
    plan: Mapping[str, Any] | None
    """The plan's JSON with its figures, where the document carries it."""
    notes: tuple[str, ...]
    """What the migration of an older version changed."""


def read(data: bytes, filename: str) -> Restored:
    """The scenario, and the plan's JSON if there is one, of an exported file: JSON, HTML, Markdown, XLSX or zip.

    An older version is migrated and says what changed. Raises InputError with one sentence when nothing can be restored.
    """
    name = PurePath(filename).name or "this file"
    if len(data) > MOST_BYTES:
        raise InputError(f"{name} has {len(data):,} bytes; a document of ours has at most {MOST_BYTES:,}")
    found = payload(data, name)
    if found.get("format") == "planner.fleet":
        raise InputError(f"{name} adds several plans up; open the plans in it one by one (plans[0], plans[1] …)")
    version = found.get("format_version", FORMAT_VERSION)
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise InputError(
            f"{name} is a document of format {str(version)[:20]}, newer than this planner, which knows up to "
            f"{FORMAT_VERSION}; update the planner"
        )
    carried = found.get("scenario", found)
    if not isinstance(carried, dict):
        raise InputError(f"{name} has a scenario that is not an object; export the plan again")
    current, notes = migrate.document(carried)
    scenario = parse(current)
    if not isinstance(found.get("scenario"), dict) or "memory" not in found:
        return Restored(scenario, None, notes)
    plan = {**found, "scenario": scenario.model_dump(mode="json")}
    try:
        _believable(plan)
        document(plan)
    except UNSHOWABLE:
        return Restored(scenario, None, (*notes, f"the figures in {name} are damaged, so only its scenario is restored; plan it again"))
    return Restored(scenario, plan, notes)


def _believable(value: Any) -> None:
    """Raise ValueError for text that no file can hold and for numbers whose sums and ratios are none."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _believable(key)
            _believable(inner)
    elif isinstance(value, list):
        for inner in value:
            _believable(inner)
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, (int, float)) and value and not FIGURES[0] <= abs(value) <= FIGURES[1]:
        raise ValueError("a figure is beyond all figures")


def payload(data: bytes, name: str) -> dict[str, Any]:
    """The JSON object that a document carries. Raises InputError when it carries none."""
    suffix = PurePath(name).suffix.lower()
    readers = {
        ".html": _from_html,
        ".htm": _from_html,
        ".md": _from_markdown,
        ".markdown": _from_markdown,
        ".xlsx": _from_xlsx,
        ".zip": _from_zip,
    }
    if suffix == ".csv":
        raise InputError(f"{name} holds tables only; open the JSON, HTML, Markdown, XLSX or zip form of the plan")
    try:
        text = readers.get(suffix, _plain)(data)
        found = from_json(text, numbers_only=True) if text is not None else None
    except DAMAGED as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else " ".join(str(error).split())[:120] or "it is damaged"
        raise InputError(f"{name} cannot be read as a document of this planner: {why}; export the plan again") from error
    if not isinstance(found, dict):
        raise InputError(f"{name} carries no plan; open a file that this planner exported, or a scenario as JSON")
    return found


def _plain(data: bytes) -> str:
    return data.decode("utf-8-sig")


PLAN_SCRIPT = re.compile(r"""<script\b[^<>]{0,200}\bid\s{0,9}=\s{0,9}["']?plan["']?[^<>]{0,200}>""", re.IGNORECASE)


def _from_html(data: bytes) -> str | None:
    """The text of the first `<script type="application/json" id="plan">`. An HTML parser takes minutes over hostile pages."""
    page = data.decode("utf-8")
    opening = PLAN_SCRIPT.search(page)
    if opening is None:
        return None
    closing = page.find("</script", opening.end())
    return page[opening.end() : closing if closing >= 0 else None]


def _from_markdown(data: bytes) -> str | None:
    """The last JSON block of the file: the plan stands at its end."""
    lines, found, at = data.decode("utf-8").splitlines(), None, 0
    while at < len(lines):
        opening = re.match(r"^(`{3,})(\w*)\s*$", lines[at])
        at += 1
        if not opening:
            continue
        start = at
        while at < len(lines) and lines[at].rstrip() != opening[1]:
            at += 1
        if opening[2] == "json" and at < len(lines):
            found = "\n".join(lines[start:at])
        at += 1
    return found


def _from_xlsx(data: bytes) -> str | None:
    """The first column of the last sheet, joined. Read without a spreadsheet library, entities of the XML refused."""
    from xml.etree import ElementTree

    main = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sheets = [n for n in archive.namelist() if JSON_SHEET_FILE.fullmatch(n)]
        if not sheets:
            return None
        last = max(sheets, key=lambda n: int(re.sub(r"\D", "", n)))
        strings = [_cell_text(item, main) for item in _xml(archive, "xl/sharedStrings.xml", ElementTree).iter(f"{main}si")]
        parts = []
        for c in _xml(archive, last, ElementTree).iter(f"{main}c"):
            value = c.find(f"{main}v")
            if c.get("t") == "s" and value is not None and re.fullmatch(r"A\d+", c.get("r", "")):
                parts.append(strings[int(value.text or 0)])
    text = "".join(parts)
    return text if text.startswith("{") else None


def _xml(archive: zipfile.ZipFile, name: str, parser: Any) -> Any:
    if archive.getinfo(name).file_size > MOST_BYTES:
        raise ValueError(f"{name} unpacks to more than {MOST_BYTES:,} bytes")
    raw = archive.read(name)
    if b"<!DOCTYPE" in raw or b"<!ENTITY" in raw:
        raise ValueError(f"{name} declares entities")
    if b"\0" in raw[:4] or raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{name} is not UTF-8")  # where the two tests above would see nothing
    try:
        return parser.fromstring(raw)
    except parser.ParseError as error:
        raise ValueError(f"{name} is not well-formed") from error


def _cell_text(item: Any, main: str) -> str:
    return "".join(t.text or "" for t in item.iter(f"{main}t"))


def _from_zip(data: bytes) -> str | None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if "plan.json" not in archive.namelist():
            return None
        if archive.getinfo("plan.json").file_size > MOST_BYTES:
            raise ValueError(f"plan.json unpacks to more than {MOST_BYTES:,} bytes")
        return archive.read("plan.json").decode("utf-8")
