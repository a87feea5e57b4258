"""What would make it fit: single changes, cheapest first, each tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from planner.architecture import Architecture
from planner.architecture.storage import weight_precision
from planner.hardware import Gpu
from planner.memory.lengths import final_length
from planner.memory.model import MemoryPlan, Remedy
from planner.problems import InputError
from planner.scenario import Scenario
from planner.sharding import Shard, problems, shard
from planner.sharding.legality import refusals

Budget = Callable[[Architecture, Shard, Gpu, Scenario], MemoryPlan]
LENGTH_STEP = 1024
MOST_UTILISATION = 0.95
FEW_BATCHED_TOKENS = 2048
SHRINKS = {"fp32": ("bf16", "fp8", "int4"), "bf16": ("fp8", "int4"), "fp16": ("fp8", "int4"), "fp8": ("int4",), "int8": ("int4",)}
LARGEST_TP = 64
WORTH_SAYING = 0.1
"""Share of the shortfall that a setting must give back to be named when it is not enough alone."""


def remedies(arch: Architecture, gpu: Gpu, scenario: Scenario, now: MemoryPlan, budget: Budget) -> tuple[Remedy, ...]:
    """Changes in the order of what they cost: settings, cache precision, weight precision, more GPUs.

    Settings that do not help are left out; of precisions and layouts the first that is enough is given, or the last tried.
    """
    found: list[Remedy] = []
    for changes in (
        _settings(arch, scenario, now),
        _kv(scenario),
        _weights(arch, scenario),
        _tensor_parallel(arch, scenario),
        _pipeline(scenario, arch),
    ):
        tried: list[Remedy] = []
        for field, value, message in changes:
            remedy = _try(arch, gpu, scenario, budget, field, value, message)
            if remedy is None:
                continue
            if not field.startswith("engine."):
                tried = [remedy]
                if remedy.fits:
                    break
            elif remedy.fits or remedy.kv_pool_bytes_per_gpu - now.kv_pool_bytes_per_gpu > WORTH_SAYING * now.shortfall_bytes_per_gpu:
                found.append(remedy)
        found += tried
    return tuple(found)


Change = tuple[str, Any, str]


def _settings(arch: Architecture, scenario: Scenario, now: MemoryPlan) -> Iterator[Change]:
    """Free changes of the engine's limits."""
    e = scenario.engine
    length, _ = final_length(scenario)
    needed = math.ceil(length / LENGTH_STEP) * LENGTH_STEP
    if scenario.fidelity == "textbook":
        return
    if needed < now.max_model_len:
        yield "engine.max_model_len", needed, f"accept sequences of at most {needed:,} tokens instead of {now.max_model_len:,}"
    if e.max_num_batched_tokens > FEW_BATCHED_TOKENS:
        yield (
            "engine.max_num_batched_tokens",
            FEW_BATCHED_TOKENS,
            f"batch at most {FEW_BATCHED_TOKENS:,} tokens a step: smaller activations, slower prefill",
        )
    if e.max_num_seqs > 64:
        yield "engine.max_num_seqs", 64, "run at most 64 sequences at once: a smaller sampler"
    if e.gpu_memory_utilization < MOST_UTILISATION:
        yield (
            "engine.gpu_memory_utilization",
            MOST_UTILISATION,
            f"let the engine use {MOST_UTILISATION:.0%} of the memory instead of {e.gpu_memory_utilization:.0%}",
        )


def _kv(scenario: Scenario) -> Iterator[Change]:
    if scenario.precision.kv_cache in ("auto", "bf16", "fp16"):
        yield "precision.kv_cache", "fp8", "store the KV cache in FP8: half the bytes per token"


def _weights(arch: Architecture, scenario: Scenario) -> Iterator[Change]:
    for name in SHRINKS.get(weight_precision(arch, scenario.precision.weights), ()):
        yield "precision.weights", name, f"store the weights in {name}"


def _tensor_parallel(arch: Architecture, scenario: Scenario) -> Iterator[Change]:
    for tp in range(scenario.parallel.tensor_parallel_size + 1, LARGEST_TP + 1):
        wider = scenario.parallel.model_copy(update={"tensor_parallel_size": tp})
        if tp & (tp - 1) or refusals(arch, tp, wider, scenario.precision):
            continue
        if not any(p.severity == "error" for p in problems(arch, wider, scenario.precision, scenario.hardware)):
            yield "parallel.tensor_parallel_size", tp, f"split each layer over {tp} GPUs"


def _pipeline(scenario: Scenario, arch: Architecture) -> Iterator[Change]:
    for pp in (2, 4, 8):
        if scenario.parallel.pipeline_parallel_size < pp <= arch.num_hidden_layers:
            yield "parallel.pipeline_parallel_size", pp, f"put the layers on {pp} pipeline stages"


def _try(arch: Architecture, gpu: Gpu, scenario: Scenario, budget: Budget, field: str, value: Any, message: str) -> Remedy | None:
    part, name = field.split(".")
    changed = scenario.model_copy(update={part: getattr(scenario, part).model_copy(update={name: value})})
    try:
        laid = shard(arch, changed.parallel, changed.precision, gpu, changed.hardware)
        result = budget(arch, laid, gpu, changed)
    except InputError:
        return None
    return Remedy(field, value, message, result.kv_pool_bytes_per_gpu, result.cache_limited_batch, result.fits)
