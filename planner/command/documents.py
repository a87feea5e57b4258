"""diff, fleet and launch: what changed between two plans, several plans added up, and the commands that start one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from planner.command import inputs
from planner.command.output import print_json
from planner.problems import InputError
from planner.scenario import EngineName

DOCUMENTS = (".json", ".html", ".htm", ".md", ".markdown", ".xlsx", ".zip")


def add_commands(commands: Any) -> None:
    """Add `diff`, `fleet` and `launch`."""
    diff = commands.add_parser("diff", help="what changed between two plans", description="Inputs, data, figures and findings that differ.")
    for name in ("before", "after"):
        diff.add_argument(name, metavar=name.upper(), help="exported plan (JSON, HTML, Markdown, XLSX, zip), or a scenario to plan now")
    diff.add_argument("--json", action="store_true", help="print JSON")
    diff.set_defaults(run=run_diff)
    fleet = commands.add_parser("fleet", help="several plans added up", description="One document for services on GPUs of their own.")
    fleet.add_argument("plans", nargs="+", metavar="PLAN", help="exported plan, or a scenario to plan now")
    fleet.add_argument("--title", default="", help="title of the document")
    fleet.add_argument("--out", metavar="FILE", help="write the document: .json, .csv, .zip, .xlsx, .md or .html")
    fleet.set_defaults(run=run_fleet)
    launch = inputs.scenario_command(commands, "launch", run_launch, "commands that start and test a plan's engines")
    launch.add_argument("--engine", choices=get_args(EngineName), help="only this engine's command")
    launch.add_argument("--kubernetes", action="store_true", help="print the Kubernetes manifest of the plan's engine")
    launch.add_argument("--test", action="store_true", help="print the benchmark commands whose results should match the plan")


def run_diff(arguments: argparse.Namespace) -> int:
    """Print what differs between two plans."""
    from planner.export.diff import diff

    found = diff(plan_json(arguments.before), plan_json(arguments.after))
    if arguments.json:
        print_json(found.to_dict())
    else:
        print(found.text())
    return 0


def run_fleet(arguments: argparse.Namespace) -> int:
    """Print or write the sum of several plans."""
    from planner import export
    from planner.export.fleet_document import fleet_document

    document = fleet_document([plan_json(text) for text in arguments.plans], arguments.title)
    if arguments.out:
        target = Path(arguments.out)
        export.save(export.render(document, export.kind_of(target)), target)
    else:
        print(export.render(document, "md").decode("utf-8").partition("## Open it again")[0].rstrip())
    return 0


def run_launch(arguments: argparse.Namespace) -> int:
    """Print launch commands, a manifest or benchmark commands."""
    from planner.export import kubernetes, launch, loadtest
    from planner.plan import plan

    answer = plan(inputs.scenario(arguments.scenario, arguments.set), effort="quick").to_dict()
    if not (answer["memory"] or {}).get("fits"):
        raise InputError("; ".join(p["message"] for p in answer["problems"] if p["severity"] == "error") or "this plan does not fit")
    if arguments.kubernetes:
        text = kubernetes.manifest(answer)
        if not text:
            raise InputError(f"there is no manifest for this plan: {kubernetes.why_none(answer)}")
        print(text, end="")
        return 0
    replica = launch.replicas(answer)[0]
    if arguments.test:
        told: list[Any] = list(loadtest.load_tests(replica.scenario))
    else:
        told = list(launch.commands(answer, arguments.engine))
    if arguments.json:
        print_json([_as_json(command) for command in told])
        return 0
    for command in told:
        print(command.text)
        if getattr(command, "file_text", ""):
            print(f"\n# {command.file_name}\n{command.file_text.rstrip()}")
        for note in command.notes:
            print(f"# {note}", file=sys.stderr)
        print()
    return 0


def _as_json(command: Any) -> dict[str, Any]:
    found = {"argv": [*command.program, *command.arguments], "notes": list(command.notes)}
    return found | ({"engine": command.engine, "file": command.file_text} if hasattr(command, "engine") else {"client": command.client})


def plan_json(text: str) -> Mapping[str, Any]:
    """The JSON of an exported plan as it was made; anything else is planned now."""
    from planner import export, files
    from planner.plan import plan

    path = Path(text)
    if path.suffix.lower() in DOCUMENTS:
        restored = export.read(files.read_bytes(path, export.MOST_BYTES, "give a document that this planner exported"), path.name)
        for note in restored.notes:
            print(note, file=sys.stderr)
        return restored.plan if restored.plan is not None else plan(restored.scenario).to_dict()
    found: Mapping[str, Any] = plan(inputs.scenario(text)).to_dict()
    return found
