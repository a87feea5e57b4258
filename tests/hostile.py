"""What a hostile or careless person might send: values, texts, and files made from good ones by breaking them.

`door` runs one reader on one input and holds it to the promise that every door makes: an answer, or `InputError` with one
clear sentence, soon.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from planner.problems import InputError

EXAMPLES = int(os.environ.get("PLANNER_FUZZ_EXAMPLES", "0"))
"""Inputs for each door in a long run; 0 is what CI runs, the same inputs every time."""
SHARE = float(os.environ.get("PLANNER_FUZZ_SHARE", "1"))
"""Of CI's inputs, those of this run."""
SLOWEST_S = 5.0
"""Processor time that one input may take."""
ran: Counter[str] = Counter()
"""Inputs that each door has been given in this process."""

HOSTILE_TEXTS = (
    "",
    " ",
    "\x00",
    "\x1b[2J\x1b]0;owned\x07",
    "\r\nSet-Cookie: a=b",
    "\u202egnp.exe",
    "\ud800",
    "ﷺ" * 40,
    "=cmd|'/c calc'!A0",
    "@SUM(1+1)*cmd|'/c calc'!A0",
    "+1+1",
    "-2+3",
    "\t=1+1",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "<!-- --><svg onload=alert(1)>",
    "[a](javascript:alert(1))",
    "![a](https://attacker.example/p.png)",
    "`` ``` ~~~ | a | b |\n|---|---|",
    ":material/skull: :red[x] $\\frac{1}{0}$",
    "../../../../etc/passwd",
    "..\\..\\windows\\win.ini",
    "/dev/zero",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "$(touch owned)",
    "'; rm -rf / #",
    "{{ 7*7 }}",
    "${7*7}",
    "%s%s%n",
    "__class__",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "0x10",
    "1_000",
    "٣",
    "²",
    "0.²",
    "1,5",
    "\ufeff{}",
    "9" * 5000,
    "a" * 10_000,
    "true",
    "null",
    "[]",
    "{}",
    "[" * 2000,
    '{"a":' * 500,
)
HOSTILE_NUMBERS = (
    0,
    -1,
    1,
    2,
    3,
    7.5,
    0.1,
    -0.0,
    1e-300,
    1e-9,
    1e9,
    1e15,
    1e16,
    1e18,
    1e300,
    -1e300,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**40,
)
NOT_NUMBERS = (math.nan, math.inf, -math.inf)

texts = st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=40))
numbers = st.one_of(st.sampled_from(HOSTILE_NUMBERS), st.integers(-(10**20), 10**20), st.floats(allow_nan=False))
scalars = st.one_of(texts, numbers, st.sampled_from(NOT_NUMBERS), st.none(), st.booleans())
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=8)


def examples(ci: int) -> settings:
    """Settings of a door's test: `ci` fixed inputs, `PLANNER_FUZZ_SHARE` of them every day, or `PLANNER_FUZZ_EXAMPLES` fresh ones."""
    return settings(max_examples=EXAMPLES or max(1, round(SHARE * ci)), deadline=None, derandomize=not EXAMPLES, database=None)


def door(name: str, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What `read` answers, or None where it refuses with one clear sentence. Anything else fails the test."""
    ran[name] += 1
    began_s = time.thread_time()
    try:
        return read(*arguments, **named)
    except InputError as error:
        one_sentence(str(error))
        return None
    finally:
        took_s = time.thread_time() - began_s
        assert took_s < SLOWEST_S, f"{name} took {took_s:.1f} s"


def one_sentence(message: str) -> None:
    """A message fit for a person: one line, printable, of readable length, no Python in it."""
    assert message, "an empty message"
    assert message == " ".join(message.split(" ")), message
    assert all(c.isprintable() for c in message), repr(message)
    assert len(message) < 900, message
    for word in ("Traceback", "object at 0x", "<class '", "pydantic.dev", "NoneType", 'File "'):
        assert word not in message, message


def finite(data: Any, path: str = "") -> None:
    """No NaN and no infinity anywhere in JSON data."""
    if isinstance(data, dict):
        for key, value in data.items():
            finite(value, f"{path}.{key}")
    elif isinstance(data, (list, tuple)):
        for i, value in enumerate(data):
            finite(value, f"{path}[{i}]")
    elif isinstance(data, float):
        assert math.isfinite(data), f"{path} is {data}"


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside JSON data."""
    found = [path] if path else []
    for key, value in data.items() if isinstance(data, dict) else enumerate(data[:20]) if isinstance(data, list) else ():
        found += places(value, (*path, key))
    return found


@st.composite
def broken(draw: st.DrawFn, good: Any) -> Any:
    """Good JSON data with a few values replaced, taken out, repeated or renamed."""
    data = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        known = places(data)
        if not known:
            break
        path = draw(st.sampled_from(known))
        at = data
        for step in path[:-1]:
            at = at[step]
        how = draw(st.sampled_from(("replace", "replace", "replace", "remove", "rename", "wrap")))
        if how == "replace":
            at[path[-1]] = draw(values)
        elif how == "wrap":
            at[path[-1]] = [at[path[-1]]] * draw(st.sampled_from((1, 2, 300)))
        elif how == "remove":
            del at[path[-1]]
        elif isinstance(at, dict):
            at[draw(texts)] = at.pop(path[-1])
    return data


def to_json(data: Any) -> str:
    """JSON text of anything, NaN included, as careless programs write it."""
    return json.dumps(data, default=str)


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file cut short, with bytes changed, or with a piece put in or repeated."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(("cut", "flip", "put", "repeat")))
        if how == "cut":
            del data[at:]
        elif how == "flip" and data:
            data[at] = draw(st.integers(0, 255))
        elif how == "put":
            data[at:at] = draw(st.one_of(st.binary(max_size=8), texts.map(lambda t: t.encode("utf-8", "surrogatepass"))))
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 2000))]
    return bytes(data)


@st.composite
def broken_table(draw: st.DrawFn, good: str) -> str:
    """A good CSV with cells replaced, columns renamed or dropped, rows of another length."""
    rows = list(csv.reader(io.StringIO(good)))[:6]
    for _ in range(draw(st.integers(1, 4))):
        row = draw(st.sampled_from(rows))
        if not row:
            continue
        at = draw(st.integers(0, len(row) - 1))
        how = draw(st.sampled_from(("cell", "cell", "cell", "drop", "add")))
        if how == "cell":
            row[at] = draw(st.one_of(texts, numbers.map(str)))
        elif how == "drop":
            del row[at]
        else:
            row.insert(at, draw(texts))
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
