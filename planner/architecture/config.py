"""A Hugging Face configuration as typed look-ups that remember which keys were understood."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.problems import InputError

MAX_INT = 10**9
MAX_LAYERS = 4096


class Config:
    """One JSON object of a configuration. Look-ups take a key and its aliases; the first one present (and not null) wins.

    `defaults` are what the model's class fills in when a file leaves a key out. Every key asked for counts as
    understood; `unread` gives the others.
    """

    def __init__(self, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, where: str = "") -> None:
        self.raw = raw
        self.defaults = defaults or {}
        self.where = where
        self.read: set[str] = set()
        self._overrides: dict[int, Mapping[str, Any]] | None = None
        self.lists_read = 0
        """How often a list was looked at: what depends on none is the same for every layer."""

    def get(self, *names: str) -> Any:
        """Value of the first of `names` that is present and not null; the class default only where the file is silent.

        A null is an answer: Mistral's later files switch the window of their class off with it.
        """
        self.read.update(names)
        silent = True
        for name in names:
            if name in self.raw:
                silent = False
                if self.raw[name] is not None:
                    return self.raw[name]
        return next((self.defaults[n] for n in names if self.defaults.get(n) is not None), None) if silent else None

    def _given(self, names: tuple[str, ...]) -> str:
        """Which of `names` the file spells."""
        return next((n for n in names if self.raw.get(n) is not None), names[0])

    def has(self, *names: str) -> bool:
        """Whether the file or the class gives one of `names`."""
        return self.get(*names) is not None

    def whole(self, *names: str, default: int | None = None, low: int = 1, high: int = MAX_INT) -> int:
        """A whole number in [low, high]; `InputError` naming the key when missing without a default, or out of range."""
        value = self.get(*names)
        if value is None:
            if default is None:
                raise InputError(f"config key {self.where}{names[0]} is missing; paste the model's whole config.json")
            return default
        return self._whole(self._given(names), value, low, high)

    def optional_whole(self, *names: str, low: int = 0, high: int = MAX_INT) -> int | None:
        """Like `whole`, but None when absent."""
        return self.whole(*names, low=low, high=high) if self.get(*names) is not None else None

    def switch(self, *names: str, default: bool = False) -> bool:
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in (0, 1):
            raise InputError(f"config key {self.where}{self._given(names)} is {_show(value)}; it must be true or false")
        return bool(value)

    def number(self, *names: str, default: float = 0.0) -> float:
        value = self.get(*names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError(f"config key {self.where}{self._given(names)} is {_show(value)}; it must be a number")
        return float(value)

    def text(self, *names: str, default: str = "") -> str:
        value = self.get(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(f"config key {self.where}{self._given(names)} is {_show(value)}; it must be text")
        return value

    def items(self, *names: str) -> list[Any] | None:
        """A list, or None when absent; any other type is an `InputError`."""
        value = self.get(*names)
        if value is not None and not isinstance(value, (list, tuple)):
            raise InputError(f"config key {self.where}{self._given(names)} is {_show(value)}; it must be a list")
        self.lists_read += value is not None
        return None if value is None else list(value)

    def part(self, *names: str) -> dict[str, Any] | None:
        value = self.get(*names)
        if value is not None and not isinstance(value, Mapping):
            raise InputError(f"config key {self.where}{self._given(names)} is {_show(value)}; it must be an object")
        return None if value is None else dict(value)

    def wholes(self, *names: str, low: int = 0, high: int = MAX_INT) -> list[int] | None:
        values = self.items(*names)
        return None if values is None else [self._whole(self._given(names), v, low, high) for v in values]

    def at(self, layer: int, *names: str, default: int | None = None, low: int = 1) -> int:
        """A whole number that may be given once or as a list with one entry per layer."""
        value = self.get(*names)
        if not isinstance(value, (list, tuple)):
            return self.whole(*names, default=default, low=low)
        self.lists_read += 1
        name = self._given(names)
        if layer >= len(value):
            raise InputError(f"config key {self.where}{name} has {len(value)} entries, layer {layer} needs one; give one per layer")
        return self._whole(name, value[layer], low, MAX_INT)

    def layer(self, index: int) -> Config:
        """The configuration of one layer: `per_layer_config` may override keys for single layers (keys like "05")."""
        if self._overrides is None:
            self._overrides = _by_layer(self.get("per_layer_config"))
        own = self._overrides.get(index)
        if own is None:
            return self
        view = Config({**self.raw, **own}, self.defaults, self.where)
        view.read = self.read
        return view

    def side(self, *names: str, default: int | None = None) -> int:
        """A length that may be given once or as [height, width] (the larger counts)."""
        value = self.get(*names)
        if isinstance(value, (list, tuple)) and value:
            return max(self._whole(self._given(names), v, 1, MAX_INT) for v in value[:2])
        return self.whole(*names, default=default)

    def unread(self) -> list[tuple[str, Any]]:
        """(key, value) that nothing asked for, in file order."""
        return [(k, v) for k, v in self.raw.items() if k not in self.read and v is not None]

    def _whole(self, name: str, value: Any, low: int, high: int) -> int:
        whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value == int(value))
        if isinstance(value, bool) or not whole or not low <= value <= high:
            raise InputError(f"config key {self.where}{name} is {_show(value)}; it must be a whole number from {low} to {high:,}")
        return int(value)


def _by_layer(overrides: Any) -> dict[int, Mapping[str, Any]]:
    """`per_layer_config` by layer number; what names no layer is left out."""
    if not isinstance(overrides, Mapping):
        return {}
    numbered = {k: v for k, v in overrides.items() if isinstance(v, Mapping) and re.fullmatch(r"[0-9]{1,5}", str(k))}
    return {int(k): v for k, v in numbered.items()}


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
