"""measure, import, check: what a server really does, on the command line.

Each function leaves an exit status: 0 answered, 1 a check that did not pass or a run that measured nothing, 130 stopped by
the user after keeping what was measured. Wrong input raises InputError, which the command line turns into 2 and one line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner import files
from planner.command import inputs
from planner.command.output import STOPPED
from planner.measure import report
from planner.problems import InputError
from planner.scenario import Scenario

if TYPE_CHECKING:
    from planner.measure.endpoint import Endpoint
    from planner.measure.experiment import Options, Run

CONTEXT = ("engine", "engine_version", "gpu", "n_gpu", "tp", "pp", "dp", "weight_precision", "kv_precision", "spec_decode")


def add_commands(commands: Any) -> None:
    """Adds `measure`, `import` and `check` to the command line's sub-parsers."""
    measure = commands.add_parser("measure", help="measure a live endpoint", description=measure_help())
    add_measure_arguments(measure)
    measure.set_defaults(run=run_measure)
    imported = commands.add_parser(
        "import", help="benchmark results or /metrics text as measured rows", description="Read results of other tools as measured rows."
    )
    add_import_arguments(imported)
    imported.set_defaults(run=run_import)
    check = commands.add_parser(
        "check", help="benchmark results against a plan's bands", description="Pass or fail for each band of a plan."
    )
    add_check_arguments(check)
    check.set_defaults(run=run_check)


def measure_help() -> str:
    """What the measure command does, for its help page."""
    return (
        "Stream prompts of several lengths, one at a time, then a repeated prefix, then an optional bounded load, and report TTFT, TPOT, "
        "tokens per second and cached tokens. The key comes from OPENAI_API_KEY or ANTHROPIC_API_KEY; local servers need none."
    )


