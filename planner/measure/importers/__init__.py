"""Results of other benchmark tools → measured rows.

`read(path)` and `from_text(text, name)` find out which tool wrote a file and return rows with the columns of
`measured.csv`. A file of no known tool, or a damaged one, raises InputError with one sentence.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner import files
from planner.measure import rows as measured
from planner.measure.importers import aiperf, guidellm, inference_perf, llmperf, serve
from planner.measure.rows import Row, has_results, row
from planner.problems import InputError

LARGEST_FILE_BYTES = 256 * 10**6
TOOLS = (
    "vllm bench serve, sglang.bench_serving, guidellm, "
    "aiperf, genai-perf, inference-perf, llmperf or planner measure, or a CSV like measured.csv"
)
SINGLE = (
    ("vllm bench serve or sglang.bench_serving", serve),
    ("guidellm", guidellm),
    ("inference-perf", inference_perf),
    ("llmperf", llmperf),
    ("aiperf or genai-perf", aiperf),
)
"""Tools whose file is one JSON object (or several, as a list or as lines)."""
RECORDS = (("aiperf", aiperf), ("inference-perf", inference_perf), ("llmperf", llmperf))
"""Tools that also write one object for each request."""
OTHERS = (
    ({"avg_latency", "percentiles"}, "vllm bench latency"),
    ({"elapsed_time", "tokens_per_second"}, "vllm bench throughput"),
)
"""Results of relatives that hold neither TTFT nor TPOT, by their fields."""
WRAPPED = 3
"""Levels of another program's file in which a tool's results are looked for."""
METRICS_LINE = re.compile(r"^[ \t]*(# (HELP|TYPE) |(vllm|sglang)[:_]\w+(\{| ))", re.MULTILINE)
DAMAGE = (AttributeError, csv.Error, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError)


def read(path: Path) -> list[Row]:
    """The rows of a result file, of any supported tool."""
    return from_text(text_of(path), path.name)


def is_metrics(path: Path) -> bool:
    """The file is Prometheus text rather than a benchmark result."""
    return is_metrics_text(text_of(path))


def is_metrics_text(text: str) -> bool:
    """Prometheus text, or lines of it, rather than a benchmark result."""
    head = text[:200_000]
    return head.lstrip()[:1] not in ("{", "[") and METRICS_LINE.search(head) is not None


def text_of(path: Path) -> str:
    """The text of a file, refused with one sentence when missing, too large or not text."""
    return files.read_text(path, LARGEST_FILE_BYTES, f"give the result of {TOOLS}")


def from_text(text: str, name: str) -> list[Row]:
    """The rows of a result given as text; `name` appears in messages and as the rows' source."""
    if len(text) > LARGEST_FILE_BYTES:
        raise InputError(f"{name} has {len(text):,} characters; the limit is {LARGEST_FILE_BYTES:,}; import its summary instead")
    if not text.strip():
        raise InputError(f"{name} is empty; give the result file of {TOOLS}")
    tool, found = _rows(text, name)
    kept = [r for r in found if has_results(r)]
    if not kept:
        failed = sum(int(r.get("n_failed") or 0) for r in found)
        why = f"all {failed} requests failed" if failed else "it holds no completed request"
        raise InputError(f"{name} is a result of {tool}, but nothing was measured: {why}")
    return kept


def _rows(text: str, name: str) -> tuple[str, list[Row]]:
    """The tool and its rows, with or without results in them."""
    if text.lstrip()[:1] in ("{", "["):
        return _json_rows(_parse(text, name), name)
    if serve.is_console(text):
        return _guard("vllm bench serve or sglang.bench_serving", name, lambda: serve.from_console(text, name))
    if aiperf.is_console(text):
        return _guard("aiperf or genai-perf", name, lambda: aiperf.from_console(text, name))
    if aiperf.is_csv(text):
        return _guard("aiperf or genai-perf", name, lambda: aiperf.from_csv(text, name))
    head = text.lstrip().splitlines()[0]
    if "," in head and set(head.replace('"', "").split(",")) & set(measured.RESULTS):
        return "planner measure", measured.from_csv(text, name)
    raise InputError(f"{name} is no benchmark result known here; give the result file of {TOOLS}")


