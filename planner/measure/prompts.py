"""Prompts of about a wanted number of tokens, without the server's tokenizer, and never twice the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_WORDS = """
river stone lamp green seven winter table cloud horse paper door music field north glass bread night ship garden wheel
corn silver bridge letter rain apple hill summer clock dust milk road fire queen salt forest moon chair ocean bell
sand tower fish yellow market spring coat island leaf king wall orange train south sugar hand storm bird copper gate
snow village book west honey rock boat grass wine east cup rope dog lake star wood song iron farm red coin path ice
cat map sun drum egg nest oil pen jar kite log mud net oak pond rug sea tea urn vine wolf yard zinc ant bee cow dew
"""
WORDS = tuple(_WORDS.split())
"""Short words that common tokenizers hold whole, so that one more word is close to one more token."""

TASK = "Write a long story about these words."
CALIBRATION_WORDS = (24, 120)
"""Words of the two short requests whose token counts give the slope and the constant below."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent: a user text, and the system text when a shared prefix is wanted."""

    user: str
    system: str | None = None

    @property
    def chars(self) -> int:
        """Length of all text, characters."""
        return len(self.user) + len(self.system or "")


@dataclass(frozen=True, slots=True)
class Scale:
    """How words become the server's prompt tokens: tokens = overhead + tokens_per_word × words."""

    tokens_per_word: float = 1.05
    overhead_tokens: float = 20.0
    measured: bool = False
    """From the server's own counts; otherwise an assumption for English words."""

    def words(self, tokens: int) -> int:
        """Words that bring a prompt nearest to this many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    def tokens(self, words: int) -> int:
        """Expected prompt tokens of this many words."""
        return round(self.overhead_tokens + self.tokens_per_word * words)


def fit(points: Sequence[tuple[int, int]]) -> Scale:
    """The scale through (words, prompt tokens) of the calibration requests.

    One point keeps the assumed overhead only as far as it leaves a positive slope. No point gives the assumption.
    """
    if len(points) >= 2:
        (w0, t0), (w1, t1) = points[0], points[-1]
        slope = (t1 - t0) / (w1 - w0)
        if slope > 0.05:
            return Scale(slope, t0 - slope * w0, True)
    if points:
        words, tokens = points[0]
        overhead = min(Scale().overhead_tokens, tokens / 2)
        return Scale(max(0.1, (tokens - overhead) / words), overhead, True)
    return Scale()


def words(count: int, rng: random.Random) -> str:
    """That many random words. The first words differ from every other prompt's, so no prefix cache can answer for them."""
    return " ".join(rng.choices(WORDS, k=count))


def plain(count: int, rng: random.Random) -> Prompt:
    """One user message with `count` random words."""
    return Prompt(f"{words(count, rng)}. {TASK}")


def with_system(system: str, rng: random.Random) -> Prompt:
    """A long system text followed by a short question that nobody asked before."""
    return Prompt(f"{words(6, rng)}. {TASK}", system)
