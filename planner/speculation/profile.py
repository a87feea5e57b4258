"""What speculative decoding yields and asks for, before any GPU is involved: tokens per verified step and tokens to verify.

One representation everywhere: *unconditional* rates by position, entry i being the chance that the first i + 1 drafts are all
accepted (vLLM's `synthetic_acceptance_rates`). A step that drafts k tokens then emits 1 + Σ rates on average, because the target
adds one token of its own: a correction after the first rejection, or a bonus when all drafts pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Literal

import numpy as np

from planner.catalog.speculation import Acceptance, acceptance
from planner.problems import InputError, Problem
from planner.scenario import Method, Speculative, Verify

TEXTBOOK_DRAFT_COST = 0.05
"""Time of drafting one token over a target step in the book chapter's arithmetic."""

HOST_S = 1.207e-3
"""Host time of one draft-and-verify step, s; a synchronous engine has it anyway. Measured: SpecDecode-Bench predictor for
Llama-3.1-8B with EAGLE-3 on one H100, vLLM 0.10.1 (arXiv 2601.11580, 2026-03)."""

DRAFT_PASS_HOST_S = 0.41e-3
"""Time of one drafting pass beyond its kernels, s. Derived: the same source measures 2.135 ms a draft, its kernels take 0.91 ms here,
and three tokens are assumed to be drafted."""

TEXTS = ("prose", "code", "maths", "summaries")
"""Kinds of text with measured acceptance."""


