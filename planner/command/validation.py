"""`python -m planner validate MEASURED.csv [--configs DIR] [--json]`."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, get_args

from planner.problems import InputError
from planner.scenario import Fidelity


def add_commands(commands: Any) -> None:
    """Adds `validate` to the command line's sub-parsers."""
    parser = commands.add_parser("validate", help="score predictions against measured rows")
    parser.add_argument("measured", help="CSV with the columns of the measured table (id, engine, model, gpu, n_gpu, load_kind, …)")
    parser.add_argument("--configs", metavar="DIR", help="folder of <org>__<name>.json for models that the catalogue lacks")
    parser.add_argument("--fidelity", choices=get_args(Fidelity), default="calibrated", help="level of step time to score")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="rows are shared out over this many")
    parser.add_argument("--json", action="store_true", help="rows, groups and skipped as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the scores; 0 whatever they are."""
    from planner.validate import validate

    if arguments.processes < 1:
        raise InputError(f"--processes is {arguments.processes}; give 1 or more")
    report = validate(arguments.measured, arguments.configs, arguments.fidelity, arguments.processes)
    print(json.dumps(report.to_dict(), indent=1) if arguments.json else report.text())
    return 0
