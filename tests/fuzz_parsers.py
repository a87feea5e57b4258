"""Coverage-guided fuzzing of everything that parses: `python tests/fuzz_parsers.py -max_total_time=60 [corpus folder]`.

Needs atheris (`pip install atheris`), which is no test requirement. The first byte of an input chooses the parser. Any exception but
InputError, any message that is no sentence, and any input that takes longer than `-timeout` seconds is a finding.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

with atheris.instrument_imports(include=["planner"]):
    from hostile import finite, one_sentence

    from planner import architecture, export, links, presets, traces
    from planner.links.packing import parse_object
    from planner.measure import importers, metrics_text
    from planner.measure import rows as measured_rows
    from planner.problems import InputError
    from planner.sweep import axis
    from planner.validate import rows as validate_rows


def config(text: str) -> None:
    """A pasted config.json, as the page reads it."""
    try:
        found = parse_object(text, "a config.json")
    except ValueError:
        return
    architecture.from_hf_config(found)


def link(text: str) -> None:
    """A link must open whatever it says."""
    scenario, notes = links.decode(text)
    for note in notes:
        one_sentence(note)
    assert links.decode(links.encode(scenario)) == (scenario, ())


TEXT = (
    link,
    config,
    presets.from_text,
    lambda text: [finite(row) for row in importers.from_text(text, "x.json")],
    lambda text: finite(metrics_text.facts(text).to_dict()),
    lambda text: [finite(row) for row in measured_rows.from_csv(text, "x.csv")],
    lambda text: validate_rows.table(text.splitlines(keepends=True), "x.csv"),
    axis,
)
BYTES = (
    traces.parse,
    lambda data: export.read(data, "x.json"),
    lambda data: export.read(data, "x.html"),
    lambda data: export.read(data, "x.md"),
    lambda data: export.read(data, "x.xlsx"),
    lambda data: export.read(data, "x.zip"),
)


def one_input(data: bytes) -> None:
    """Give one input to the parser that its first byte names."""
    which, rest = (data[0] if data else 0) % (len(TEXT) + len(BYTES)), data[1:]
    try:
        if which < len(TEXT):
            TEXT[which](rest.decode("utf-8", "replace"))
        else:
            BYTES[which - len(TEXT)](rest)
    except InputError as error:
        one_sentence(str(error))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
