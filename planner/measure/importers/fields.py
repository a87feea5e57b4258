"""Reading other people's JSON: nested fields that may be missing, and the figures every tool shares."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.measure.records import distribution
from planner.measure.rows import Row, number

EVENT_COUNT_SIGN = 0.25
"""A TPOT that differs by more than this from (E2E − TTFT) / (tokens − 1) of the same means counts something other than tokens."""

FASTEST_TPOT_MS = 0.2
"""No served stream is faster than 5,000 tokens/s; below it an answer came in one piece."""


def take(data: Any, *path: str | int) -> Any:
    """The value at a path of keys and positions, or None where the path ends early."""
    for step in path:
        if isinstance(step, int):
            if not isinstance(data, Sequence) or isinstance(data, str) or not -len(data) <= step < len(data):
                return None
            data = data[step]
        else:
            if not isinstance(data, Mapping):
                return None
            data = data.get(step)
    return data


def first(*values: Any) -> Any:
    """The first value that is not None."""
    return next((value for value in values if value is not None), None)


def find(data: Any, names: Iterable[str], skip: Iterable[str] = ()) -> float | None:
    """The first positive number under one of `names` anywhere inside, breadth first, not entering `skip`."""
    names, skip = tuple(names), tuple(skip)
    level = [data]
    for _ in range(8):
        below: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                for name in names:
                    value = item.get(name)
                    value = value[0] if isinstance(value, list) and len(value) == 1 else value
                    found = number(value, positive=True)
                    if found is not None:
                        return found
                below += [value for key, value in item.items() if key not in skip]
            elif isinstance(item, list):
                below += item[:100]
        level = below
    return None


def ratio(total: Any, count: Any) -> float | None:
    """total / count, or None when either is missing or zero."""
    top, bottom = number(total), number(count, positive=True)
    return top / bottom if top and bottom else None


def date(text: Any) -> str | None:
    """YYYY-MM-DD from the stamps that tools write (20250530-203806, ISO), or None."""
    found = re.match(r"(\d{4})-?(\d{2})-?(\d{2})", str(text or ""))
    return "-".join(found.groups()) if found else None


def derived_tpot_ms(ttft_ms: float | None, e2e_ms: float | None, output_tokens: float | None) -> float | None:
    """(E2E − TTFT) / (tokens − 1) from means, ms."""
    if ttft_ms is None or e2e_ms is None or output_tokens is None or output_tokens <= 1 or e2e_ms <= ttft_ms:
        return None
    return (e2e_ms - ttft_ms) / (output_tokens - 1)


def honest_tpot(found: Row, name: str, always_derive: bool = False) -> Row:
    """The row with a TPOT that counts tokens: the tool's own where it agrees with the other means, else derived, and said so.

    Where the whole answer arrived at once, nothing was streamed: TTFT and TPOT are unknown then.
    """
    said = found.get("tpot_mean_ms")
    derived = derived_tpot_ms(found.get("ttft_mean_ms"), found.get("e2e_mean_ms"), found.get("osl_mean"))
    if derived is None or (said is not None and not always_derive and abs(said / derived - 1) <= EVENT_COUNT_SIGN):
        return found
    if derived < FASTEST_TPOT_MS:
        gone = [column for column in found if column.startswith(("ttft_", "tpot_"))]
        return found | dict.fromkeys(gone) | {"notes": join(found.get("notes"), "answers arrived at once, not streamed: no TTFT and TPOT")}
    told = "TPOT derived = (E2E - TTFT) / (tokens - 1)" + (f"; {name}'s own is {said:.4g} ms" if said is not None else "")
    others = [column for column in found if column.startswith("tpot_") and column != "tpot_mean_ms"]
    return found | dict.fromkeys(others) | {"tpot_mean_ms": derived, "notes": join(found.get("notes"), told)}


def join(*notes: str | None) -> str | None:
    """Notes as one text."""
    return "; ".join(note for note in notes if note) or None


def latencies(ttft_s: Sequence[float], tpot_s: Sequence[float], e2e_s: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles of per-request seconds as row columns in ms."""
    columns: dict[str, float | None] = {}
    for name, values in (("ttft", ttft_s), ("tpot", tpot_s), ("e2e", e2e_s)):
        known = distribution([v for v in values if isinstance(v, (int, float)) and math.isfinite(v)])
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            value = known[statistic]
            columns[f"{name}_{statistic}_ms"] = None if value is None else value * 1e3
    return columns


def half_width(lengths: Sequence[float]) -> float | None:
    """Half the spread of lengths over their middle: 0 for fixed ones."""
    known = [v for v in lengths if isinstance(v, (int, float)) and v > 0]
    return (max(known) - min(known)) / (max(known) + min(known)) if known else None
