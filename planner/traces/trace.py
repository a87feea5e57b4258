"""Columns of one recorded trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that was left out."""

    row: int
    """Line number in the file, the first line being 1."""
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of arrival."""

    name: str
    arrival_s: np.ndarray
    """Seconds from the first request, not falling."""
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    hash_ids: tuple[Blocks, ...] | None = None
    """Ids of the prompt's blocks of `hash_tokens` tokens, in order; None when the content was not recorded."""
    hash_tokens: int = 0
    tick_s: float = 0.0
    """Resolution of the recorded arrivals, s; 0 when they are exact."""
    source: str = ""
    licence: str = ""
    date: str = ""
    notes: tuple[str, ...] = ()
    content_hash: str | None = None
    """SHA-256 of the uploaded file; None for a shipped trace."""
    rejected: tuple[Rejected, ...] = ()
    rejected_rows: int = 0
    """Rows left out in total."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def request_rate(self) -> float:
        """Mean requests per second over the recorded span; infinite when all arrive at once."""
        span_s = float(self.arrival_s[-1]) + self.tick_s
        return len(self) / span_s if span_s > 0 else math.inf

    def head(self, requests: int) -> Trace:
        """The first `requests` of it."""
        cut = slice(requests)
        hash_ids = None if self.hash_ids is None else self.hash_ids[cut]
        arrival_s, input_tokens, output_tokens = self.arrival_s[cut], self.input_tokens[cut], self.output_tokens[cut]
        return replace(self, arrival_s=arrival_s, input_tokens=input_tokens, output_tokens=output_tokens, hash_ids=hash_ids)

    def smoothed(self, rng: np.random.Generator) -> Trace:
        """The same requests with recorded ticks spread evenly over their length, order kept: what to replay."""
        if not self.tick_s:
            return self
        arrival_s = np.sort(self.arrival_s + rng.random(len(self)) * self.tick_s)
        return replace(self, arrival_s=arrival_s, tick_s=0.0)
