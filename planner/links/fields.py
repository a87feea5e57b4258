"""Every leaf of a scenario under its dotted path, and its text in a link."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from planner.links.packing import pack, parse_json, parse_object, unpack
from planner.scenario import FrozenJson, Lengths, Scenario
from planner.scenario.base import NonNegative, Part, Positive
from planner.scenario.docs import descriptions

Kind = Literal["switch", "one", "many", "choices", "numbers", "config"]
Texts = str | list[str]

LENGTHS = ("input_len", "output_len")
LENGTH_PARTS = {f"workload.{name}{part}": (name, i) for name in LENGTHS for i, part in enumerate(("", ".cv", ".max"))}
"""A lognormal length travels as three settings, its mean, `.cv` and `.max`; every other distribution as JSON."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting of a link. A `switch` is an optional section (`speculative`), on or off."""

    path: str
    kind: Kind
    default: Any
    adapter: TypeAdapter[Any]
    help: str = ""
    nullable: bool = False
    takes_object: bool = False
    choices: tuple[Any, ...] = ()
    null: str = ""
    """How null is written: empty, or 0 where a number is the default and 0 would mean nothing else (`slo.ttft_s`)."""


@cache
def leaves() -> dict[str, Leaf]:
    """Every leaf by its path, a switch before the leaves of its section, a length before its spread."""
    return {leaf.path: leaf for leaf in _walk(Scenario, "") if leaf.path != "schema_version"}


def _walk(model: type[BaseModel], prefix: str) -> Iterator[Leaf]:
    for name, field in model.model_fields.items():
        path, nullable = prefix + name, type(None) in get_args(field.annotation)
        section = _section(field.annotation)
        if section is None or nullable:
            annotation: Any = Annotated[field.annotation, "leaf", *field.metadata]
            adapter, is_literal = TypeAdapter(annotation), get_origin(field.annotation) is Literal
            yield Leaf(
                path,
                "switch" if section else _kind(field.annotation),
                field.default,
                adapter,
                help=descriptions(model).get(name, ""),
                nullable=nullable,
                takes_object=any(isinstance(a, type) and issubclass(a, BaseModel) for a in _members(field.annotation)),
                choices=get_args(field.annotation) if is_literal else (),
                null="0" if nullable and type(field.default) in (int, float) and not _accepts(adapter, 0) else "",
            )
        if path in LENGTH_PARTS:
            yield Leaf(
                f"{path}.cv", "one", 0.0, TypeAdapter(NonNegative), help="Standard deviation over mean (lognormal); 0 is one fixed length."
            )
            yield Leaf(
                f"{path}.max", "one", None, TypeAdapter(Positive | None), help="Longer draws are cut to this, tokens.", nullable=True
            )
        if section is not None:
            yield from _walk(section, path + ".")


def _accepts(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _section(annotation: Any) -> type[BaseModel] | None:
    members = [a for a in _members(annotation) if a is not type(None)]
    only = members[0] if len(members) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _members(annotation: Any) -> tuple[Any, ...]:
    members = get_args(annotation) if get_origin(annotation) in (types.UnionType, typing.Union) else (annotation,)
    return tuple(get_args(m)[0] if get_origin(m) is Annotated else m for m in members)


def _kind(annotation: Any) -> Kind:
    if FrozenJson in _members(annotation):
        return "config"
    sequences = [a for a in _members(annotation) if get_origin(a) is tuple]
    if not sequences:
        return "one"
    item = get_args(sequences[0])[0]
    if get_origin(item) is Literal:
        return "choices"
    return "numbers" if get_origin(item) is Annotated and get_args(item)[0] in (int, float) else "many"


def split_length(length: float | Lengths) -> tuple[float | Lengths, float, float | None]:
    """(mean or the whole distribution, cv, longest): what a length's three settings hold."""
    if isinstance(length, Lengths) and length.kind == "lognormal" and length.mean and length.cv:
        return length.mean, length.cv, length.max
    return length, 0.0, None


def get(scenario: Scenario, leaf: Leaf) -> Any:
    """The leaf's value, or its default where its section is null."""
    if leaf.path in LENGTH_PARTS:
        name, part = LENGTH_PARTS[leaf.path]
        return split_length(getattr(scenario.workload, name))[part]
    value: Any = scenario
    for name in leaf.path.split("."):
        if value is None:
            return leaf.default
        value = getattr(value, name)
    return value


def write(leaf: Leaf, value: Any) -> Texts:
    """The value as link text: commas or JSON for lists, repeated for lists of choices, packed for a config."""
    if leaf.kind == "switch":
        return "true" if value is not None else "false"
    if value is None:
        return leaf.null
    if leaf.kind == "config":
        return pack(value)
    if not isinstance(value, tuple):
        return _text(value)
    texts = [_text(v) for v in value]
    if leaf.kind == "choices":
        return texts or ""
    plain = leaf.kind == "numbers" or all(isinstance(v, str) and v and v == v.strip() and not set(v) & set(',"[{') for v in value)
    return ",".join(texts) if plain else f"[{','.join(_json(v) for v in value)}]"


def _json(value: Any) -> str:
    return value.model_dump_json(exclude_defaults=True) if isinstance(value, Part) else TypeAdapter(str).dump_json(value).decode()


def _text(value: Any) -> str:
    if isinstance(value, Part):
        return _json(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def read(leaf: Leaf, texts: list[str]) -> Any:
    """Link text → a JSON-like value for the leaf, validated. Raises ValueError (pydantic's, or a clause of ours)."""
    if len(texts) > 1 and leaf.kind not in ("many", "choices"):
        raise ValueError(f"it is given {len(texts)} times, give it once")
    text = texts[-1]
    if leaf.kind == "switch":
        return {} if TypeAdapter(bool).validate_python(text) else None
    if leaf.nullable and text.lower() in ("", "none", "null", leaf.null):
        return None
    value = _parsed(leaf, text, texts)
    leaf.adapter.validate_python(value)
    return value


def _parsed(leaf: Leaf, text: str, texts: list[str]) -> Any:
    if leaf.kind == "config":
        return unpack(text)
    if leaf.kind in ("many", "choices", "numbers"):
        items = _items(text) if len(texts) == 1 else [t.strip() for t in texts if t.strip()]
        return text if leaf.kind == "numbers" and not all(map(_is_number, items)) else items
    if leaf.takes_object and text.startswith("{"):
        return parse_object(text, "an object")
    return next((choice for choice in leaf.choices if str(choice) == text), text)


def _items(text: str) -> Any:
    if text.startswith(("[", "{")):
        value = parse_json(text, "a list")
        return [value] if isinstance(value, dict) else value
    return [item.strip() for item in text.split(",") if item.strip()]


def _is_number(item: object) -> bool:
    try:
        float(str(item))
    except ValueError:
        return False
    return True
