"""What a run shows, in figures: failures beside the averages, never in them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from planner.measure.experiment import Run
from planner.measure.records import Request, distribution
from planner.measure.rows import Row, row, with_context
from planner.units import MS


def document(run: Run, context: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole run as JSON: `requests`, `summary`, `rows` and what was asked. It holds no key and no prompt text.

    `context` holds columns that only the user knows (engine, gpu, tp, …).
    """
    options = run.options
    return {
        "schema": "planner-measure/1",
        "date": datetime.now(UTC).date().isoformat(),
        "endpoint": {"base_url": run.endpoint.public_url, "model": run.endpoint.model, "api": run.endpoint.api},
        "options": {
            "prompt_lengths": list(options.prompt_lengths),
            "repeats": options.repeats,
            "max_tokens": run.endpoint.max_tokens,
            "timeout_s": run.endpoint.timeout_s,
            "concurrency": options.concurrency,
            "rate": options.rate,
            "duration_s": options.duration_s,
        },
        "requests": [request.to_dict() for request in run.requests],
        "summary": summarize(run),
        "rows": with_context(rows(run), context or {}),
    }


def summarize(run: Run) -> dict[str, Any]:
    """Counts, failures by kind, and distributions over whole answers only. Times in seconds."""
    requests = run.requests
    alone = [r for r in requests if r.experiment == "lengths"]
    whole = [r for r in requests if r.ok]
    return {
        "requests": len(requests),
        "ok": len(whole),
        "failed": len(requests) - len(whole),
        "retried": sum(r.retries > 0 for r in requests),
        "retries": sum(r.retries for r in requests),
        "retry_wait_s": math.fsum(r.retry_wait_s for r in requests),
        "not_sent": run.not_sent,
        "stopped": run.stopped,
        "finished": run.finished,
        "estimated": sum(r.estimated for r in whole),
        "errors": _errors([*run.calibration, *requests]),
        **_latencies(alone or requests),
        "by_prompt_length": [
            _group(length, [r for r in alone if r.target_prompt_tokens == length])
            for length in dict.fromkeys(r.target_prompt_tokens for r in alone)
        ],
        "prefix": _prefix([r for r in requests if r.experiment == "prefix"]),
        "load": _load(run),
        "notes": _notes(run),
    }


def _latencies(requests: Sequence[Request]) -> dict[str, Any]:
    whole = [r for r in requests if r.ok]
    return {
        "ttft_s": distribution([r.ttft_s for r in whole if r.ttft_s is not None]),
        "ttft_answer_s": distribution([r.ttft_answer_s for r in whole if r.ttft_answer_s is not None]),
        "tpot_s": distribution([r.tpot_s for r in whole if r.tpot_s is not None]),
        "e2e_s": distribution([r.e2e_s for r in whole if r.e2e_s is not None]),
        "tokens_per_s": distribution([r.tokens_per_s for r in whole if r.tokens_per_s is not None]),
    }


def _group(length: int, requests: Sequence[Request]) -> dict[str, Any]:
    whole = [r for r in requests if r.ok]
    return {
        "target_prompt_tokens": length,
        "n": len(whole),
        "failed": len(requests) - len(whole),
        "prompt_tokens": _mean(r.prompt_tokens for r in whole),
        "output_tokens": _mean(r.output_tokens for r in whole),
        "cached_tokens": _mean(r.cached_tokens for r in whole),
        **_latencies(requests),
    }


def _prefix(requests: Sequence[Request]) -> dict[str, Any] | None:
    cold = {r.repeat: r for r in requests if not r.warm and r.ok}
    pairs = [(cold[r.repeat], r) for r in requests if r.warm and r.ok and r.repeat in cold]
    if not pairs:
        return None
    cold_s, warm_s = (_mean(r.ttft_s for r in side) for side in zip(*pairs, strict=True))
    cached = _mean(warm.cached_tokens for _, warm in pairs)
    prompt = _mean(warm.prompt_tokens for _, warm in pairs)
    assert cold_s is not None
    assert warm_s is not None
    if cached is None:
        told = "the server does not report cached tokens"
    else:
        told = f"{cached:,.0f} of {prompt or 0:,.0f} prompt tokens came from the prefix cache"
    return {
        "pairs": len(pairs),
        "prompt_tokens": prompt,
        "cold_ttft_s": cold_s,
        "warm_ttft_s": warm_s,
        "saved_s": cold_s - warm_s,
        "saved_share": 1 - warm_s / cold_s if cold_s else None,
        "cached_tokens": cached,
        "cold_cached_tokens": _mean(first.cached_tokens for first, _ in pairs),
        "sentence": f"Sent again with the same system prompt, TTFT went from {cold_s:.3g} s to {warm_s:.3g} s; {told}.",
    }


def _load(run: Run) -> dict[str, Any] | None:
    requests = [r for r in run.requests if r.experiment == "load"]
    if not requests:
        return None
    whole = [r for r in requests if r.ok and r.e2e_s is not None]
    window_s = max(r.started_s + (r.e2e_s or 0.0) for r in requests) - min(r.started_s for r in requests)
    closed = run.options.concurrency is not None

    def per_s(total: float) -> float | None:
        return total / window_s if window_s > 0 and whole else None

    return {
        "kind": "concurrency" if closed else "rate",
        "value": run.options.concurrency if closed else run.options.rate,
        "duration_s": window_s,
        "target_prompt_tokens": run.options.load_length,
        "n": len(whole),
        "failed": len(requests) - len(whole),
        "requests_per_s": per_s(len(whole)),
        "output_tokens_per_s": per_s(sum(r.output_tokens or 0 for r in whole)),
        "input_tokens_per_s": per_s(sum(r.prompt_tokens or 0 for r in whole)),
        "mean_in_flight": per_s(math.fsum(r.e2e_s or 0.0 for r in requests)),
        **_latencies(requests),
    }


