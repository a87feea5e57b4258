"""Measured operating points as rows of a CSV: what was run, at what load, and what came out."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from planner import files
from planner.catalog.residuals import METRICS, measured_figures
from planner.problems import InputError, one_line
from planner.scenario.base import LARGEST

MOST_ROWS = 100_000
MOST_BYTES = 64_000_000
__all__ = ["METRICS", "REQUIRED", "Row", "parse", "read"]

REQUIRED = ("id", "engine", "model", "gpu", "n_gpu", "load_kind")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operating point; None where the source does not say."""

    id: str
    source: str
    date: str
    engine: str
    engine_version: str
    model: str
    gpu: str
    n_gpu: int
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    weight_precision: str
    kv_precision: str
    spec_decode: str
    isl_mean: float | None
    isl_desc: str
    osl_mean: float | None
    load_kind: str
    load_value: float | None
    max_num_seqs: int | None
    max_batched_tokens: int | None
    prefix_cache_note: str
    notes: str
    tier: str
    disagg: bool
    cached_input_tokens: float | None
    length_half_width: float | None
    gpu_memory_utilization: float | None
    max_model_len: int | None
    measured: dict[str, float]
    """By metric: seconds, or output tokens per second of all GPUs."""


def read(path: str | Path) -> list[Row]:
    """All rows of a CSV with the columns of the measured table. Raises InputError naming the line that is wrong."""
    text = files.read_text(path, MOST_BYTES, "give a CSV of measured rows")
    return table(io.StringIO(text, newline=None), Path(path).name)


def table(lines: Iterable[str], name: str) -> list[Row]:
    """The same from lines of CSV text; `name` stands for the file in messages."""
    reader = csv.DictReader(lines)
    try:
        files.columns_once(reader.fieldnames or (), name, reader.fieldnames or ())
        missing = [column for column in REQUIRED if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{name} lacks the columns {', '.join(missing)}; see `planner validate --help` for the format")
        rows: list[Row] = []
        for record in reader:
            if len(rows) == MOST_ROWS:
                raise InputError(f"{name} has more than {MOST_ROWS:,} rows; split it")
            rows.append(parse(record, f"{name} line {reader.line_num}"))
        return rows
    except csv.Error as error:
        raise InputError(f"{name} is not readable as CSV at line {reader.line_num}: {error}") from error


def parse(record: dict[str, str], where: str) -> Row:
    """One record of the CSV as a row."""

    def text(name: str) -> str:
        return (record.get(name) or "").strip()

    def number(name: str) -> float | None:
        raw = text(name)
        if not raw or raw.lower() == "nan":
            return None
        try:
            value = float(raw)
        except ValueError:
            value = math.inf
        if not abs(value) <= LARGEST:
            raise InputError(f"{where}: {name} is {raw[:40]!r}; give a number or leave it empty")
        return value

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None or value < 1 else round(value)

    return Row(
        id=text("id"),
        source=text("source"),
        date=text("date"),
        engine=text("engine"),
        engine_version=text("engine_version"),
        model=text("model"),
        gpu=text("gpu"),
        n_gpu=whole("n_gpu") or 1,
        tp=whole("tp"),
        pp=whole("pp"),
        dp=whole("dp"),
        ep=whole("ep"),
        weight_precision=text("weight_precision").lower(),
        kv_precision=text("kv_precision").lower(),
        spec_decode=text("spec_decode").lower(),
        isl_mean=number("isl_mean"),
        isl_desc=text("isl_desc"),
        osl_mean=number("osl_mean"),
        load_kind=text("load_kind").lower(),
        load_value=number("load_value"),
        max_num_seqs=whole("max_num_seqs"),
        max_batched_tokens=whole("max_batched_tokens"),
        prefix_cache_note=text("prefix_cache_note"),
        notes=text("notes"),
        tier=text("tier"),
        disagg=text("disagg").lower() in ("true", "1", "yes"),
        cached_input_tokens=number("cached_input_tokens"),
        length_half_width=number("length_half_width"),
        gpu_memory_utilization=number("gpu_memory_utilization"),
        max_model_len=whole("max_model_len"),
        measured=_measured(record, where),
    )


def _measured(record: dict[str, str], where: str) -> dict[str, float]:
    try:
        return {metric: value for metric, value in measured_figures(record).items() if value > 0 and math.isfinite(value)}
    except ValueError as error:
        said = one_line(str(error).partition(": ")[2])[:60]
        raise InputError(f"{where}: the measured figure {said} is not a number; give a number or leave it empty") from None
