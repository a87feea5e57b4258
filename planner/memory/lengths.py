"""How long the planned sequences get."""

from __future__ import annotations

import math

from planner.architecture import Architecture
from planner.scenario import Scenario, mean_length


def final_length(scenario: Scenario) -> tuple[float, float]:
    """(mean input + mean output, shared prefix) of one sequence at its end, tokens."""
    w = scenario.workload
    inputs, output = mean_length(w.input_len), mean_length(w.output_len)
    if w.max_output_len:
        output = min(output, w.max_output_len)
    shares = w.prefix_groups and scenario.engine.enable_prefix_caching
    return inputs + output, min(w.shared_prefix_len, inputs) if shares else 0.0


def prefix_copies(scenario: Scenario) -> int:
    """Shared prefixes held at once: one per prefix group."""
    return scenario.workload.prefix_groups


def model_len(arch: Architecture, scenario: Scenario) -> int:
    """Longest sequence the engine accepts: the scenario's, else the model's, else the planned length."""
    length, _ = final_length(scenario)
    return scenario.engine.max_model_len or arch.max_position_embeddings or max(1, math.ceil(length))
