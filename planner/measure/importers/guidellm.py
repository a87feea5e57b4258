"""guidellm's `benchmarks.json`: one row for each benchmark of a report, versions 0.2 to 0.8."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from planner.measure.importers.fields import first, honest_tpot, join, ratio, take
from planner.measure.rows import Row, number, row


def recognizes(data: Any) -> bool:
    """A report: a list of benchmarks with metrics by status."""
    return (
        isinstance(data, Mapping)
        and isinstance(data.get("benchmarks"), list)
        and any(isinstance(take(b, "metrics"), Mapping) for b in data["benchmarks"])
    )


def from_data(data: Mapping[str, Any], name: str) -> list[Row]:
    """One row for each benchmark that completed a request."""
    rows = []
    for i, benchmark in enumerate(data["benchmarks"]):
        if isinstance(take(benchmark, "metrics"), Mapping):
            rows.append(_row(data, benchmark, f"{name}#{i + 1}" if len(data["benchmarks"]) > 1 else name))
    return rows


def _row(report: Mapping[str, Any], benchmark: Mapping[str, Any], name: str) -> Row:
    metrics = benchmark["metrics"]

    def figure(metric: str, *path: str) -> float | None:
        return number(take(metrics, metric, "successful", *path))

    def both(metric: str, column: str, scale: float = 1.0) -> dict[str, float | None]:
        found = {"mean": figure(metric, "mean"), "p50": first(figure(metric, "median"), figure(metric, "percentiles", "p50"))}
        found |= {p: figure(metric, "percentiles", p) for p in ("p90", "p95", "p99")}
        return {f"{column}_{statistic}_ms": None if value is None else value * scale for statistic, value in found.items()}

    kind, value = _load(benchmark)
    totals = first(
        take(metrics, "request_totals"),
        take(benchmark, "scheduler_metrics", "requests_made"),
        take(benchmark, "run_stats", "requests_made"),
    )
    failed = number(take(totals, "errored"))
    incomplete = number(take(totals, "incomplete"))
    started_s = number(
        first(
            take(benchmark, "scheduler_metrics", "start_time"), take(benchmark, "start_time"), take(benchmark, "run_stats", "start_time")
        ),
        positive=True,
    )
    return honest_tpot(
        row(
            id=name,
            source=f"guidellm {take(report, 'metadata', 'guidellm_version') or ''}".strip() + f", {name}",
            date=datetime.fromtimestamp(started_s, UTC).date().isoformat() if started_s and started_s < 1e11 else None,
            model=first(
                take(report, "args", "model"),
                take(report, "config", "model"),
                take(benchmark, "config", "backend", "model"),
                take(report, "config", "backend", "model"),
                take(benchmark, "worker", "backend_model"),
            ),
            isl_mean=figure("prompt_token_count", "mean"),
            osl_mean=figure("output_token_count", "mean"),
            load_kind=kind,
            load_value=value,
            out_tok_s_total=figure("output_tokens_per_second", "mean"),
            in_tok_s_total=_product(figure("requests_per_second", "mean"), figure("prompt_token_count", "mean")),
            req_s=figure("requests_per_second", "mean"),
            **both("time_to_first_token_ms", "ttft"),
            # guidellm's time_per_output_token spreads TTFT over the tokens too; its inter_token_latency is what we call TPOT.
            **both("inter_token_latency_ms", "tpot"),
            **both("request_latency", "e2e", 1e3),
            ttft_answer_mean_ms=figure("time_to_first_output_token_ms", "mean"),
            n_requests=(number(take(totals, "successful")) or 0) + (failed or 0),
            n_failed=failed,
            notes=join(
                f"{failed:.0f} requests failed" if failed else None, f"{incomplete:.0f} unfinished at the end" if incomplete else None
            ),
            tier="B",
        ),
        "guidellm",
    )


def _product(a: float | None, b: float | None) -> float | None:
    return a * b if a is not None and b is not None else None


def _load(benchmark: Mapping[str, Any]) -> tuple[str | None, float | None]:
    strategy = first(
        take(benchmark, "config", "strategy"),
        take(benchmark, "args", "strategy"),
        take(benchmark, "scheduler", "strategy"),
        take(benchmark, "strategy"),
        {},
    )
    kind = str(first(take(strategy, "type_"), take(strategy, "kind"), take(strategy, "type"), take(benchmark, "config", "kind"), ""))
    if kind in ("synchronous", "sync"):
        return "concurrency", 1.0
    if kind == "concurrent":
        return "concurrency", number(
            first(take(strategy, "streams"), take(strategy, "max_concurrency"), take(strategy, "rate")), positive=True
        )
    if kind in ("constant", "poisson", "async"):
        return "rate", number(take(strategy, "rate"), positive=True)
    if kind == "throughput":
        clients = number(take(strategy, "max_concurrency"), positive=True)
        return ("concurrency", clients) if clients else ("offline", None)
    busy = ratio(take(benchmark, "metrics", "request_concurrency", "successful", "mean"), 1)
    return ("concurrency", round(busy)) if busy and round(busy) else (None, None)
