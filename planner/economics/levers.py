"""Which lever first: the effect of each change on capacity, latency and price, alone and in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from planner.plan import Plan, plan
from planner.scenario import Scenario, Speculative


@dataclass(frozen=True, slots=True)
class Effect:
    """A scenario with one or two levers pulled, beside the scenario as it is."""

    levers: tuple[str, ...]
    """Empty for the scenario as it is."""
    scenario: Scenario
    fits: bool
    capacity_requests_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    """At the promise's percentile, at the scenario's load."""
    usd_per_mtok_blended: float | None
    kv_pool_tokens: int | None
    prefill_tokens_per_s: float | None
    interaction: float | None = None
    """Capacity of the pair over what the two effects multiplied would give: 1 is independent, below 1 they compete."""


def levers(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """The changes worth asking about, each as updates of scenario sections; those already in place are left out."""
    precision, engine, s = scenario.precision, scenario.engine, scenario.speculative
    other_weights = [w for w in ("fp8", "int4", "bf16") if w != precision.weights]
    found: dict[str, dict[str, Any]] = {f"{w} weights": {"precision": precision.model_copy(update={"weights": w})} for w in other_weights}
    if precision.kv_cache != "fp8":
        found["fp8 KV"] = {"precision": precision.model_copy(update={"kv_cache": "fp8"})}
    for draft in (
        Speculative(method="eagle3", num_speculative_tokens=3),
        Speculative(method="ngram", num_speculative_tokens=3),
    ):
        if s is None or s.method != draft.method:
            found[f"{draft.method} k={draft.num_speculative_tokens}"] = {"speculative": draft}
    if s is not None:
        found["no speculation"] = {"speculative": None}
    for tokens in (engine.max_num_batched_tokens // 4, engine.max_num_batched_tokens * 2):
        found[f"{tokens} batched tokens"] = {"engine": engine.model_copy(update={"max_num_batched_tokens": tokens})}
    toggled = not engine.enable_prefix_caching
    found[f"prefix cache {'on' if toggled else 'off'}"] = {"engine": engine.model_copy(update={"enable_prefix_caching": toggled})}
    return found


def effects(scenario: Scenario, changes: Mapping[str, Mapping[str, Any]] | None = None, pairs: bool = False) -> Iterator[Effect]:
    """The scenario as it is, each lever alone, then (with `pairs`) every two that touch different sections, as they come."""
    changes = levers(scenario) if changes is None else changes
    base = _effect((), plan(scenario, "full"))
    yield base
    alone: dict[str, Effect] = {}
    for name, update in changes.items():
        alone[name] = _effect((name,), plan(scenario.model_copy(update=dict(update)), "full"))
        yield alone[name]
    if not pairs:
        return
    for one, other in combinations(changes, 2):
        if set(changes[one]) & set(changes[other]):
            continue
        both = _effect((one, other), plan(scenario.model_copy(update={**changes[one], **changes[other]}), "full"))
        yield _with_interaction(both, base, alone[one], alone[other])


def _effect(names: tuple[str, ...], answer: Plan) -> Effect:
    percentile = answer.scenario.slo.percentile
    latency = answer.load.metrics.latency if answer.load else None
    ttft, tpot = (latency.ttft_s, latency.tpot_s) if latency else (None, None)
    return Effect(
        levers=names,
        scenario=answer.scenario,
        fits=answer.fits,
        capacity_requests_per_s=answer.load.capacity_requests_per_s if answer.load else None,
        ttft_s=ttft.percentile(percentile) if ttft else None,
        tpot_s=tpot.percentile(percentile) if tpot else None,
        usd_per_mtok_blended=answer.cost.usd_per_mtok_blended,
        kv_pool_tokens=answer.memory.kv_pool_tokens if answer.memory and answer.fits else None,
        prefill_tokens_per_s=answer.roofline.prefill_tokens_per_s if answer.roofline and answer.fits else None,
    )


def _with_interaction(both: Effect, base: Effect, one: Effect, other: Effect) -> Effect:
    rates = [e.capacity_requests_per_s for e in (both, base, one, other)]
    if not all(rates):
        return both
    together, start, first, second = (float(r or 0) for r in rates)
    return replace(both, interaction=together * start / (first * second))
