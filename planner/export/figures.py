"""How a figure is written: one function for every format, so that a number reads the same wherever it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from planner.units import GB, GIB, MS

ABSENT = "–"
SIGNIFICANT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Unit:
    """How one kind of quantity is shown."""

    name: str
    """Printed after the number and in the heads of tables; empty for plain numbers."""
    scale: float = 1.0
    """SI value of one shown unit."""
    decimals: int | None = None
    """Fixed decimals; None means three significant digits, all digits of the whole part kept."""
    before: str = ""
    """Printed before the number, such as a currency sign."""


UNITS = {
    "usd": Unit("", before="$"),
    "s": Unit("s"),
    "ms": Unit("ms", MS),
    "gib": Unit("GiB", GIB),
    "gb": Unit("GB", GB, 1),
    "bytes": Unit("bytes", decimals=0),
    "gb_s": Unit("GB/s", GB),
    "tokens": Unit("tokens", decimals=0),
    "tokens_s": Unit("tokens/s"),
    "requests_s": Unit("requests/s"),
    "requests_day": Unit("requests/day", decimals=0),
    "hours": Unit("h"),
    "kw": Unit("kW"),
    "kwh": Unit("kWh", decimals=0),
    "kg": Unit("kg CO2e", decimals=0),
    "share": Unit("%", 0.01, 1),
    "times": Unit("×"),
    "billion": Unit("B", 1e9),
    "count": Unit("", decimals=0),
    "number": Unit(""),
}
"""The closed list of units a document uses. Values come in SI and are scaled here, nowhere else."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shown value: text for a person, the same digits for a machine."""

    text: str
    """With grouping, sign of currency and unit, as printed."""
    number: str | None = None
    """The same digits alone, `1234.5`, or None when the cell holds words."""
    unit: str = ""
    """Key of `UNITS` for a number."""


EMPTY = Cell(ABSENT)


def cell(value: Any, unit: str = "number") -> Cell:
    """A value in SI as a cell. None and numbers that are not finite are shown as absent, strings and truth values as words."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return EMPTY
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if not isinstance(value, int | float):
        return Cell(str(value))
    if not math.isfinite(value):
        return EMPTY
    kind = UNITS[unit]
    shown = value / kind.scale
    digits = _money(shown) if unit == "usd" else rounded(shown, kind.decimals)
    return Cell(f"{_sign(digits)}{kind.before}{_grouped(digits)}{_after(kind.name)}", digits, unit)


def show(value: Any, unit: str = "number") -> str:
    """The text of `cell(value, unit)`, for use inside sentences."""
    return cell(value, unit).text


def interval(low: Any, high: Any, unit: str = "number") -> str:
    """Two values as one range, or the sign for absent when one is missing."""
    if low is None or high is None:
        return ABSENT
    return f"{show(low, unit)} to {show(high, unit)}"


def rounded(value: float, decimals: int | None = None) -> str:
    """Plain digits: fixed decimals, or three significant digits without ever rounding away whole ones."""
    if decimals is None:
        decimals = _significant_decimals(value)
    digits = f"{Decimal(repr(float(value))):.{decimals}f}"
    return digits if Decimal(digits) else digits.lstrip("-")


def _significant_decimals(value: float) -> int:
    if value == 0:
        return 0
    exponent = Decimal(f"{abs(value):.{SIGNIFICANT_DIGITS - 1}e}").adjusted()
    return max(0, SIGNIFICANT_DIGITS - 1 - exponent)


def _money(usd: float) -> str:
    if abs(usd) >= 999.995:
        return rounded(usd, 0)
    return rounded(usd, 2) if abs(usd) >= 0.0995 or usd == 0 else rounded(usd)


def _sign(digits: str) -> str:
    return "−" if digits.startswith("-") else ""


def _grouped(digits: str) -> str:
    whole, dot, rest = digits.lstrip("-").partition(".")
    return f"{int(whole):,}{dot}{rest}"


def _after(unit: str) -> str:
    if not unit:
        return ""
    return unit if unit in ("%", "×") else f" {unit}"
