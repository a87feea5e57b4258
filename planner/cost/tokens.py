"""From dollars per hour to dollars per million tokens: the floor, and what a load really pays."""

from __future__ import annotations

from dataclasses import dataclass

from planner.units import HOUR_S, MTOK


def floor_usd_per_mtok(usd_per_hour: float, tokens_per_s: float, utilization: float = 1.0) -> float | None:
    """One phase alone on a machine that is always busy: $/s over tokens/s, divided by the paid time that is busy.

    For decode `tokens_per_s` is batch / decode step (times the acceptance length with speculation), for prefill the
    prefill rate. None when nothing is produced.
    """
    if tokens_per_s <= 0:
        return None
    return usd_per_hour / HOUR_S / tokens_per_s * MTOK / utilization


@dataclass(frozen=True, slots=True)
class Load:
    """What a fleet did in a stretch of time: tokens served and the step time that each kind cost, summed over replicas."""

    duration_s: float
    requests: float
    input_tokens: float
    """Prompt tokens computed; cached ones are not among them."""
    cached_tokens: float
    output_tokens: float
    input_busy_s: float
    """Time that steps took beyond what they would have taken without their prefill chunks."""
    cached_busy_s: float
    """The extra time of re-reading cached prefixes."""
    output_busy_s: float
    """What the steps would have taken without prefill chunks."""

    @property
    def tokens(self) -> float:
        """All tokens: computed, cached and generated."""
        return self.input_tokens + self.cached_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """USD per million tokens; None for a kind that the load does not contain."""

    input: float | None
    cached_input: float | None
    output: float | None
    blended: float | None
    """All dollars over all tokens."""


def at_load_prices(usd_per_hour: float, load: Load) -> TokenPrices:
    """Split the whole bill, idle time included, over the tokens in the ratio of the busy time each kind took.

    price × tokens summed over the three kinds is the bill of the stretch, to the cent.
    """
    bill_usd = usd_per_hour * load.duration_s / HOUR_S
    kinds = (
        (load.input_tokens, load.input_busy_s),
        (load.cached_tokens, load.cached_busy_s),
        (load.output_tokens, load.output_busy_s),
    )
    busy_s = sum(busy for tokens, busy in kinds if tokens > 0)
    if busy_s <= 0:
        return TokenPrices(None, None, None, None)
    each = [bill_usd * busy / busy_s / tokens * MTOK if tokens > 0 else None for tokens, busy in kinds]
    return TokenPrices(each[0], each[1], each[2], bill_usd / load.tokens * MTOK)
