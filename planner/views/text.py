"""Figures for people: three significant digits, the unit beside them, no Markdown from outside."""

from __future__ import annotations

import math
import re

from planner import units

MISSING = "–"
THIN = "\u202f"
_SPACE = re.compile(r"[^\S\u00a0\u202f]+")
_DATE = re.compile(r"^\d{4}-\d\d(-\d\d)?$")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def plain(text: object) -> str:
    """Text from a link, a file or a catalogue as Markdown that shows exactly that text: no image, colour or formula,
    and no link but an address that reads as it leads."""
    return _PUNCTUATION.sub(r"\\\1", _SPACE.sub(" ", str(text)).strip())


def digits(value: float | None, significant: int = 3) -> str:
    """0.00123, 15.1, 1,570: `significant` digits, never in exponents between a millionth and a quadrillion."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{significant - 1}e}"
    rounded = float(f"{value:.{significant - 1}e}")
    return f"{rounded:,.{max(significant - 1 - math.floor(math.log10(abs(rounded))), 0)}f}"


def compact(value: float | None) -> str:
    """1,240 or 12.4 k, 405 B: long counts with a letter."""
    if value is None or not math.isfinite(value):
        return MISSING
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{digits(value / (1e3 if letter == 'k' else size))}{THIN}{letter}"
    return digits(value)


def usd(value: float | None) -> str:
    """$1.57, $11,700, $0.0032."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value < 0:
        return f"−{usd(-value)}"
    return f"${digits(value)}" if abs(value) < 1 else f"${value:,.2f}" if abs(value) < 100 else f"${digits(value)}"


def seconds(value: float | None) -> str:
    """15.1 ms, 1.24 s, 3.2 min, 5.1 h."""
    if value is None or not math.isfinite(value):
        return MISSING
    for size, unit in ((3600, "h"), (120, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= size:
            return f"{digits(value / (60 if unit == 'min' else size))}{THIN}{unit}"
    return f"0{THIN}s" if value == 0 else f"{digits(value * 1e6)}{THIN}µs"


def gibibytes(value: float | None) -> str:
    """Memory of a GPU as GiB (2^30), the unit of engine logs, findings and documents."""
    return MISSING if value is None or not math.isfinite(value) else units.gibibytes(value).replace(" ", THIN)


def percent(value: float | None) -> str:
    """0.734 → 73.4 %."""
    return MISSING if value is None or not math.isfinite(value) else f"{digits(100 * value)}{THIN}%"


def rate(value: float | None, unit: str) -> str:
    """A number and its unit."""
    return MISSING if value is None or not math.isfinite(value) else f"{compact(value)}{THIN}{unit}"


def cell(value: object) -> str:
    """What stands in a table: a dash for nothing, three digits of a fraction, thousands apart in a count."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return digits(value)
    return f"{value:,}" if isinstance(value, int) else _DATE.sub(lambda date: date[0].replace("-", "\u2011"), str(value))
