"""Measured rows: the columns of `measured.csv`, which `validate` and `compare` read, from runs and benchmark files alike."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from planner.files import columns_once
from planner.problems import InputError
from planner.scenario.base import LARGEST, SMALLEST

Row = dict[str, Any]
"""One operating point by the names of `COLUMNS`; unknown is None. Times in milliseconds, as the file has them."""

COLUMNS = (
    *(
        "id",
        "source",
        "date",
        "engine",
        "engine_version",
        "model",
        "gpu",
        "n_gpu",
        "tp",
        "pp",
        "dp",
        "ep",
        "weight_precision",
        "kv_precision",
    ),
    *("spec_decode", "isl_mean", "isl_desc", "osl_mean", "osl_desc", "load_kind", "load_value", "max_num_seqs", "max_batched_tokens"),
    *("prefix_cache_note", "out_tok_s_total", "in_tok_s_total", "req_s", "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms"),
    *("tpot_p99_ms", "e2e_mean_ms", "e2e_p99_ms", "notes", "tier", "disagg", "tpot_p50_ms", "cached_input_tokens", "length_half_width"),
    *("gpu_memory_utilization", "max_model_len"),
)
NUMBERS = frozenset(
    (
        *("n_gpu", "tp", "pp", "dp", "ep", "isl_mean", "osl_mean", "load_value", "max_num_seqs", "max_batched_tokens", "out_tok_s_total"),
        *("in_tok_s_total", "req_s", "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p50_ms", "tpot_p99_ms"),
        *("e2e_mean_ms", "e2e_p99_ms", "cached_input_tokens", "length_half_width", "gpu_memory_utilization", "max_model_len"),
    )
)
RESULTS = (
    "ttft_mean_ms",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p50_ms",
    "tpot_p99_ms",
    "e2e_mean_ms",
    "e2e_p99_ms",
    "out_tok_s_total",
    "req_s",
)
EXTRA = (
    *("ttft_p90_ms", "ttft_p95_ms", "ttft_answer_mean_ms", "tpot_p90_ms", "tpot_p95_ms", "e2e_p50_ms", "e2e_p90_ms", "e2e_p95_ms"),
    *("itl_mean_ms", "itl_p50_ms", "itl_p99_ms", "n_requests", "n_failed"),
)
"""Figures that rows may hold beside the columns: in JSON and in memory, not in the CSV."""
UNKNOWN_METHOD = "unknown"
"""`spec_decode` of a row that shows accepted drafts and does not say what drafted them."""
SPECULATION = re.compile(rf"(draft_model|eagle3|eagle|mtp|medusa|ngram|{UNKNOWN_METHOD})(?:-(\d{{1,2}}))?")
"""`spec_decode` of a row: method, and tokens drafted per step where that is known."""
LARGEST_ROWS = 100_000


def row(**known: Any) -> Row:
    """A row with the given columns and extra figures.

    Impossible numbers (NaN, infinite, negative, zero times and rates) become unknown, as does what is no text where text belongs.
    """
    unknown = set(known) - set(COLUMNS) - set(EXTRA)
    if unknown:
        raise KeyError(f"not a column of measured.csv: {sorted(unknown)}")
    filled: Row = dict.fromkeys(COLUMNS)
    for name, value in known.items():
        if name in EXTRA:
            if (extra := number(value)) is not None:
                filled[name] = extra
        else:
            filled[name] = number(value, positive=name in RESULTS) if name in NUMBERS else _text(value)
    return filled


def _text(value: Any) -> str | None:
    return value or None if isinstance(value, str) else None


def number(value: Any, positive: bool = False) -> float | None:
    """A non-negative number (above zero when `positive`) of a size that a scenario can have, or None."""
    if value is None or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if (SMALLEST if positive else 0) <= found <= LARGEST else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def has_results(found: Row) -> bool:
    """The row holds at least one measured figure."""
    return any(found.get(name) is not None for name in RESULTS)


def to_csv(rows: Iterable[Row]) -> str:
    """The rows as text in the columns of `measured.csv`; unknown cells are empty. Text that a spreadsheet would run is defused."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for found in rows:
        writer.writerow([_cell(found.get(name)) for name in COLUMNS])
    return out.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def from_csv(text: str, where: str = "the file") -> list[Row]:
    """Rows of a CSV with columns of `measured.csv`, in any order; columns it lacks are unknown.

    Raises InputError when the header holds no measured column, when a row has more cells than the header, or when nothing is measured.
    """
    reader = csv.reader(io.StringIO(text, newline=None))
    try:
        header = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
        if not set(header) & set(RESULTS):
            raise InputError(
                f"{where} has none of the measured columns ({', '.join(RESULTS[:4])}, …); give a CSV with the columns of measured.csv"
            )
        columns_once(header, where, COLUMNS)
        rows: list[Row] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(header):
                raise InputError(
                    f"{where}, line {reader.line_num}, has {len(cells)} cells where the header has {len(header)}; quote text with commas"
                )
            if len(rows) >= LARGEST_ROWS:
                raise InputError(f"{where} has more than {LARGEST_ROWS:,} rows; split it")
            said = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if name in COLUMNS}
            for name in NUMBERS & said.keys():
                if any(map(str.isdecimal, said[name])) and not _is_number(said[name]):
                    raise InputError(
                        f"{where}, line {reader.line_num}: {name} is {said[name][:40]!r}; write a number like 9.5 or leave it empty"
                    )
            rows.append(row(**said))
    except csv.Error as error:
        raise InputError(f"{where}, line {reader.line_num}, is not CSV: {error}") from error
    if not any(map(has_results, rows)):
        raise InputError(f"{where} holds no row with a measured figure; fill ttft_mean_ms, tpot_mean_ms, e2e_mean_ms or out_tok_s_total")
    return rows


def with_context(rows: Iterable[Row], context: Mapping[str, Any]) -> list[Row]:
    """The rows with what the user knows of the server (engine, gpu, tp, …) filled in where they do not say."""
    wrong = set(context) - set(COLUMNS)
    if wrong:
        raise InputError(f"{sorted(wrong)[0]!r} is not a column of measured.csv; the columns are {', '.join(COLUMNS)}")
    given = {name: number(value) if name in NUMBERS else value for name, value in context.items() if value is not None}
    return [found | {name: value for name, value in given.items() if found.get(name) is None} for found in rows]
