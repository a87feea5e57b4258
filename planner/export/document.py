"""A plan → one document model, from which every format is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.export.acceptance import machine_readable
from planner.export.blocks import Document
from planner.export.extras import Extras
from planner.export.sections import SECTIONS, head
from planner.export.subject import SCHEMA_VERSION, Cover, Subject

FORMAT = "planner.document"
FORMAT_VERSION = 1


def document(plan: Mapping[str, Any], extras: Extras | None = None, cover: Cover | None = None) -> Document:
    """The document of a plan's JSON. Parts that need further plans stand only where `extras` brings them."""
    s = Subject(plan, extras or Extras(), cover or Cover())
    return Document(
        title=s.title,
        subtitle=s.purchase if s.scenario.name else "Capacity plan",
        head=head(s),
        sections=tuple(section(s) for section in SECTIONS),
        link=s.link,
        payload=payload(s),
        requests=s.extras.requests,
    )


def payload(s: Subject) -> dict[str, Any]:
    """The plan's JSON with what makes it a document: link, acceptance test, what-ifs. `export.read` starts here."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "schema_version": SCHEMA_VERSION,
        **s.plan,
        "link": s.link,
        "acceptance": machine_readable(s),
        "extras": {**s.extras.to_dict(), "requests": ()},
    }
