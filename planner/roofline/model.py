"""What a step is, and what its time is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class StepShape(NamedTuple):
    """One engine step of one replica, summed over its data-parallel ranks."""

    decode_sequences: int = 0
    context_tokens: float = 0
    """Sum of the contexts of the decoding sequences."""
    windowed_context_tokens: float = 0
    """Sum of min(context, window)."""
    chunks: tuple[tuple[int, int], ...] = ()
    """(new, cached) tokens of every prefill chunk in the step."""
    logit_rows: int = 0
    """Sequences that sample a token; the drafts to verify come on top."""
    verify_tokens: int = 0
    """Drafted tokens that go through the target beside the decoding ones."""


@dataclass(frozen=True, slots=True)
class Term:
    """A named share of a step."""

    name: str
    phase: str
    """decode, prefill, or step where one kernel serves both."""
    seconds: float
    bound: str
    """memory, compute, launch, link, host or draft: what the time is spent on."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where constants behind a step time come from."""

    quantity: str
    value: str
    """The constants in words, with their units."""
    kind: str
    """measured, assumed, user or derived."""
    source: str
    date: str | None


def merged(terms: list[Term]) -> tuple[Term, ...]:
    """Terms of one name, phase and bound added up, in order of first appearance."""
    total: dict[tuple[str, str, str], float] = {}
    for t in terms:
        key = (t.name, t.phase, t.bound)
        total[key] = total.get(key, 0.0) + t.seconds
    return tuple(Term(name, phase, seconds, bound) for (name, phase, bound), seconds in total.items())
