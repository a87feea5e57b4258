"""Bytes that one stored weight takes under a precision: what a quantiser shrinks, what stays 16-bit."""

from __future__ import annotations

from planner.architecture.model import Architecture, Tensor

WEIGHT_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128 + 0.5 / 128,  # group of 128: one 16-bit scale and one 4-bit zero point
    "mxfp4": 0.5 + 1 / 32,  # block of 32: one 8-bit scale
    "nvfp4": 0.5 + 1 / 16,  # block of 16: one 8-bit scale
}
"""Bytes of one element of a converted matrix, its scales included."""

TEXTBOOK_BYTES = {**WEIGHT_BYTES, "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5}
"""The same without scales, as hand arithmetic counts."""


def weight_bits(precision: str) -> str:
    """The precision that linear layers really have: `auto` resolved."""
    return precision


def stored_as(arch: Architecture, tensor: Tensor, precision: str) -> tuple[str, float]:
    """(precision, bytes per element) of one tensor when the scenario asks for `precision` weights.

    Only linear layers shrink: embeddings, head, router, norms, biases and towers stay 16-bit (32-bit when all is fp32).
    """
    plain = "fp32" if precision == "fp32" else "bf16"
    if precision == "auto":
        precision = arch.quantization.weights if arch.quantization else "bf16"
    if not tensor.linear or tensor.role in ("lm_head", "embedding", "tower", "norm", "router"):
        return plain, WEIGHT_BYTES[plain]
    return precision, WEIGHT_BYTES[precision]
