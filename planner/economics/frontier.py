"""Price against speed: what a million tokens cost at every speed a user can be given, over GPUs, layouts and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from planner import cost, hardware
from planner.economics import operating
from planner.plan import deployment
from planner.plan.steady import input_tokens, output_tokens
from planner.problems import InputError
from planner.scenario import Parallel, Precision, Scenario
from planner.units import HOUR_S, MTOK

Item = TypeVar("Item")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Point:
    """One replica layout at one steady batch."""

    layout: Scenario
    """This GPU, layout and precision; points of other batches share it."""
    gpu: str
    tensor_parallel_size: int
    weights: str
    batch: int
    tokens_per_s_per_user: float
    output_tokens_per_s_per_gpu: float
    usd_per_mtok: float | None
    """All dollars over all tokens, input and output, of a replica that is always at this batch."""
    usd_per_mtok_output: float | None
    """The same dollars over output tokens alone, as published price-speed charts do."""
    on_frontier: bool = False
    """No other point is both faster for the user and cheaper."""
    on_throughput_frontier: bool = False
    """No other point is both faster for the user and more productive per GPU."""

    @property
    def scenario(self) -> Scenario:
        """What a click adopts: the layout with the batch as `engine.max_num_seqs`."""
        return self.layout.model_copy(update={"engine": self.layout.engine.model_copy(update={"max_num_seqs": self.batch})})


def pareto(items: Iterable[Item], gain: Callable[[Item], float], price: Callable[[Item], float]) -> list[Item]:
    """Items that no other one beats on both `gain` (more is better) and `price` (less is better), by falling gain."""
    kept: list[Item] = []
    cheapest = float("inf")
    for item in sorted(items, key=lambda i: (-gain(i), price(i))):
        if price(item) < cheapest:
            kept.append(item)
            cheapest = price(item)
    return kept


def points(
    scenario: Scenario,
    gpus: Sequence[str] = (),
    tensor_parallel_sizes: Sequence[int] = (1, 2, 4, 8),
    weights: Sequence[str] = (),
    batches: Sequence[int] = BATCHES,
) -> tuple[Point, ...]:
    """Every layout that runs at every batch that fits, the Pareto set marked.

    Defaults: the scenario's GPU and the weight precisions that `quality` allows. Layouts that are illegal or do not fit
    give no points.
    """
    found = []
    for gpu in gpus or (scenario.hardware.gpu,):
        for precision in weights or scenario.quality.allowed_weight_precisions:
            for tp in tensor_parallel_sizes:
                found += _layout_points(_candidate(scenario, gpu, tp, precision), batches)
    priced = [p for p in found if p.usd_per_mtok is not None]
    cheap = set(map(id, pareto(priced, lambda p: p.tokens_per_s_per_user, lambda p: p.usd_per_mtok or 0.0)))
    busy = set(map(id, pareto(found, lambda p: p.tokens_per_s_per_user, lambda p: -p.output_tokens_per_s_per_gpu)))
    return tuple(replace(p, on_frontier=id(p) in cheap, on_throughput_frontier=id(p) in busy) for p in found)


def cheapest_at(candidates: Sequence[Point], tokens_per_s_per_user: float) -> Point | None:
    """The cheapest point that gives every user at least this speed, or None."""
    fast = [p for p in candidates if p.usd_per_mtok is not None and p.tokens_per_s_per_user >= tokens_per_s_per_user]
    return min(fast, key=lambda p: p.usd_per_mtok or 0.0, default=None)


def _candidate(scenario: Scenario, gpu: str, tp: int, weights: str) -> Scenario:
    changes = {
        "hardware": scenario.hardware.model_copy(update={"gpu": gpu}),
        "parallel": Parallel(tensor_parallel_size=tp),
        "precision": Precision.model_validate(scenario.precision.model_dump() | {"weights": weights}),
        "disaggregation": None,
    }
    return scenario.model_copy(update=changes)


def _layout_points(scenario: Scenario, batches: Sequence[int]) -> list[Point]:
    if any(p.severity == "error" for p in deployment.problems(scenario)):
        return []
    try:
        hardware.of(scenario.hardware).peak_flops()
    except InputError:
        return []
    replica = deployment.of(scenario)
    if not replica.memory.fits:
        return []
    price = cost.gpu_hour(scenario.hardware.gpu, scenario.price)
    usd_per_s = None if price is None else price.usd * scenario.parallel.gpus / HOUR_S
    tokens = input_tokens(scenario) + output_tokens(scenario)
    found = []
    for batch in batches:
        if batch > replica.memory.cache_limited_batch:
            break
        at = operating.operating(replica, batch)
        tokens_per_s = at.requests_per_s * tokens
        found.append(
            Point(
                layout=scenario,
                gpu=scenario.hardware.gpu,
                tensor_parallel_size=scenario.parallel.tensor_parallel_size,
                weights=scenario.precision.weights,
                batch=batch,
                tokens_per_s_per_user=at.tokens_per_s_per_user,
                output_tokens_per_s_per_gpu=at.output_tokens_per_s / scenario.parallel.gpus,
                usd_per_mtok=None if usd_per_s is None else usd_per_s / tokens_per_s * MTOK,
                usd_per_mtok_output=None if usd_per_s is None else usd_per_s / at.output_tokens_per_s * MTOK,
            )
        )
    return found
