"""Shared ground of the scenario's sections: constrained numbers, frozen JSON, the base class."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import core_schema

LARGEST = 10**15
"""Largest number of any field: products of a few of them still are numbers."""
SMALLEST = 1e-12
"""Smallest number where zero is not allowed: what is divided by it still is a number."""
LONGEST_TOKENS = 10**8
"""Longest prompt, answer or context, tokens."""
DEEPEST = 40
"""Levels of a configuration inside each other."""

PositiveInt = Annotated[int, Field(ge=1, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Tokens = Annotated[float, Field(ge=0, le=LONGEST_TOKENS, allow_inf_nan=False)]
PositiveTokens = Annotated[float, Field(ge=SMALLEST, le=LONGEST_TOKENS, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PositiveShare = Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False)]
Slug = Annotated[str, Field(max_length=120)]

LONGEST_JSON = 1_000_000
"""Characters of a configuration; public ones have up to a tenth of it."""


def _finite(value: Any) -> Any:
    """`value` with Infinity and NaN as null: real files have them (Nemotron's `time_step_limit`), JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


class FrozenJson:
    """An immutable, hashable JSON object: the text of a pasted `config.json` in canonical form."""

    __slots__ = ("text",)
    text: str

    def __init__(self, value: dict[str, Any]) -> None:
        if _deeper(value, DEEPEST):
            raise ValueError(f"its values stand more than {DEEPEST} levels inside each other, no config.json does")
        try:
            text = json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:  # from Python: keys of several kinds, sets, dates, numbers of thousands of digits
            raise ValueError("it holds keys or values that no JSON file can hold") from error
        if len(text) > LONGEST_JSON:
            raise ValueError(f"it has {len(text):,} characters, more than the {LONGEST_JSON:,} of the largest config.json")
        if "\\ud" in text and _half_characters(text):
            raise ValueError("it holds half a character (a lone surrogate), which no file and no link can hold")
        object.__setattr__(self, "text", text)

    def __setattr__(self, *_: object) -> None:
        raise AttributeError("FrozenJson is immutable")

    @property
    def value(self) -> dict[str, Any]:
        """A fresh copy, so that no caller can change the original."""
        return json.loads(self.text)

    def __reduce__(self) -> tuple[type[FrozenJson], tuple[dict[str, Any]]]:
        """Sent to another process it is made anew."""
        return FrozenJson, (self.value,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenJson) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"FrozenJson({self.text[:60]}…)"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        from_dict = core_schema.no_info_after_validator_function(cls, core_schema.dict_schema())
        return core_schema.union_schema(
            [core_schema.is_instance_schema(cls), from_dict],
            serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v.value),
        )


def _half_characters(text: str) -> bool:
    """Whether strings of this JSON hold surrogates without their other half."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists stand inside each other more than `levels` times."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return levels == 0 or any(_deeper(v, levels - 1) for v in inner if isinstance(v, (dict, list, tuple)))


def _takes_numbers(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_numbers, get_args(annotation)))


class Part(BaseModel):
    """Base of every section: frozen, strict about names, documented field by field."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, data: Any) -> Any:
        """Python takes True for 1; whoever writes true does not mean one replica."""
        for name, value in data.items() if isinstance(data, Mapping) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and _takes_numbers(field.annotation):
                raise ValueError(f"{name} should be a number, not {str(value).lower()}")
        return data
