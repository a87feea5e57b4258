"""Layouts that an engine refuses, and why."""

from __future__ import annotations

from planner.architecture import Architecture
from planner.problems import Problem
from planner.scenario import Hardware, Parallel, Precision

MAX_TP = 1024


def problems(arch: Architecture, parallel: Parallel, precision: Precision, hardware: Hardware) -> tuple[Problem, ...]:
    """Every reason why this layout is refused, each with the legal values; empty when it is legal."""
    found = []
    tp = parallel.tensor_parallel_size
    if arch.heads and arch.heads % tp:
        legal = [n for n in range(1, arch.heads + 1) if arch.heads % n == 0]
        found.append(
            Problem(
                "illegal_parallelism",
                "error",
                "parallel.tensor_parallel_size",
                f"{arch.heads} attention heads cannot be divided by tensor_parallel_size {tp}",
                f"use one of {', '.join(map(str, legal))}",
            )
        )
    if parallel.pipeline_parallel_size > arch.num_hidden_layers:
        found.append(
            Problem(
                "illegal_parallelism",
                "error",
                "parallel.pipeline_parallel_size",
                f"{arch.num_hidden_layers} layers cannot fill {parallel.pipeline_parallel_size} pipeline stages",
                f"use at most {arch.num_hidden_layers}",
            )
        )
    return tuple(found)
