"""One measured request, and the three numbers that a client can see of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Experiment = Literal["lengths", "prefix", "load"]


@dataclass(frozen=True, slots=True)
class Request:
    """What one streaming request showed. Times are seconds from sending this attempt; None means not seen.

    A request with an `error` keeps what it showed before it broke, and never enters an average.
    """

    experiment: Experiment
    """Which part of the run it belongs to."""
    target_prompt_tokens: int
    """Prompt length that was aimed at."""
    repeat: int
    """Which repetition, from 0."""
    started_s: float
    """When the last attempt was sent, seconds after the run began."""
    prompt_tokens: int | None
    """Prompt tokens by the server's count, cached ones included."""
    output_tokens: int | None
    """Output tokens by the server's count, thinking included; estimated when `estimated` says so."""
    cached_tokens: int | None
    """Prompt tokens read from the server's prefix cache; None when the server does not say."""
    thinking_tokens: int | None
    """Output tokens spent on thinking, when the server says so."""
    ttft_s: float | None
    """To the first token of any kind."""
    ttft_answer_s: float | None
    """To the first token of the answer, after any thinking."""
    tpot_s: float | None
    """(last token − first token) / (output tokens − 1)."""
    e2e_s: float | None
    """To the last token."""
    error: str | None
    """One sentence, or None when the answer is complete."""
    events: int = 0
    """Stream events that carried text."""
    retries: int = 0
    """Attempts that the server turned away before this one."""
    retry_wait_s: float = 0.0
    """Time spent waiting between those attempts; outside every other figure."""
    estimated: bool = False
    """Token counts are estimates because the server sent no usage."""
    warm: bool = False
    """Prefix experiment: the same system prompt was sent shortly before."""
    finish: str | None = None
    """The server's reason for ending."""

    @property
    def ok(self) -> bool:
        """The answer arrived whole."""
        return self.error is None

    @property
    def tokens_per_s(self) -> float | None:
        """Speed of this one stream after its first token."""
        return 1 / self.tpot_s if self.tpot_s else None

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON."""
        return asdict(self)


def tpot(first_s: float | None, last_s: float | None, output_tokens: int | None) -> float | None:
    """Time per output token, seconds: the time after the first token shared by the other tokens. None below two tokens.

    Tokens are the server's count: events carry several tokens, so time per event overstates it.
    """
    if first_s is None or last_s is None or output_tokens is None or output_tokens < 2 or last_s < first_s:
        return None
    return (last_s - first_s) / (output_tokens - 1)


def distribution(values: list[float]) -> dict[str, float | int | None]:
    """Count, mean and percentiles (linear between order statistics) of finite values; None where there are none."""
    ordered = sorted(v for v in values if math.isfinite(v))
    if not ordered:
        return {"n": 0, "mean": None, "min": None, "p50": None, "p90": None, "p95": None, "p99": None, "max": None}
    return {
        "n": len(ordered),
        "mean": math.fsum(ordered) / len(ordered),
        "min": ordered[0],
        "p50": percentile(ordered, 50),
        "p90": percentile(ordered, 90),
        "p95": percentile(ordered, 95),
        "p99": percentile(ordered, 99),
        "max": ordered[-1],
    }


def percentile(ordered: list[float], percent: float) -> float:
    """The percentile of ascending values, linear between neighbours (NumPy's default)."""
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
