"""From an uploaded file to a `Trace`: CSV or JSONL, the column names of the public traces, bad rows by number."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from planner.files import columns_once, from_json
from planner.problems import InputError
from planner.traces.trace import Blocks, Rejected, Trace
from planner.units import MB, MS

MAX_BYTES = 50 * MB
MAX_ROWS = 500_000
MAX_TOKENS = 10_000_000
MAX_TOKENS_KEYED = 1_000_000
"""Content block ids of one request."""
MAX_BLOCK_IDS = 4_000_000
"""Content block ids of a whole file: 200 MB in memory."""
MAX_REJECTED = 1_000
"""Bad rows that are kept by number; beyond that they are only counted."""
LATEST_S = 1e11
"""Beyond the year 5000 in seconds since 1970; what is later is no clock."""


FINER = re.compile(r"(\.\d{6})\d+")
"""Digits of a second beyond the microseconds that Python reads; Azure writes seven."""


def _clock(text: Any) -> float:
    """Seconds, from a number or from a date and time; without a time zone it is UTC, wherever this runs."""
    try:
        return float(text)
    except (TypeError, ValueError):
        found = datetime.fromisoformat(FINER.sub(r"\1", str(text).strip()[:60]))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _ranges(text: Any) -> Blocks:
    """Block ids, from a JSON list or from ids and inclusive ranges: `0 14-27`."""
    if isinstance(text, list):
        return tuple(int(i) for i in text)
    ids: list[int] = []
    for part in str(text).split():
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high - low > MAX_TOKENS_KEYED or len(ids) > MAX_TOKENS_KEYED:
            raise ValueError("there are too many block ids")
        ids.extend(range(low, high + 1))
    return tuple(ids)


Reader = tuple[str, Callable[[Any], Any]]
FORMATS: tuple[dict[str, Reader], ...] = (
    {"t": ("t_s", _clock), "input": ("input_tokens", float), "output": ("output_tokens", float), "blocks": ("blocks", _ranges)},
    {"t": ("arrival_s", _clock), "input": ("input_tokens", float), "output": ("output_tokens", float), "blocks": ("blocks", _ranges)},
    {"t": ("TIMESTAMP", _clock), "input": ("ContextTokens", float), "output": ("GeneratedTokens", float)},
    {"t": ("Timestamp", _clock), "input": ("Request tokens", float), "output": ("Response tokens", float)},
    {
        "t": ("timestamp", lambda ms: float(ms) * MS),
        "input": ("input_length", float),
        "output": ("output_length", float),
        "blocks": ("hash_ids", _ranges),
    },
)
"""Column names that are understood: the planner's own, Azure's, BurstGPT's and Mooncake's (milliseconds)."""

COLUMNS = frozenset(column for columns in FORMATS for column, _ in columns.values())


def parse(data: bytes, name: str = "upload") -> Trace:
    """A trace from CSV with a header line or JSONL, in any of `FORMATS`; bad rows are left out and reported by number.

    Raises InputError when the file is too large, not text, of unknown columns, or has no good row.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"trace {name!r} has {len(data) / MB:.0f} MB; the limit is {MAX_BYTES // MB} MB, cut it to a busy hour")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"trace {name!r} is not UTF-8 text; upload CSV or JSONL") from error
    start = text.lstrip()[:1]
    rows = _json_list(text, name) if start == "[" else _json_rows(text) if start == "{" else _csv_rows(text, name)
    columns: dict[str, Reader] | None = None
    good: list[tuple[float, int, int, Blocks]] = []
    rejected: list[Rejected] = []
    rejected_rows = ids = 0
    for number, row in rows:
        if len(good) + rejected_rows >= MAX_ROWS:
            raise InputError(f"trace {name!r} has more than {MAX_ROWS:,} requests; cut it to a busy hour")
        try:
            if not isinstance(row, Mapping):
                raise ValueError(row)
            columns = columns or _format(row, name)
            good.append(_request(row, columns))
            ids += len(good[-1][3])
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            rejected_rows += 1
            if len(rejected) < MAX_REJECTED:
                rejected.append(Rejected(number, _reason(error)))
        if ids > MAX_BLOCK_IDS:
            raise InputError(f"trace {name!r} has more than {MAX_BLOCK_IDS:,} content block ids; cut it to a busy hour")
    if not good:
        first = f"row {rejected[0].row}: {rejected[0].reason}" if rejected else "give a header line and a line for each request"
        raise InputError(f"trace {name!r} has no usable request; {first}")
    good.sort(key=lambda request: request[0])
    arrival_s = np.array([request[0] for request in good])
    blocks = tuple(request[3] for request in good) if any(request[3] for request in good) else None
    return Trace(
        name,
        arrival_s - arrival_s[0],
        np.array([request[1] for request in good], dtype=np.int64),
        np.array([request[2] for request in good], dtype=np.int64),
        blocks,
        _hash_tokens(good) if blocks else 0,
        source=f"uploaded file {name}",
        content_hash=hashlib.sha256(data).hexdigest(),
        rejected=tuple(rejected),
        rejected_rows=rejected_rows,
    )


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=None))
    try:
        columns_once(reader.fieldnames or (), f"trace {name!r}", COLUMNS)
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"the trace is not readable as CSV at line {reader.line_num}: {error}") from error


