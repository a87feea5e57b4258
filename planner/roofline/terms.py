"""Token-dependent kernels of one pipeline stage: what T tokens cost in every layer, as functions built once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from planner.catalog import kernels
from planner.roofline.constants import ACTIVATION_BYTES, Constants, knee
from planner.scenario import Scenario
from planner.sharding import Gemm, Shard, ShardLayer, ShardMoe, Stage
from planner.units import MULTIPLY_ADD_FLOPS, US

Piece = tuple[str, float, str]
"""(name, seconds, bound)."""
TokenTerm = Callable[[float, float, bool], list[Piece]]
"""(tokens of this rank, tokens of all data-parallel ranks, verifying drafts?) -> pieces."""


NARROWEST = 512
"""Narrowest product that was timed; narrower ones (routers) get its penalty."""

DISPATCH_BYTES, COMBINE_BYTES = 1, 2
"""Bytes of one element on its way to an expert (FP8) and back (16 bit), as DeepEP sends them."""

LARGEST_SERVER_GPUS = 16
"""GPUs of one server at most; a larger scale-up domain is a rack, whose engines route tokens one by one."""

FUSED_NORMS = 2
"""Norms of a layer that TensorRT-LLM runs inside its all-reduces."""


def stage_terms(stage: Stage, shard: Shard, scenario: Scenario, c: Constants, block_scaled: bool) -> list[TokenTerm]:
    """Every kernel of the stage whose time depends on the number of tokens alone."""
    terms: list[TokenTerm] = []
    gemms: Counter[Gemm] = Counter()
    for layer in stage.layers:
        for gemm in layer.gemms:
            gemms[gemm] += layer.count
        if layer.moe is not None:
            terms.append(moe(layer.moe, layer.count, c, block_scaled))
    terms += [gemm_term(g, count, c, block_scaled) for g, count in gemms.items()]
    layers = sum(layer.count for layer in stage.layers)
    if not c.ideal:
        terms.append(elementwise(shard, layers, sum(x.count for x in stage.layers if x.moe), c))
    if shard.tensor_parallel_size > 1:
        reduces = sum(layer.count * layer.all_reduces for layer in stage.layers)
        terms.append(all_reduce(shard, reduces, scenario, c))
    exchanges = sum(layer.count for layer in stage.layers if layer.all_to_alls)
    if exchanges:
        terms.append(all_to_all(shard, exchanges, next(x for x in stage.layers if x.all_to_alls), scenario, c))
    return terms


def gemm_term(g: Gemm, count: int, c: Constants, block_scaled: bool) -> TokenTerm:
    """launch + (compute ^ knee + memory ^ knee) ^ (1 / knee); when drafts are verified the two add up (no overlap seen)."""
    row = c.row("gemm", c.dtype(g.precision, block_scaled))
    rate = c.peak(row) * row["compute"]
    bandwidth = c.gpu.memory_bandwidth_bytes_s * row["memory"]
    n, k = max(g.n, NARROWEST), max(g.k, NARROWEST)
    flops = MULTIPLY_ADD_FLOPS * g.n * g.k * (1 + row["half_n_compute"] / n) * (1 + row["half_k_compute"] / k)
    narrow = 1 + row["half_n_memory"] / n
    weight, each = g.weight_bytes * narrow, ACTIVATION_BYTES * (g.n + g.k) * narrow
    launch, p, name = count * row["launch_us"] * US, row["knee"], g.name

    def term(tokens: float, _all: float, verifying: bool) -> list[Piece]:
        compute, memory = tokens * flops / rate, (weight + tokens * each) / bandwidth
        seconds = count * knee(compute, memory, 1 if verifying and not c.ideal else p)
        return [(name, seconds, "compute" if compute > memory else "memory"), ("launch", launch, "launch")]

    return term


def moe(m: ShardMoe, count: int, c: Constants, block_scaled: bool) -> TokenTerm:
    """Routed experts: the step reads the experts that its tokens touch, E·(1 − (1 − k/E)ᵀ) of them."""
    row = moe_row(m, c, block_scaled)
    rate = c.peak(row) * row["compute"]
    bandwidth = c.gpu.memory_bandwidth_bytes_s * row["memory"]
    pair_flops = MULTIPLY_ADD_FLOPS * m.matrices * m.hidden * m.intermediate * (1 + row["half_width_compute"] / m.intermediate)
    expert_bytes = m.weight_bytes_per_expert * (1 + row["half_width_memory"] / m.intermediate)
    miss, launch, p = 1 - m.top_k / m.experts, count * row["launch_us"] * US, row["knee"]
    busiest = 1.0 if c.ideal else m.ep_size ** kernels.assumed()["expert_imbalance_exponent"]

    def term(_tokens: float, every: float, _verifying: bool) -> list[Piece]:
        pairs = every * m.top_k / m.ep_size
        touched = m.experts_per_rank * (1 - miss**every)
        compute = pairs * pair_flops / rate
        memory = (touched * expert_bytes + ACTIVATION_BYTES * m.hidden * (every / m.ep_size + pairs)) / bandwidth
        seconds = count * busiest * knee(compute, memory, p)
        return [("experts", seconds, "compute" if compute > memory else "memory"), ("launch", launch, "launch")]

    return term


def moe_row(m: ShardMoe, c: Constants, block_scaled: bool) -> dict[str, Any]:
    """Constants of this expert layer: of its very shape where the same kernels were timed on it."""
    dtype = c.moe_dtype(m.precision, block_scaled)
    general = c.row("moe", dtype, experts=None)
    if c.ideal:
        return general
    own = kernels.find("moe", c.gpu.slug, c.engine, dtype, experts=m.experts, hidden=m.hidden)
    if own is not None and all(own.row[k] == general[k] for k in ("gpu", "engine", "dtype")):
        return c.doubted("moe", own.row)
    return general


def elementwise(shard: Shard, layers: int, moe_layers: int, c: Constants) -> TokenTerm:
    """Norms, rotary embedding, activation, cache write and routers: assumed kernels, not measured ones."""
    a = kernels.assumed()
    fused = FUSED_NORMS if c.engine == "trtllm" and shard.tensor_parallel_size > 1 else 0
    launch = (layers * (a["elementwise_kernels"] - fused) * a["elementwise_us"] + moe_layers * a["router_us"]) * US
    each = (
        layers
        * a["elementwise_tensors"]
        * shard.hidden_size
        * ACTIVATION_BYTES
        / (a["elementwise_memory"] * c.gpu.memory_bandwidth_bytes_s)
    )
    return lambda tokens, _all, _verifying: [("elementwise", tokens * each, "memory"), ("launch", launch, "launch")]


def all_reduce(shard: Shard, count: int, scenario: Scenario, c: Constants) -> TokenTerm:
    """Two sums of tokens × hidden per layer over the tensor-parallel group."""
    group = shard.tp_group
    time = c.all_reduce(group.size, group.link_bytes_s, group.inter_node, scenario.hardware.gpus_per_node)
    each = shard.hidden_size * ACTIVATION_BYTES
    return lambda tokens, _all, _verifying: [("all-reduce", count * time(tokens * each), "link")]


def all_to_all(shard: Shard, layers: int, layer: ShardLayer, scenario: Scenario, c: Constants) -> TokenTerm:
    """What data-parallel ranks that share the experts exchange: every token to the ranks of its experts and back.

    Engines either send each token to its experts (DeepEP) or, inside one server, gather all tokens everywhere and scatter the sums,
    which costs an all-reduce of all tokens. Which one runs is seldom stated, so the dearer one is charged: the reading that the
    attention-data-parallel rows of NVIDIA's v1.0 and v1.2 tables support.
    """
    assert layer.moe is not None
    group = shard.ep_group
    hidden = layer.moe.hidden * layer.moe.top_k
    if c.ideal:
        each_ideal = (DISPATCH_BYTES + COMBINE_BYTES) * (group.size - 1) / group.size * hidden / group.link_bytes_s
        return lambda tokens, _all, _verifying: [("all-to-all", layers * tokens * each_ideal, "link")]
    leaves, link = group.inter_node, group.link_bytes_s
    nodes = math.ceil(group.size / scenario.hardware.gpus_per_node) if leaves else 1
    timed = kernels.timed_on("all_to_all", "nodes")
    row = c.row("all_to_all", None, nodes=next((n for n in timed if n >= nodes), timed[-1]))
    constant = (row["dispatch_us"] + row["combine_us"]) * US
    each = hidden * (row["dispatch_us_per_million"] + row["combine_us_per_million"]) / 1e6 * US
    if leaves or c.gpu.scale_up_domain_gpus > LARGEST_SERVER_GPUS:
        return lambda tokens, _all, _verifying: [("all-to-all", layers * (constant + tokens * each), "link")]
    gather = c.all_reduce(group.size, link, False, group.size)
    each_gathered = layer.moe.hidden * ACTIVATION_BYTES
    return lambda tokens, every, _verifying: [("all-to-all", layers * max(constant + tokens * each, gather(every * each_gathered)), "link")]


def head(stage: Stage, shard: Shard, c: Constants, block_scaled: bool) -> TokenTerm | None:
    """The output matrix and greedy sampling, by rows of logits."""
    if stage.lm_head is None:
        return None
    product = gemm_term(stage.lm_head, 1, c, block_scaled)
    if c.ideal:
        return product
    a = kernels.assumed()
    each = shard.vocab_size * a["sampling_bytes_per_logit"] / (a["sampling_memory"] * c.gpu.memory_bandwidth_bytes_s)
    return lambda rows, every, verifying: [*product(rows, every, verifying), ("sampling", rows * each, "memory")]
