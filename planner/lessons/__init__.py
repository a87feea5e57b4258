"""Lessons: the five broken systems as ready comparisons, and two measurements to repeat."""

from planner.lessons.broken import (
    accept_every_draft,
    broken_systems,
    contiguous_reservation,
    small_model_in_four_bits,
    static_batching,
    unchunked_prefill,
)
from planner.lessons.lesson import Figure, Lesson
from planner.lessons.measurements import PROMPT_LENGTHS, Measured, by_prompt_length, repeated_prompt

__all__ = [
    "PROMPT_LENGTHS",
    "Figure",
    "Lesson",
    "Measured",
    "accept_every_draft",
    "broken_systems",
    "by_prompt_length",
    "contiguous_reservation",
    "repeated_prompt",
    "small_model_in_four_bits",
    "static_batching",
    "unchunked_prefill",
]
