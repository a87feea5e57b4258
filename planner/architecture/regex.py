"""Regular expressions that come with a checkpoint, matched in time that grows with the text alone.

Python's own matcher can be made to search for ever by a hostile pattern. Here the set of places a
pattern can have reached is followed instead, as the bits of a number, and the steps are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from planner.problems import InputError

LONGEST = 500
"""Characters of a pattern that are still read; real ones have under 200."""
STEPS = 2_000_000
"""Steps for one configuration, some seconds; real ones need under a tenth of it."""

REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
ONE_CHARACTER = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)


class NotUnderstood(ValueError):
    """A pattern that is broken, too long or uses what is not followed here."""


class Text:
    """A text and, for each of its characters, the places where it stands, as bits."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self.places: dict[str, int] = {}
        for i, character in enumerate(text):
            self.places[character] = self.places.get(character, 0) | 1 << i

    def at(self, accepted: frozenset[str]) -> int:
        """The places of the characters `accepted`."""
        return sum(bits for character, bits in self.places.items() if character in accepted)


class Matcher:
    """Matches the patterns of one configuration, and gives up when they cost more than any real one."""

    def __init__(self) -> None:
        self.left = STEPS
        self.patterns: dict[str, Any] = {}
        self.texts: dict[str, Text] = {}
        self.known: dict[tuple[str, str], bool] = {}
        self.classes: dict[int, frozenset[str]] = {}
        """ASCII characters that an element of a pattern accepts; names of modules have no others."""

    def matches(self, pattern: str, text: str) -> bool:
        """Whether `pattern` matches at the start of `text`, as `re.match` would say."""
        if pattern not in self.patterns:
            self.patterns[pattern] = self._parsed(pattern)
        if text not in self.texts:
            self.texts[text] = Text(text)
        key = (pattern, text)
        if key not in self.known:
            self.known[key] = bool(self._sequence(self.patterns[pattern], self.texts[text], 1))
        return self.known[key]

    def understands(self, pattern: str) -> bool:
        try:
            self.matches(pattern, "")
        except NotUnderstood:
            return False
        return True

    def _parsed(self, pattern: str) -> Any:
        if len(pattern) > LONGEST:
            raise NotUnderstood(f"longer than {LONGEST} characters")
        self.spend(40 * len(pattern))
        try:
            tree = parser.parse(pattern)
        except (re.error, OverflowError, RecursionError) as problem:
            raise NotUnderstood(str(problem)) from None
        self._sequence(tree, Text(""), 1, check=True)
        return tree

    def spend(self, steps: int) -> None:
        """Count work done. Raises `InputError` once it is more than any real configuration asks for."""
        self.left -= steps
        if self.left < 0:
            raise InputError("quantization_config names its layers with patterns too intricate to follow; list the layers by name")

    def _sequence(self, items: Iterable[Any], text: Text, at: int, check: bool = False) -> int:
        """Where a match of all `items` can end that starts in `at`; with `check`, only raise on what is not understood."""
        for name, value in items:
            self.spend(1)
            at = self._step(name, value, text, at, check)
            if not at and not check:
                break
        return at

    def _step(self, name: Any, value: Any, text: Text, at: int, check: bool) -> int:
        if name in ONE_CHARACTER:
            return (at & self._accepted(name, value, text)) << 1
        if name in REPEATS:
            low, high, repeated = value
            return self._repeat(low, high, repeated, text, at, check)
        if name is op.SUBPATTERN:
            return self._sequence(value[3], text, at, check)
        if name is op.BRANCH:
            found = 0
            for branch in value[1]:
                found |= self._sequence(branch, text, at, check)
            return found
        if name in (op.ASSERT, op.ASSERT_NOT) and value[0] == 1:
            return self._ahead(name is op.ASSERT, value[1], text, at, check)
        if name is op.AT and value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return at & 1
        if name is op.AT and value in (op.AT_END, op.AT_END_STRING):
            return at & 1 << text.length
        raise NotUnderstood(f"uses {name}")

    def _accepted(self, name: Any, value: Any, text: Text) -> int:
        if name is op.LITERAL:
            return text.places.get(chr(value), 0)
        if name is op.ANY:
            return (1 << text.length) - 1
        key = id(value) if name is op.IN else -value
        if key not in self.classes:
            accepts = _one(name, value)
            self.classes[key] = frozenset(c for c in map(chr, range(128)) if accepts(c))
        return text.at(self.classes[key])

    def _repeat(self, low: int, high: int, items: Any, text: Text, at: int, check: bool) -> int:
        if check:
            return at | self._sequence(items, text, at, check)
        for _ in range(low):
            further = self._sequence(items, text, at)
            if further == at:
                break
            at = further
        if high is op.MAXREPEAT and len(items) == 1 and items[0][0] in ONE_CHARACTER:
            kind, value = items[0]
            run = self._accepted(kind, value, text)
            return (((at & run) + run) ^ run) | at  # carries each place to the end of its run of accepted characters
        found, last = at, at
        for _ in range(high - low if high is not op.MAXREPEAT else text.length + 1):
            last = self._sequence(items, text, last) & ~found
            if not last:
                break
            found |= last
        return found

    def _ahead(self, wanted: bool, items: Any, text: Text, at: int, check: bool) -> int:
        places = [1 << i for i in range(text.length + 1) if at >> i & 1] or [1]
        return sum(place for place in places if bool(self._sequence(items, text, place, check)) == wanted) & at


def _one(name: Any, value: Any) -> Callable[[str], bool]:
    if name is op.NOT_LITERAL:
        return lambda c: ord(c) != value
    negated = bool(value) and value[0][0] is op.NEGATE
    tests = [_class(n, v) for n, v in value if n is not op.NEGATE]
    return lambda c: any(test(c) for test in tests) != negated


def _class(name: Any, value: Any) -> Callable[[str], bool]:
    if name is op.LITERAL:
        return lambda c: ord(c) == value
    if name is op.RANGE:
        return lambda c: value[0] <= ord(c) <= value[1]
    classes = {op.CATEGORY_DIGIT: str.isdecimal, op.CATEGORY_SPACE: str.isspace, op.CATEGORY_WORD: _word}
    opposite = {op.CATEGORY_NOT_DIGIT: str.isdecimal, op.CATEGORY_NOT_SPACE: str.isspace, op.CATEGORY_NOT_WORD: _word}
    if name is op.CATEGORY and value in classes:
        return classes[value]
    if name is op.CATEGORY and value in opposite:
        return lambda c: not opposite[value](c)
    raise NotUnderstood(f"uses {name}")


def _word(c: str) -> bool:
    return c.isalnum() or c == "_"
