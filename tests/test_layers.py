"""The layout is a promise: imports point up this table, never down, and only the views know streamlit."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "planner"

LAYERS = [
    "units problems bounds files",
    "scenario",
    "catalog",
    "traces",
    "traffic",
    "architecture",
    "hardware",
    "sharding",
    "memory",
    "speculation",
    "roofline",
    "demand workload",
    "kv_cache",
    "scheduler",
    "fleet",
    "metrics capacity",
    "cost",
    "bands",
    "plan",
    "worker",
    "economics sweep recommend lessons",
    "validate measure fit",
    "migrate",
    "presets",
    "links export",
    "views",
]
"""Top-level modules of `planner`, from the bottom up; names on one line may import each other."""

LAYER = {name: i for i, line in enumerate(LAYERS) for name in line.split()}
FILES = sorted(PACKAGE.rglob("*.py"))
DOORS = ("__init__", "__main__", "command")
"""They join everything and may import anything."""


def top(path: Path) -> str:
    """The top-level module a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[str]:
    """Absolute names of everything a file imports, inside functions too."""
    names = []
    package = ["planner", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            module = (base + (node.module or "")).strip(".")
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", [f for f in FILES if top(f) not in DOORS], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_up_the_table(path: Path) -> None:
    own = LAYER[top(path)]
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "planner" and len(parts) > 1 and parts[1] in LAYER:
            assert LAYER[parts[1]] <= own, f"{path.name} imports {name}, which stands below it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_views_import_streamlit(path: Path) -> None:
    assert top(path) == "views" or not any(n.split(".")[0] == "streamlit" for n in imports(path))


def test_the_readme_shows_every_room_in_this_order() -> None:
    shown = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    order = [word.strip("`/").removesuffix(".py") for line in shown for word in line.split("|")[1].split() if word.startswith("`")]
    rooms = [name for name in order if name in LAYER]
    assert set(rooms) == set(LAYER)
    assert [LAYER[name] for name in rooms] == sorted(LAYER[name] for name in rooms)
