"""What may be bought: every combination of GPU, layout, precision, batching limits and speculation that a search considers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import cast

from planner import architecture, catalog, cost
from planner.architecture.storage import weight_precision
from planner.catalog import kernels
from planner.scenario import (
    Disaggregation,
    KvPrecision,
    Parallel,
    Pool,
    Precision,
    Price,
    Scenario,
    Speculative,
    WeightPrecision,
)

RATIOS = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2))
"""Prefill and decode replicas of one unit of a disaggregated design."""


@dataclass(frozen=True, slots=True)
class Space:
    """The choices of a search. Empty tuples take what the scenario and the catalogue offer; None stands for "without"."""

    gpus: tuple[str, ...] = ()
    tensor_parallel_sizes: tuple[int, ...] = (1, 2, 4, 8)
    pipeline_parallel_sizes: tuple[int, ...] = (1, 2)
    expert_parallel_sizes: tuple[int, ...] = (1, 8)
    """Data-parallel ranks that share experts, for mixture-of-experts models; 1 is none, and then the ranks of tensor parallelism either
    cut every expert or hold whole ones."""
    weights: tuple[WeightPrecision, ...] = ()
    kv_cache: tuple[KvPrecision, ...] = ()
    max_num_seqs: tuple[int, ...] = (256, 128, 64, 48, 32)
    max_num_batched_tokens: tuple[int, ...] = (8192, 2048, 16384)
    speculative: tuple[Speculative | None, ...] = ()
    disaggregation: tuple[tuple[int, int] | None, ...] = (None, *RATIOS)
    """None for one pool, or (prefill, decode) replicas of one unit."""
    usd_per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    """Prices by GPU that replace the catalogue's. The scenario's own price counts for its own GPU only."""
    max_gpus_per_replica: int = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """One replica design, batching limits left open."""

    scenario: Scenario
    """One replica, or one unit of prefill and decode replicas, with the first batching limits."""
    settings: tuple[tuple[int, int], ...]
    """(max_num_seqs, max_num_batched_tokens) to choose from."""

    @property
    def label(self) -> str:
        """The design in a phrase."""
        return label(self.scenario)


def label(scenario: Scenario) -> str:
    """A replica design in a phrase: GPUs, split, precisions, speculation."""
    p, s = scenario.parallel, scenario.speculative
    split = f"TP{p.tensor_parallel_size}"
    split += f" PP{p.pipeline_parallel_size}" if p.pipeline_parallel_size > 1 else ""
    if p.data_parallel_size > 1:
        split += f" {'EP' if p.enable_expert_parallel else 'DP'}{p.data_parallel_size}"
    elif p.enable_expert_parallel:
        split += " whole experts"
    drafts = f", {s.method} k={s.num_speculative_tokens}" if s else ""
    pools = scenario.disaggregation
    if pools is not None:
        unit = math.gcd(pools.prefill.replicas, pools.decode.replicas)
        split += f" {pools.prefill.replicas // unit}P{pools.decode.replicas // unit}D"
    return f"{scenario.hardware.gpu} {split}, {scenario.precision.weights} weights, {scenario.precision.kv_cache} KV{drafts}"


def default_gpus(scenario: Scenario) -> tuple[str, ...]:
    """Parts whose own kernels were measured and that have a price on the scenario's basis; others are considered when named."""
    open_price = scenario.price.model_copy(update={"usd_per_gpu_hour": None})
    found = []
    for row in catalog.gpus().values():
        kernel = kernels.find("gemm", row.slug, scenario.engine.name, "bf16")
        if kernel is not None and kernel.same_gpu and cost.gpu_hour(row.slug, open_price) is not None:
            found.append(row.slug)
    return tuple(found)


def default_speculative(scenario: Scenario) -> tuple[Speculative | None, ...]:
    """No speculation, and the scenario's or else a measured EAGLE-3 chain of three."""
    return (None, scenario.speculative or Speculative(method="eagle3", num_speculative_tokens=3))


