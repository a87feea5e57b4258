"""How wrong a count may be when keys of a configuration were not understood: an upper guess of the parameters behind them.

A key that may change what a token caches has no such bound, nor has one that multiplies layers or experts: those are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

LARGEST_ERROR = 0.10
"""Share of the counted parameters that unknown keys may stand for before the configuration is refused."""

_CACHE = re.compile(
    r"kv|cache|compress|latent|share|reuse|source_layer|cross_layer|index|topk|window|sliding|local|state|ssm|mamba|recur|loop|passes|cycle|"
    r"linear_|pool|stride|mla|swa|sparse",
    re.IGNORECASE,
)
_LAYERS = re.compile(r"layer|block|depth|stack|stage|level|branch", re.IGNORECASE)
_EXPERTS = re.compile(r"expert|moe", re.IGNORECASE)
_TABLE = re.compile(r"vocab|table|rows|bucket|ngram|engram|codebook", re.IGNORECASE)
_COUNT_OF_LAYERS = re.compile(r"^(n|num|number|extra)_", re.IGNORECASE)
_ELSEWHERE = re.compile(r"image|video|vision|audio|speech|patch|frame|pixel|mel_|codec", re.IGNORECASE)
MANY = 10**15
"""Stands for "no bound"."""


def caches(keys: Iterable[str]) -> list[str]:
    """Those of the keys whose names speak of the cache: they may change it by any factor."""
    return [k for k in keys if _CACHE.search(k) and not _ELSEWHERE.search(k) and not k.endswith("bias")]


def params(key: str, value: Any, hidden: int, layers: int, per_layer: float) -> float:
    """Parameters that an unknown key may stand for, at most.

    A table has one row of hidden width each; a width feeds a projection in and one out of every layer; extra layers weigh what
    the others do; a switch, a list or an object is taken for at least one square matrix a layer.
    """
    square = float(hidden) * hidden * layers
    if key.endswith("bias"):
        return 8.0 * hidden * layers
    if isinstance(value, Mapping):
        return square + sum(params(str(k), v, hidden, layers, per_layer) for k, v in value.items() if _sizes(v))
    if isinstance(value, (list, tuple)):
        return square
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return square
    size = float(value)
    if _TABLE.search(key) or size > 16 * hidden:
        return size * hidden
    if _EXPERTS.search(key):
        return MANY
    if _LAYERS.search(key) and _COUNT_OF_LAYERS.search(key):
        return size * per_layer
    return 2 * size * hidden * layers


GATED = re.compile(r"silu|swish|swiglu|glu", re.IGNORECASE)
PLAIN = re.compile(r"relu|xielu|quick_gelu|gelu_new|gelu_fast", re.IGNORECASE)


def gated(activation: object) -> bool | None:
    """Whether an MLP with this activation has a gate, by the habit of public families; None where both are common (GELU)."""
    if not isinstance(activation, str) or GATED.search(activation):
        return True
    return False if PLAIN.search(activation) else None


def _sizes(value: Any) -> bool:
    return isinstance(value, (int, Mapping)) and not isinstance(value, bool)
