"""JSON data as YAML text. Strings are always quoted, so that no value can turn into another type or into structure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
UNPRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def yaml_text(data: Any, indent: int = 0) -> str:
    """Block style for objects and lists, scalars as JSON writes them; ends with a newline."""
    return "\n".join(_lines(data, indent)) + "\n"


def _lines(data: Any, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(data, Mapping) and data:
        lines = []
        for key, value in data.items():
            nested = isinstance(value, Mapping | list | tuple) and value
            lines += [f"{pad}{_key(key)}:", *_lines(value, indent + 2)] if nested else [f"{pad}{_key(key)}: {_scalar(value)}"]
        return lines
    if isinstance(data, Sequence) and not isinstance(data, str) and data:
        lines = []
        for item in data:
            first, *rest = _lines(item, indent + 2)
            lines += [f"{pad}- {first[indent + 2 :]}", *rest]
        return lines
    return [f"{pad}{_scalar(data)}"]


def _key(key: Any) -> str:
    text = str(key)
    return text if PLAIN.fullmatch(text) and text.lower() not in RESERVED else _scalar(text)


def _scalar(value: Any) -> str:
    # JSON's strings are YAML's, but for characters that YAML counts as line breaks or does not print.
    return UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
