"""aiperf and genai-perf: the aggregated JSON, its CSV, and aiperf's JSON lines of single requests."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.measure.importers.fields import date, find, first, honest_tpot, join, latencies, take
from planner.measure.records import tpot
from planner.measure.rows import Row, number, row

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
CSV_NAMES = {
    "time to first token": "time_to_first_token",
    "inter token latency": "inter_token_latency",
    "request latency": "request_latency",
    "output sequence length": "output_sequence_length",
    "input sequence length": "input_sequence_length",
    "output token throughput": "output_token_throughput",
    "request throughput": "request_throughput",
    "request count": "request_count",
    "error request count": "error_request_count",
}


def recognizes(data: Any) -> bool:
    """Aggregated metrics by name, each with its unit and average."""
    metrics = _metrics(data)
    return any(isinstance(take(metrics, name), Mapping) and "avg" in metrics[name] for name in ("request_latency", "time_to_first_token"))


def _metrics(data: Any) -> Any:
    """The metrics: at the top, or under `records` or `metrics` in older files."""
    for part in (data, take(data, "records"), take(data, "metrics")):
        if isinstance(part, Mapping) and isinstance(part.get("request_latency"), Mapping):
            return part
    return data


def from_data(data: Mapping[str, Any], name: str) -> list[Row]:
    """One row of the aggregated file."""
    metrics = _metrics(data)
    config = data.get("input_config") if isinstance(data.get("input_config"), Mapping) else {}
    kind, value = _load(data, config)
    failed = number(first(take(metrics, "error_request_count", "avg"), _errors(data)))
    count = number(take(metrics, "request_count", "avg"))
    tool = (
        f"aiperf {data.get('aiperf_version') or ''}".strip() if "aiperf_version" in data or "run_info" in data else "genai-perf or aiperf"
    )

    def ms(metric: str, column: str) -> dict[str, float | None]:
        scale = SECONDS.get(str(take(metrics, metric, "unit") or "ms").lower(), 1e-3) * 1e3
        found = {
            statistic: number(take(metrics, metric, field))
            for statistic, field in (("mean", "avg"), *((p, p) for p in ("p50", "p90", "p95", "p99")))
        }
        return {f"{column}_{statistic}_ms": None if v is None else v * scale for statistic, v in found.items()}

    return [
        honest_tpot(
            row(
                id=name,
                source=f"{tool}, {name}",
                date=date(data.get("start_time")),
                model=_model(config),
                isl_mean=take(metrics, "input_sequence_length", "avg"),
                osl_mean=take(metrics, "output_sequence_length", "avg"),
                load_kind=kind,
                load_value=value,
                out_tok_s_total=take(metrics, "output_token_throughput", "avg"),
                req_s=take(metrics, "request_throughput", "avg"),
                **ms("time_to_first_token", "ttft"),
                # Theirs is per request: (latency - TTFT) / (output tokens - 1).
                **ms("inter_token_latency", "tpot"),
                **ms("request_latency", "e2e"),
                n_requests=None if count is None else count + (failed or 0),
                n_failed=failed,
                notes=join(
                    f"{failed:.0f} requests failed" if failed else None, "cancelled before its end" if data.get("was_cancelled") else None
                ),
                tier="B",
            ),
            "aiperf",
        )
    ]


def _errors(data: Mapping[str, Any]) -> float | None:
    listed = data.get("error_summary")
    return sum(number(take(e, "count")) or 0 for e in listed) if isinstance(listed, list) else None


def _model(config: Any) -> str | None:
    for found in (
        take(config, "models", "items", 0, "name"),
        take(config, "endpoint", "model_names", 0),
        take(config, "model_names", 0),
        take(config, "model", 0) if isinstance(take(config, "model"), list) else take(config, "model"),
        take(config, "formatted_model_name"),
    ):
        if isinstance(found, str) and found:
            return found
    return None


def _load(data: Mapping[str, Any], config: Any) -> tuple[str | None, float | None]:
    phases = [p for p in take(config, "phases") or [] if isinstance(p, Mapping) and not p.get("exclude_from_results")]
    command = str(first(take(data, "run_info", "cli_command"), take(config, "cli_command"), ""))
    places = [*phases[-1:], take(config, "loadgen"), take(config, "perf_analyzer", "stimulus"), config]
    skip = ("warmup", "warmup_request_count", "server_metrics", "gpu_telemetry", "tokenizer", "endpoint")
    for place in places:
        if isinstance(place, Mapping):
            rate = find(place, ("request_rate", "rate"), skip)
            clients = find(place, ("concurrency",), skip)
            if rate is not None:
                return "rate", rate
            if clients is not None:
                return "concurrency", clients
    for kind, flag in (("rate", "request-rate"), ("concurrency", "concurrency")):
        if found := re.search(rf"--{flag}[ =]'?(\d+(?:\.\d+)?)", command):
            return kind, float(found[1])
    return None, None


def is_csv(text: str) -> bool:
    """The CSV export: a first column called Metric."""
    return bool(re.match(r"\s*\"?Metric\"?\s*,", text))


def from_csv(text: str, name: str) -> list[Row]:
    """One row of the CSV export, through the same names as the JSON."""
    data: dict[str, Any] = {}
    header: list[str] = []
    for cells in csv.reader(io.StringIO(text)):
        cells = [cell.strip() for cell in cells]
        if cells[:1] == ["Metric"]:
            header = [{"value": "avg"}.get(cell.lower(), cell.lower()) for cell in cells[1:]]
        elif len(cells) > 1 and header and len(cells[0]) < 200 and (found := re.fullmatch(r"(.+?)\s*\(([^)]*)\)|(.+)", cells[0])):
            label, unit = (found[1] or found[3]).lower(), (found[2] or "").lower()
            if label in CSV_NAMES:
                values = {h: c.replace(",", "") for h, c in zip(header, cells[1:], strict=False)}
                data[CSV_NAMES[label]] = values | {"unit": unit or "ms"}
    return from_data(data, name)


def is_console(text: str) -> bool:
    """The table that both tools print, drawn with box characters."""
    return re.search(r"[│┃|]\s*(Statistic|Metric)\s*[│┃|]\s*avg\b", text) is not None


def from_console(text: str, name: str) -> list[Row]:
    """One row of a printed table; labels that were broken over two lines are joined again."""
    lines: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"[│┃|]", line.strip())][1:-1]
        if len(cells) < 2:
            continue
        if lines and cells[0] and not any(cells[1:]):
            lines[-1][0] = f"{lines[-1][0]} {cells[0]}"
        else:
            lines.append(cells)
    out = io.StringIO()
    csv.writer(out).writerows([["Metric" if cells[0] in ("Statistic", "Metric") else cells[0], *cells[1:]] for cells in lines])
    return from_csv(out.getvalue(), name)


def recognizes_records(records: Any) -> bool:
    """aiperf's JSON lines: metadata and metrics of one request a line."""
    return (
        isinstance(records, list)
        and bool(records)
        and all(isinstance(r, Mapping) and "metadata" in r and ("metrics" in r or "error" in r) for r in records[:20])
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
        if record.get("error") or take(record, "metadata", "benchmark_phase") == "warmup":
            failed += bool(record.get("error"))
            continue
        first_s, whole_s, tokens = (
            _seconds(record, "time_to_first_token"),
            _seconds(record, "request_latency"),
            _value(record, "output_sequence_length"),
        )
        for values, value in ((ttft_s, first_s), (e2e_s, whole_s), (outputs, tokens), (inputs, _value(record, "input_sequence_length"))):
            if value is not None:
                values.append(value)
        each_s = tpot(first_s, whole_s, None if tokens is None else round(tokens))
        if each_s is not None:
            tpot_s.append(each_s)
    return [
        row(
            id=name,
            source=f"aiperf records, {name}",
            isl_mean=sum(inputs) / len(inputs) if inputs else None,
            osl_mean=sum(outputs) / len(outputs) if outputs else None,
            **latencies(ttft_s, tpot_s, e2e_s),
            n_requests=len(e2e_s) + failed,
            n_failed=failed,
            notes=join("load not stated in the records", f"{failed} requests failed" if failed else None),
            tier="C",
        )
    ]


def _value(record: Mapping[str, Any], metric: str) -> float | None:
    return number(take(record, "metrics", metric, "value"), positive=True)


def _seconds(record: Mapping[str, Any], metric: str) -> float | None:
    value = _value(record, metric)
    unit = str(take(record, "metrics", metric, "unit") or "ms").lower()
    return None if value is None else value * SECONDS.get(unit, 1e-3)
