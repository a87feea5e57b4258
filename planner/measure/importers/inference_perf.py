"""inference-perf: lifecycle metrics of a stage or of the whole run, and its per-request file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.measure.importers.fields import first, honest_tpot, join, latencies, take
from planner.measure.records import tpot
from planner.measure.rows import Row, number, row


def recognizes(data: Any) -> bool:
    """Successes with latencies beside a load summary."""
    return isinstance(data, Mapping) and isinstance(data.get("load_summary"), Mapping) and isinstance(data.get("successes"), Mapping)


def from_data(data: Mapping[str, Any], name: str) -> list[Row]:
    """One row of a stage or a summary."""
    good, load = data["successes"], data["load_summary"]

    def ms(metric: str, column: str) -> dict[str, float | None]:
        found = {statistic: number(take(good, "latency", metric, field)) for statistic, field in FIELDS}
        return {f"{column}_{statistic}_ms": None if value is None else value * 1e3 for statistic, value in found.items()}

    rate = number(take(load, "requested_rate"), positive=True)
    clients = number(first(take(load, "concurrency"), take(load, "concurrency_level"), take(load, "num_concurrent")), positive=True)
    failed = number(take(data, "failures", "count"))
    mean_out, median_out = number(take(good, "output_len", "mean")), number(take(good, "output_len", "median"))
    uneven = median_out is not None and mean_out is not None and abs(mean_out / median_out - 1) > 0.1 if median_out else False
    return [
        honest_tpot(
            row(
                id=name,
                source=f"inference-perf, {name}",
                isl_mean=first(take(good, "prompt_tokens", "mean"), take(good, "prompt_len", "mean")),
                osl_mean=first(take(good, "output_tokens", "mean"), mean_out),
                osl_desc="re-tokenised by the client",
                load_kind="rate" if rate else ("concurrency" if clients else None),
                load_value=rate or clients,
                out_tok_s_total=take(good, "throughput", "output_tokens_per_sec"),
                in_tok_s_total=take(good, "throughput", "input_tokens_per_sec"),
                req_s=take(good, "throughput", "requests_per_sec"),
                **ms("time_to_first_token", "ttft"),
                **ms("time_per_output_token", "tpot"),
                **ms("request_latency", "e2e"),
                n_requests=first(number(load.get("count")), number(good.get("count"))),
                n_failed=failed,
                notes=join(
                    f"{failed:.0f} requests failed" if failed else None,
                    "answers re-tokenised by the client vary in length, so a derived TPOT may be high" if uneven else None,
                    None if rate or clients else "load not stated in this file",
                ),
                tier="B",
            ),
            "inference-perf",
            # Its own figures count stream events, of which servers may send more than one a token.
            always_derive=True,
        )
    ]


FIELDS = (("mean", "mean"), ("p50", "median"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"))


def recognizes_records(records: Any) -> bool:
    """The per-request file: start and end with token counts."""
    return (
        isinstance(records, list)
        and bool(records)
        and all(isinstance(r, Mapping) and "start_time" in r and isinstance(r.get("info"), Mapping) for r in records[:20])
    )


def from_records(records: Sequence[Mapping[str, Any]], name: str) -> list[Row]:
    """One row of single requests; the file does not say how they were sent."""
    ttft_s: list[float] = []
    tpot_s: list[float] = []
    e2e_s: list[float] = []
    inputs: list[float] = []
    outputs: list[float] = []
    failed = 0
    for record in records:
        start_s, end_s, info = number(record.get("start_time")), number(record.get("end_time")), record["info"]
        if record.get("error") or start_s is None or end_s is None:
            failed += 1
            continue
        times = info.get("output_token_times") if isinstance(info.get("output_token_times"), list) else []
        first_s = number(times[0]) if times else None
        tokens = number(info.get("output_tokens"), positive=True)
        e2e_s.append(end_s - start_s)
        inputs.append(number(info.get("input_tokens")) or 0.0)
        outputs.append(tokens or 0.0)
        if first_s is not None:
            ttft_s.append(first_s - start_s)
            each_s = tpot(first_s, end_s, round(tokens) if tokens else None)
            tpot_s += [] if each_s is None else [each_s]
    return [
        row(
            id=name,
            source=f"inference-perf requests, {name}",
            isl_mean=sum(inputs) / len(inputs) if inputs else None,
            osl_mean=sum(outputs) / len(outputs) if outputs else None,
            **latencies(ttft_s, tpot_s, e2e_s),
            n_requests=len(records),
            n_failed=failed,
            notes=join("load not stated in the records", f"{failed} requests failed" if failed else None),
            tier="C",
        )
    ]
