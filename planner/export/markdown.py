"""Document → Markdown. No text of a user can become a link, an image, HTML or the end of a table cell or code block."""

from __future__ import annotations

import json
import re

from planner.export.blocks import Block, Chart, Code, Document, Section, Table, Text

SPECIAL = re.compile(r"([\\`*\[\]<>|#~])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
LINE_START = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$)", re.MULTILINE)
SCHEME = re.compile(r"(?i)\b(https?|ftp|mailto|javascript|data):")


def markdown(document: Document) -> bytes:
    """UTF-8 bytes. Charts are named with what they show; their data are the tables beside them."""
    parts = [
        f"# {escaped(document.title)}",
        escaped(document.subtitle),
        _table(document.head),
        *(_section(s) for s in document.sections),
        _machine(document),
    ]
    return ("\n\n".join(part for part in parts if part) + "\n").encode("utf-8")


def escaped(text: str) -> str:
    """Text that shows as itself in GitHub-flavoured Markdown, in one paragraph."""
    one_line = " ".join(text.split())
    safe = SPECIAL.sub(lambda found: f"\\{found[0]}", one_line)
    safe = LINE_START.sub(
        lambda found: f"{found[1]}\\{found[2]}" if not found[2][0].isdigit() else f"{found[1]}{found[2][:-1]}\\{found[2][-1]}", safe
    )
    # Bare addresses would be made into links; plain words with a broken colon are not.
    return SCHEME.sub(lambda found: f"{found[1]}&#58;", safe)


def _section(section: Section) -> str:
    return "\n\n".join([f"## {section.number} {escaped(section.title)}", *(_block(b) for b in section.blocks)])


def _block(block: Block) -> str:
    if isinstance(block, Text):
        text = escaped(block.text)
        return text if block.tone == "plain" else f"**{text}**"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Code):
        return f"### {escaped(block.title)}\n\n{fenced(block.text, block.language)}"
    assert isinstance(block, Chart)
    return f"*{escaped(block.title)} (chart): {escaped(block.takeaway)}*"


def _table(t: Table) -> str:
    heads = [escaped(c) or " " for c in t.columns]
    numeric = [any(row[i].number is not None for row in t.rows) for i in range(len(t.columns))]
    rule = ["---:" if n else "---" for n in numeric]
    lines = [_row(heads), _row(rule), *(_row([escaped(c.text) for c in row]) for row in t.rows)]
    body = "\n".join(lines)
    note = f"\n\n{escaped(t.note)}" if t.note else ""
    return f"### {escaped(t.title)}\n\n{body}{note}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _machine(document: Document) -> str:
    text = json.dumps(document.payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    link = (
        f"Link that restores the plan, to append to the address of the page:\n\n{fenced(document.link, 'text')}\n\n"
        if document.link
        else ""
    )
    return f"## Open it again\n\n{link}The plan as JSON; this file itself can be opened too.\n\n{fenced(text, 'json')}"
