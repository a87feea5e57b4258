"""The budget identity: utilisation × memory = weights + activation peak + non-torch + KV pool."""

from __future__ import annotations

import math

from planner.architecture import Architecture
from planner.architecture.storage import TEXTBOOK_BYTES
from planner.hardware import Gpu
from planner.memory.model import MemoryPlan, Term
from planner.scenario import Scenario, mean_length
from planner.sharding import Shard, Stage
from planner.units import GB, GIB


def plan(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    """Memory of one replica of `scenario`. Not fitting is a result: `fits` is False and the pool may be negative."""
    if scenario.fidelity == "textbook":
        return textbook(arch, shard, gpu, scenario)
    return engine(arch, shard, gpu, scenario)


def textbook(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    """Hand arithmetic: parameters × bytes, label memory in decimal GB, no reserves, the cache in one pool over all GPUs."""
    size = TEXTBOOK_BYTES["bf16" if scenario.precision.weights == "auto" else scenario.precision.weights]
    gpus = shard.gpus
    memory = gpu.label_gb * GB
    weights = arch.total_params * size / gpus
    kv = scenario.precision.kv_cache
    per_token = arch.kv_bytes_per_token(kv) + arch.kv_windowed_bytes_per_token(kv)
    length, prefix = final_length(scenario)
    sequence = arch.kv_bytes(length, kv) - arch.kv_bytes(prefix, kv) + (arch.fixed_state_bytes_per_sequence if prefix else 0)
    shared = (arch.kv_bytes(prefix, kv) - arch.fixed_state_bytes_per_sequence) * prefix_copies(scenario) if prefix else 0.0
    free = (memory - weights) * gpus
    batch = max(0, math.floor((free - shared) / sequence)) if sequence > 0 else 0
    max_len = model_len(arch, scenario)
    terms = (
        Term("memory", memory, f"{gpu.label_gb:g} GB × 10⁹", "label"),
        Term("weights", weights, f"{arch.total_params:,} parameters × {size:g} bytes / {gpus} GPUs", "textbook"),
        Term("kv_pool", memory - weights, "memory − weights", "textbook"),
    )
    return MemoryPlan(
        fits=batch >= 1,
        weights_bytes_per_gpu=weights,
        activation_bytes_per_gpu=0.0,
        non_torch_bytes_per_gpu=0.0,
        cuda_graph_bytes_per_gpu=0.0,
        kv_pool_bytes_per_gpu=memory - weights,
        kv_pool_tokens=max(0, int(free // per_token)) if per_token else 0,
        kv_bytes_per_token=per_token,
        kv_bytes_per_token_per_gpu=per_token / gpus,
        cache_limited_batch=batch,
        max_model_len_concurrency=max(0.0, free / arch.kv_bytes(max_len, kv)) if arch.kv_bytes(max_len, kv) else 0.0,
        shortfall_bytes_per_gpu=max(0.0, (sequence + shared - free) / gpus),
        gpu_memory_bytes=memory,
        budget_bytes_per_gpu=memory,
        max_model_len=max_len,
        sequence_bytes_per_gpu=sequence / gpus,
        full_kv_bytes_per_token_per_gpu=arch.kv_bytes_per_token(kv) / gpus,
        windowed_kv_bytes_per_token_per_gpu=arch.kv_windowed_bytes_per_token(kv) / gpus,
        state_bytes_per_sequence_per_gpu=arch.fixed_state_bytes_per_sequence / gpus,
        terms=terms,
    )


def engine(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    e, kv = scenario.engine, scenario.precision.kv_cache
    tp = shard.tensor_parallel_size
    max_len = model_len(arch, scenario)
    rope = arch.max_position_embeddings * arch.rotary_dim * 2
    activation = 14.0 * e.max_num_seqs * shard.vocab_size + 3.0 * e.max_num_batched_tokens * arch.hidden_size * 2
    non_torch = (0.25 if tp == 1 else 2.1) * GIB
    graphs = 0.0 if e.enforce_eager else 1.0 * GIB
    budget = gpu.memory_engine_bytes * e.gpu_memory_utilization
    length, prefix = final_length(scenario)
    dp = shard.data_parallel_size

    def room(s: Stage) -> tuple[float, float, float, float, float]:
        weights = s.weight_bytes + rope
        pool = budget - weights - activation - non_torch
        own = _cache(s, arch, length) - _cache(s, arch, prefix) + s.state_bytes_per_sequence
        shared = _cache(s, arch, prefix) * prefix_copies(scenario)
        longest = _cache(s, arch, max_len) + s.state_bytes_per_sequence
        return weights, pool, own, shared, longest

    worst = min(shard.stages, key=lambda s: (lambda r: (r[1] - r[3]) / max(r[2], 1.0))(room(s)))
    weights, pool, own, shared, longest = room(worst)
    per_token_gpu = worst.kv_bytes_per_token + worst.kv_windowed_bytes_per_token
    batch = max(0, math.floor((pool - shared) / own)) * dp if own > 0 else 0
    short = max(0.0, max(own + shared, longest) - pool)
    terms = (
        Term("budget", budget, f"{e.gpu_memory_utilization:g} × {gpu.memory_engine_bytes / GIB:.2f} GiB", gpu.memory_basis),
        Term("weights", weights, "tensors of this rank + rotary table", "config"),
        Term("activation", activation, "profiling peak", "engine logs, vLLM 0.19"),
        Term("non_torch", non_torch, "CUDA context and NCCL", "engine logs, vLLM 0.19"),
        Term("kv_pool", pool, "budget − weights − activation − non_torch", "identity"),
    )
    return MemoryPlan(
        fits=short == 0,
        weights_bytes_per_gpu=weights,
        activation_bytes_per_gpu=activation,
        non_torch_bytes_per_gpu=non_torch,
        cuda_graph_bytes_per_gpu=graphs,
        kv_pool_bytes_per_gpu=pool,
        kv_pool_tokens=max(0, int(pool // per_token_gpu)) * dp if per_token_gpu else 0,
        kv_bytes_per_token=arch.kv_bytes_per_token(kv) + arch.kv_windowed_bytes_per_token(kv),
        kv_bytes_per_token_per_gpu=per_token_gpu,
        cache_limited_batch=batch,
        max_model_len_concurrency=max(0.0, pool / longest) * dp if longest else 0.0,
        shortfall_bytes_per_gpu=short,
        gpu_memory_bytes=gpu.memory_engine_bytes,
        budget_bytes_per_gpu=budget,
        max_model_len=max_len,
        sequence_bytes_per_gpu=own,
        full_kv_bytes_per_token_per_gpu=worst.kv_bytes_per_token,
        windowed_kv_bytes_per_token_per_gpu=worst.kv_windowed_bytes_per_token,
        state_bytes_per_sequence_per_gpu=worst.state_bytes_per_sequence,
        terms=terms,
        remedies=(),
    )


def _cache(s: Stage, arch: Architecture, tokens: float) -> float:
    window = arch.window or 0
    return tokens * s.kv_bytes_per_token + min(tokens, window) * s.kv_windowed_bytes_per_token


def final_length(scenario: Scenario) -> tuple[float, float]:
    """(mean input + mean output, shared prefix) of one sequence, tokens."""
    w = scenario.workload
    inputs = mean_length(w.input_len)
    output = mean_length(w.output_len)
    if w.max_output_len:
        output = min(output, w.max_output_len)
    return inputs + output, min(w.shared_prefix_len, inputs)


def prefix_copies(scenario: Scenario) -> int:
    """Shared prefixes held at once: one per group with prefix caching; without it every sequence holds its own."""
    return scenario.workload.prefix_groups


def model_len(arch: Architecture, scenario: Scenario) -> int:
    """Longest sequence the engine accepts: the scenario's, else the model's, else the planned length."""
    length, _ = final_length(scenario)
    return scenario.engine.max_model_len or arch.max_position_embeddings or math.ceil(length)
