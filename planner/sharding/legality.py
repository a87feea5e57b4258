"""Layouts that an engine refuses, and why; and what a legal one costs that is easily overlooked."""

from __future__ import annotations

import math

from planner.architecture import Architecture
from planner.hardware import of as gpu_of
from planner.problems import Problem
from planner.scenario import Hardware, Parallel, Precision
from planner.sharding.shard import VOCAB_PADDING, fast_domain, group
from planner.units import GB

LARGEST_LISTED = 64
TP, PP, DP, EP = (
    f"parallel.{n}" for n in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel")
)


def problems(arch: Architecture, parallel: Parallel, precision: Precision, hardware: Hardware) -> tuple[Problem, ...]:
    """Every reason why this layout is refused (errors, each with the legal values), then what is slow or stored twice in it."""
    found = [
        Problem("illegal_parallelism", "error", TP, reason, _legal_tp(arch, parallel, precision))
        for reason in refusals(arch, parallel.tensor_parallel_size, parallel, precision)
    ]
    pp, layers = parallel.pipeline_parallel_size, arch.num_hidden_layers
    if pp > layers:
        found.append(
            _illegal(PP, f"{layers} layers cannot fill {pp} pipeline stages", f"Use a pipeline_parallel_size of at most {layers}.")
        )
    experts = {g.mlp.experts for g in arch.layers if g.mlp and g.mlp.experts}
    ranks = parallel.tensor_parallel_size * parallel.data_parallel_size
    if parallel.enable_expert_parallel:
        for n in sorted(e for e in experts if e % ranks):
            legal = ", ".join(str(x) for x in range(1, min(n, 4 * LARGEST_LISTED) + 1) if n % x == 0)
            found.append(_illegal(EP, f"{n} experts cannot be spread evenly over {ranks} ranks (TP × DP)", f"Use a TP × DP of {legal}."))
        if not experts:
            message = "expert parallelism has no effect: the model has no routed experts"
            found.append(Problem("no_effect", "info", EP, message, "Switch enable_expert_parallel off."))
    return tuple(found + _costs(arch, parallel, hardware))


def refusals(arch: Architecture, tp: int, parallel: Parallel, precision: Precision) -> list[str]:
    """Why tensor parallelism of `tp` is refused, one sentence a reason; empty when it is legal.

    Rules and their evidence: heads (vllm#2652), KV heads (tenstorrent/vllm#50), padded vocabulary (vllm#31474), block-FP8
    experts (vllm#25292, sglang#10852).
    """
    found = []
    for heads in sorted({g.attention.heads for g in arch.layers if g.attention}):
        if heads % tp:
            found.append(f"{heads} attention heads cannot be divided by tensor_parallel_size {tp}")
    for kv in sorted({g.attention.kv_heads for g in arch.layers if g.attention and not g.attention.mla and not g.attention.local_window}):
        if kv % tp and tp % kv:
            found.append(f"{kv} KV heads can neither be divided by tensor_parallel_size {tp} nor be copied evenly onto it")
    for heads in sorted({g.recurrent.heads for g in arch.layers if g.recurrent and g.recurrent.kind != "short_conv"}):
        if heads % tp:
            found.append(f"{heads} heads of the recurrent layers cannot be divided by tensor_parallel_size {tp}")
    vocab = math.ceil(arch.vocab_size / VOCAB_PADDING) * VOCAB_PADDING
    if vocab % tp:
        found.append(f"the vocabulary of {vocab:,} (padded to {VOCAB_PADDING}) cannot be divided by tensor_parallel_size {tp}")
    block = _block(arch, precision)
    cuts = 1 if parallel.enable_expert_parallel else tp * parallel.data_parallel_size
    if block:
        for width in sorted({g.mlp.intermediate for g in arch.layers if g.mlp and g.mlp.experts}):
            if width % cuts or width // cuts % block:
                found.append(
                    f"experts of width {width:,} cut {cuts} ways do not fit the checkpoint's FP8 blocks of {block}; "
                    "expert parallelism keeps them whole"
                )
    return found


def _block(arch: Architecture, precision: Precision) -> int:
    """Side of the FP8 blocks that the experts must be cut along; 0 when weights are not stored in blocks."""
    own = arch.quantization
    if own is None or not own.block or precision.weights not in ("auto", own.weights):
        return 0
    return own.block


def _legal_tp(arch: Architecture, parallel: Parallel, precision: Precision) -> str:
    legal = [n for n in range(1, LARGEST_LISTED + 1) if not refusals(arch, n, parallel, precision)]
    return (
        f"Use a tensor_parallel_size of {', '.join(map(str, legal))}."
        if legal
        else "No tensor_parallel_size up to 64 is legal for this model."
    )


def _illegal(field: str, message: str, remedy: str) -> Problem:
    return Problem("illegal_parallelism", "error", field, message, remedy)


def _costs(arch: Architecture, parallel: Parallel, hardware: Hardware) -> list[Problem]:
    """Copies of the cache and groups that leave the fast link: legal, but said."""
    found = []
    tp = parallel.tensor_parallel_size
    kv_heads = min((g.attention.kv_heads for g in arch.layers if g.attention and g.attention.stores_kv), default=0)
    latent = any(g.attention.mla or g.attention.local_window for g in arch.layers if g.attention)
    if kv_heads and tp > kv_heads:
        what = "the latent of MLA is one for all heads" if latent else f"the model has {kv_heads} KV head{'s' * (kv_heads > 1)}"
        message = f"{what}, so tensor parallelism of {tp} stores {tp // kv_heads} copies of the cache"
        found.append(
            Problem("kv_replicated", "info", TP, message, "Data-parallel attention (data_parallel_size) gives each copy its own requests.")
        )
    gpu = gpu_of(hardware)
    fast = fast_domain(gpu, hardware.gpus_per_node, hardware.scale_up_domain_gpus)
    spans = (
        (TP, "tensor-parallel all-reduces", tp, tp),
        (EP, "expert exchanges", tp * parallel.data_parallel_size, tp * parallel.data_parallel_size),
    )
    has_experts = any(g.mlp and g.mlp.experts for g in arch.layers)
    for field, what, size, span in spans[: 2 if has_experts and parallel.data_parallel_size > 1 else 1]:
        g = group(size, span, fast, gpu, hardware.gpus_per_node)
        if not g.inter_node and span > max(fast, 1):
            message = f"{what} over {size} GPUs go over {g.link} at {g.link_bytes_s / GB:.3g} GB/s per GPU: no faster link joins them"
            found.append(Problem("slow_link", "warning", field, message, "Fewer GPUs to a group, and pipeline stages or replicas instead."))
        if g.inter_node:
            speed = f"{g.link} at {g.link_bytes_s / GB:.3g} GB/s per GPU instead of {gpu.link_name} at {gpu.link_bytes_s / GB:.3g}"
            message = f"{what} over {size} GPUs leave the scale-up domain of {fast}: they use the {speed}"
            found.append(
                Problem("slow_link", "warning", field, message, f"Keep the group within {fast} GPUs and add pipeline stages or replicas.")
            )
    return found
