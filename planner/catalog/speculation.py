"""Measured facts about drafting: how often a drafted token is accepted, by method, position and kind of text, and what drafting costs."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Chance, position by position, that a drafted token is accepted given that all before it were."""

    method: str
    text: str
    conditional: tuple[float, ...]
    kind: str
    """measured, published or assumed."""
    source: str
    date: str


@cache
def acceptance() -> dict[tuple[str, str], Acceptance]:
    """Acceptance by (method, kind of text)."""
    grouped: dict[tuple[str, str], list[dict[str, str]]] = {}
    with (HERE / "acceptance.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            grouped.setdefault((row["method"], row["text"]), []).append(row)
    return {
        key: Acceptance(*key, tuple(float(r["conditional_acceptance"]) for r in rows), rows[0]["kind"], rows[0]["source"], rows[0]["date"])
        for key, rows in grouped.items()
    }
