"""Plan → documents, tables and engine commands, and a document back to its plan.

`build` and `write` take a `Plan` or its JSON. What a document says beyond its plan (other loads, lost hardware, moved inputs)
is worked out with about twenty quick plans unless `extras` is given; `Extras()` leaves those parts out.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from planner.export.document import document
from planner.export.extras import Extras, from_dict, requests
from planner.export.restore import MOST_BYTES, Restored, read
from planner.export.subject import Cover
from planner.problems import InputError

KINDS = {
    "json": "application/json",
    "html": "text/html",
    "md": "text/markdown",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "csv": "text/csv",
    "zip": "application/zip",
}
"""File endings and their media types."""
NEEDS = {"html": ("jinja2",), "xlsx": ("xlsxwriter",)}
"""Packages without which a format cannot be made."""
MOST_REQUESTS = 1000

__all__ = ["KINDS", "MOST_BYTES", "Cover", "Extras", "Restored", "build", "document", "extras_of", "read", "write"]


def build(plan: Any, kind: str, extras: Extras | None = None, cover: Cover | None = None) -> bytes:
    """The document of a plan as bytes of one of `KINDS`: the same plan and data give the same bytes.

    Raises InputError for an unknown kind.
    """
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no format of ours; use one of {', '.join(KINDS)}")
    return render(document(as_json(plan), extras_of(plan) if extras is None else extras, cover), kind)


def missing(kind: str) -> str:
    """The package that a format lacks on this machine, or an empty string."""
    return next((name for name in NEEDS.get(kind, ()) if find_spec(name) is None), "")


def render(made: Any, kind: str) -> bytes:
    """A document (of one plan or of several) in one of `KINDS`."""
    if kind == "json":
        return (json.dumps(made.payload, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    if kind == "html":
        from planner.export.page import html

        return html(made)
    if kind == "md":
        from planner.export.markdown import markdown

        return markdown(made)
    if kind == "xlsx":
        from planner.export.sheets import xlsx

        return xlsx(made)
    from planner.export.tables import csv_zip, one_csv

    return one_csv(made) if kind == "csv" else csv_zip(made)


def write(plan: Any, path: str | Path, extras: Extras | None = None, cover: Cover | None = None) -> None:
    """Write a plan's document; the file's ending names the format. Nothing is left behind when writing fails."""
    target = Path(path)
    save(build(plan, kind_of(target), extras, cover), target)


def save(data: bytes, target: Path) -> None:
    """Write bytes whole or not at all: a full disk must not cost the file that was there before."""
    try:
        if target.exists() and not target.is_file():
            # Without O_NONBLOCK a pipe that nobody reads is waited for without end.
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_NONBLOCK), "wb") as device:
                os.set_blocking(device.fileno(), True)
                device.write(data)
            return
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, suffix=".part", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.chmod(file.name, 0o644)
                os.replace(file.name, target)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:  # which names the file beside it, or none
        raise OSError(error.errno, error.strerror, str(target)) from error


def kind_of(path: Path) -> str:
    """The format that a file's ending names. Raises InputError for any other."""
    kind = path.suffix.lower().lstrip(".")
    kind = {"markdown": "md", "htm": "html"}.get(kind, kind)
    if kind not in KINDS:
        raise InputError(f"{path.name or str(path)!r} does not end in a format of ours; use one of {', '.join('.' + k for k in KINDS)}")
    return kind


def as_json(plan: Any) -> Mapping[str, Any]:
    """A `Plan` as its JSON data; JSON data as it is."""
    found: Mapping[str, Any] = plan if isinstance(plan, Mapping) else plan.to_dict()
    return found


def extras_of(plan: Any) -> Extras:
    """The what-ifs of a plan: those it carries (a document read back), or freshly computed ones, with its simulated requests."""
    from dataclasses import replace

    from planner.export import whatifs
    from planner.scenario import Scenario

    data = as_json(plan)
    if data.get("extras"):
        return from_dict(data["extras"])
    found = whatifs.extras(Scenario.model_validate(data["scenario"]), data)
    load = getattr(plan, "load", None)
    if load is None or not load.timelines:
        return found
    return replace(found, requests=requests(load.timelines[0], MOST_REQUESTS), week=whatifs.week(plan))
