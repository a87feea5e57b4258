"""`vllm bench serve` and `sglang.bench_serving`: one JSON object a run, and the table that both print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.measure.importers.fields import date, first, half_width, honest_tpot, join, latencies, ratio, take
from planner.measure.rows import SPECULATION, UNKNOWN_METHOD, Row, number, row

HEADING = re.compile(r"^.{0,80}Serving Benchmark Result.{0,80}$", re.IGNORECASE | re.MULTILINE)
CLOSING = re.compile(r"^[# ]{0,8}=+ *$", re.MULTILINE)
LABELS = {
    "backend": "backend",
    "traffic request rate": "request_rate",
    "request rate configured (rps)": "request_rate",
    "max request concurrency": "max_concurrency",
    "maximum request concurrency": "max_concurrency",
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "input token throughput (tok/s)": "input_throughput",
    "accept length": "accept_length",
    "acceptance length": "spec_decode_acceptance_length",
}
METRICS = {
    "ttft": "ttft",
    "tpot": "tpot",
    "itl": "itl",
    "e2el": "e2el",
    "e2e latency": "e2el",
}


def recognizes(data: Any) -> bool:
    """A result of either tool: throughput beside latencies in ms, by their names."""
    return (
        isinstance(data, Mapping)
        and "completed" in data
        and any(re.fullmatch(r"(mean|median)_(ttft|tpot|itl|e2el|e2e_latency)_ms", str(k)) for k in data)
    )


def is_sglang(data: Mapping[str, Any]) -> bool:
    """SGLang's names beside the shared ones."""
    return any(k in data for k in ("total_output_tokens_retokenized", "mean_e2e_latency_ms", "median_e2e_latency_ms")) or "sglang" in str(
        data.get("backend")
    )


def from_data(data: Mapping[str, Any], name: str) -> list[Row]:
    """One row of one run."""
    sglang = is_sglang(data)
    completed = number(data.get("completed"), positive=True)
    server = data.get("server_info") if isinstance(data.get("server_info"), Mapping) else {}
    kind, value, load_note = _load(data)
    detail = _detail(data)
    failed = first(number(data.get("failed")), _missing(data.get("num_prompts"), completed))
    backend = str(data.get("backend") or data.get("endpoint_type") or "")
    engine = "SGLang" if sglang and "vllm" not in backend else {"vllm": "vLLM", "tensorrt-llm": "TensorRT-LLM"}.get(backend)

    def ms(metric: str, statistic: str) -> float | None:
        names = [f"{statistic}_{metric}_ms"] + ([f"{statistic}_e2e_latency_ms"] if metric == "e2el" else [])
        return first(*(number(data.get(n), positive=True) for n in names))

    def percentile(metric: str, percent: int) -> float | None:
        return ms(metric, f"p{percent}") if percent != 50 else first(ms(metric, "median"), ms(metric, "p50"))

    found = row(
        id=name,
        source=f"{'sglang.bench_serving' if sglang else 'vllm bench serve'}, {name}",
        date=date(data.get("date")),
        engine=engine,
        engine_version=take(server, "version"),
        model=first(data.get("model_id"), data.get("model"), take(server, "model_path"), take(server, "served_model_name")),
        tp=first(data.get("tensor_parallel_size"), take(server, "tp_size")),
        dp=take(server, "dp_size"),
        max_num_seqs=take(server, "max_running_requests"),
        isl_mean=ratio(data.get("total_input_tokens"), completed),
        isl_desc=f"{data['dataset_name']} data set" if data.get("dataset_name") else None,
        osl_mean=ratio(data.get("total_output_tokens"), completed),
        spec_decode=_drafting(data),
        load_kind=kind,
        load_value=value,
        out_tok_s_total=data.get("output_throughput"),
        in_tok_s_total=first(data.get("input_throughput"), ratio(data.get("total_input_tokens"), data.get("duration"))),
        req_s=first(data.get("request_throughput"), ratio(completed, data.get("duration"))),
        **{f"{n}_mean_ms": ms(m, "mean") for n, m in (("ttft", "ttft"), ("tpot", "tpot"), ("e2e", "e2el"), ("itl", "itl"))},
        **{f"{n}_p{p}_ms": percentile(m, p) for n, m in (("ttft", "ttft"), ("tpot", "tpot")) for p in (50, 90, 95, 99)},
        **{f"e2e_p{p}_ms": percentile("e2el", p) for p in (50, 90, 95, 99)},
        **{f"itl_p{p}_ms": percentile("itl", p) for p in (50, 99)},
        n_requests=(completed or 0) + (failed or 0),
        n_failed=failed,
        notes=join(load_note, f"{failed:.0f} requests failed" if failed else None, _speculation(data)),
        tier="B",
    )
    found = {k: first(v, detail.get(k)) for k, v in (dict.fromkeys(detail) | found).items()}
    return [honest_tpot(found, "SGLang" if sglang else "vLLM")]


