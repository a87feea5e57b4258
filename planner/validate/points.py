"""Predicted against measured, ready to draw: one point per shipped row and metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from planner.catalog.residuals import METRICS, residuals

SITES = {
    "NVIDIA/TensorRT-LLM@": "https://github.com/NVIDIA/TensorRT-LLM",
    "ai-dynamo/aiconfigurator@": "https://github.com/ai-dynamo/aiconfigurator",
    "mlcommons/inference_results_v5.1@": "https://github.com/mlcommons/inference_results_v5.1",
    "deepseek-ai/": "https://github.com/deepseek-ai",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One measured figure beside the planner's; seconds, or output tokens per second of all GPUs."""

    id: str
    metric: str
    measured: float
    predicted: float
    datasheet: float | None
    """What the datasheet level says for the same row."""
    error: float
    """predicted / measured − 1."""
    model: str
    gpu: str
    gpus: int
    family: str
    model_class: str
    engine: str
    regime: str
    precision: str
    load: str
    tier: str
    date: str
    source: str
    link: str
    """Where the source lives, or an empty string."""


@cache
def measured_points() -> tuple[Point, ...]:
    """Every shipped row that the planner predicts, one point per metric."""
    points = []
    for row in residuals():
        for metric in METRICS:
            log_error = row.log_error(metric)
            if log_error is None:
                continue
            points.append(
                Point(
                    id=row.id,
                    metric=metric,
                    measured=row.measured[metric],
                    predicted=row.predicted["calibrated"][metric],
                    datasheet=row.predicted["datasheet"].get(metric),
                    error=math.exp(-log_error) - 1,
                    model=row.model,
                    gpu=row.gpu,
                    gpus=row.gpus,
                    family=row.family,
                    model_class=row.model_class,
                    engine=row.engine,
                    regime=row.regime,
                    precision=row.precision,
                    load=row.load,
                    tier=row.tier,
                    date=row.date,
                    source=row.source,
                    link=link(row.source),
                )
            )
    return tuple(points)


def link(source: str) -> str:
    """Address of a source's file at its commit, where it names repository, commit and path; else of its repository."""
    for start, site in SITES.items():
        if source.startswith(start):
            commit, _, path = source.removeprefix(start).partition(":")
            path = path.split(" ")[0]
            return f"{site}/blob/{commit}/{path}" if path and commit else site
    return ""
