"""What weight precision costs in quality: published recoveries (score after over score before, percent) by model size."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOUR_BIT = ("int4", "mxfp4", "nvfp4")
SMALL_MODEL_PARAMS = 15_000_000_000
"""Below this, published 4-bit recoveries fall to 90-96 % on hard benchmarks; from 70B they stay at 97 % and more."""


@dataclass(frozen=True, slots=True)
class QualityRow:
    """One published comparison of a quantised model with its original."""

    model: str
    params: int
    precision: str
    method: str
    benchmark: str
    recovery_percent: float
    kind: str
    source: str
    date: str


@cache
def quality_rows() -> tuple[QualityRow, ...]:
    """All rows, as in the file."""
    with Path(__file__).with_name("quality.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            QualityRow(
                row["model"],
                int(row["params"]),
                row["precision"],
                row["method"],
                row["benchmark"],
                float(row["recovery_percent"]),
                row["kind"],
                row["source"],
                row["date"],
            )
            for row in csv.DictReader(file)
        )


def quality_note(precision: str, params: float) -> str:
    """One sentence on what storing the weights of a model of this size in this precision costs; empty for 16-bit."""
    if precision in ("auto", "bf16", "fp16", "fp32"):
        return ""
    if precision == "fp8":
        return "FP8 weights are published as effectively lossless at every size (Llama-3.1 8B to 405B, arXiv 2411.02355, 2024-11)."
    if precision == "int8":
        return "INT8 weights and activations lose 1 to 3 % on benchmarks when tuned well (Llama-3.1 8B to 405B, arXiv 2411.02355, 2024-11)."
    small = params < SMALL_MODEL_PARAMS
    lower, upper = (0, SMALL_MODEL_PARAMS) if small else (SMALL_MODEL_PARAMS, float("inf"))
    rows = [row for row in quality_rows() if lower <= row.params < upper and row.precision in FOUR_BIT]
    worst = min(rows, key=lambda row: row.recovery_percent)
    best = max(row.recovery_percent for row in rows)
    size = "models under 15B" if small else "models of 70B and more"
    return (
        f"4-bit weights keep {worst.recovery_percent:g} to {best:g} % of the benchmark scores of {size} "
        f"(worst: {worst.model}, {worst.benchmark}; {worst.source.partition(':')[0]}, {worst.date}); measure your own task."
    )