def layouts(scenario: Scenario, space: Space) -> Iterator[Layout]:
    """Every design of the space on the scenario's model and traffic, one replica each."""
    arch = architecture.of(scenario.model)
    moe = any(group.mlp is not None and group.mlp.experts for group in arch.layers)
    gpus = space.gpus or default_gpus(scenario)
    # What a model was published in costs no quality, whatever else is allowed.
    own = cast(WeightPrecision, weight_precision(arch, "auto"))
    weights = space.weights or tuple(dict.fromkeys((*scenario.quality.allowed_weight_precisions, own)))
    kv_cache = space.kv_cache or scenario.quality.allowed_kv_precisions
    experts = space.expert_parallel_sizes if moe else (1,)
    settings = tuple(product(space.max_num_seqs, space.max_num_batched_tokens))
    drafts = space.speculative or default_speculative(scenario)
    for gpu, tp, pp, dp, whole, w, kv, speculative, ratio in product(
        gpus,
        space.tensor_parallel_sizes,
        space.pipeline_parallel_sizes,
        experts,
        (False, True),
        weights,
        kv_cache,
        drafts,
        space.disaggregation,
    ):
        # Whole experts on every rank: the only way with data-parallel ranks, a choice with tensor-parallel ones, neither on one rank.
        if whole != (dp > 1) and not (whole and moe and tp > 1):
            continue
        # Two pools are searched for their plainest form only: the split itself is the question.
        if tp * pp * dp > space.max_gpus_per_replica or (ratio is not None and (pp > 1 or speculative is not None)):
            continue
        parallel = Parallel(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp, enable_expert_parallel=whole)
        changes = {
            "hardware": scenario.hardware.model_copy(update={"gpu": gpu}),
            "parallel": parallel,
            "precision": Precision(weights=w, kv_cache=kv),
            "speculative": speculative,
            "disaggregation": None if ratio is None else _pools(scenario, gpu, parallel, ratio),
            "price": _price(scenario, space, gpu),
            "fleet": scenario.fleet.model_copy(update={"replicas": 1}),
        }
        design = scenario.model_copy(update=changes)
        yield Layout(with_setting(design, settings[0]), settings)


def _pools(scenario: Scenario, gpu: str, parallel: Parallel, ratio: tuple[int, int]) -> Disaggregation:
    prefill, decode = (Pool(gpu=gpu, parallel=parallel, engine=scenario.engine, replicas=n) for n in ratio)
    link_gb_s = scenario.disaggregation.link_gb_s if scenario.disaggregation else Disaggregation().link_gb_s
    return Disaggregation(prefill=prefill, decode=decode, link_gb_s=link_gb_s)


def _price(scenario: Scenario, space: Space, gpu: str) -> Price:
    own = scenario.price.usd_per_gpu_hour if gpu == scenario.hardware.gpu else None
    return scenario.price.model_copy(update={"usd_per_gpu_hour": space.usd_per_gpu_hour.get(gpu, own)})


def with_setting(scenario: Scenario, setting: tuple[int, int]) -> Scenario:
    """The scenario with these batching limits, in both pools where there are two."""
    engine = scenario.engine.model_copy(update={"max_num_seqs": setting[0], "max_num_batched_tokens": setting[1]})
    pools = scenario.disaggregation
    if pools is not None:
        prefill, decode = (pool.model_copy(update={"engine": engine}) for pool in (pools.prefill, pools.decode))
        pools = pools.model_copy(update={"prefill": prefill, "decode": decode})
    return scenario.model_copy(update={"engine": engine, "disaggregation": pools})


def with_replicas(unit: Scenario, replicas: int) -> Scenario:
    """A design of one replica (or one unit of two pools) bought this many times."""
    pools = unit.disaggregation
    if pools is None:
        return unit.model_copy(update={"fleet": unit.fleet.model_copy(update={"replicas": replicas})})
    prefill, decode = (pool.model_copy(update={"replicas": pool.replicas * replicas}) for pool in (pools.prefill, pools.decode))
    return unit.model_copy(update={"disaggregation": pools.model_copy(update={"prefill": prefill, "decode": decode})})
