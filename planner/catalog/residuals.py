"""What the planner predicted for measured rows that may be shipped, beside what was measured. Made by `planner.validate.ship`."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RESIDUALS_FILE = Path(__file__).with_name("residuals.csv")
METRICS = ("tpot", "ttft", "ttft_p50", "e2e", "throughput")
LEVELS = ("calibrated", "datasheet")


@dataclass(frozen=True, slots=True)
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


TEXT = ("id", "source", "date", "tier", "model", "gpu", "family", "model_class", "engine", "regime", "precision", "load")
COLUMNS = (*TEXT, "gpus", "concurrency", *(f"{kind}_{metric}" for kind in ("measured", *LEVELS) for metric in METRICS))


@cache
def residuals() -> tuple[Residual, ...]:
    """Every shipped row."""
    with RESIDUALS_FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_row(r) for r in csv.DictReader(line for line in file if not line.startswith("#")))


@cache
def version() -> dict[str, str]:
    """What the predictions were made with: `kernels` (hash of the constants), `rows`, `made`."""
    with RESIDUALS_FILE.open(encoding="utf-8") as file:
        words = file.readline().removeprefix("#").split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def _row(r: dict[str, str]) -> Residual:
    def figures(kind: str) -> dict[str, float]:
        return {m: float(v) for m in METRICS if (v := r[f"{kind}_{m}"])}

    return Residual(
        **{name: r[name] for name in TEXT},
        gpus=int(r["gpus"]),
        concurrency=float(r["concurrency"] or 0),
        measured=figures("measured"),
        predicted={level: figures(level) for level in LEVELS},
    )
