"""The command line: `python -m planner COMMAND …`.

Exit status 0 means answered, 1 a check that did not pass, 2 wrong input with one line on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from planner.problems import InputError

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """argparse, with wrong arguments told like any other wrong input: in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments; each leaves its function in `run`."""
    from planner.command import catalogue, decisions, documents, drills, inputs, plans, searches, validation
    from planner.measure import command as measuring

    root = Parser(prog="python -m planner", description="Capacity and price of serving large language models.", allow_abbrev=False)
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for module in (plans, searches, decisions, drills, documents, catalogue, validation):
        module.add_commands(commands)
    measuring.add_commands(commands, inputs.scenario)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        arguments = parser().parse_args(argv)
        return int(arguments.run(arguments))
    except InputError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader (head, less) has what it wanted; pointing stdout elsewhere keeps the interpreter's own flush quiet.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"{error.filename or 'file'}: {error.strerror or error}; choose a path that can be read and written", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
