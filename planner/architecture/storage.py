"""Bytes that one stored weight takes under a precision: what a quantiser shrinks, what stays 16-bit."""

from __future__ import annotations

from planner.architecture.model import Architecture, Tensor
from planner.architecture.quantization import SIZES

WEIGHT_BYTES = SIZES
"""Bytes of one element of a converted matrix, its scales included."""
TEXTBOOK_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "mxfp4": 0.5, "nvfp4": 0.5}
"""Bytes of one weight without scales, as hand arithmetic counts."""


def weight_precision(arch: Architecture, precision: str) -> str:
    """The precision most linear layers have: `auto` is the checkpoint's own."""
    if precision == "auto":
        return arch.quantization.weights if arch.quantization else "bf16"
    return precision


def stored_as(arch: Architecture, tensor: Tensor, precision: str) -> tuple[str, float]:
    """(precision, bytes per element) of one tensor when the scenario asks for `precision` weights.

    The checkpoint's own scheme holds when it is asked for (`auto`, or its precision by name); any other choice shrinks
    every linear layer. Embeddings, head, router, norms, biases and towers stay 16-bit (32-bit when all is fp32).
    """
    plain = "fp32" if precision == "fp32" else "bf16"
    own = arch.quantization
    if own and own.weights != "bf16" and precision in ("auto", own.weights):
        if not tensor.stored:
            return "bf16", 2.0
        size = own.bytes_per_element if tensor.stored == own.weights else SIZES[tensor.stored]
        return ("fp8" if tensor.stored == "mxfp8" else tensor.stored), size
    if (
        precision in ("auto", "bf16", "fp16", "fp32")
        or not tensor.linear
        or tensor.role in ("lm_head", "embedding", "tower", "norm", "router")
    ):
        return plain, SIZES[plain]
    return precision, SIZES[precision]
