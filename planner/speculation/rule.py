"""The accept/reject rule itself, over the draft's and the target's distributions (arXiv 2211.17192 and 2302.01318, 2023).

A draft drawn from q is accepted with chance min(1, p / q); at the first rejection the token is drawn anew from max(0, p − q),
normalised; when all pass, one more comes from p. What is emitted then has exactly the target's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.problems import InputError
from planner.scenario import Verify


def verify_draft(
    rng: np.random.Generator, drafted: np.ndarray, draft: np.ndarray, target: np.ndarray, verify: Verify = "exact"
) -> np.ndarray:
    """Tokens that one verified step emits, 1 to k + 1 of them.

    `drafted` holds k tokens, `draft` the k distributions they were drawn from, `target` the k + 1 of the target at the same
    positions and the one after; shapes (k,), (k, V), (k + 1, V). `accept_all` keeps every draft unseen.
    """
    k = len(drafted)
    for i in range(k if verify == "exact" else 0):
        p, q = target[i], draft[i]
        token = drafted[i]
        if rng.random() * q[token] >= p[token]:
            residual = np.maximum(p - q, 0.0)
            return np.append(drafted[:i], draw(rng, residual))
    return np.append(drafted, draw(rng, target[k]))


def draw(rng: np.random.Generator, weights: np.ndarray) -> int:
    """A token with chance proportional to its weight."""
    cumulative = weights.cumsum()
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text decoded speculatively from two toy models whose next token depends on the last one."""

    tokens: np.ndarray
    """Emitted tokens, in order."""
    steps: int
    """Verified steps of the target."""
    acceptance_rates: tuple[float, ...]
    """Share of steps whose first i + 1 drafts were all kept."""

    @property
    def acceptance_length(self) -> float:
        return len(self.tokens) / self.steps


def decode(
    rng: np.random.Generator,
    target: np.ndarray,
    draft: np.ndarray,
    num_speculative_tokens: int,
    steps: int,
    verify: Verify = "exact",
) -> Decoded:
    """Run `steps` verified steps of two models given as row-stochastic matrices, row = last token, column = next one.

    Raises InputError unless both are square, of one size, and their rows are distributions.
    """
    for name, matrix in (("target", target), ("draft", draft)):
        if matrix.ndim != 2 or matrix.shape != target.shape or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"{name} has shape {matrix.shape}; both models are square matrices over the same tokens")
        if (matrix < 0).any() or not np.allclose(matrix.sum(axis=1), 1.0):
            raise InputError(f"{name} has a row that is not a distribution; every row must be non-negative and sum to 1")
    tokens: list[int] = [0]
    kept = np.zeros(num_speculative_tokens, dtype=np.int64)
    for _ in range(steps):
        contexts = [tokens[-1]]
        for _ in range(num_speculative_tokens):
            contexts.append(draw(rng, draft[contexts[-1]]))
        emitted = verify_draft(rng, np.array(contexts[1:], dtype=np.int64), draft[contexts[:-1]], target[contexts], verify)
        kept[: len(emitted) - 1] += 1
        tokens.extend(emitted.tolist())
    return Decoded(np.array(tokens[1:]), steps, tuple((kept / steps).tolist()))
