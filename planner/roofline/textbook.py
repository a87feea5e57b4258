"""The book chapter's arithmetic: weights over bandwidth for decode, two operations a parameter at half the peak for prefill."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, log10

from planner.architecture import Architecture
from planner.architecture.storage import TEXTBOOK_BYTES
from planner.hardware import Gpu
from planner.problems import Problem
from planner.roofline.model import Source, StepShape, Term
from planner.scenario import Scenario
from planner.speculation import TEXTBOOK_DRAFT_COST, profile

PREFILL_SHARE = 0.5
"""Share of the 16-bit peak that prefill reaches in the chapter."""


@dataclass(frozen=True, slots=True)
class Textbook:
    """Step time as hand arithmetic has it: batch, context and links cost nothing."""

    decode_step_s: float
    prefill_s_per_token: float
    weight_read_s: float
    token_flops_s: float
    """Time of one token's arithmetic at the dense peak of the weight precision."""
    notes: tuple[Problem, ...] = field(default=())
    level: str = "textbook"
    api_s: float = 0.0
    spread: float = 0.0
    sources: tuple[Source, ...] = (
        Source("decode step", "weights ÷ memory bandwidth", "derived", "hand arithmetic", None),
        Source("prompt token", "2 × parameters ÷ half the 16-bit peak", "derived", "hand arithmetic", None),
    )

    def __call__(self, shape: StepShape) -> float:
        """Seconds of one step."""
        new = sum(n for n, _ in shape.chunks)
        return (self.decode_step_s if shape.decode_sequences else 0.0) + self.prefill_s_per_token * new

    def decode(self, decode_sequences: int, context_tokens: float = 0, windowed_context_tokens: float = 0) -> float:
        """Seconds of a step that only decodes, whatever the batch."""
        return self.decode_step_s if decode_sequences else 0.0

    def explain(self, shape: StepShape) -> tuple[Term, ...]:
        """The same, in named terms that add up to it."""
        terms = []
        if shape.decode_sequences:
            terms.append(Term("weights", "decode", self.weight_read_s, "memory"))
            if self.decode_step_s > self.weight_read_s:
                terms.append(Term("drafting", "decode", self.decode_step_s - self.weight_read_s, "draft"))
        if shape.chunks:
            terms.append(Term("arithmetic", "prefill", self.prefill_s_per_token * sum(n for n, _ in shape.chunks), "compute"))
        return tuple(terms)

    def compute_bound_batch(self) -> float:
        """Batch whose arithmetic at the dense peak takes as long as reading the weights."""
        return self.weight_read_s / self.token_flops_s


def textbook(scenario: Scenario, arch: Architecture, gpu: Gpu, scale: float) -> Textbook:
    """Weights = total parameters × bytes; prefill = 2N a token at half of the 16-bit peak rounded to one figure."""
    precision: str = scenario.precision.weights
    if precision == "auto":
        precision = arch.quantization.weights if arch.quantization else "bf16"
    gpus = scenario.parallel.gpus
    weights = arch.total_params * TEXTBOOK_BYTES[precision]
    read = weights / (gpus * gpu.memory_bandwidth_bytes_s) * scale
    speculation = profile(scenario.speculative)
    cost = TEXTBOOK_DRAFT_COST if speculation.draft_cost_fraction is None else speculation.draft_cost_fraction
    flops = 2 * arch.active_params
    rate = gpus * one_figure(gpu.peak_flops("bf16")) * PREFILL_SHARE
    return Textbook(
        decode_step_s=read * (1 + speculation.num_speculative_tokens * cost),
        prefill_s_per_token=flops / rate * scale,
        weight_read_s=read,
        token_flops_s=flops / (gpus * gpu.peak_flops(precision)) * scale,
    )


def one_figure(value: float) -> float:
    """Rounded to one significant figure, as a chapter quotes a peak."""
    digits = floor(log10(value))
    return round(value / 10**digits) * 10.0**digits
