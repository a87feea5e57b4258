"""One simulated run as rows for charts: a window of steps, load over time, distributions, the slowest requests. No streamlit."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.metrics.window import e2e_s, tpot_s, ttft_s
from planner.scheduler.timeline import FINISHED, EngineLog, Timeline
from planner.views.text import compact, seconds

Row = dict[str, Any]
WINDOW_STEPS = 90
"""Steps drawn around the chosen moment: more are thinner than a pixel."""
POINTS = 240
"""Points of a curve over a whole run."""


def busiest(timeline: Timeline) -> EngineLog | None:
    """The replica with the most steps on record."""
    recorded = [e for e in timeline.engines if e.records is not None and len(e.records.end_s)]
    return max(recorded, key=lambda e: e.steps, default=None)


def interesting_s(engine: EngineLog) -> float:
    """A moment worth looking at first: the longest queue, or the fullest batch when nothing ever waits."""
    r = engine.records
    assert r is not None
    column = r.waiting if r.waiting.any() else r.decode_sequences
    return float(r.end_s[int(np.argmax(column))])


def window(engine: EngineLog, at_s: float) -> list[Row]:
    """The steps around a moment: when each ran, what it did."""
    r = engine.records
    assert r is not None
    middle = int(np.searchsorted(r.end_s, at_s))
    first = max(0, min(middle - WINDOW_STEPS // 2, len(r.end_s) - WINDOW_STEPS))
    rows = []
    for i in range(first, min(first + WINDOW_STEPS, len(r.end_s))):
        chunk, decoding = int(r.chunk_tokens[i]), int(r.decode_sequences[i])
        kind = "decode and prompt chunk" if chunk and decoding else "prompt only" if chunk else "decode only"
        rows.append(
            {
                "start": float(r.end_s[i] - r.seconds[i]),
                "end": float(r.end_s[i]),
                "kind": kind,
                "sequences": decoding,
                "chunk": chunk,
                "waiting": int(r.waiting[i]),
                "took": seconds(float(r.seconds[i])),
            }
        )
    return rows


def over_time(engine: EngineLog) -> list[Row]:
    """Queue, batch and cache over the run; each point is the highest value of its slice, so that peaks survive."""
    r = engine.records
    assert r is not None
    edges = np.unique(np.linspace(0, len(r.end_s), min(POINTS, len(r.end_s)) + 1).astype(int))
    starts = edges[:-1]
    columns = {
        "waiting in the queue": np.maximum.reduceat(r.waiting, starts),
        "decoding": np.maximum.reduceat(r.decode_sequences, starts),
        "KV cache used, %": 100 * np.maximum.reduceat(r.kv_used_blocks, starts) / max(engine.total_blocks, 1),
    }
    when = r.end_s[edges[1:] - 1]
    return [{"t": float(t), "what": name, "value": float(v)} for name, values in columns.items() for t, v in zip(when, values, strict=True)]


def distribution(timeline: Timeline, metric: str) -> list[Row]:
    """Share of requests at or below each latency, seconds."""
    values = {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s}[metric](timeline)
    values = np.sort(values[np.isfinite(values) & (values > 0)])
    if not len(values):
        return []
    at = np.unique(np.linspace(0, len(values) - 1, min(len(values), 160)).astype(int))
    return [{"s": float(values[i]), "share": 100 * (i + 1) / len(values)} for i in at]


def slowest(timeline: Timeline, by: str, count: int = 12) -> list[Row]:
    """The slowest requests split into queue, prompt and output, with the reason each was slow."""
    values = {"ttft_s": ttft_s, "tpot_s": tpot_s, "e2e_s": e2e_s}[by](timeline)
    order = [int(i) for i in np.argsort(-np.nan_to_num(values, nan=-1.0)) if np.isfinite(values[i]) and timeline.status[i] == FINISHED][
        :count
    ]
    rows = []
    for rank, i in enumerate(order):
        name = f"#{int(timeline.number[i])}"
        parts = (
            ("queue", timeline.scheduled_s[i] - timeline.arrival_s[i]),
            ("prompt", timeline.first_token_s[i] - timeline.scheduled_s[i]),
            ("output", timeline.finish_s[i] - timeline.first_token_s[i]),
        )
        reason = why_slow(timeline, i)
        rows += [
            {"request": name, "rank": rank, "part": part, "order": k, "s": float(s), "time": seconds(float(s)), "reason": reason}
            for k, (part, s) in enumerate(parts)
        ]
    return rows


def why_slow(timeline: Timeline, i: int) -> str:
    """What sets this request apart from the median one."""
    queue = timeline.scheduled_s[i] - timeline.arrival_s[i]
    whole = timeline.finish_s[i] - timeline.arrival_s[i]
    reasons = []
    if timeline.preemptions[i]:
        reasons.append(f"preempted {int(timeline.preemptions[i])} times and recomputed")
    if queue > 0.3 * whole:
        reasons.append(f"waited {seconds(float(queue))} for a place")
    if timeline.input_tokens[i] > 3 * np.median(timeline.input_tokens):
        reasons.append(f"long prompt, {compact(float(timeline.input_tokens[i]))} tokens")
    if timeline.output_tokens[i] > 2 * np.median(timeline.output_tokens):
        reasons.append(f"long answer, {compact(float(timeline.output_tokens[i]))} tokens")
    return "; ".join(reasons) or "shared steps with other prompts"
