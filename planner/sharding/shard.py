"""Dividing a model over the ranks of a replica."""

from __future__ import annotations

import math
from functools import lru_cache

from planner.architecture import KV_BYTES, Architecture, Attention, Layer, Tensor
from planner.architecture.storage import stored_as
from planner.hardware import Gpu
from planner.scenario import Hardware, Parallel, Precision
from planner.sharding.model import Gemm, Group, Shard, ShardAttention, ShardLayer, ShardMoe, ShardRecurrent, Stage
from planner.units import GB

VOCAB_PADDING = 64  # engines pad the vocabulary so that common TP sizes divide it
FUSED = {
    "self_attn.q_proj": "qkv",
    "self_attn.k_proj": "qkv",
    "self_attn.v_proj": "qkv",
    "self_attn.q_a_proj": "qkv_a",
    "self_attn.kv_a_proj_with_mqa": "qkv_a",
    "mlp.gate_proj": "gate_up",
    "mlp.up_proj": "gate_up",
    "mlp.shared_experts.gate_proj": "shared_gate_up",
    "mlp.shared_experts.up_proj": "shared_gate_up",
    "mlp.shared_experts.down_proj": "shared_down",
    "mlp.gate": "router",
    "self_attn.o_proj": "o",
    "mlp.down_proj": "down",
}

USUAL_SERVER_GPUS = 8
"""GPUs of the usual server; a larger scale-up domain spans servers, so `gpus_per_node` does not cut it."""
ASSUMED_BUS_BYTES_S = 64 * GB
"""PCIe 5.0 x16, one direction, between GPUs that a bridge or a partition does not join."""
ASSUMED_NIC_BYTES_S = 50 * GB
"""400 Gbit/s per GPU, one direction, where no source gives the part's network."""


def shard(arch: Architecture, parallel: Parallel, precision: Precision, gpu: Gpu, hardware: Hardware) -> Shard:
    """What each rank of one replica holds and sends. Illegal layouts are rounded up; `sharding.problems` names them."""
    return _shard(arch, parallel, precision, gpu, hardware.gpus_per_node, hardware.scale_up_domain_gpus)


@lru_cache(maxsize=256)
def _shard(arch: Architecture, parallel: Parallel, precision: Precision, gpu: Gpu, gpus_per_node: int, domain: int | None) -> Shard:
    tp, pp, dp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.data_parallel_size
    has_experts = any(g.mlp and g.mlp.experts for g in arch.layers)
    ep = tp * dp if parallel.enable_expert_parallel and has_experts else 1
    vocab = math.ceil(arch.vocab_size / VOCAB_PADDING) * VOCAB_PADDING
    stages = tuple(
        _stage(arch, i, span, pp, parallel, precision, ep, vocab) for i, span in enumerate(stage_spans(arch.num_hidden_layers, pp))
    )
    fast = fast_domain(gpu, gpus_per_node, domain)
    return Shard(
        stages=stages,
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        data_parallel_size=dp,
        expert_parallel_size=ep,
        hidden_size=arch.hidden_size,
        vocab_size=vocab,
        tp_group=group(tp, tp, fast, gpu, gpus_per_node),
        ep_group=group(tp * dp if has_experts else 1, tp * dp, fast, gpu, gpus_per_node),
        pp_group=group(pp, tp * dp * pp, fast, gpu, gpus_per_node),
        activation_bytes_per_element=4 if precision.weights == "fp32" else 2,
    )


def fast_domain(gpu: Gpu, gpus_per_node: int, chosen: int | None) -> int:
    """GPUs that share the fast link: as chosen, else the catalogue's, cut to one server where the link ends there."""
    known = gpu.scale_up_domain_gpus
    return chosen or (known if known > USUAL_SERVER_GPUS else min(known, gpus_per_node))


def group(size: int, span_gpus: int, domain_gpus: int, gpu: Gpu, gpus_per_node: int) -> Group:
    """A communicator of `size` ranks laid over `span_gpus` neighbouring GPUs.

    The fast link when they share a domain, else the server's bus while they share a server, else the network.
    """
    if span_gpus <= max(domain_gpus, 1) or size == 1:
        return Group(size, gpu.link_name, gpu.link_bytes_s, False)
    if span_gpus <= gpus_per_node:
        if gpu.link_name.startswith("PCIe"):  # a part without a scale-up link: its own link is the bus
            return Group(size, gpu.link_name, gpu.link_bytes_s, False)
        return Group(size, "PCIe of the server (64 GB/s assumed)", min(gpu.link_bytes_s, ASSUMED_BUS_BYTES_S), False)
    if gpu.nic_bytes_s:
        return Group(size, "network", gpu.nic_bytes_s, True)
    return Group(size, "network (400 Gbit/s assumed)", ASSUMED_NIC_BYTES_S, True)