def geometric_rates(acceptance_rate: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Unconditional rates when every draft is accepted with the same chance α: α, α², …, αᵏ."""
    return tuple(acceptance_rate ** (i + 1) for i in range(num_speculative_tokens))


def unconditional(conditional: Sequence[float], num_speculative_tokens: int) -> tuple[float, ...]:
    """Unconditional rates from chances given that all earlier drafts passed; positions beyond the last one repeat it."""
    chances = [*conditional, *[conditional[-1]] * num_speculative_tokens][:num_speculative_tokens]
    return tuple(accumulate(chances, mul))


def acceptance_length(rates: Sequence[float]) -> float:
    """Mean tokens per verified step, the target's own one included: 1 + Σ rates, which is (1 − αᵏ⁺¹) / (1 − α) for constant α."""
    return 1.0 + sum(rates)


def closed_form_speedup(rates: Sequence[float], draft_cost: float = TEXTBOOK_DRAFT_COST) -> float:
    """Decode speed-up when verifying costs no more than a plain step: tokens per step over 1 + k × draft cost.

    True only while the step is bound by reading weights; `StepTime` gives the figure at a batch.
    """
    return acceptance_length(rates) / (1.0 + len(rates) * draft_cost)


def preset(method: str, text: str = "prose") -> Acceptance:
    """Measured acceptance of a method on a kind of text, or on prose where only that was measured. EAGLE-1 borrows EAGLE-3's.

    Raises InputError when nothing was measured for the method.
    """
    known = acceptance()
    method_measured = "eagle3" if method == "eagle" else method
    if text not in TEXTS:
        raise InputError(f"acceptance preset {text!r} is not known; choose one of {', '.join(TEXTS)}")
    found = known.get((method_measured, text)) or known.get((method_measured, "prose"))
    if found is None:
        raise InputError(f"speculative.method {method!r} has no measured acceptance; give speculative.acceptance_rate or acceptance_rates")
    return found


def preset_rates(method: str, text: str, num_speculative_tokens: int) -> tuple[float, ...]:
    """The preset as unconditional rates, ready for `speculative.acceptance_rates`."""
    return tuple(round(rate, 4) for rate in unconditional(preset(method, text).conditional, num_speculative_tokens))


@dataclass(frozen=True, slots=True)
class Profile:
    """Speculation as the step time and the step loop need it. Without speculation k is 0 and every step emits one token."""

    method: Method | Literal["none"]
    num_speculative_tokens: int
    """Tokens drafted per step and sequence (k)."""
    acceptance_rates: tuple[float, ...]
    """Unconditional, by position, as the engine lives them: all 1 under `accept_all`."""
    verify: Verify
    draft_cost_fraction: float | None
    """User's time of drafting one token over a target decode step; None means the step time computes it from the drafter."""
    draft_model: str | None
    """Catalogue slug of the draft model (method `draft_model`)."""
    draft_passes: int
    """Passes of the drafter per step: one a token where it feeds on its own output, one for Medusa's parallel heads, none for n-grams."""
    host_s: float
    """Host time of a step that drafts, s: what is accepted decides the next step, so it cannot be planned ahead of it."""
    drafting_host_s: float
    """Time of all drafting passes of a step beyond their kernels, s; 0 where the user states what drafting costs."""
    kind: str
    """Where the rates come from: measured, published, assumed or user."""
    source: str

    @property
    def speculates(self) -> bool:
        return self.num_speculative_tokens > 0

    @property
    def acceptance_length(self) -> float:
        """Mean tokens that a verified step emits per sequence."""
        return acceptance_length(self.acceptance_rates)

    @property
    def verify_tokens_per_sequence(self) -> int:
        """Tokens one sequence puts through the target in a step: its drafts and the token before them."""
        return self.num_speculative_tokens + 1


NO_SPECULATION = Profile("none", 0, (), "exact", 0.0, None, 0, 0.0, 0.0, "derived", "")


def profile(speculative: Speculative | None) -> Profile:
    """What the scenario's `speculative` section means. Raises InputError when no acceptance is given or known."""
    if speculative is None:
        return NO_SPECULATION
    k = speculative.num_speculative_tokens
    if speculative.method == "draft_model" and speculative.draft_model is None and speculative.draft_cost is None:
        raise InputError("speculative.method draft_model needs speculative.draft_model (a catalogue slug) or speculative.draft_cost")
    kind, source = "user", "speculative.acceptance_rates"
    if speculative.verify == "accept_all":
        rates, source = (1.0,) * k, "speculative.verify accept_all"
    elif speculative.acceptance_rates is not None:
        rates = speculative.acceptance_rates
    elif speculative.acceptance_rate is not None:
        rates, source = geometric_rates(speculative.acceptance_rate, k), "speculative.acceptance_rate"
    else:
        measured = preset(speculative.method, speculative.text)
        on = measured.text if measured.text == speculative.text else f"{measured.text}, as {speculative.text} was not measured"
        rates, kind, source = unconditional(measured.conditional, k), measured.kind, f"{measured.source}, {measured.date} (on {on})"
    passes = {"ngram": 0, "medusa": 1}.get(speculative.method, k)
    return Profile(
        method=speculative.method,
        num_speculative_tokens=k,
        acceptance_rates=rates,
        verify=speculative.verify,
        draft_cost_fraction=speculative.draft_cost,
        draft_model=speculative.draft_model,
        draft_passes=passes,
        host_s=HOST_S,
        drafting_host_s=0.0 if speculative.draft_cost is not None else passes * DRAFT_PASS_HOST_S,
        kind=kind,
        source=source,
    )


def problems(speculative: Speculative | None) -> tuple[Problem, ...]:
    """What a plan must say about the choice itself."""
    if speculative is None:
        return ()
    if speculative.verify == "exact":
        if speculative.acceptance_rate is not None or speculative.acceptance_rates is not None:
            return ()
        source = profile(speculative).source
        message = f"how many drafts of {speculative.method} are accepted was not measured on this model; assumed as in {source}"
        remedy = "" if speculative.method == "ngram" else " with a drafter trained for this model"
        return (Problem("assumed_acceptance", "info", "speculative.acceptance_rates", message, f"Measure the acceptance{remedy}."),)
    return (
        Problem(
            "accepts_every_draft",
            "warning",
            "speculative.verify",
            "accept_all skips the rejection test: drafted tokens go out unchecked, so the output is the draft's and not the target model's",
            "set speculative.verify to exact for the target's own distribution",
        ),
    )


LONG_ANSWER = 20_000
"""Tokens from which the steps of an answer's beginning are drawn together: their sum is as good as normal."""
DRAWN_TOKENS = 8_000
"""About what is left of such an answer to be drawn step by step."""


def _skip_ahead(rng: np.random.Generator, left: np.ndarray, steps: np.ndarray, rates: Sequence[float]) -> None:
    """Takes the first steps of long answers off `left` and adds them to `steps`: what n independent steps emit is normal for a large n."""
    chances = np.array([1.0, *rates, 0.0])
    emitted = np.arange(1, len(rates) + 2)
    chance = chances[:-1] - chances[1:]
    mean = float(emitted @ chance)
    variance = max(0.0, float(emitted**2 @ chance) - mean**2)
    long = np.flatnonzero(left > LONG_ANSWER)
    if long.size:
        n = ((left[long] - DRAWN_TOKENS) / mean).astype(np.int64)
        tokens = np.rint(rng.normal(n * mean, np.sqrt(n * variance))).astype(np.int64)
        left[long] -= np.clip(tokens, n, np.minimum(left[long] - 1, n * emitted[-1]))
        steps[long] += n


def draw_decode_steps(rng: np.random.Generator, output_tokens: np.ndarray, rates: Sequence[float]) -> np.ndarray:
    """Verified steps that each sequence needs to emit `output_tokens` tokens, drawn once: acceptance does not depend on the schedule.

    The last step is cut off at the end of the answer, so tokens per step come out a little under `acceptance_length`.
    """
    left = np.array(output_tokens, dtype=np.int64, copy=True)
    steps = np.zeros(left.shape, dtype=np.int64)
    if not rates:
        return left
    chance_of_more = np.asarray(rates, dtype=float)[::-1]
    k, width = len(rates), 32
    _skip_ahead(rng, left, steps, rates)
    active = np.flatnonzero(left > 0)
    while active.size:
        draws = rng.random((active.size, width))
        emitted = 1 + k - np.searchsorted(chance_of_more, draws, side="right")
        so_far = emitted.cumsum(axis=1)
        unfinished = so_far < left[active, None]
        steps[active] += np.minimum(unfinished.sum(axis=1) + 1, width)
        left[active] -= so_far[:, -1]
        active = active[left[active] > 0]
    return steps