def add_measure_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `measure`."""
    parser.add_argument("--base-url", required=True, help="address of the endpoint, e.g. http://localhost:8000/v1")
    parser.add_argument("--model", required=True, help="model name as the server knows it")
    parser.add_argument("--api", choices=("openai", "anthropic"), default="openai", help="which dialect the endpoint speaks")
    parser.add_argument("--prompt-lengths", default="50,500,5000", metavar="N,N,…", help="prompt tokens to aim at (default 50,500,5000)")
    parser.add_argument("--repeats", type=int, default=5, help="requests of each length (default 5)")
    parser.add_argument("--max-tokens", type=int, default=256, help="longest answer, tokens (default 256)")
    parser.add_argument("--no-prefix", action="store_true", help="leave out the repeated-prefix experiment")
    parser.add_argument("--concurrency", type=int, help="then a closed loop with this many clients")
    parser.add_argument("--rate", type=float, help="or an open loop with Poisson arrivals, requests per second")
    parser.add_argument("--duration", type=float, default=30.0, help="seconds in which load requests are sent (default 30)")
    parser.add_argument("--load-prompt-length", type=int, help="prompt tokens of the load run (default: the middle length)")
    parser.add_argument("--max-requests", type=int, default=2000, help="most load requests (default 2,000)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one whole answer (default 120)")
    parser.add_argument("--retries", type=int, default=2, help="further attempts when the server turns a request away with 429 (default 2)")
    parser.add_argument("--extra-body", default="{}", metavar="JSON", help="further fields of each request, e.g. '{\"ignore_eos\": true}'")
    parser.add_argument("--seed", type=int, help="seed of prompts and arrivals; the default draws one, so that no prefix cache knows them")
    parser.add_argument("--plan", metavar="SCENARIO", help="lay the results over the plan of this scenario")
    kept = "keep results in this file while measuring: .json .jsonl .csv, plots at the end: .svg .html .vl.json; may be repeated"
    parser.add_argument("--out", action="append", default=[], type=Path, metavar="FILE", help=kept)
    parser.add_argument("--json", action="store_true", help="print JSON: requests, summary, rows")
    add_context(parser)


def add_context(parser: argparse.ArgumentParser) -> None:
    """What only the user knows of the server; it goes into the rows."""
    for name in CONTEXT:
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{name} of the measured rows")


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `import`."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="results of a benchmark tool, a CSV like measured.csv, or /metrics text"
    )
    parser.add_argument("--plan", metavar="SCENARIO", help="lay the rows over the plan of this scenario")
    parser.add_argument("--calibrate", type=Path, metavar="FILE.json", help="with --plan: write the scenario with the offered calibration")
    parser.add_argument("--before", type=Path, metavar="FILE", help="earlier /metrics text of the same server")
    parser.add_argument("--seconds", type=float, help="seconds between the two /metrics texts")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write the rows as CSV in the columns of measured.csv")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_context(parser)


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("plan", type=Path, metavar="PLAN.json", help="plan made by `plan … --json`")
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="results of a benchmark tool or of measure")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_measure(arguments: argparse.Namespace) -> int:
    """Measure an endpoint."""
    from planner.measure import charts, compare, predict
    from planner.measure.experiment import measure
    from planner.measure.journal import Journal, fallback
    from planner.measure.summary import document

    endpoint, options = _endpoint(arguments), _options(arguments)
    scenario, context = _deployed(arguments)
    kept = None if any(not charts.is_chart(path) for path in arguments.out) else fallback()
    paths = [*arguments.out, *([kept] if kept else [])]
    journal = Journal(paths, (lambda tokens, out: predict.by_length(scenario, tokens, out)) if scenario else None, context)
    show = _progress(options) if sys.stderr.isatty() else None

    def on_result(run: Run) -> None:
        journal.save(run)
        if show:
            show(run)

    if kept is not None:
        print(f"Until the run ends, what was measured is kept in {kept}; --out FILE keeps it where you want.", file=sys.stderr)
    run = measure(endpoint, options, on_result)
    journal.finish(run)
    found = document(run, context)
    if scenario is not None and found["rows"]:
        try:
            found["comparison"] = compare.compare(found["rows"], scenario).to_dict()
        except InputError as error:
            # What was measured must not be lost because a plan cannot be laid over it.
            print(f"no comparison: {error}", file=sys.stderr)
    if kept is not None:
        kept.unlink(missing_ok=True)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n".join(report.measured_lines(found)))
    if run.stopped:
        return STOPPED
    return 0 if found["summary"]["ok"] else 1


def _endpoint(arguments: argparse.Namespace) -> Endpoint:
    from planner.measure.endpoint import Endpoint

    return Endpoint(
        base_url=arguments.base_url,
        model=arguments.model,
        api=arguments.api,
        max_tokens=_between("--max-tokens", arguments.max_tokens, 1, 1_000_000),
        timeout_s=_between("--timeout", arguments.timeout, 0.001, 86_400),
        retries=_between("--retries", arguments.retries, 0, 100),
        extra_body=_object("--extra-body", arguments.extra_body),
    )


def _options(arguments: argparse.Namespace) -> Options:
    from planner.measure.experiment import Options

    return Options(
        prompt_lengths=_lengths(arguments.prompt_lengths),
        repeats=arguments.repeats,
        prefix=not arguments.no_prefix,
        concurrency=arguments.concurrency,
        rate=arguments.rate,
        duration_s=arguments.duration,
        load_prompt_tokens=arguments.load_prompt_length,
        max_requests=arguments.max_requests,
        seed=arguments.seed,
    )


def _deployed(arguments: argparse.Namespace) -> tuple[Scenario | None, dict[str, Any]]:
    """The scenario of `--plan` as the endpoint serves it, None where they cannot be compared, and what is known of the deployment."""
    from planner.measure import deployment
    from planner.measure.rows import with_context

    scenario, context = _scenario(arguments), _said(arguments)
    if scenario is None:
        return None, context
    (served,) = with_context([{"id": "the endpoint", "model": arguments.model}], context)
    try:
        scenario, differs = deployment.as_measured(scenario, served)
        context = deployment.context(scenario, served) | context
    except InputError as error:
        print(f"no comparison: {error}; the plots hold no prediction", file=sys.stderr)
        return None, context
    if differs:
        print(differs, file=sys.stderr)
    return scenario, context


def run_import(arguments: argparse.Namespace) -> int:
    """Read results of other tools, and compare them with a plan where one is named."""
    from planner.measure import compare, importers, metrics_text
    from planner.measure.deployment import filled
    from planner.measure.journal import write_whole
    from planner.measure.rows import to_csv

    texts = [path for path in arguments.files if importers.is_metrics(path)]
    if texts:
        if len(arguments.files) > 1:
            raise InputError(f"{texts[0].name} is /metrics text; import it alone, with --before for an earlier one")
        before = importers.text_of(arguments.before) if arguments.before else None
        facts = metrics_text.facts(importers.text_of(texts[0]), before, arguments.seconds)
        print(json.dumps(facts.to_dict() | {"workload": facts.workload(), "speculative": facts.speculative()}, indent=1))
        return 0
    scenario = _scenario(arguments)
    rows = filled((row for path in arguments.files for row in importers.read(path)), _said(arguments), scenario)
    found: dict[str, Any] = {"rows": rows}
    if scenario is not None:
        findings = compare.compare(rows, scenario)
        found["comparison"] = findings.to_dict()
        if arguments.calibrate is not None:
            if findings.calibration is None:
                raise InputError("the rows hold no TPOT, so there is no calibration to take; measure time per output token")
            taken = scenario.model_copy(update={"calibration": findings.calibration})
            write_whole(arguments.calibrate, json.dumps(taken.model_dump(mode="json"), indent=1) + "\n")
    elif arguments.calibrate is not None:
        raise InputError("--calibrate needs --plan SCENARIO: the factor is measured over predicted time")
    if arguments.out is not None:
        write_whole(arguments.out, to_csv(rows))
    if arguments.json:
        print(json.dumps(found, indent=1))
    elif scenario is not None:
        print("\n".join(report.comparison_lines(found["comparison"])))
    else:
        print(to_csv(rows), end="")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Pass or fail for each band of a plan; status 1 when one failed."""
    from planner.measure import importers
    from planner.measure.check import check

    plan = _object(str(arguments.plan), importers.text_of(arguments.plan))
    checked = check(plan, [row for path in arguments.results for row in importers.read(path)])
    if arguments.json:
        print(json.dumps(checked.to_dict(), indent=1))
    else:
        rows = (
            [v.status, v.point, v.metric, v.statistic, report.digits(v.measured), report.digits(v.low), report.digits(v.high), v.note]
            for v in checked.verdicts
        )
        print("\n".join(report.table(["result", "load", "metric", "statistic", "measured", "low", "high", ""], rows)))
        print(checked.sentence)
    return 0 if checked.passed else 1


