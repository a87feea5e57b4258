"""How to pay for a week: reserved, on demand, spot, and the API for the tip of the peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.problems import InputError
from planner.units import HOUR_S, MINUTE_S


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to pay for a replica."""

    basis: str
    usd_per_replica_hour: float
    committed: bool = False
    """Paid for the whole week, used or not (reserved, owned)."""
    interruption_per_hour: float = 0.0
    """Chance to lose it within an hour (spot)."""


@dataclass(frozen=True, slots=True)
class Level:
    """The n-th replica of the fleet: how long demand needs it, what it serves, and who is paid for it."""

    number: int
    hours: float
    requests: float
    choice: str
    usd: float


@dataclass(frozen=True, slots=True)
class PaymentMix:
    """The cheapest way to pay for one week."""

    levels: tuple[Level, ...]
    usd: float
    requests_to_api: float
    usd_all: dict[str, float]
    """What the week costs when everything is paid one way."""

    def replicas(self) -> dict[str, int]:
        """Levels by choice."""
        counts: dict[str, int] = {}
        for level in self.levels:
            counts[level.choice] = counts.get(level.choice, 0) + 1
        return counts


MOST_LEVELS, MOST_LEVELS_BESIDE_AN_API = 20_000, 4_000
"""Replicas of the peak that a mix is made for; beside an API every cut of them is tried. A few seconds."""


def cheapest_mix(
    rates: np.ndarray,
    replica_rate: float,
    offers: Sequence[Offer],
    api_usd_per_request: float | None = None,
    startup_s: float = 0.0,
    max_spot_share: float = 1.0,
    interval_s: float = MINUTE_S,
) -> PaymentMix:
    """The cheapest payment for demand `rates` (requests/s by interval) when one replica is planned to carry `replica_rate`.

    Replica n is needed whenever demand exceeds n - 1 of them, so each level has its own hours and the cheapest offer for
    it can be taken alone: committed offers cost the whole week, others the hours needed, spot also the hours that
    restarts waste. Spot may pay for at most `max_spot_share` of the fleet, the levels where it saves most. The API may
    take everything above some level; every cut is tried. Exact for this model (a test tries all assignments).
    Raises InputError for a peak of more replicas than are mixed.
    """
    week_hours = len(rates) * interval_s / HOUR_S
    needed, most = np.ceil(rates.max() / replica_rate - 1e-9), MOST_LEVELS if api_usd_per_request is None else MOST_LEVELS_BESIDE_AN_API
    if needed > most:
        raise InputError(
            f"the peak of the demand needs {needed:,.0f} replicas, and payments are mixed for at most {most:,}; "
            "lower workload.request_rate, or plan a replica that carries more"
        )
    peak = int(needed)
    numbers = range(1, peak + 1)
    hours = np.array([(rates > (n - 1) * replica_rate * (1 + 1e-12)).sum() * interval_s / HOUR_S for n in numbers])
    served = np.array([np.clip(rates - (n - 1) * replica_rate, 0, replica_rate).sum() * interval_s for n in numbers])
    bills = {o.basis: _bill(o, hours, week_hours, startup_s) for o in offers}
    spot = {o.basis for o in offers if o.basis == "spot" or o.interruption_per_hour > 0}
    to_api = None if api_usd_per_request is None else served * api_usd_per_request
    best: tuple[float, list[str]] | None = None
    for cut in range(peak + 1) if to_api is not None else [peak]:
        choices = _choose({basis: bill[:cut] for basis, bill in bills.items()}, spot, int(max_spot_share * cut))
        own = sum(float(bills[choice][n]) for n, choice in enumerate(choices))
        total = own + (float(to_api[cut:].sum()) if to_api is not None else 0.0)
        if best is None or total < best[0]:
            best = (total, choices)
    total, choices = best if best is not None else (0.0, [])
    levels = []
    for n in range(peak):
        choice = choices[n] if n < len(choices) else "api"
        usd = bills[choice][n] if n < len(choices) else to_api[n] if to_api is not None else 0.0
        levels.append(Level(n + 1, float(hours[n]), float(served[n]), choice, float(usd)))
    everything = {basis: float(bill.sum()) for basis, bill in bills.items()}
    if to_api is not None:
        everything["api"] = float(to_api.sum())
    return PaymentMix(tuple(levels), total, float(served[len(choices) :].sum()), everything)


def _bill(offer: Offer, hours: np.ndarray, week_hours: float, startup_s: float) -> np.ndarray:
    """What each level costs for the week under one offer."""
    if offer.committed:
        return np.full(len(hours), offer.usd_per_replica_hour * week_hours)
    wasted = 1 + offer.interruption_per_hour * startup_s / HOUR_S
    return offer.usd_per_replica_hour * hours * wasted


def _choose(bills: dict[str, np.ndarray], spot: set[str], most_spot: int) -> list[str]:
    """The cheapest basis of each level with spot on at most `most_spot` of them: where it saves most."""
    steady = {basis: bill for basis, bill in bills.items() if basis not in spot} or bills
    size = len(next(iter(bills.values()), ()))
    choices = [min(steady, key=lambda basis: steady[basis][n]) for n in range(size)]
    savings = []
    for n in range(size):
        for basis in spot & bills.keys():
            savings.append((float(steady[choices[n]][n] - bills[basis][n]), n, basis))
    taken: set[int] = set()
    for saving, n, basis in sorted(savings, reverse=True):
        if saving > 0 and n not in taken and len(taken) < most_spot:
            choices[n] = basis
            taken.add(n)
    return choices
