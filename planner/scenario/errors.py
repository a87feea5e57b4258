"""A validation error as one sentence for a person."""

from __future__ import annotations

import difflib
import re
import types
import typing
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

SHOWN_CHARACTERS = 60
TYPE_STEPS = ("constrained-", "function-", "Lengths", "CustomPrice", "float", "str", "tuple[", "is-instance", "dict")
"""Steps that pydantic adds to a location for the branches of a union: no field of ours begins with them."""


def known_paths(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted path of a scenario, sections included."""
    paths = []
    for name, field in model.model_fields.items():
        paths.append(prefix + name)
        section = section_of(field.annotation)
        if section is not None:
            paths += known_paths(section, f"{prefix}{name}.")
    return paths


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section class inside an annotation such as `Engine` or `Speculative | None`, if there is one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (types.UnionType, typing.Union):
        found = [s for s in map(section_of, get_args(annotation)) if s]
        return found[0] if found else None
    return None


def nearest(path: str, model: type[BaseModel]) -> str | None:
    """The known path closest to a misspelt one, comparing first within the same section."""
    paths = known_paths(model)
    section, _, last = path.rpartition(".")
    siblings = {p.rpartition(".")[2]: p for p in paths if p.rpartition(".")[0] == section}
    close = difflib.get_close_matches(last, siblings, n=1, cutoff=0.5)
    if close:
        return siblings[close[0]]
    same_name = [p for p in paths if p.rpartition(".")[2] == last]
    return same_name[0] if same_name else next(iter(difflib.get_close_matches(path, paths, n=1, cutoff=0.5)), None)


def _children(section: str, model: type[BaseModel]) -> list[str]:
    """The dotted paths directly inside a section."""
    return [p for p in known_paths(model) if p.rpartition(".")[0] == section] if section else []


def shown(value: object) -> str:
    """A value cut to a length that fits into a sentence."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One sentence: field, value, what is allowed, what to do. Only the first of several errors is told, the rest counted."""
    errors = error.errors(include_url=False)
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = dotted(first["loc"])
    if first["type"] == "extra_forbidden":
        near = nearest(path, model)
        section = path.rpartition(".")[0]
        if near and near == section:
            hint = f"; {section} has {', '.join(p.removeprefix(section + '.') for p in _children(section, model))}"
        else:
            hint = f"; did you mean {near}?" if near else "; it is not part of a scenario, remove it"
        return f"{shown(path)[1:-1]} is not a known field{hint}"
    same = [e for e in errors if dotted(e["loc"]).startswith(path)]
    told = max(same, key=telling)
    elsewhere = len({dotted(e["loc"]) for e in errors} - {dotted(e["loc"]) for e in same})
    more = f" ({elsewhere} more)" if elsewhere else ""
    section = dotted(told["loc"])
    if told["type"] == "model_type" and (fields := _children(section, model)):
        return (
            f"{section} = {shown(told['input'])} cannot be used: {section} is a section, set one of its fields: {', '.join(fields)}{more}"
        )
    if told["type"] in ("is_instance_of", "model_type", "dict_type"):
        # pydantic names our classes here, which mean nothing to a person.
        what = "an object in braces, as a model's config.json is" if told["type"] == "is_instance_of" else "an object in braces"
        return f"{section or 'scenario'} = {shown(told['input'])} cannot be used: it should be {what}{more}"
    message = in_words(told["msg"])
    return f"{dotted(told['loc']) or 'scenario'} = {shown(told['input'])} cannot be used: {message}{more}".replace("\n", " ")


WORDS = (
    ("Value error, ", ""),
    ("Keys should be strings", "names of sections should be text"),
    (r"(Input|String|Tuple|Dictionary) should", "it should"),
    (r", unable to .*", ""),
    (r", got a number with a fractional part", ""),
    (r" after validation\b", ""),
    (r"\bvalid integer\b", "whole number"),
    (r"\ba valid number\b", "a number"),
    (r"\ba valid tuple\b", "a list"),
    (r"\ba valid string\b", "text"),
    (r"\ba valid boolean\b", "true or false"),
)
"""What pydantic says, and how a person says it."""


def in_words(message: str) -> str:
    """The message of a validation error without the names of Python's types."""
    for pattern, words in WORDS:
        message = re.sub(pattern, words, message)
    return message


def telling(error: Any) -> tuple[bool, bool, int]:
    """How much one of several errors says. A union tells one per branch: what we wrote ourselves says most, then a value of the right
    type, then the branch that looked deepest."""
    kind = error["type"]
    return kind == "value_error", not kind.endswith(("_type", "_parsing")) and kind != "is_instance_of", len(error["loc"])


def dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the scenario's dotted path."""
    return ".".join(str(part) for part in location if not str(part).startswith(TYPE_STEPS))
