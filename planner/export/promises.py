"""What became of a plan's promises, as its JSON says it.

A document repeats the verdict of `planner.metrics.promises`, over all requests, refused ones included; it has none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.metrics.promises import PROMISED
from planner.scenario import Slo


def verdicts(plan: Mapping[str, Any], slo: Slo) -> list[Mapping[str, Any]]:
    """Entries of the plan's `promises` part: `name`, `to` (a class, or empty), `percentile`, `limit_s`, `at_s`, `kept`.

    Plans written before that part existed are held against the percentiles that they have.
    """
    stated = plan.get("promises")
    if stated is not None:
        return list(stated)
    latency = plan.get("latency") or {}
    made = {name: getattr(slo, name) for name in PROMISED}
    return [
        verdict(name, "", slo.percentile, limit_s, (latency.get(name) or {}).get(f"p{slo.percentile}"))
        for name, limit_s in made.items()
        if limit_s is not None
    ]


def verdict(name: str, to: str, percentile: int, limit_s: float, at_s: float | None) -> dict[str, Any]:
    """One entry; a latency that is not known was not reached."""
    kept = at_s is not None and at_s <= limit_s
    return {"name": name, "to": to, "percentile": percentile, "limit_s": limit_s, "at_s": at_s, "kept": kept}


def in_proportion(plan: Mapping[str, Any], base: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The other run's promises with each latency as the plan's times (other ÷ base), where all three are known; None where it has none."""
    if other.get("promises") is None:
        return None
    mine, its = ({_key(p): p["at_s"] for p in of.get("promises") or ()} for of in (plan, base))
    found = []
    for p in other["promises"]:
        at_s, planned_s, base_s = p["at_s"], mine.get(_key(p)), its.get(_key(p))
        scaled_s = planned_s * at_s / base_s if at_s and planned_s and base_s else at_s
        found.append(verdict(p["name"], p["to"], p["percentile"], p["limit_s"], scaled_s))
    return found


def _key(promise: Mapping[str, Any]) -> tuple[str, str, int]:
    return promise["name"], promise["to"], promise["percentile"]
