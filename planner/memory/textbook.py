"""Memory as hand arithmetic counts it: parameters × bytes, label memory in decimal GB, no reserves, one pool over all GPUs."""

from __future__ import annotations

import math

from planner.architecture import Architecture
from planner.architecture.storage import TEXTBOOK_BYTES, weight_precision
from planner.hardware import Gpu
from planner.memory.lengths import final_length, model_len, prefix_copies
from planner.memory.model import MemoryPlan, Term
from planner.scenario import Scenario
from planner.sharding import Shard
from planner.units import GB


def textbook(arch: Architecture, shard: Shard, gpu: Gpu, scenario: Scenario) -> MemoryPlan:
    """The budget of one replica by hand: what the label says less the weights; utilisation and reserves are ignored."""
    size = TEXTBOOK_BYTES[weight_precision(arch, scenario.precision.weights)]
    gpus = shard.gpus
    memory = gpu.label_gb * GB
    weights = arch.total_params * size / gpus
    kv = scenario.precision.kv_cache
    state = arch.fixed_state_bytes_per_sequence
    per_token = arch.kv_bytes_per_token(kv) + arch.kv_windowed_bytes_per_token(kv)
    length, prefix = final_length(scenario)
    # a window holds a sequence's own last tokens first; of a longer prefix it keeps only what those leave room for
    new = length - prefix
    own = arch.kv_bytes(new, kv)
    shared = (arch.kv_bytes(prefix, kv) - state) * prefix_copies(scenario)
    free = (memory - weights) * gpus
    # nothing grows and no state is kept: only max_num_seqs limits
    unlimited = float(scenario.engine.max_num_seqs) if free >= 0 else 0.0
    sequences = max(0.0, (free - shared) / own) if own else unlimited
    max_len = model_len(arch, scenario)
    longest = arch.kv_bytes(max_len, kv)
    average = " on average" if state or arch.window else ""
    terms = (
        Term("memory", memory, f"{gpu.label_gb:g} GB × 10⁹ B", "label", gpu.verified_date),
        Term("weights", weights, f"{arch.total_params:,} parameters × {size:g} B ÷ {gpus} GPUs", "hand arithmetic"),
        Term(
            "kv_pool",
            memory - weights,
            f"({memory / GB:g} − {weights / GB:.4g}) GB, {free / GB:.4g} GB over {gpus} GPUs",
            "hand arithmetic",
        ),
        Term("sequence", own / gpus, f"{new:,.0f} tokens × {own / new:,.0f} B{average} ÷ {gpus} GPUs", "hand arithmetic"),
    )
    return MemoryPlan(
        fits=sequences >= 1,
        weights_bytes_per_gpu=weights,
        activation_bytes_per_gpu=0.0,
        non_torch_bytes_per_gpu=0.0,
        cuda_graph_bytes_per_gpu=0.0,
        kv_pool_bytes_per_gpu=memory - weights,
        kv_pool_tokens=max(0, int(free // per_token)) if per_token else 0,
        kv_bytes_per_token=per_token,
        kv_bytes_per_token_per_gpu=per_token / gpus,
        cache_limited_batch=math.floor(sequences),
        sequences=sequences,
        max_model_len_concurrency=max(0.0, free / longest) if longest else unlimited,
        shortfall_bytes_per_gpu=max(0.0, (own + shared - free) / gpus),
        gpu_memory_bytes=memory,
        budget_bytes_per_gpu=memory,
        max_model_len=max_len,
        sequence_bytes_per_gpu=own / gpus,
        full_kv_bytes_per_token_per_gpu=arch.kv_bytes_per_token(kv) / gpus,
        windowed_kv_bytes_per_token_per_gpu=arch.kv_windowed_bytes_per_token(kv) / gpus,
        state_bytes_per_sequence_per_gpu=state / gpus,
        terms=terms,
    )
