"""What would make it fit: single changes and pairs of them, cheapest first, each tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

from planner import traffic
from planner.architecture import Architecture
from planner.architecture.storage import weight_precision
from planner.hardware import Gpu
from planner.memory.model import MemoryPlan, Remedy
from planner.problems import InputError
from planner.scenario import Scenario
from planner.sharding import Shard, problems, shard
from planner.sharding.legality import refusals

Budget = Callable[[Architecture, Shard, Gpu, Scenario], MemoryPlan]
Change = tuple[str, Any, str]
"""Dotted path, value, and what that means in words."""
LENGTH_STEP = 1024
"""Tokens to whose multiples an offered max_model_len is rounded up."""
MOST_UTILISATION = 0.95
"""Share of the memory that an engine can be let have."""
FEW_BATCHED_TOKENS, FEW_SEQUENCES = 2048, 64
"""Limits of a step that are offered in place of larger ones."""
SHRINKS = {"fp32": ("bf16", "fp8", "int4"), "bf16": ("fp8", "int4"), "fp16": ("fp8", "int4"), "fp8": ("int4",), "int8": ("int4",)}
LOSSY = "int4"
"""Weights that cost quality: offered behind everything that does not."""
LARGEST_TP = 64
"""Tensor-parallel ranks up to which larger layouts are tried."""
WORTH_SAYING = 0.1
"""Share of the shortfall that a setting must give back to be named when it is not enough alone."""


def remedies(arch: Architecture, gpu: Gpu, scenario: Scenario, now: MemoryPlan, budget: Budget) -> tuple[Remedy, ...]:
    """Settings, cache precision, weight precision, more GPUs, and pairs of them: the cheapest that is enough first, the others behind.

    Settings that do not help are left out; of precisions and layouts the first that is enough is given, or the last tried. Of pairs, the
    one on the fewest GPUs for each weight precision, where every single change that is enough needs more GPUs or there is none.
    """
    groups = (
        list(_settings(scenario, now)),
        list(_kv(scenario)),
        list(_weights(arch, scenario)),
        list(_tensor_parallel(arch, scenario)),
        list(_pipeline(scenario, arch)),
    )
    found: list[Remedy] = []
    for changes in groups:
        tried: list[Remedy] = []
        for change in changes:
            remedy = _try(arch, gpu, scenario, budget, (change,))
            if remedy is None:
                continue
            if not change[0].startswith("engine."):
                tried = [remedy]
                if remedy.fits:
                    break
            elif remedy.fits or remedy.kv_pool_bytes_per_gpu - now.kv_pool_bytes_per_gpu > WORTH_SAYING * now.shortfall_bytes_per_gpu:
                found.append(remedy)
        found += tried
    found += _pairs(arch, gpu, scenario, budget, groups, [r for r in found if r.fits])
    return (*cheapest(found), *(r for r in found if not r.fits))


def _pairs(
    arch: Architecture, gpu: Gpu, scenario: Scenario, budget: Budget, groups: Sequence[Sequence[Change]], enough: list[Remedy]
) -> list[Remedy]:
    """The pair of changes on the fewest GPUs for each weight precision; fewer than every single change of that quality needs."""
    pairs = [(a, b) for first, second in combinations(groups, 2) for a, b in product(first, second)]
    sized = sorted(((_gpus(_changed(scenario, pair)), i, pair) for i, pair in enumerate(pairs)), key=lambda entry: entry[:2])
    found: dict[Any, Remedy] = {}
    for gpus, _, pair in sized:
        weights = next((value for field, value, _ in pair if field == "precision.weights"), None)
        if weights in found or any(r.gpus <= gpus and (weights == LOSSY or not _lossy(r)) for r in enough):
            continue
        remedy = _try(arch, gpu, scenario, budget, pair)
        if remedy is not None and remedy.fits:
            found[weights] = remedy
    return sorted(found.values(), key=lambda r: r.gpus)


def cheapest(found: Iterable[Remedy]) -> list[Remedy]:
    """Those that are enough, the cheapest first: on the fewest GPUs, 4-bit weights behind everything that keeps quality."""
    return sorted((r for r in found if r.fits), key=lambda r: (_lossy(r), r.gpus))


def _lossy(remedy: Remedy) -> bool:
    return LOSSY in (remedy.value, *(value for _, value in remedy.also))


def _settings(scenario: Scenario, now: MemoryPlan) -> Iterator[Change]:
    """Free changes of the engine's limits."""
    e = scenario.engine
    needed = math.ceil(traffic.longest_tokens(scenario.workload) / LENGTH_STEP) * LENGTH_STEP
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
    if e.max_num_seqs > FEW_SEQUENCES:
        yield "engine.max_num_seqs", FEW_SEQUENCES, f"run at most {FEW_SEQUENCES} sequences at once: a smaller sampler"
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
    own = arch.quantization
    if own is not None and own.weights != "bf16" and scenario.precision.weights in ("bf16", "fp16", "fp32"):
        yield "precision.weights", "auto", f"take the weights as the checkpoint has them, in {own.weights}"
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


def _changed(scenario: Scenario, changes: Sequence[Change]) -> Scenario:
    for field, value, _ in changes:
        part, name = field.split(".")
        scenario = scenario.model_copy(update={part: getattr(scenario, part).model_copy(update={name: value})})
    return scenario


def _gpus(scenario: Scenario) -> int:
    return scenario.parallel.gpus


def _try(arch: Architecture, gpu: Gpu, scenario: Scenario, budget: Budget, changes: Sequence[Change]) -> Remedy | None:
    changed = _changed(scenario, changes)
    try:
        laid = shard(arch, changed.parallel, changed.precision, gpu, changed.hardware)
        result = budget(arch, laid, gpu, changed)
    except InputError:
        return None
    (field, value, _), *others = changes
    return Remedy(
        field,
        value,
        " and ".join(message for _, _, message in changes),
        result.kv_pool_bytes_per_gpu,
        result.cache_limited_batch,
        result.fits,
        _gpus(changed),
        tuple((path, other) for path, other, _ in others),
    )
