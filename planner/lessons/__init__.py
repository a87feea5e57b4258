"""Lessons: the five broken systems as ready comparisons, two measurements to repeat, and drills for a fleet."""

from planner.lessons.broken import (
    accept_every_draft,
    broken_systems,
    contiguous_reservation,
    small_model_in_four_bits,
    static_batching,
    unchunked_prefill,
)
from planner.lessons.drills import (
    Drill,
    Phase,
    arrivals_s,
    autoscaled,
    fixed_on_demand,
    replica_loss,
    spot_interruptions,
    undisturbed,
)
from planner.lessons.lesson import Figure, Lesson
from planner.lessons.measurements import PROMPT_LENGTHS, Measured, by_prompt_length, repeated_prompt

__all__ = [
    "PROMPT_LENGTHS",
    "Drill",
    "Figure",
    "Lesson",
    "Measured",
    "Phase",
    "accept_every_draft",
    "arrivals_s",
    "autoscaled",
    "broken_systems",
    "by_prompt_length",
    "contiguous_reservation",
    "fixed_on_demand",
    "repeated_prompt",
    "replica_loss",
    "small_model_in_four_bits",
    "spot_interruptions",
    "static_batching",
    "unchunked_prefill",
    "undisturbed",
]
