"""What arrives and what was promised: lengths, arrivals, sessions, classes, SLO."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.scenario.base import NonNegative, NonNegativeInt, Part, Positive, PositiveInt, PositiveTokens, Share, Slug, Tokens

NEEDS = {
    "fixed": ("mean",),
    "uniform": ("mean", "half_width"),
    "lognormal": ("mean", "cv"),
    "percentiles": ("points",),
    "empirical": ("values",),
}
"""Fields without which a kind of length distribution means nothing."""


class Lengths(Part):
    """A distribution of token counts."""

    kind: Literal["fixed", "uniform", "lognormal", "percentiles", "empirical"] = "fixed"
    """Shape of the distribution."""
    mean: PositiveTokens | None = None
    """Mean, tokens (fixed, uniform, lognormal)."""
    half_width: Share | None = None
    """Uniform on mean × (1 ± half_width)."""
    cv: NonNegative | None = None
    """Standard deviation over mean (lognormal)."""
    max: PositiveTokens | None = None
    """Longer draws are cut to this."""
    points: Annotated[tuple[tuple[Share, Tokens], ...], Field(max_length=1000)] | None = None
    """(cumulative probability, tokens) pairs, interpolated (percentiles)."""
    values: Annotated[tuple[Tokens, ...], Field(max_length=20_000)] | None = None
    """Observed lengths, drawn with replacement (empirical)."""

    @model_validator(mode="after")
    def _complete(self) -> Lengths:
        missing = [f for f in NEEDS[self.kind] if getattr(self, f) is None]
        if missing:
            raise ValueError(f"a {self.kind} length distribution needs {' and '.join(missing)}")
        if self.points is not None:
            if len(self.points) < 2:
                raise ValueError("points needs at least two (probability, tokens) pairs")
            if any(b[0] <= a[0] or b[1] < a[1] for a, b in pairwise(self.points)):
                raise ValueError("points must rise in probability and not fall in tokens")
        if self.values is not None and not self.values:
            raise ValueError("values needs at least one length")
        return self


Length = Tokens | Lengths
"""A plain number of tokens or a distribution."""


class Slo(Part):
    """What users are promised."""

    ttft_s: Positive | None = 1.0
    """Promise on time to first token, s; null means none."""
    tpot_s: Positive | None = 0.05
    """Promise on time per output token, s; null means none."""
    e2e_s: Positive | None = None
    """Promise on the whole answer, s; null means none."""
    percentile: Literal[50, 90, 95, 99] = 95
    """Percentile at which the promises hold."""


class PriorityClass(Part):
    """A share of the requests with a priority, and perhaps promises, of its own."""

    share: Share = 1.0
    """Share of requests in this class."""
    priority: Annotated[int, Field(ge=-(10**9), le=10**9)] = 0
    """vLLM's meaning: lower is served first."""
    slo: Slo | None = None
    """Promise to this class; null means the scenario's."""


class TraceRef(Part):
    """Recorded traffic to replay."""

    name: Slug = ""
    """A shipped trace, or the label of an uploaded one."""
    content_hash: Annotated[str, Field(max_length=64)] | None = None
    """SHA-256 of an uploaded trace; the rows themselves never travel in a link."""


