"""Recorded traffic: the traces shipped with the planner, and what a user uploads.

A trace is columns sorted by arrival: seconds from its first request, prompt and output tokens, and – where it was recorded –
the content of each prompt as block ids, equal leading ids being a prefix that two prompts share.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from planner.catalog import lookup
from planner.problems import InputError
from planner.scenario import TraceRef
from planner.traces.reader import FORMATS, MAX_BYTES, MAX_ROWS, parse
from planner.traces.trace import Blocks, Rejected, Trace

__all__ = ["FORMATS", "MAX_BYTES", "MAX_ROWS", "Blocks", "Rejected", "Trace", "get", "index", "parse", "shipped", "upload"]

FOLDER = Path(__file__).parent.parent / "catalog" / "traces"


@lru_cache(maxsize=1)
def index() -> dict[str, dict[str, Any]]:
    """What is shipped: title, licence, source, date, notes by name."""
    return json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=8)
def shipped(name: str) -> Trace:
    """A trace of the catalogue. Raises InputError naming the nearest known one."""
    row = lookup.row(index(), name, "workload.trace.name", "upload the trace as CSV or JSONL instead")
    trace = parse((FOLDER / f"{name}.csv").read_bytes(), name)
    return replace(
        trace,
        hash_tokens=row["hash_tokens"],
        tick_s=row["tick_s"],
        source=row["source"],
        licence=row["licence"],
        date=row["date"],
        notes=tuple(row["notes"]),
        content_hash=None,
    )


_uploaded: OrderedDict[str, Trace] = OrderedDict()
"""Uploaded traces of this process by content hash, the latest few; a scenario only ever carries the hash."""


def upload(data: bytes, name: str = "upload") -> Trace:
    """Parse an uploaded file and keep it, so that a scenario can name it by its hash. Raises InputError like `parse`."""
    trace = parse(data, name)
    assert trace.content_hash is not None
    _uploaded[trace.content_hash] = trace
    _uploaded.move_to_end(trace.content_hash)
    while len(_uploaded) > 8:
        _uploaded.popitem(last=False)
    return trace


def get(ref: TraceRef) -> Trace:
    """The trace a scenario names. Raises InputError when it is not shipped, or was not uploaded to this process."""
    if ref.content_hash is None:
        return shipped(ref.name)
    trace = _uploaded.get(ref.content_hash)
    if trace is None:
        raise InputError(f"workload.trace {ref.name!r} was uploaded elsewhere; upload the file with SHA-256 {ref.content_hash[:12]}… again")
    return trace
