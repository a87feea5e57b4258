"""Named scenarios as JSON files, validated by the same model as everything else."""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
from functools import cache
from pathlib import Path

from planner import files, migrate
from planner.problems import InputError
from planner.scenario import Scenario, parse

FOLDER = Path(__file__).resolve().parent.parent / "presets"
MAX_BYTES = 1_000_000
"""Largest file that is read."""
WANTED = "give a scenario, or a plan that this planner exported, as JSON"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
"""Names are slugs, so that a name is never a path."""


def names(folder: Path = FOLDER) -> list[str]:
    """The presets that can be loaded, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.json") if NAME.fullmatch(path.stem))


def all(folder: Path = FOLDER) -> dict[str, Scenario]:
    """Every preset by its name."""
    return {name: load(name, folder) for name in names(folder)}


def load(name: str, folder: Path = FOLDER) -> Scenario:
    """A preset by name. Raises `InputError` that names the nearest preset when there is none of that name."""
    known = names(folder)
    if name not in known:
        near = difflib.get_close_matches(name[:80].lower(), known, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"there is no preset {name[:80]!r}{hint}")
    return _read(folder / f"{name}.json", (folder / f"{name}.json").stat().st_mtime_ns)


@cache
def _read(path: Path, changed_ns: int) -> Scenario:
    return read(path)[0]


def read(path: Path) -> tuple[Scenario, tuple[str, ...]]:
    """A scenario file and the notes of its migration. Raises `InputError` when it cannot be read or is not a scenario."""
    name = files.shown_name(path.name)
    return from_text(files.read_text(path, MAX_BYTES, WANTED, name), name)


def from_text(text: str | bytes, source: str = "this file") -> tuple[Scenario, tuple[str, ...]]:
    """A scenario from the JSON text of a preset, or of an exported plan, whose `scenario` part is taken.

    Returns the notes of its migration too. Raises `InputError` when the text is not a scenario.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{source} is larger than {MAX_BYTES:,} bytes, which no scenario is")
    try:
        data = files.from_json(text, once=True)
    except ValueError as error:
        raise InputError(f"{source} is not JSON: {str(error)[:120]}; {WANTED}") from error
    if isinstance(data, dict) and isinstance(data.get("scenario"), dict):
        data = data["scenario"]
    if not isinstance(data, dict):
        raise InputError(f"{source} is not a scenario: it should be a JSON object with sections such as model and hardware")
    data, notes = migrate.document(data)
    return parse(data), notes


def to_text(scenario: Scenario) -> str:
    """The scenario as the text of a preset file: only what differs from the defaults, and the schema version."""
    data = {"schema_version": scenario.schema_version, **scenario.model_dump(mode="json", exclude_defaults=True)}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def slug(title: str) -> str:
    """A file name for a title."""
    return re.sub(r"[^a-z0-9._-]+", "-", title.lower()).strip("-._")[:60] or "scenario"


def save(name: str, scenario: Scenario, folder: Path = FOLDER, replace: bool = False) -> Path:
    """Writes a preset whole or not at all. Raises `InputError` for a name that is no slug, is taken, or a folder that cannot be written."""
    if not NAME.fullmatch(name):
        raise InputError(f"preset name {name[:80]!r} is not usable: lower-case letters, digits, dot, hyphen and underscore, at most 80")
    path = folder / f"{name}.json"
    if path.exists() and not replace:
        raise InputError(f"there is a preset {name!r} already; choose another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, suffix=".part", delete=False) as file:
            try:
                file.write(to_text(scenario))
                file.close()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise InputError(f"preset {name!r} cannot be saved in {folder.name}/: {error.strerror}") from error
    return path
