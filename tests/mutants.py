"""Mutated formulas and the tests that kill them: `python tests/mutants.py --sample 80 [--seed 1] [planner/cost …]`.

Copies the repository into a scratch folder, changes one operator, comparison or constant of a formula there, and runs the fast tests
of that part. A mutant that every test passes survives and is printed with its line. Not part of CI: a sample of 80 takes half an hour.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "planner/roofline": ("test_roofline", "test_textbook", "test_plan", "test_validate"),
    "planner/memory": ("test_memory", "test_textbook", "test_plan"),
    "planner/scheduler": ("test_scheduler", "test_theory", "test_metrics", "test_plan_system"),
    "planner/cost": ("test_cost", "test_textbook", "test_plan", "test_freshness"),
}
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


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, by the places of its changes."""
    for number, node in enumerate(numbers_of_formulas(ast.parse(path.read_text()))):
        for which, (what, _) in enumerate(changes(node)):
            yield Mutant(path.relative_to(ROOT).as_posix(), getattr(node, "lineno", 0), what, number, which)


def source(mutant: Mutant) -> str:
    """The file with the change made."""
    tree = ast.parse((ROOT / mutant.path).read_text())
    node = next(n for i, n in enumerate(numbers_of_formulas(tree)) if i == mutant.node)
    _, new = list(changes(node))[mutant.change]
    return ast.unparse(ast.fix_missing_locations(Replace(node, new).visit(tree)))


def survives(mutant: Mutant, scratch: Path, seconds: float) -> bool:
    """Whether every fast test of its part passes. A test run that hangs counts as killed."""
    target = scratch / mutant.path
    before = target.read_text()
    tests = next(names for part, names in TESTS.items() if mutant.path.startswith(part))
    found = [f"tests/{name}.py" for name in tests if (scratch / f"tests/{name}.py").exists()]
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow and not browser", "-p", "no:cacheprovider", *found]
    target.write_text(source(mutant))
    try:
        run = subprocess.run(words, cwd=scratch, capture_output=True, timeout=seconds, env={**os.environ, "PYTHONPATH": str(scratch)})
        return run.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(before)


def main() -> int:
    """Run a sample and print the survivors."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("parts", nargs="*", default=[*TESTS], help="folders to mutate")
    arguments.add_argument("--sample", type=int, default=80)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=180, help="time for the tests of one mutant")
    given = arguments.parse_args()
    draw = random.Random(given.seed)
    chosen: list[Mutant] = []
    for part in given.parts:
        everything = [m for path in sorted((ROOT / part).rglob("*.py")) for m in mutants(path)]
        chosen += draw.sample(everything, min(len(everything), max(1, given.sample // len(given.parts))))
        print(f"{part}: {len(everything)} mutants", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        scratch = Path(folder) / "copy"
        shutil.copytree(ROOT, scratch, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".hypothesis", "*.pyc"), symlinks=True)
        killed: dict[str, list[int]] = {part: [0, 0] for part in given.parts}
        for i, mutant in enumerate(chosen, 1):
            part = next(p for p in given.parts if mutant.path.startswith(p))
            alive = survives(mutant, scratch, given.seconds)
            killed[part][0] += not alive
            killed[part][1] += 1
            print(f"{i}/{len(chosen)} {'SURVIVED' if alive else 'killed'} {mutant.path}:{mutant.line} {mutant.what}", flush=True)
    print(json.dumps({part: {"killed": k, "of": n, "rate": round(k / n, 3)} for part, (k, n) in killed.items() if n}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
