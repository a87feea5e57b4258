"""A batch job with a deadline: how many GPUs, on what payment, and when it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.problems import InputError
from planner.units import HOUR_S, MTOK

Z_95 = 1.645
MOST_REPLICAS = 10**7
"""One-sided 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work to be done by a deadline; nobody waits for single answers."""

    documents: float
    input_tokens: float
    """Prompt of one document."""
    output_tokens: float
    window_s: float

    @property
    def input_tokens_per_s(self) -> float:
        """Prompt rate that ends on time."""
        return self.documents * self.input_tokens / self.window_s

    @property
    def output_tokens_per_s(self) -> float:
        """Output rate that ends on time."""
        return self.documents * self.output_tokens / self.window_s


@dataclass(frozen=True, slots=True)
class Finish:
    """A fleet size and how it ends."""

    replicas: int
    mean_s: float
    p95_s: float
    """Later than this in one run of twenty, from the number of interruptions alone."""
    usd: float
    on_time: bool
    """p95 within the window."""


def finish(
    job: Job,
    replicas: int,
    documents_per_s: float,
    usd_per_replica_hour: float,
    interruption_per_hour: float = 0.0,
    restart_s: float = 0.0,
    lost_work_s: float = 0.0,
) -> Finish:
    """When `replicas` that each do `documents_per_s` end the job, and what they cost.

    An interruption costs a replica its restart and the work in flight (`lost_work_s`, about half a document's latency).
    Interruptions are Poisson over replica-hours: their mean stretches the run, their spread its 95th percentile.
    """
    alone_s = job.documents / documents_per_s
    lost_s = restart_s + lost_work_s
    per_replica_s = alone_s / replicas
    # Each replica works a share 1 - interruptions per second × time lost by one of its paid time.
    available = 1 / (1 + interruption_per_hour * lost_s / HOUR_S)
    mean_s = restart_s + per_replica_s / available
    interruptions = interruption_per_hour * replicas * mean_s / HOUR_S
    spread_s = math.sqrt(interruptions) * lost_s / replicas
    p95_s = mean_s + Z_95 * spread_s
    usd = replicas * mean_s / HOUR_S * usd_per_replica_hour
    return Finish(replicas, mean_s, p95_s, usd, p95_s <= job.window_s)


def fewest_replicas(job: Job, documents_per_s: float, usd_per_replica_hour: float, **interruptions: float) -> Finish:
    """The smallest fleet that ends on time in 19 runs of 20."""
    least = job.documents / documents_per_s / job.window_s
    replicas = max(1, math.ceil(min(least, MOST_REPLICAS)))
    while not (ended := finish(job, replicas, documents_per_s, usd_per_replica_hour, **interruptions)).on_time:
        if replicas >= MOST_REPLICAS:
            raise InputError(
                f"hours: {job.window_s / HOUR_S:g} are too few even for {MOST_REPLICAS:,} replicas: starting and lost work alone take "
                "longer, or there are too many documents; give more hours"
            )
        replicas += max(1, replicas // 100)
    return ended


def curve(
    job: Job, sizes: Sequence[int], documents_per_s: float, usd_per_replica_hour: float, **interruptions: float
) -> tuple[Finish, ...]:
    """Finish time and bill at each fleet size."""
    return tuple(finish(job, size, documents_per_s, usd_per_replica_hour, **interruptions) for size in sizes)


def api_usd(job: Job, input_usd_per_mtok: float, output_usd_per_mtok: float) -> float:
    """The same job at a price per token; halve the rates for a batch interface that is sold at half price."""
    return job.documents * (job.input_tokens * input_usd_per_mtok + job.output_tokens * output_usd_per_mtok) / MTOK