def _parse(text: str, name: str) -> Any:
    """JSON, or several JSON values one after the other (lines, or appended results)."""
    decoder = json.JSONDecoder()
    values, position = [], 0
    try:
        while position < len(text):
            value, position = decoder.raw_decode(text, position)
            values.append(value)
            while position < len(text) and text[position] in " \t\r\n,":
                position += 1
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name} is damaged: JSON breaks at line {error.lineno}, column {error.colno} ({error.msg}); export the result again"
        ) from None
    except ValueError as error:
        raise InputError(f"{name} is damaged: {_line(str(error))[:80]}; export the result again") from None
    except RecursionError:
        raise InputError(f"{name} is nested too deeply to be a benchmark result; give the result file of {TOOLS}") from None
    return values[0] if len(values) == 1 else values


def _json_rows(data: Any, name: str) -> tuple[str, list[Row]]:
    if isinstance(data, Mapping) and data.get("schema") == "planner-measure/1":
        return _guard("planner measure", name, lambda: [_own(r) for r in data["rows"]])
    if isinstance(data, Mapping) and isinstance(data.get("rows"), list) and data["rows"] and all(_is_row(r) for r in data["rows"]):
        data = data["rows"]
    if isinstance(data, list):
        for tool, module in RECORDS:
            if module.recognizes_records(data):
                return _guard(tool, name, lambda m=module: m.from_records(data, name))  # type: ignore[misc]
        if data and all(_is_row(item) for item in data):
            return _guard("planner measure", name, lambda: [_own(r) for r in data])
    items = data if isinstance(data, list) else [data]
    for tool, module in SINGLE:
        if items and all(module.recognizes(item) for item in items[: measured.LARGEST_ROWS]):
            return _guard(tool, name, lambda m=module: _each(m, items, name))  # type: ignore[misc]
    for tool, module in SINGLE:
        if wrapped := _wrapped(data, name, module):
            return _guard(tool, name, lambda m=module, w=wrapped: [r for key, item in w for r in m.from_data(item, key)])  # type: ignore[misc]
    raise InputError(
        f"{name} is JSON, but no benchmark result known here{_hint(items[0] if items else None)}; give the result file of {TOOLS}"
    )


def _wrapped(data: Any, name: str, module: Any, depth: int = WRAPPED) -> list[tuple[str, Any]]:
    """The tool's results inside a file of another program's making, such as runs keyed by their number of clients, with a name each."""
    if depth == 0 or not isinstance(data, (Mapping, list)):
        return []
    inside = data.items() if isinstance(data, Mapping) else enumerate(data, 1)
    found: list[tuple[str, Any]] = []
    for key, item in inside:
        own = f"{name}#{_line(str(key))[:40]}"
        found += [(own, item)] if module.recognizes(item) else _wrapped(item, own, module, depth - 1)
        if len(found) > measured.LARGEST_ROWS:
            raise InputError(f"{name} holds more than {measured.LARGEST_ROWS:,} results; split it")
    return found


def _each(module: Any, items: list[Any], name: str) -> list[Row]:
    return [r for i, item in enumerate(items) for r in module.from_data(item, f"{name}#{i + 1}" if len(items) > 1 else name)]


def _guard(tool: str, name: str, work: Any) -> tuple[str, list[Row]]:
    """Run an importer; whatever a damaged file makes of it is one sentence."""
    try:
        return tool, work()
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(
            f"{name} looks like a result of {tool}, but is damaged ({type(error).__name__}: {_line(str(error))[:80]}); export it again"
        ) from None


def _is_row(item: Any) -> bool:
    return isinstance(item, Mapping) and "id" in item and bool(set(item) & set(measured.RESULTS))


def _own(item: Mapping[str, Any]) -> Row:
    known = set(measured.COLUMNS) | set(measured.EXTRA)
    return row(**{k: v for k, v in item.items() if k in known})


def _hint(item: Any) -> str:
    for fields, tool in OTHERS:
        if isinstance(item, Mapping) and fields <= set(item):
            return f" (it is of {tool}, which times no streams)"
    if isinstance(item, Mapping) and item:
        return f" (its fields are {_line(', '.join(sorted(map(str, item))[:5]))[:100]}…)"
    return ""


def _line(text: str) -> str:
    """Text from a file as one printable line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
