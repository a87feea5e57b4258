"""Speculative decoding: acceptance to tokens per step, what must be verified and drafted, and the lossless rule itself."""

from planner.speculation.profile import (
    NO_SPECULATION,
    TEXTBOOK_DRAFT_COST,
    TEXTS,
    Profile,
    acceptance_length,
    closed_form_speedup,
    draw_decode_steps,
    geometric_rates,
    preset,
    preset_rates,
    problems,
    profile,
    unconditional,
)
from planner.speculation.rule import Decoded, decode, verify_draft

__all__ = [
    "NO_SPECULATION",
    "TEXTBOOK_DRAFT_COST",
    "TEXTS",
    "Decoded",
    "Profile",
    "acceptance_length",
    "closed_form_speedup",
    "decode",
    "draw_decode_steps",
    "geometric_rates",
    "preset",
    "preset_rates",
    "problems",
    "profile",
    "unconditional",
    "verify_draft",
]
