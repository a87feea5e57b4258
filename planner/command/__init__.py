"""The command line: `python -m planner COMMAND …`.

Exit status 0 means answered, 1 a check that did not pass, 2 wrong input with one line on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from planner.command.output import STOPPED
from planner.problems import InputError, one_line
from planner.scenario.base import LARGEST

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """argparse, with wrong arguments told like any other wrong input: in one line. A number is a number of ours: no NaN, no infinity."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", float, _number)
        self.register("type", int, _whole)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number")
    return value


def _whole(text: str) -> int:
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,15}\s*", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments; each leaves its function in `run`."""
    from planner.command import catalogue, decisions, documents, drills, measuring, plans, searches, validation

    root = Parser(prog="python -m planner", description="Capacity and price of serving large language models.", allow_abbrev=False)
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for module in (plans, searches, decisions, drills, documents, catalogue, validation, measuring):
        module.add_commands(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no reason to fail
    try:
        words = sys.argv[1:] if argv is None else argv
        if not words:
            parser().print_help()
            return 0
        arguments = parser().parse_args(words)
        status = int(arguments.run(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk is told here, not by the interpreter on its way out
        return status
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError as error:
        if (error.name or "planner").partition(".")[0] == "planner":
            raise
        print(f"this needs the package {error.name}, which is not installed; run `pip install -r requirements.txt`", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:
            # Pointing stdout elsewhere keeps the interpreter's own flush quiet, on its way out.
            with contextlib.suppress(io.UnsupportedOperation):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader (head, less) has what it wanted
            return 0
        print(
            f"{one_line(str(error.filename or 'output'))[:200]}: {error.strerror or error}; choose a path that can be read and written",
            file=sys.stderr,
        )
        return 2
    except MemoryError:
        print("this needs more memory than there is; ask for less, or on a larger machine", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED
