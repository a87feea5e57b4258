"""Mutated formulas and the tests that kill them: `python tests/mutants.py --sample 80 [--seed 1] [planner/cost …]`.

Copies the repository into a scratch folder, notes which test reaches which line, then changes one operator, comparison,
constant or statement at a time and runs tests until one fails: the oracle of the part, those that reach the line, quickest first, and
every other test of the part. A mutant that passes all of them survives and is printed with its line. `--again FILE` repeats the
survivors of a former run's output.
What kinds of survivors are left, and why, is in `tests/data/mutants.md`. Not part of CI: one mutant takes about two seconds.
Needs a POSIX system and the package `coverage`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "planner/roofline": ("test_step_oracle", "test_roofline", "test_textbook", "test_plan", "test_validate", "test_speculation"),
    "planner/memory": (
        "test_memory_oracle",
        "test_memory_edges",
        "test_memory",
        "test_textbook",
        "test_plan",
        "test_sharding",
        "test_drafter",
        "test_speculation",
    ),
    "planner/scheduler": (
        "test_scheduler",
        "test_scheduler_by_hand",
        "test_theory",
        "test_metrics",
        "test_plan_system",
        "test_fleet",
        "test_capacity",
        "test_drills",
    ),
    "planner/kv_cache.py": ("test_kv_cache", "test_scheduler", "test_theory", "test_plan_system", "test_fleet"),
    "planner/fleet": (
        "test_fleet_by_hand",
        "test_fleet",
        "test_routing",
        "test_theory",
        "test_plan_system",
        "test_metrics",
        "test_capacity",
    ),
    "planner/cost": (
        "test_cost_by_hand",
        "test_cost",
        "test_textbook",
        "test_plan",
        "test_freshness",
        "test_economics",
        "test_decisions",
        "test_export",
    ),
}
EVERYDAY = ["-q", "-m", "not slow and not browser", "-p", "no:cacheprovider"]
LONGEST_S = 40.0
"""Seconds of tests that reach a mutant's line, at most, before every test of its part is run instead."""
SWAPS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
CALLS = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change to one file."""

    path: str
    line: int
    what: str
    node: int
    """Which node of the file, counted as `numbers_of_formulas` yields them."""
    change: int
    lines: tuple[int, int]
    """First and last line of the statement's own text (of a loop or branch: its head)."""


