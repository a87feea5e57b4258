"""Older files and links → today's names. A version's changes are data: what was renamed, and which defaults moved.

When a field is renamed or a default changes, `SCHEMA_VERSION` goes up by one and the change is written down here under
the version that it ends, so that a file of that version opens to the same scenario for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.problems import InputError
from planner.scenario import SCHEMA_VERSION

Path = tuple[str, ...]

UNSTATED_VERSION = 1
"""Version of a link that states none: address bars have been shared without one since the first version."""

RENAMED: dict[int, dict[str, str]] = {}
"""{version: {its dotted path: the next version's path}}."""
OLD_DEFAULTS: dict[int, dict[str, Any]] = {}
"""{version: {dotted path as it is called after that version's renames: the default that version had}}."""
OPAQUE: frozenset[Path] = frozenset({("model", "hf_config")})
"""Objects whose keys are not ours."""


def document(data: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A scenario as JSON data of any known version → data of the current version, and one note per change.

    Raises `InputError` when `schema_version` is no version of ours.
    """
    version = known_version(data.get("schema_version", SCHEMA_VERSION))
    if version == SCHEMA_VERSION:
        return dict(data), ()
    values, notes = paths(_flatten(data), version)
    return _nest({**values, ("schema_version",): SCHEMA_VERSION}), notes


def paths(values: Mapping[Path, Any], version: int) -> tuple[dict[Path, Any], tuple[str, ...]]:
    """The same for values held under their paths, as a link has them."""
    now, notes = dict(values), []
    for step in range(version, SCHEMA_VERSION):
        for old, new in RENAMED.get(step, {}).items():
            for path in [p for p in now if p[: len(_split(old))] == _split(old)]:
                now[_split(new) + path[len(_split(old)) :]] = now.pop(path)
                notes.append(f"{old} is called {new} since version {step + 1}")
        for name, default in OLD_DEFAULTS.get(step, {}).items():
            if now.setdefault(_split(name), default) == default:
                notes.append(f"{name} keeps the default it had in version {step}: {default}")
    return now, tuple(dict.fromkeys(notes))


def known_version(raw: object) -> int:
    """A schema version as a number. Raises `InputError` when it is none, or newer than this program."""
    try:
        version = int(str(raw))
    except ValueError:
        version = 0
    if version < 1:
        raise InputError(f"schema_version = {str(raw)[:40]!r} is not a version; use {SCHEMA_VERSION} or leave it out")
    if version > SCHEMA_VERSION:
        asked = str(raw)[:40]
        raise InputError(f"schema_version = {asked} is newer than this planner, which knows up to {SCHEMA_VERSION}; update the planner")
    return version


def _split(path: str) -> Path:
    return tuple(path.split("."))


def _flatten(data: Mapping[str, Any], prefix: Path = ()) -> dict[Path, Any]:
    flat: dict[Path, Any] = {}
    for key, value in data.items():
        path = (*prefix, str(key))
        if isinstance(value, dict) and value and path not in OPAQUE:
            flat |= _flatten(value, path)
        else:
            flat[path] = value
    return flat


def _nest(values: Mapping[Path, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for path, value in values.items():
        at = data
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = value
    return data