def _json_rows(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, "not a JSON object"


def _json_list(text: str, name: str) -> Iterator[tuple[int, Any]]:
    try:
        yield from enumerate(from_json(text), start=1)
    except ValueError as error:
        raise InputError(f"trace {name!r} is not JSON: {error}; give a list of requests, or one object a line") from error


def _format(row: Mapping[str, Any], name: str) -> dict[str, Reader]:
    """The first format whose arrival and lengths are among the row's columns."""
    for columns in FORMATS:
        if all(columns[part][0] in row for part in ("t", "input", "output")):
            return {part: reader for part, reader in columns.items() if reader[0] in row}
    known = " or ".join(", ".join(column for column, _ in columns.values()) for columns in FORMATS)
    given = ", ".join(map(str, list(row)[:8]))[:200]
    apart = "" if "," in given else " with commas between"
    raise InputError(f"trace {name!r} has the columns {given}; expected {known}{apart}")


def _request(row: Mapping[str, Any], columns: Mapping[str, Reader]) -> tuple[float, int, int, Blocks]:
    """One request. Raises ValueError saying what is wrong with it."""
    values = {}
    for part, (column, read) in columns.items():
        try:
            values[part] = read(row[column])
        except (ValueError, TypeError, KeyError, OverflowError, OSError) as error:
            said = "missing" if row.get(column) is None else repr(str(row[column])[:40])
            raise ValueError(f"{column} is {said}") from error
    t, input_tokens, output_tokens = values["t"], values["input"], values["output"]
    if not abs(t) <= LATEST_S:
        raise ValueError(f"{columns['t'][0]} is no time in seconds, nor a date")
    for part, tokens in (("input", input_tokens), ("output", output_tokens)):
        if not 1 <= tokens <= MAX_TOKENS or tokens != int(tokens):
            raise ValueError(f"{columns[part][0]} is {tokens:g}; a whole number from 1 to {MAX_TOKENS:,} is wanted")
    return t, int(input_tokens), int(output_tokens), values.get("blocks", ())


def _hash_tokens(requests: list[tuple[float, int, int, Blocks]]) -> int:
    """Tokens of one content block: the power of two that explains most prompts' number of ids, Mooncake's 512 at a tie."""
    with_blocks = [(input_tokens, len(blocks)) for _, input_tokens, _, blocks in requests if blocks]
    return max((512, 16, 32, 64, 128, 256, 1024), key=lambda size: sum(-(-tokens // size) == n for tokens, n in with_blocks))


def _reason(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
