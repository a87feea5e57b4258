"""Finding a row by its slug, with a sentence that helps when there is none."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from planner.problems import InputError

Row = TypeVar("Row")


def row(table: Mapping[str, Row], slug: str, field: str, way_out: str) -> Row:
    """The row called `slug`; `field` is the scenario field that named it, `way_out` what to do when it is truly missing.

    Raises InputError naming the nearest known slugs.
    """
    found = table.get(slug)
    if found is not None:
        return found
    near = get_close_matches(slug.lower(), table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(sorted(table)[:6])}, …;"
    raise InputError(f"{field}: {slug!r} is not in the catalogue; {hint} {way_out}".rstrip())
