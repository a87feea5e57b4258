"""How long the planned sequences get."""

from __future__ import annotations

import math

from planner import traffic
from planner.architecture import Architecture
from planner.scenario import Scenario


def final_length(scenario: Scenario) -> tuple[float, float]:
    """(mean input + mean output, shared prefix) of one sequence at its end, tokens."""
    means = traffic.of(scenario.workload)
    return means.final_tokens, means.shared_tokens if scenario.engine.enable_prefix_caching else 0.0


def prefix_copies(scenario: Scenario) -> int:
    """Shared prefixes held at once: one per prefix group."""
    return scenario.workload.prefix_groups


def model_len(arch: Architecture, scenario: Scenario) -> int:
    """Longest sequence the engine accepts: the scenario's, else the model's, else the planned length."""
    length, _ = final_length(scenario)
    return scenario.engine.max_model_len or arch.max_position_embeddings or math.ceil(length)
