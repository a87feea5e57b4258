"""Files that a person names: read within a limit, never from a device or a pipe that may have no end; and JSON text, refused in words."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from planner.problems import InputError, one_line

LONGEST_NAME = 120
MOST_DIGITS = 400
"""Digits of a whole number; the largest float has 309."""


def shown_name(path: str | Path) -> str:
    """A path as it stands in a message: printable, and its end where it is long."""
    text = one_line(str(path))
    return text if len(text) <= LONGEST_NAME else "…" + text[1 - LONGEST_NAME :]


def stands(path: str | Path) -> bool:
    """Whether anything stands at this path: a file, or what `read_bytes` says is none."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL in it
        return False


def read_bytes(path: str | Path, most_bytes: int, want: str, name: str = "") -> bytes:
    """The bytes of a file, which messages call `name`. Raises InputError in one sentence that ends with `want`, what to give instead."""
    name = name or shown_name(path)
    data = b""
    try:
        found = Path(path)
        why = (
            "Is a directory" if found.is_dir() else "it is a device or a pipe, not a file" if found.exists() and not found.is_file() else ""
        )
        if not why:
            with found.open("rb") as file:
                data = file.read(most_bytes + 1)
    except OSError as error:
        why = error.strerror or str(error)
    except ValueError:
        why = "no file has such a name"
    if why:
        raise InputError(f"{name} cannot be read: {why}; {want}")
    if len(data) > most_bytes:
        raise InputError(f"{name} is larger than {most_bytes:,} bytes; {want}")
    return data


def read_text(path: str | Path, most_bytes: int, want: str, name: str = "") -> str:
    """The text of a UTF-8 file, without its byte order mark. Raises InputError like `read_bytes`."""
    try:
        return read_bytes(path, most_bytes, want, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name or shown_name(path)} cannot be read: it is not UTF-8 text; {want}") from error


def columns_once(header: Iterable[str], name: str, used: Container[str]) -> None:
    """Refuse a table that has one of the columns in use twice: which of the two is meant cannot be told."""
    seen: set[str] = set()
    for column in header:
        if column in seen and column in used:
            raise InputError(f"{name} has the column {column} twice; keep one of them")
        seen.add(column)


def from_json(text: str | bytes, numbers_only: bool = False, once: bool = False) -> Any:
    """The value of JSON text. Raises ValueError with a clause that says what is wrong.

    `numbers_only` refuses NaN and Infinity, which JSON does not have; `once` refuses objects that give a key twice.
    """
    try:
        return json.loads(
            text, parse_int=_whole, parse_constant=_no_constant if numbers_only else None, object_pairs_hook=_once if once else None
        )
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("it is empty") from error
        raise ValueError(f"{error.msg[0].lower()}{error.msg[1:]} at line {error.lineno}, column {error.colno}") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error
    except RecursionError as error:
        raise ValueError("its values stand too deep inside each other") from error


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} digits, at most {MOST_DIGITS} are read")
    return int(digits)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:60]!r} is given twice in one object, give it once")
        found[key] = value
    return found