def _missing(asked: Any, completed: float | None) -> float | None:
    count = number(asked)
    return count - completed if count is not None and completed is not None and count > completed else None


def _load(data: Mapping[str, Any]) -> tuple[str, float | None, str | None]:
    """Load kind, its value, and what the pair does not say."""
    rate, clients = number(data.get("request_rate"), positive=True), number(data.get("max_concurrency"), positive=True)
    if rate is not None:
        return "rate", rate, f"at most {clients:.0f} in flight" if clients else None
    return ("concurrency", clients, None) if clients else ("offline", None, None)


def _detail(data: Mapping[str, Any]) -> dict[str, Any]:
    """Figures from the per-request lists of a detailed result, where it has them."""
    ttfts, gaps, outputs = data.get("ttfts"), data.get("itls"), data.get("output_lens")
    if not (
        isinstance(ttfts, list)
        and isinstance(gaps, list)
        and isinstance(outputs, list)
        and len(ttfts) == len(gaps) == len(outputs)
        and ttfts
    ):
        return {}
    told = data.get("errors")
    errors: list[Any] = told if isinstance(told, list) and len(told) == len(ttfts) else [""] * len(ttfts)
    whole = [(t, sum(g), n) for t, g, n, e in zip(ttfts, gaps, outputs, errors, strict=True) if not e and t and n]
    inputs = data.get("input_lens")
    widths = [half_width(lengths) for lengths in (inputs, outputs) if isinstance(lengths, list)]
    return latencies([t for t, _, _ in whole], [s / (n - 1) for _, s, n in whole if n > 1], [t + s for t, s, _ in whole]) | {
        "length_half_width": max((w for w in widths if w is not None), default=None),
    }


def _acceptance(data: Mapping[str, Any]) -> tuple[list[float], float | None]:
    """Rates by position where they are given, and tokens per step. SGLang states a length of 1 where it drafts nothing."""
    listed = data.get("spec_decode_per_position_acceptance_rates")
    rates = [r for r in map(number, listed[:16]) if r is not None] if isinstance(listed, list) else []
    length = number(
        first(data.get("spec_decode_acceptance_length"), data.get("accept_length"), take(data, "server_info", "avg_spec_accept_length"))
    )
    return rates, length if length is not None and length > 1 else None


def _drafting(data: Mapping[str, Any]) -> str | None:
    """What drafted: the server's own word where the file holds it, else unknown; None where nothing shows that drafts were accepted."""
    rates, length = _acceptance(data)
    server = data.get("server_info")
    algorithm = str(take(server, "speculative_algorithm") or "").lower()
    drafts = len(rates) or round(number(take(server, "speculative_num_steps")) or 0)
    if not rates and length is None and algorithm in ("", "none"):
        return None
    method = {"nextn": "mtp", "standalone": "draft_model"}.get(algorithm, algorithm)
    method = method if SPECULATION.fullmatch(method) else UNKNOWN_METHOD
    return f"{method}-{drafts}" if drafts else method


def _speculation(data: Mapping[str, Any]) -> str | None:
    rates, length = _acceptance(data)
    if rates:
        return "acceptance by position " + ", ".join(f"{r:.3f}" for r in rates)
    return f"acceptance length {length:.2f}" if length else None


def is_console(text: str) -> bool:
    """The printed table of either tool."""
    return HEADING.search(text) is not None


def from_console(text: str, name: str) -> list[Row]:
    """One row for each printed table."""
    rows: list[Row] = []
    before, *tables = HEADING.split(text)
    for i, part in enumerate(tables):
        # A line of "=" closes the table; what follows belongs to the next run, of which vLLM prints the load beforehand.
        table, _, after = CLOSING.sub("\0", part).partition("\0")
        told = _lines(before.splitlines()[-60:])
        load = {k: told[k] for k in ("request_rate", "max_concurrency") if k in told}
        rows += from_data({"completed": 0} | load | _lines(table.splitlines()), f"{name}#{i + 1}" if len(tables) > 1 else name)
        before = after
    return rows


def _lines(lines: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for line in lines:
        label, colon, value = line.strip(" #").partition(":")
        label, value = label.strip().lower(), value.strip()
        if not colon or not value:
            continue
        if label in LABELS:
            data[LABELS[label]] = value
        elif found := re.fullmatch(r"(mean|median|std|p\d+) (ttft|tpot|itl|e2el|e2e latency) \(ms\)", label):
            data[f"{found[1]}_{METRICS[found[2]]}_ms"] = value
    return data
