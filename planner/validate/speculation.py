"""Speculation against published speed-ups: one predicted decode step with drafting beside one without, at the published batch."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner import catalog
from planner.plan import deployment
from planner.scenario import Scenario, parse
from planner.speculation import acceptance_length, geometric_rates, preset_rates

PUBLISHED = Path(catalog.__file__).with_name("spec_speedups.csv")


@dataclass(frozen=True, slots=True)
class Speedup:
    """One published figure, and what the planner says."""

    target: str
    method: str
    batch: int | None
    k: int | None
    published: str
    """As printed; a range or a bound where the source gives one."""
    predicted: float | None
    """None where the row cannot be compared."""
    acceptance_length: float | None
    """Tokens per step that the prediction rests on."""
    standing: str
    """comparable, assumed (the source leaves out what decides it), or not comparable."""
    why: str
    source: str
    date: str

    @property
    def error(self) -> float | None:
        """Predicted over published − 1; None without both numbers."""
        return None if self.predicted is None else self.predicted / float(self.published) - 1


def rates_for_length(length: float, num_speculative_tokens: int) -> tuple[float, ...]:
    """Unconditional rates of the constant acceptance that yields this many tokens per step."""
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if acceptance_length(geometric_rates(middle, num_speculative_tokens)) < length:
            low = middle
        else:
            high = middle
    return geometric_rates(low, num_speculative_tokens)


def speedup(scenario: Scenario, batch: int, context_tokens: int) -> float:
    """Decode speed with the scenario's speculation over that without, at a batch of sequences of this context."""

    def seconds_per_token(s: Scenario) -> float:
        deployed = deployment.of(s)
        return deployed.step_time.decode(batch, batch * context_tokens, batch * context_tokens) / deployed.profile.acceptance_length

    return seconds_per_token(scenario.model_copy(update={"speculative": None})) / seconds_per_token(scenario)


@cache
def speedups() -> tuple[Speedup, ...]:
    """All published rows."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return tuple(_row(row) for row in csv.DictReader(file))


def _row(row: dict[str, str]) -> Speedup:
    if not row["model"]:
        return Speedup(
            row["target"],
            row["method"],
            None,
            None,
            row["published_speedup"],
            None,
            None,
            row["standing"],
            row["why"],
            row["source"],
            row["date"],
        )
    k, batch = int(row["k"]), int(row["batch"])
    kind, _, value = row["acceptance"].partition(":")
    rates = preset_rates(row["spec_method"], value, k) if kind == "text" else rates_for_length(float(value), k)
    scenario = parse(
        {
            "model": {"name": row["model"]},
            "hardware": {"gpu": row["gpu"]},
            "precision": {"weights": row["weights"]},
            "parallel": {"tensor_parallel_size": int(row["tensor_parallel_size"])},
            "engine": {"name": row["engine_name"], "async_scheduling": row["async_scheduling"] == "1"},
            "speculative": {"method": row["spec_method"], "num_speculative_tokens": k, "acceptance_rates": rates},
        }
    )
    predicted = speedup(scenario, batch, int(row["context_tokens"]))
    return Speedup(
        row["target"],
        row["method"],
        batch,
        k,
        row["published_speedup"],
        predicted,
        acceptance_length(rates),
        row["standing"],
        row["why"],
        row["source"],
        row["date"],
    )