def _scenario(arguments: argparse.Namespace) -> Scenario | None:
    return None if arguments.plan is None else inputs.scenario(arguments.plan)


def _said(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the user says of the server, by the columns of the measured rows."""
    return {name: getattr(arguments, name) for name in CONTEXT if getattr(arguments, name) is not None}


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"--prompt-lengths {text[:60]!r} is no list of whole numbers; write for example 50,500,5000") from None


def _between(name: str, value: Any, low: float, high: float) -> Any:
    if not low <= value <= high:
        raise InputError(f"{name} is {value:g}; give a number from {low:g} to {high:g}")
    return value


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        found = files.from_json(text)
    except ValueError as error:
        raise InputError(f"{name} is not JSON ({error}); give an object in braces") from None
    if not isinstance(found, dict):
        raise InputError(f"{name} holds a JSON {type(found).__name__}; give an object in braces")
    return found


def _progress(options: Options) -> Callable[[Run], None]:
    expected = len(options.prompt_lengths) * options.repeats

    def show(run: Run) -> None:
        failed = sum(not r.ok for r in run.requests)
        told = f"{len(run.requests)} requests ({expected} of the length sweep), {failed} failed"
        print(f"\r{told:<70}", end="\n" if run.finished or run.stopped else "", file=sys.stderr, flush=True)

    return show