def _errors(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Errors by kind: texts that differ only in their numbers are one kind, told by their first example."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for request in requests:
        if request.error is not None:
            kind = re.sub(r"\d[\d.]*", "#", request.error)
            counts[kind] += 1
            example.setdefault(kind, request.error)
    return [{"error": example[kind], "count": count} for kind, count in counts.most_common()]


def _notes(run: Run) -> list[str]:
    notes = ["Times are the client's: they hold the network, but neither connecting nor the wait for a free client."]
    whole = [r for r in run.requests if r.ok]
    if any(r.estimated for r in whole):
        notes.append(
            "The server sent no usage for some answers: their token counts are estimates from characters and events, and so is their TPOT."
        )
    if run.requests and not run.scale.measured:
        notes.append("The server counted no prompt tokens, so prompt lengths are about one token a word.")
    if any((r.thinking_tokens or 0) > 0 and r.ttft_s is not None and r.ttft_answer_s == r.ttft_s for r in whole):
        notes.append(
            "Thinking tokens were counted but not streamed: TTFT holds that work, and TPOT divides by the tokens that were streamed."
        )
    cached = [r for r in whole if r.experiment != "prefix" and (r.cached_tokens or 0) > 0]
    if cached:
        notes.append(f"{len(cached)} answers to new prompts still found cached tokens (a common prefix of the server's own).")
    if run.not_sent:
        notes.append(f"{run.not_sent} arrivals were not sent because too many requests were in flight.")
    if run.stopped:
        notes.append("The run was stopped early; it holds what had been measured by then.")
    return notes


def rows(run: Run, date: str | None = None) -> list[Row]:
    """Measured rows: one for each prompt length, for the cold and warm prefix, and for the load run."""
    date = date or datetime.now(UTC).date().isoformat()
    groups: dict[tuple[str, int, bool], list[Request]] = {}
    for request in run.requests:
        groups.setdefault((request.experiment, request.target_prompt_tokens, request.warm), []).append(request)
    return [_row(run, date, *key, requests) for key, requests in groups.items() if any(r.ok for r in requests)]


def _row(run: Run, date: str, experiment: str, length: int, warm: bool, requests: list[Request]) -> Row:
    whole = [r for r in requests if r.ok]
    load = _load(run) if experiment == "load" else None
    busy_s = math.fsum(r.e2e_s or 0.0 for r in whole)
    figures = _latencies(requests)
    part = {"lengths": "alone", "prefix": "prefix-warm" if warm else "prefix-cold", "load": "load"}[experiment]
    output_tokens = sum(r.output_tokens or 0 for r in whole)
    prompt_tokens = sum(r.prompt_tokens or 0 for r in whole)

    def ms(name: str, statistic: str) -> float | None:
        value = figures[name][statistic]
        return None if value is None else value / MS

    told = (
        f"n={len(whole)}, failed {len(requests) - len(whole)}, retries {sum(r.retries for r in requests)}; at the client, network included"
    )
    if any(r.estimated for r in whole):
        told += "; token counts estimated (no usage)"
    return row(
        id=f"measure-{date}-{_slug(run.endpoint.model)}-{part}-in{length}",
        source=f"planner measure, {run.endpoint.public_url}",
        date=date,
        model=run.endpoint.model,
        isl_mean=_mean(r.prompt_tokens for r in whole),
        isl_desc=f"random words, aimed at {length}",
        osl_mean=_mean(r.output_tokens for r in whole),
        osl_desc=f"at most {run.endpoint.max_tokens}",
        load_kind=load["kind"] if load else "concurrency",
        load_value=load["value"] if load else 1,
        prefix_cache_note="same system prompt sent shortly before" if warm else "prompts never sent before",
        out_tok_s_total=load["output_tokens_per_s"] if load else (output_tokens / busy_s if busy_s else None),
        in_tok_s_total=load["input_tokens_per_s"] if load else (prompt_tokens / busy_s if busy_s else None),
        req_s=load["requests_per_s"] if load else (len(whole) / busy_s if busy_s else None),
        ttft_mean_ms=ms("ttft_s", "mean"),
        ttft_p50_ms=ms("ttft_s", "p50"),
        ttft_p99_ms=ms("ttft_s", "p99"),
        tpot_mean_ms=ms("tpot_s", "mean"),
        tpot_p50_ms=ms("tpot_s", "p50"),
        tpot_p99_ms=ms("tpot_s", "p99"),
        e2e_mean_ms=ms("e2e_s", "mean"),
        e2e_p99_ms=ms("e2e_s", "p99"),
        cached_input_tokens=_mean(r.cached_tokens for r in whole),
        notes=told,
        tier="C",
        n_requests=len(requests),
        n_failed=len(requests) - len(whole),
        ttft_answer_mean_ms=ms("ttft_answer_s", "mean"),
        **{f"{name}_{p}_ms": ms(f"{name}_s", p) for name in ("ttft", "tpot") for p in ("p90", "p95")},
        **{f"e2e_{p}_ms": ms("e2e_s", p) for p in ("p50", "p90", "p95")},
    )


def _mean(values: Any) -> float | None:
    known = [float(v) for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")[:60]
