"""Every leaf of a scenario under its dotted path, and its text in a link."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from planner.links.packing import pack, parse_object, unpack
from planner.scenario import FrozenJson, Scenario
from planner.scenario.base import Part

Kind = Literal["switch", "one", "many", "numbers", "config"]
Texts = str | list[str]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field that a link can set. A `switch` is an optional section (`speculative`), on or off."""

    path: str
    kind: Kind
    default: Any
    nullable: bool
    takes_object: bool
    choices: tuple[Any, ...]
    adapter: TypeAdapter[Any]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))


@cache
def leaves() -> dict[str, Leaf]:
    """Every leaf by its path, a switch before the leaves of its section."""
    return {leaf.path: leaf for leaf in _walk(Scenario, "") if leaf.path != "schema_version"}


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Leaf]:
    for name, field in model.model_fields.items():
        path, nullable = prefix + name, type(None) in get_args(field.annotation)
        section = _section(field.annotation)
        if section is None or nullable:
            adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, "leaf", *field.metadata])
            takes_object = any(isinstance(a, type) and issubclass(a, BaseModel) for a in _members(field.annotation))
            choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            yield Leaf(path, "switch" if section else _kind(field.annotation), field.default, nullable, takes_object, choices, adapter)
        if section is not None:
            yield from _walk(section, path + ".")


def _section(annotation: Any) -> type[BaseModel] | None:
    members = [a for a in _members(annotation) if a is not type(None)]
    only = members[0] if len(members) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (types.UnionType, typing.Union) else (annotation,)


def _kind(annotation: Any) -> Kind:
    if FrozenJson in _members(annotation):
        return "config"
    sequences = [a for a in _members(annotation) if get_origin(a) is tuple]
    if not sequences:
        return "one"
    item = get_args(sequences[0])[0]
    return "numbers" if get_origin(item) is Annotated and get_args(item)[0] in (int, float) else "many"


def get(scenario: Scenario, leaf: Leaf) -> Any:
    """The leaf's value, or its default where its section is null."""
    value: Any = scenario
    for part in leaf.parts:
        if value is None:
            return leaf.default
        value = getattr(value, part)
    return value


def write(leaf: Leaf, value: Any) -> Texts:
    """The value as link text: repeated for lists, empty for null, JSON for objects, packed for a config."""
    if leaf.kind == "switch":
        return "true" if value is not None else "false"
    if value is None:
        return ""
    if leaf.kind == "config":
        return pack(value)
    if not isinstance(value, tuple):
        return _text(value)
    texts = [_text(v) for v in value]
    if leaf.kind == "numbers":
        return ",".join(texts)
    lone_with_comma = len(texts) == 1 and "," in texts[0] and texts[0][0] != "{"
    return [*texts, ""] if lone_with_comma else texts or ""


def _text(value: Any) -> str:
    if isinstance(value, Part):
        return value.model_dump_json(exclude_defaults=True)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def read(leaf: Leaf, texts: list[str]) -> Any:
    """Link text → a JSON-like value for the leaf, validated. Raises ValueError (pydantic's, or a clause of ours)."""
    if len(texts) > 1 and leaf.kind != "many":
        raise ValueError(f"it is given {len(texts)} times, give it once")
    text = texts[-1]
    if leaf.kind == "switch":
        return {} if TypeAdapter(bool).validate_python(text) else None
    if leaf.nullable and text.lower() in ("", "none", "null"):
        return None
    value = _parsed(leaf, text, texts)
    leaf.adapter.validate_python(value)
    return value


def _parsed(leaf: Leaf, text: str, texts: list[str]) -> Any:
    if leaf.kind == "config":
        return unpack(text)
    if leaf.kind == "numbers":
        items = text.strip("[]").split(",")
        return items if all(map(_is_number, items)) else text
    if leaf.kind == "many":
        items = text.strip("[]").split(",") if len(texts) == 1 and not text.startswith("{") else texts
        return [parse_object(t, "an entry") if t.startswith("{") else t.strip(' "') for t in items if t]
    if leaf.takes_object and text.startswith("{"):
        return parse_object(text, "an object")
    return next((choice for choice in leaf.choices if str(choice) == text), text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
