"""What the planner predicted for measured rows that may be shipped, beside what was measured. Made by `planner.validate.ship`."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RESIDUALS_FILE = Path(__file__).with_name("residuals.csv")
MEASURED_FILE = Path(__file__).with_name("measured.csv")
METRICS = ("tpot", "ttft", "ttft_p50", "e2e", "throughput")
LEVELS = ("calibrated", "datasheet")
CLASSES = ("model", "gpu", "family", "model_class", "engine", "regime", "precision")
COLUMNS = ("id", *CLASSES, *(f"{level}_{metric}" for level in LEVELS for metric in METRICS))

MEASURED = {
    "tpot": ("tpot_mean_ms", "tpot_p50_ms"),
    "ttft": ("ttft_mean_ms",),
    "ttft_p50": ("ttft_p50_ms",),
    "e2e": ("e2e_mean_ms",),
    "throughput": ("out_tok_s_total",),
}
"""Columns of the measured table behind each metric, the preferred one first; times in milliseconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """One measured row with predictions at two levels; seconds, or output tokens per second of all GPUs."""

    id: str
    source: str
    date: str
    tier: str
    model: str
    gpu: str
    family: str
    model_class: str
    engine: str
    regime: str
    precision: str
    gpus: int
    load: str
    concurrency: float
    """Clients of a closed loop; 0 for other loads."""
    measured: dict[str, float]
    predicted: dict[str, dict[str, float]]
    """By level, then by metric."""

    def log_error(self, metric: str, level: str = "calibrated") -> float | None:
        """log(measured / predicted); None without both."""
        measured, predicted = self.measured.get(metric), self.predicted[level].get(metric)
        return math.log(measured / predicted) if measured and predicted else None


@cache
def residuals() -> tuple[Residual, ...]:
    """Every shipped row that the planner predicts."""
    measured = {row["id"]: row for row in _records(MEASURED_FILE)}
    return tuple(_row(record, measured[record["id"]]) for record in _records(RESIDUALS_FILE))


@cache
def version() -> dict[str, str]:
    """What the predictions were made with: `kernels` (`kernels.fingerprint()`), `rows` (hash of the table), `made` (newest row)."""
    with RESIDUALS_FILE.open(encoding="utf-8") as file:
        words = file.readline().removeprefix("#").split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def measured_figures(record: Mapping[str, str]) -> dict[str, float]:
    """Metrics of a record of the measured table: seconds, or tokens per second."""
    found = {}
    for metric, columns in MEASURED.items():
        text = next((record[c] for c in columns if record.get(c)), "")
        if text:
            found[metric] = float(text) / (1.0 if metric == "throughput" else 1e3)
    return found


def _records(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _row(r: dict[str, str], measured: dict[str, str]) -> Residual:
    value = float(measured["load_value"] or 0)
    return Residual(
        **{name: r[name] for name in ("id", *CLASSES)},
        source=measured["source"],
        date=measured["date"],
        tier=measured["tier"],
        gpus=int(measured["n_gpu"]),
        load=f"{measured['load_kind']} {value:g}" if value else measured["load_kind"],
        concurrency=value if measured["load_kind"] == "concurrency" else 0.0,
        measured=measured_figures(measured),
        predicted={level: {m: float(v) for m in METRICS if (v := r[f"{level}_{m}"])} for level in LEVELS},
    )
