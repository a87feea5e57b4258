"""The engines' published argument lists, kept as dated data, and the check that a command uses nothing else.

`flags.json` holds names and closed choices only, each list with its version, source and date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.catalog.engine_memory import MOVING

FLAGS_FILE = Path(__file__).with_name("flags.json")


@dataclass(frozen=True, slots=True)
class FlagList:
    """The arguments of one program in one version."""

    program: str
    version: str
    commit: str
    """Empty where the release does not say."""
    source: str
    date: str
    values: Mapping[str, tuple[str, ...]]
    """Flags followed by a value, with the values allowed; an empty tuple means any."""
    switches: frozenset[str]
    """Flags that stand alone."""
    many: frozenset[str] = frozenset()
    """Flags followed by several values."""


@cache
def flag_lists() -> dict[str, tuple[FlagList, ...]]:
    """Argument lists by program, oldest version first."""
    raw = json.loads(FLAGS_FILE.read_text("utf-8"))
    return {program: tuple(_flag_list(program, entry) for entry in entries) for program, entries in raw.items()}


def _flag_list(program: str, entry: dict[str, object]) -> FlagList:
    values = {flag: tuple(allowed) for flag, allowed in entry["values"].items()}  # type: ignore[attr-defined]
    texts = {key: str(entry[key]) for key in ("version", "commit", "source", "date")}
    return FlagList(program=program, values=values, switches=frozenset(entry["switches"]), many=frozenset(entry["many"]), **texts)  # type: ignore[call-overload]


def flag_list(program: str, version: str | None = None) -> FlagList:
    """The list of this version, or else the newest that is not newer, or the oldest kept."""
    lists = flag_lists()[program]
    wanted = _key(version) if version and version.lower() not in MOVING else _key(lists[-1].version)
    return next((found for found in reversed(lists) if _key(found.version) <= wanted), lists[0])


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.lstrip("v").split("."))
