"""llmperf: its summary, flat or nested, the short form of a known wrapper, and its file of single responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from planner.measure.importers.fields import first, honest_tpot, join, latencies, take
from planner.measure.records import tpot
from planner.measure.rows import Row, number, row


def recognizes(data: Any) -> bool:
    """The summary of `token_benchmark_ray.py`, or the short form."""
    return isinstance(data, Mapping) and (
        "results_ttft_s_mean" in data or isinstance(take(data, "results", "ttft_s"), Mapping) or _is_short(data)
    )


def _is_short(data: Mapping[str, Any]) -> bool:
    return "first-time-to-token_mean_in_ms" in data and "latency_ms_per_token" in data


def _short(data: Mapping[str, Any], name: str) -> Row:
    """philschmid/llmperf-bench (e099ae4, 2024-04) `main.py`: means of one run.

    Its time per token is the whole answer's over its tokens, and lengths are those asked for: TPOT and the whole time stay unknown.
    """
    own_ms = number(data.get("latency_ms_per_token"), positive=True)
    return row(
        id=name,
        source=f"llmperf-bench, {name}",
        isl_mean=data.get("input_token_length"),
        osl_mean=data.get("output_token_length"),
        isl_desc="as asked for",
        osl_desc="as asked for",
        load_kind="concurrency" if number(data.get("concurrency"), positive=True) else None,
        load_value=data.get("concurrency"),
        out_tok_s_total=data.get("throughput_token_per_s"),
        ttft_mean_ms=data.get("first-time-to-token_mean_in_ms"),
        notes=f"no TPOT: its own {own_ms:.4g} ms spreads the time to first token over all tokens" if own_ms else None,
        tier="C",
    )


def from_data(data: Mapping[str, Any], name: str) -> list[Row]:
    """One row. TPOT is derived: llmperf's inter-token latency spreads the time to first token over all tokens."""
    if _is_short(data):
        return [_short(data, name)]

    def figure(metric: str, *steps: str) -> float | None:
        flat = number(data.get("results_" + "_".join((metric, *steps)) if steps else f"results_{metric}"))
        return first(flat, number(take(data, "results", metric, *steps)))

    def ms(metric: str, column: str) -> dict[str, float | None]:
        found = {"mean": figure(metric, "mean")} | {p: figure(metric, "quantiles", p) for p in ("p50", "p90", "p95", "p99")}
        return {f"{column}_{statistic}_ms": None if value is None else value * 1e3 for statistic, value in found.items()}

    completed, failed = figure("num_completed_requests"), figure("number_errors")
    per_minute = figure("num_completed_requests_per_min")
    out_tok_s = figure("mean_output_throughput_token_per_s")
    mean_in = figure("number_input_tokens", "mean")
    stamp_s = number(data.get("timestamp"), positive=True)
    return [
        honest_tpot(
            row(
                id=name,
                source=f"llmperf, {name}",
                date=datetime.fromtimestamp(stamp_s, UTC).date().isoformat() if stamp_s and stamp_s < 1e11 else None,
                model=data.get("model"),
                isl_mean=mean_in,
                isl_desc="counted by the client's tokenizer",
                osl_mean=figure("number_output_tokens", "mean"),
                osl_desc="counted by the client's tokenizer",
                load_kind="concurrency" if number(data.get("num_concurrent_requests"), positive=True) else None,
                load_value=data.get("num_concurrent_requests"),
                out_tok_s_total=out_tok_s,
                req_s=per_minute / 60 if per_minute else None,
                in_tok_s_total=per_minute / 60 * mean_in if per_minute and mean_in else None,
                **ms("ttft_s", "ttft"),
                **ms("end_to_end_latency_s", "e2e"),
                tpot_mean_ms=_ms(figure("inter_token_latency_s", "mean")),
                n_requests=(completed or 0) + (failed or 0),
                n_failed=failed,
                notes=f"{failed:.0f} requests failed" if failed else None,
                tier="B",
            ),
            "llmperf",
            always_derive=True,
        )
    ]


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else value_s * 1e3


def recognizes_records(records: Any) -> bool:
    """The individual responses."""
    return (
        isinstance(records, list)
        and bool(records)
        and all(isinstance(r, Mapping) and "ttft_s" in r and "end_to_end_latency_s" in r for r in records[:20])
    )


def from_records(records: Sequence[Mapping[str, Any]], name: str) -> list[Row]:
    """One row of single responses; the file does not say how many ran at once."""
    whole = [r for r in records if r.get("error_code") is None and number(r.get("end_to_end_latency_s"), positive=True)]
    failed = len(records) - len(whole)
    inputs = [number(r.get("number_input_tokens")) or 0.0 for r in whole]
    outputs = [number(r.get("number_output_tokens")) or 0.0 for r in whole]
    ttft_s = [number(r.get("ttft_s")) or 0.0 for r in whole]
    e2e_s = [number(r.get("end_to_end_latency_s")) or 0.0 for r in whole]
    each_s = [tpot(a, b, round(n)) for a, b, n in zip(ttft_s, e2e_s, outputs, strict=True)]
    return [
        row(
            id=name,
            source=f"llmperf responses, {name}",
            isl_mean=sum(inputs) / len(inputs) if inputs else None,
            osl_mean=sum(outputs) / len(outputs) if outputs else None,
            **latencies(ttft_s, [v for v in each_s if v is not None], e2e_s),
            n_requests=len(records),
            n_failed=failed,
            notes=join("load not stated in the responses", f"{failed} requests failed" if failed else None),
            tier="C",
        )
    ]