def numbers_of_formulas(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that is no text for people: docstrings, messages, annotations, slices of text and decorators are left alone."""
    skip: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
            skip.update(id(n) for n in ast.walk(node))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            skip.update(id(n) for d in node.decorator_list for n in ast.walk(d))
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        skip.update(id(n) for a in annotations if isinstance(a, ast.AST) for n in ast.walk(a))
    yield from (node for node in ast.walk(tree) if id(node) not in skip)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node may be changed to, with a word for it."""
    if isinstance(node, ast.AugAssign):
        yield "statement dropped", ast.Pass()
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        text = isinstance(node, ast.BinOp) and any(isinstance(s, (ast.JoinedStr, ast.List, ast.Tuple)) for s in (node.left, node.right))
        for other in () if text else SWAPS.get(type(node.op), ()):
            new = copy.deepcopy(node)
            new.op = other()
            yield f"{type(node.op).__name__} → {other.__name__}", new
    elif isinstance(node, ast.BoolOp):
        for other in SWAPS[type(node.op)]:
            new = copy.deepcopy(node)
            new.op = other()
            yield f"{type(node.op).__name__} → {other.__name__}", new
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in SWAPS.get(type(node.ops[0]), ()):
            new = copy.deepcopy(node)
            new.ops = [other()]
            yield f"{type(node.ops[0]).__name__} → {other.__name__}", new
    elif isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        yield "statement dropped", ast.Pass()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} → {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for value in (node.value * 2, node.value + 1) if node.value else (1,):
            yield f"{node.value} → {value}", ast.Constant(value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        new = copy.deepcopy(node)
        new.func = ast.Name(CALLS[node.func.id], ast.Load())
        yield f"{node.func.id} → {CALLS[node.func.id]}", new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield f"{type(node.op).__name__} dropped", node.operand


class Replace(ast.NodeTransformer):
    """Puts one node in another's place."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def spans(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """For every node (by id) the lines of the innermost statement it stands in, bodies of compound statements left out."""
    found: dict[int, tuple[int, int]] = {}

    def mark(node: ast.AST, span: tuple[int, int]) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            span = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno)
        found[id(node)] = span
        for child in ast.iter_child_nodes(node):
            mark(child, span)

    mark(tree, (1, 1))
    return found


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, by the places of its changes."""
    tree = ast.parse(path.read_text())
    lines = spans(tree)
    for number, node in enumerate(numbers_of_formulas(tree)):
        for which, (what, _) in enumerate(changes(node)):
            yield Mutant(path.relative_to(ROOT).as_posix(), getattr(node, "lineno", 0), what, number, which, lines[id(node)])


def source(mutant: Mutant, original: str) -> str:
    """The file's text with the change made."""
    tree = ast.parse(original)
    node = next(n for i, n in enumerate(numbers_of_formulas(tree)) if i == mutant.node)
    _, new = list(changes(node))[mutant.change]
    return ast.unparse(ast.fix_missing_locations(Replace(node, new).visit(tree)))


class Reached:
    """A pytest plugin that notes which test runs which line of the planner, and how long each test takes."""

    def __init__(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(source=["planner"], data_file=None)
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def result(self) -> dict[str, Any]:
        data = self.coverage.get_data()
        files = {Path(name).relative_to(Path.cwd()).as_posix(): data.contexts_by_lineno(name) for name in data.measured_files()}
        return {"seconds": self.seconds, "reached": {f: n for f, n in files.items() if f.startswith(tuple(TESTS))}}


def reach(out: str) -> None:
    """Runs the tests of every part in the current folder and writes what each reaches."""
    import pytest

    sys.path.insert(0, "")
    noted = Reached()
    noted.coverage.start()
    files = sorted({f"tests/{name}.py" for names in TESTS.values() for name in names})
    status = pytest.main([*EVERYDAY, *files], plugins=[noted])
    noted.coverage.stop()
    if status:
        sys.exit("these tests fail before anything is changed")
    Path(out).write_text(json.dumps(noted.result()))


def reaching(mutant: Mutant, noted: dict[str, Any]) -> list[str]:
    """The tests that run a mutant's statement, quickest first; for a statement that an import runs, those that use its file."""
    lines = noted["reached"].get(mutant.path, {})
    first, last = mutant.lines
    names = {name for line in range(first, last + 1) for name in lines.get(str(line), ())}
    if "" in names:
        names = {name for of_line in lines.values() for name in of_line}
    chosen, total_s = [], 0.0
    for name in sorted(names & noted["seconds"].keys(), key=noted["seconds"].__getitem__):
        total_s += noted["seconds"][name]
        if total_s > LONGEST_S:
            break
        chosen.append(name)
    return chosen


def passes(tests: list[str], scratch: Path, seconds: float) -> bool:
    """Whether all these tests pass there, in a fork of this process, which has the libraries loaded.

    A hang is no pass: `seconds` are the processor's, so that a busy machine hangs nobody, and ten times as many on the clock.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        os.chdir(scratch)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        sys.path[:] = [str(scratch), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        os.environ["PYTHONPATH"] = str(scratch)
        sys.dont_write_bytecode = True
        import pytest

        os._exit(int(pytest.main(["-x", *EVERYDAY, *tests])))
    ends = time.monotonic() + 10 * seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def survives(mutant: Mutant, scratch: Path, noted: dict[str, Any], seconds: float) -> bool:
    """Whether every test of its part passes, the oracle's first, and every test that reaches it.

    The mutated file keeps no compiled twin: files elsewhere are compiled once with the times they had, and this one has a new time.
    """
    target = scratch / mutant.path
    before, times = target.read_text(), target.stat()
    part = next(names for part, names in TESTS.items() if mutant.path.startswith(part))
    found = [f"tests/{name}.py" for name in part if (scratch / f"tests/{name}.py").exists()]
    target.write_text(source(mutant, before))
    try:
        reached = reaching(mutant, noted)
        rounds = [found[:1], reached, found[1:]]
        return all(passes(tests, scratch, seconds) for tests in rounds if tests)
    finally:
        target.write_text(before)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def chosen(parts: list[str], sample: int, seed: int, again: Path | None) -> list[Mutant]:
    """The mutants to try: a sample of each part, or those that a former output says survived."""
    draw = random.Random(seed)
    lived = set(re.findall(r"SURVIVED (\S+):\d+ (.+?) #(\d+)\.(\d+)$", again.read_text(), re.M)) if again else set()
    found: list[Mutant] = []
    for part in parts:
        paths = [ROOT / part] if part.endswith(".py") else sorted((ROOT / part).rglob("*.py"))
        everything = [m for path in paths for m in mutants(path)]
        print(f"{part}: {len(everything)} mutants", flush=True)
        if again:
            found += [m for m in everything if (m.path, m.what, str(m.node), str(m.change)) in lived]
        else:
            found += draw.sample(everything, min(len(everything), sample))
    return found


def main() -> int:
    """Run a sample and print the survivors."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", default=[*TESTS], help="folders or files to mutate")
    arguments.add_argument("--sample", type=int, default=80, help="mutants of each part")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=120, help="processor time for the tests of one mutant")
    arguments.add_argument("--again", type=Path, help="output of a former run whose survivors are tried again")
    arguments.add_argument("--reached", type=Path, help="where to keep which test reaches what, for the next run")
    arguments.add_argument("--reach", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.reach:
        reach(given.reach)
        return 0
    import hypothesis
    import numpy
    import pandas
    import pydantic
    import scipy.stats

    libraries = (hypothesis, numpy, pandas, pydantic, scipy.stats)  # loaded once, for every fork
    assert libraries
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        scratch = Path(folder) / "copy"
        shutil.copytree(ROOT, scratch, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".hypothesis", "*.pyc"), symlinks=True)
        todo = chosen(given.parts, given.sample, given.seed, given.again)
        out = given.reached or Path(folder) / "reached.json"
        # Either run leaves compiled files behind, which a mutant's tests then need not compile again.
        words = [str(scratch / "tests/mutants.py"), "--reach", str(out.resolve())]
        former = out.exists()
        if former:
            files = (str(scratch / f"tests/{n}.py") for names in TESTS.values() for n in names)
            words = ["-m", "pytest", "--collect-only", "-v", *EVERYDAY, *files]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        said = subprocess.run([sys.executable, *words], cwd=scratch, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        noted = json.loads(out.read_text())
        if former:  # a test that is gone by now would count as one that fails
            noted["seconds"] = {name: noted["seconds"].get(name, 0.0) for name in said.splitlines() if "::" in name}
        killed: dict[str, list[int]] = {part: [0, 0] for part in given.parts}
        for i, mutant in enumerate(todo, 1):
            part = next(p for p in given.parts if mutant.path.startswith(p))
            alive = survives(mutant, scratch, noted, given.seconds)
            killed[part][0] += not alive
            killed[part][1] += 1
            word = "SURVIVED" if alive else "killed"
            print(f"{i}/{len(todo)} {word} {mutant.path}:{mutant.line} {mutant.what} #{mutant.node}.{mutant.change}", flush=True)
    print(json.dumps({part: {"killed": k, "of": n, "rate": round(k / n, 3)} for part, (k, n) in killed.items() if n}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