class Workload(Part):
    """What arrives: when, how long, how much of it shared."""

    request_rate: NonNegative | None = 4.0
    """Open loop: requests per second of the whole fleet, recorded arrivals scaled to it; null for a closed loop or a trace's own pace."""
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Closed loop: clients of the whole fleet, each sending its next request when the last one ends."""
    burstiness: Positive = 1.0
    """Gamma shape of arrival gaps: 1 is Poisson, smaller is burstier."""
    num_prompts: Annotated[int, Field(ge=1, le=10**7)] = 500
    """Requests in one replication; planning gives every replica this many and stretches runs that would end before they are warm."""
    input_len: Length = 1024.0
    """Prompt tokens, shared prefix included."""
    output_len: Length = 256.0
    """Output tokens, thinking included."""
    max_output_len: PositiveInt | None = None
    """Outputs are cut to this many tokens."""
    thinking_share: Share = 0.0
    """Share of output tokens that are thinking, before the answer."""
    shared_prefix_len: Tokens = 0.0
    """Prompt tokens shared within a prefix group (system prompt), part of input_len."""
    prefix_groups: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Number of distinct shared prefixes."""
    turns: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Turns of one session; each turn's prompt holds all before it, input_len counts the new tokens."""
    think_time_s: NonNegative = 0.0
    """Mean pause between the end of a turn and the next one, s."""
    trace: TraceRef | None = None
    """Replay recorded arrivals and lengths instead of drawing them."""
    priority_classes: Annotated[tuple[PriorityClass, ...], Field(max_length=100)] = ()
    """Classes of traffic; empty means one."""
    retry_rate: Share = 0.0
    """Chance that a request that missed its deadline is sent again. One refused because it can never run (longer than the engine's
    limits or its KV cache) is not: it would be refused for ever."""
    deadline_s: Positive | None = None
    """A request unfinished by then is cancelled, s; null means clients wait for ever."""
    seed: NonNegativeInt = 0
    """Seed of every random draw."""

    @model_validator(mode="after")
    def _one_load(self) -> Workload:
        if self.request_rate is None and self.max_concurrency is None and self.trace is None:
            raise ValueError("give request_rate (open loop), max_concurrency (closed loop) or a trace")
        return self


def mean_length(length: Length, at_most: float = math.inf) -> float:
    """Mean number of tokens of a `Length` whose draws are cut to its own `max` and to `at_most`: E[min(X, cut)], in closed form."""
    if isinstance(length, (int, float)):
        return min(float(length), at_most)
    cut = min(at_most, length.max or math.inf)
    if length.kind == "percentiles":
        return _mean_of_percentiles(length.points or (), cut)
    if length.kind == "empirical":
        values = length.values or ()
        return sum(min(v, cut) for v in values) / len(values)
    mean = float(length.mean or 0.0)
    if length.kind == "uniform":
        half = mean * float(length.half_width or 0.0)
        return _mean_of_segment(mean - half, mean + half, cut)
    if length.kind == "lognormal" and length.cv and math.isfinite(cut):
        sigma = math.sqrt(math.log1p(length.cv**2))
        at = (math.log(cut / mean) + sigma**2 / 2) / sigma
        return mean * _normal(at - sigma) + cut * (1 - _normal(at))
    return min(mean, cut)


def _mean_of_percentiles(points: tuple[tuple[float, float], ...], cut: float) -> float:
    """Straight lines between the points, the first and last value beyond them."""
    inner = sum((p1 - p0) * _mean_of_segment(v0, v1, cut) for (p0, v0), (p1, v1) in pairwise(points))
    return inner + points[0][0] * min(points[0][1], cut) + (1 - points[-1][0]) * min(points[-1][1], cut)


def _mean_of_segment(low: float, high: float, cut: float) -> float:
    """E[min(X, cut)] of X uniform between two values."""
    if cut >= high:
        return (low + high) / 2
    if cut <= low:
        return cut
    return ((cut**2 - low**2) / 2 + cut * (high - cut)) / (high - low)


def _normal(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def length_quantile(length: Length, share: float) -> float:
    """Tokens that this share of the draws does not exceed."""
    if isinstance(length, (int, float)):
        return float(length)
    mean = float(length.mean or 0.0)
    if length.kind == "uniform":
        found = mean * (1 + float(length.half_width or 0.0) * (2 * share - 1))
    elif length.kind == "lognormal" and length.cv:
        sigma = math.sqrt(math.log1p(length.cv**2))
        found = mean * math.exp(sigma * NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9)) - sigma**2 / 2)
    elif length.kind == "percentiles":
        found = _quantile_of_percentiles(length.points or (), share)
    elif length.kind == "empirical":
        values = sorted(length.values or ())
        found = values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if share > 0 else values[0]
    else:
        found = mean
    return min(found, length.max) if length.max else found


def _quantile_of_percentiles(points: tuple[tuple[float, float], ...], share: float) -> float:
    for (p0, v0), (p1, v1) in pairwise(points):
        if share <= p1:
            return v0 if share <= p0 else v0 + (v1 - v0) * (share - p0) / (p1 - p0)
    return points[-1][1]
