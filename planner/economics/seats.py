"""Rate limits as seats: what tenants can be sold when not all of them are busy at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from planner.problems import InputError
from planner.units import MINUTE_S

SMALLEST_ACTIVITY = 1e-6
MOST_AT_ONCE = 10**9
NEGLIGIBLE = 1e-17


@dataclass(frozen=True, slots=True)
class Seats:
    """How many tenants fit under one limit."""

    tenants: int
    requests_per_minute: float
    """Limit of one tenant."""
    tokens_per_minute: float
    """The same limit in tokens of the plan's mean request."""
    oversubscription: float
    """Limits sold over what the fleet carries."""
    risk: float
    """Chance that the tenants active at a moment ask for more than the fleet carries within the SLO."""


def seats(capacity_requests_per_s: float, tokens_per_request: float, requests_per_minute: float, activity: float, max_risk: float) -> Seats:
    """The most tenants with this limit whose joint demand breaks the SLO at most `max_risk` of the time.

    A tenant is busy at its limit for a share `activity` of the time and silent otherwise, independently of the others:
    the number busy is binomial. Tenants who share their hours are riskier than this; give the activity of the busy hour.
    """
    if not 0 < activity <= 1:
        raise InputError(f"activity: {activity:g} is not a share above 0 and up to 1 of the time a tenant is busy")
    if activity < SMALLEST_ACTIVITY:
        raise InputError(
            f"activity: {activity:g} is under {SMALLEST_ACTIVITY:g}, a second in {1 / SMALLEST_ACTIVITY:,.0f}; give a larger share"
        )
    if not 0 <= max_risk < 1:
        raise InputError(f"max_risk: {max_risk:g} is not a chance from 0 to below 1")
    if requests_per_minute <= 0:
        raise InputError(f"requests_per_minute: {requests_per_minute:g} must be above 0")
    if capacity_requests_per_s * MINUTE_S / requests_per_minute > MOST_AT_ONCE:
        raise InputError(f"requests_per_minute: {requests_per_minute:g} lets more than {MOST_AT_ONCE:,} tenants be busy at once; raise it")
    at_once = math.floor(capacity_requests_per_s * MINUTE_S / requests_per_minute + 1e-9)
    tenants = _most_tenants(at_once, activity, max_risk)
    return Seats(
        tenants=tenants,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=requests_per_minute * tokens_per_request,
        oversubscription=tenants / at_once if at_once else 0.0,
        risk=overload_risk(tenants, at_once, activity),
    )


def overload_risk(tenants: int, at_once: int, activity: float) -> float:
    """Chance that more than `at_once` of `tenants` are busy: a binomial tail, summed from its largest term outwards."""
    if tenants <= at_once:
        return 0.0
    if activity >= 1:
        return 1.0
    odds = activity / (1 - activity)
    if at_once + 1 >= tenants * activity:
        return min(1.0, _sum(tenants, activity, at_once + 1, lambda k: (tenants - k) / (k + 1) * odds, 1))
    return max(0.0, 1.0 - _sum(tenants, activity, at_once, lambda k: k / (tenants - k + 1) / odds, -1))


def _sum(tenants: int, activity: float, start: int, ratio: Callable[[int], float], step: int) -> float:
    """Falling terms of the binomial from `start` on, each `ratio` times the one before, until they no longer count."""
    log_ways = math.lgamma(tenants + 1) - math.lgamma(start + 1) - math.lgamma(tenants - start + 1)
    term = math.exp(log_ways + start * math.log(activity) + (tenants - start) * math.log1p(-activity))
    total, k = 0.0, start
    while 0 <= k <= tenants and term > total * NEGLIGIBLE:
        total += term
        term *= ratio(k)
        k += step
    return total


def _most_tenants(at_once: int, activity: float, max_risk: float) -> int:
    if at_once == 0:
        return 0
    low, high = at_once, at_once + 1
    while overload_risk(high, at_once, activity) <= max_risk and high < 100 * at_once / activity:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if overload_risk(middle, at_once, activity) <= max_risk:
            low = middle
        else:
            high = middle
    return low
