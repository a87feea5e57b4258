"""Prometheus text of the two engines: samples, differences of snapshots, histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from planner.problems import InputError
from planner.scenario.base import LARGEST

Name = Literal["vllm", "sglang"]
LONGEST_TEXT = 20 * 10**6
LONGEST_LINE = 10_000
SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s#]+)(?:\s+-?\d+)?\s*(?:#.*)?$")
LABEL = re.compile(r'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]
Snapshot = dict[str, dict[Labels, float]]
"""Sample name without its engine prefix and `_total` → labels → value."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram: how many, their mean, and percentiles interpolated inside buckets; a percentile beyond the last bound is None."""

    count: float
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def parse(text: str) -> tuple[Name, Snapshot]:
    """The engine and its samples. Lines of other exporters are skipped."""
    if len(text) > LONGEST_TEXT:
        raise InputError(f"the metrics text has {len(text):,} characters; the limit is {LONGEST_TEXT:,}")
    found: dict[Name, Snapshot] = {"vllm": {}, "sglang": {}}
    for line in text.splitlines():
        match = SAMPLE.match(line.strip()) if len(line) <= LONGEST_LINE else None
        if match is None:
            continue
        engine, separator, name = match["name"].partition(":") if ":" in match["name"] else match["name"].partition("_")
        value = _count(match["value"])
        if engine not in found or not separator or value is None:
            continue
        labels = tuple(sorted(LABEL.findall(match["labels"] or "")))
        found[engine].setdefault(name.removesuffix("_total"), {})[labels] = value  # type: ignore[index]
    engine = max(found, key=lambda e: len(found[e]))
    if not found[engine]:
        raise InputError(
            "the text holds no metric of vLLM or SGLang (a line like `vllm:num_requests_running{…} 3`); paste the server's /metrics page"
        )
    return engine, found[engine]


GAUGES = re.compile(
    r"running|waiting|queue_reqs|usage|cache_hit_rate|gen_throughput|accept|config_info|_created$|num_used_tokens|max_total|sleep_state"
)


def difference(old: Snapshot, new: Snapshot) -> Snapshot:
    """Counters and histograms less what they held before; gauges as they are now."""
    changed: Snapshot = {}
    for name, samples in new.items():
        if GAUGES.search(name) and "spec_decode" not in name:
            changed[name] = samples
            continue
        earlier = old.get(name, {})
        changed[name] = {labels: value - earlier.get(labels, 0.0) for labels, value in samples.items()}
        if any(value < -1e-9 for value in changed[name].values()):
            raise InputError(f"{name} is smaller in the second snapshot; the server was restarted or the two are swapped")
    return changed


RANKS = frozenset(("tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "attn_tp_rank", "rank", "local_rank"))
"""Labels of processes that work on the same requests together, so each of them counts them all. Data-parallel ranks (`dp_rank`, vLLM's
`engine`) have requests and a cache of their own."""


def one_rank(samples: Snapshot) -> Snapshot:
    """Samples of one group of ranks as one: the largest of them, since a rank may lag or see only part."""
    merged: Snapshot = {}
    for name, by_labels in samples.items():
        kept = merged.setdefault(name, {})
        for labels, value in by_labels.items():
            rest = tuple(pair for pair in labels if pair[0] not in RANKS)
            kept[rest] = max(value, kept.get(rest, value))
    return merged


def spread(buckets: Mapping[Labels, float], count: float, total: float | None) -> Spread:
    """Mean and percentiles of a histogram: `buckets` by labels, `le` among them, `count` observations that add up to `total`."""
    bounds: dict[float, float] = {}
    for labels, value in buckets.items():
        text = dict(labels).get("le", "")
        bound = math.inf if text.lstrip("+").lower() == "inf" else _count(text)
        if bound is not None:
            bounds[bound] = bounds.get(bound, 0.0) + value
    ordered = sorted(bounds.items())
    heights = accumulate((height for _, height in ordered), max)  # a bucket holds those below it
    ordered = [(bound, height) for (bound, _), height in zip(ordered, heights, strict=True)]
    return Spread(count, total / count if total is not None else None, *(_quantile(ordered, count, q) for q in (0.5, 0.9, 0.95, 0.99)))


def _quantile(buckets: list[tuple[float, float]], count: float, share: float) -> float | None:
    """Linear inside the bucket that holds the rank, as Prometheus' histogram_quantile; None beyond the last finite bound."""
    rank, low, below = share * count, 0.0, 0.0
    for bound, cumulative in buckets:
        if cumulative >= rank:
            if math.isinf(bound):
                return None
            return low + (bound - low) * ((rank - below) / (cumulative - below) if cumulative > below else 1.0)
        low, below = bound, cumulative
    return None


def _count(text: str) -> float | None:
    """A number as these metrics have them: finite, not below zero, of a size that can be added up."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= LARGEST else None