def stage_spans(layers: int, pp: int) -> list[range]:
    """Layers of each pipeline stage as vLLM cuts them: even, the remainder to the stages before the last."""
    sizes = [layers // pp] * pp
    for i in range(layers % pp):
        sizes[-2 - i if pp > 1 else -1] += 1
    spans, start = [], 0
    for size in sizes:
        spans.append(range(start, start + size))
        start += size
    return spans


def _stage(arch: Architecture, index: int, span: range, pp: int, parallel: Parallel, precision: Precision, ep: int, vocab: int) -> Stage:
    tp = parallel.tensor_parallel_size
    first, last = index == 0, index == pp - 1
    layers = []
    kv = windowed = state = 0.0
    for number, g in enumerate(arch.layers):
        count = sum(1 for i in g.indices if i in span)
        if not count:
            continue
        layer = _layer(arch, g, number, count, parallel, precision, ep)
        layers.append(layer)
        if layer.attention:
            kv += count * layer.attention.kv_bytes_per_token
            windowed += count * layer.attention.kv_windowed_bytes_per_token
        if layer.recurrent:
            state += count * layer.recurrent.state_bytes
    weights = sum(x.count * x.weight_bytes for x in layers)
    read = weights
    lm_head: Gemm | None = None
    for t in arch.outer:
        name, size = stored_as(arch, t, precision.weights)
        n = _rows(t, arch, vocab, tp)
        if t.role == "embedding":
            weights += n * t.k * size if first or (last and arch.tied_embeddings) else 0
            if last and arch.tied_embeddings and t.name == "embed_tokens":
                lm_head = Gemm("lm_head", n, t.k, size, name)
                read += lm_head.weight_bytes
        elif t.role == "lm_head":
            if last:
                lm_head = Gemm("lm_head", n, t.k, size, name)
                weights += lm_head.weight_bytes
                read += lm_head.weight_bytes
        elif t.role == "tower":
            weights += t.params * size / tp if first else 0
        elif last:
            weights += t.params * size
    return Stage(index, tuple(layers), len(span), last, lm_head, weights, _engine_bytes(arch, span, tp), read, kv, windowed, state)


def _engine_bytes(arch: Architecture, span: range, tp: int) -> float:
    """What an engine builds beside the weights: the rotary table, and 16-bit copies of MLA's up-projection for absorbed decode."""
    copies = 0.0
    for g in arch.layers:
        if g.attention and g.attention.mla:
            up = next((t.params for t in g.tensors if t.name.endswith("kv_b_proj")), 0)
            copies += sum(1 for i in g.indices if i in span) * up * 2 / tp
    return arch.rope_table_bytes + copies


def _rows(tensor: Tensor, arch: Architecture, vocab: int, tp: int) -> int:
    n = vocab if tensor.n == arch.vocab_size and tensor.role in ("embedding", "lm_head") else tensor.n
    return math.ceil(n / tp) if tensor.split == "n" else n


def _layer(arch: Architecture, g: Layer, number: int, count: int, parallel: Parallel, precision: Precision, ep: int) -> ShardLayer:
    tp, dp = parallel.tensor_parallel_size, parallel.data_parallel_size
    kv_heads = g.attention.kv_heads if g.attention else 1
    weight_bytes = 0.0
    fused: dict[str, Gemm] = {}
    expert_size, expert_precision = 2.0, "bf16"
    for t in g.tensors:
        stored, size = stored_as(arch, t, precision.weights)
        n, k, copies = local_shape(t, tp, dp, ep, kv_heads)
        weight_bytes += 0 if t.elsewhere else padded(n, k, stored) * copies * size
        if t.role == "expert":
            if t.linear:
                expert_size, expert_precision = size, stored
        elif t.k > 1 and t.role != "norm":
            name = FUSED.get(t.name, t.name.removeprefix("self_attn.").removeprefix("mlp."))
            before = fused.get(name)
            fused[name] = Gemm(name, n + (before.n if before else 0), k, size, stored)
    is_moe = bool(g.mlp and g.mlp.experts)
    return ShardLayer(
        count=count,
        kind=g.kind,
        gemms=tuple(fused.values()),
        attention=shard_attention(g.attention, tp, precision.kv_cache) if g.attention else None,
        moe=_moe(arch, g, tp, dp, ep, expert_size, expert_precision) if is_moe else None,
        recurrent=_recurrent(g, tp) if g.recurrent else None,
        weight_bytes=weight_bytes,
        all_reduces=(tp > 1) * (bool(g.attention or g.recurrent) + bool(g.mlp)),
        all_to_alls=2 if is_moe and dp > 1 else 0,
        group=number,
    )


def local_shape(t: Tensor, tp: int, dp: int, ep: int, kv_heads: int) -> tuple[int, int, int]:
    """(n, k, copies) of one tensor on one rank."""
    n, k, copies = t.n, t.k, t.copies
    if t.role == "expert":
        if ep > 1:
            return n, k, math.ceil(copies / ep)
        tp *= dp  # without EP, engines cut every expert over all ranks that see the tokens
    if t.split == "n":
        n = math.ceil(n / tp)
    elif t.split == "k":
        k = math.ceil(k / tp)
    elif t.split == "kv":
        n = n // kv_heads * kv_heads_per_rank(kv_heads, tp)
    return n, k, copies


def padded(n: int, k: int, stored: str) -> int:
    """Elements of one matrix as kernels lay it out: MXFP4 pads outputs to 256 and inputs to 128 (fitted to gpt-oss logs, within 1 %)."""
    if stored != "mxfp4" or k == 1:
        return n * k
    return math.ceil(n / 256) * 256 * math.ceil(k / 128) * 128


def kv_heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads of one rank: divided by TP, never below one (replicated)."""
    return max(1, math.ceil(kv_heads / tp))


def shard_attention(a: Attention, tp: int, kv_precision: str) -> ShardAttention:
    """Attention of one layer as one of `tp` ranks computes and caches it."""
    kv_heads = kv_heads_per_rank(a.kv_heads, tp)
    size = KV_BYTES[kv_precision]
    copies = 1.0 if a.mla else kv_heads / a.kv_heads
    index = a.indexer_elements_per_token
    growing, windowed = (a.growing_elements_per_token - index) * copies + index, a.windowed_elements_per_token * copies
    read = a.kv_lora_rank + a.qk_rope_head_dim if a.mla else kv_heads * (a.head_dim + a.v_head_dim)
    return ShardAttention(
        heads=math.ceil(a.heads / tp),
        kv_heads=kv_heads,
        head_dim=a.head_dim,
        v_head_dim=a.v_head_dim,
        window=a.window,
        chunked=a.chunked,
        stores_kv=a.stores_kv,
        kv_bytes_per_token=growing * size,
        kv_windowed_bytes_per_token=windowed * size,
        kv_read_bytes_per_token=(a.head_dim / a.compression if a.compression else read) * size,
        kv_lora_rank=a.kv_lora_rank,
        qk_rope_head_dim=a.qk_rope_head_dim,
        indexer_heads=a.indexer_heads,
        indexer_head_dim=math.ceil(a.indexer_head_dim / a.indexer_pool),
        indexer_topk=a.indexer_topk,
        compression=max(a.compression, 1),
        local_window=a.local_window,
    )


def _moe(arch: Architecture, g: Layer, tp: int, dp: int, ep: int, size: float, precision: str) -> ShardMoe:
    mlp = g.mlp
    assert mlp is not None
    return ShardMoe(
        experts=mlp.experts,
        experts_per_rank=math.ceil(mlp.experts / ep),
        top_k=mlp.top_k,
        hidden=mlp.expert_hidden or arch.hidden_size,
        intermediate=mlp.intermediate if ep > 1 else math.ceil(mlp.intermediate / (tp * dp)),
        gated=mlp.gated,
        ep_size=ep,
        weight_bytes_per_element=size,
        precision=precision,
    )


def _recurrent(g: Layer, tp: int) -> ShardRecurrent:
    r = g.recurrent
    assert r is not None
    return ShardRecurrent(r.kind, r.state_bytes / tp)
