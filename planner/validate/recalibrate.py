"""One documented factor per (GPU, engine) from rows of the user's own: measured step time over predicted step time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from planner.scenario import Calibration
from planner.validate.report import Scored

FACTOR_LIMITS = (0.06, 19.0)
"""Beyond these a factor repairs a wrong scenario, not a step time."""


def recalibrate(rows: Iterable[Scored], source: str = "measured rows") -> tuple[Calibration, ...]:
    """Factors for `scenario.calibration`, one per (engine, GPU), the median of the rows' own ratios.

    A row speaks through its time per token; one without speaks through its throughput, which moves the other way. Rows must have
    been scored at the calibrated level without a calibration in force.
    """
    ratios: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if (ratio := step_ratio(row)) is not None:
            ratios[row.engine, row.gpu].append(ratio)
    low, high = FACTOR_LIMITS

    def factor(found: list[float]) -> float:
        return min(high, max(low, math.exp(median(map(math.log, found)))))

    return tuple(
        Calibration(engine=engine, gpu=gpu, factor=factor(found), n_points=len(found), source=source[:200])
        for (engine, gpu), found in sorted(ratios.items())
    )


def step_ratio(row: Scored) -> float | None:
    """Measured step time over predicted, as far as the row tells; None when it holds neither metric."""
    if "tpot" in row.error:
        return 1 / (1 + row.error["tpot"])
    if "throughput" in row.error:
        return 1 + row.error["throughput"]
    return None
