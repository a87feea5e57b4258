"""The docstring under each field, read from the source when somebody wants to show it: doing so at import costs every command."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


@cache
def descriptions(section: type[BaseModel]) -> dict[str, str]:
    """{field: its docstring as one line} of a section of the scenario."""
    (definition,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in pairwise(definition.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) and isinstance(following.value.value, str):
            found[statement.target.id] = " ".join(following.value.value.split())
    return found
