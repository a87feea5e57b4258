"""What a command is given: scenarios from names, files, links or standard input, `--set` pairs, JSON files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from planner import files, presets
from planner.problems import InputError
from planner.scenario import Scenario, set_path


def add_scenario(parser: argparse.ArgumentParser, count: str | None = None) -> None:
    """The SCENARIO argument and the options that every command with one has."""
    parser.add_argument(
        "scenario", nargs=count, metavar="SCENARIO", help='preset name, scenario or plan file, link, or "-" for JSON on standard input'
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="replace one field, e.g. --set model.name=llama-3.1-405b; `python -m planner fields` lists them; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def scenario_command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    """A command about one scenario, with the options that all of those have."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    add_scenario(command)
    command.set_defaults(run=run)
    return command


def scenario(text: str, changes: Iterable[str] = ()) -> Scenario:
    """The scenario that `text` names, with `PATH=VALUE` changes applied. Notes of a tolerant door go to standard error."""
    found, notes = _named(text)
    for note in notes:
        print(note, file=sys.stderr)
    for change in changes:
        path, equals, value = change.partition("=")
        if not equals or not path.strip():
            lacks = "field" if equals else "value"
            raise InputError(f"--set {change[:60]!r} has no {lacks}; write PATH=VALUE, for example engine.max_num_seqs=64")
        found = set_path(found, path.strip(), json_or_text(value))
    return found


def _named(text: str) -> tuple[Scenario, tuple[str, ...]]:
    if text == "-":
        if sys.stdin is None:
            raise InputError(f"standard input is closed; {presets.WANTED}")
        return presets.from_text(sys.stdin.read(presets.MAX_BYTES + 1), "standard input")
    if text.startswith("?") or "://" in text:
        from planner import links

        return links.decode(text)
    if Path(text).suffix.lower() in (".html", ".md", ".xlsx", ".zip"):
        from planner import export

        restored = export.read(files.read_bytes(text, export.MOST_BYTES, "give a document that this planner exported"), Path(text).name)
        return restored.scenario, restored.notes
    if text.lower().endswith(".json") or (text not in presets.names() and files.stands(text)):
        return presets.read(Path(text))
    return presets.load(text), ()


def json_or_text(value: str) -> Any:
    """A `--set` value: JSON where it is JSON (numbers, true, null, lists, objects), plain text otherwise."""
    try:
        return files.from_json(value)
    except ValueError:
        return value
