"""`StepTime`: from the shape of a step to seconds, at three levels that are always labelled.

textbook: weights over bandwidth, whatever the batch. datasheet: max(operations / peak, bytes / bandwidth) kernel by kernel,
no derating, a lower bound. calibrated: the same kernels with efficiencies and launch times measured on kernels.
"""

from __future__ import annotations

from planner import architecture, sharding
from planner.architecture import Architecture
from planner.architecture.drafter import drafter
from planner.catalog import kernels
from planner.hardware import Gpu
from planner.roofline.attention import costs
from planner.roofline.constants import ACTIVATION_BYTES, Constants
from planner.roofline.model import Source, StepShape, Term
from planner.roofline.step import Parts, StepTime
from planner.roofline.terms import head, moe_row, stage_terms
from planner.roofline.textbook import Textbook, textbook
from planner.scenario import Model, Parallel, Scenario
from planner.sharding import Shard
from planner.speculation import profile
from planner.units import MULTIPLY_ADD_FLOPS, US

__all__ = ["StepShape", "StepTime", "Term", "Textbook", "step_time"]

GRAPH_SEQUENCES = {"vllm": 512, "sglang": 256, "trtllm": 2048}
"""Largest decode batch captured as a CUDA graph by default; engines and versions differ, a flag raises it."""


def step_time(scenario: Scenario, arch: Architecture, shard: Shard, gpu: Gpu, scale: float = 1.0) -> StepTime | Textbook:
    """Step time of one replica at the scenario's fidelity. `scale` multiplies every step, as does a matching `calibration`."""
    calibration = scenario.calibration
    if calibration is not None and (calibration.engine, calibration.gpu) == (scenario.engine.name, gpu.slug):
        scale *= calibration.factor
    if scenario.fidelity == "textbook":
        return textbook(scenario, arch, gpu, scale)
    return _kernel_sum(scenario, arch, shard, gpu, scale, main=True)


def _kernel_sum(scenario: Scenario, arch: Architecture, shard: Shard, gpu: Gpu, scale: float, main: bool) -> StepTime:
    """`main` is False for a drafter, which pays no host time of its own."""
    ideal = scenario.fidelity == "datasheet"
    engine = scenario.engine
    c = Constants(gpu, engine.name, ideal, engine.enforce_eager)
    speculation = profile(scenario.speculative if main else None)
    block = bool(arch.quantization and arch.quantization.block)
    stages = tuple(tuple(stage_terms(stage, shard, scenario, c, block)) for stage in shard.stages)
    queries = speculation.verify_tokens_per_sequence
    decode, chunks, chunk_launch, per_token = costs(shard, scenario.precision.kv_cache, queries, c)
    assumed = kernels.assumed()
    host = kernels.host(engine.name, engine.version, engine.async_scheduling, gpu.slug)
    layers = shard.layer_count
    hops = shard.pipeline_parallel_size - 1
    floor = 0.0 if ideal or not main else layers * assumed["eager_layer_us"] * US
    read, compute = _weights(shard, gpu, block, c)
    parts = Parts(
        stages=stages,
        head=head(shard.stages[-1], shard, c, block),
        decode=decode,
        plain_decode=decode if queries == 1 else costs(shard, scenario.precision.kv_cache, 1, c)[0],
        chunks=chunks,
        chunk_launch_s=chunk_launch,
        one_attention_kernel=engine.name == "vllm",
        recurrent_s_per_token=per_token,
        hop_s=0.0 if ideal else hops * assumed["p2p_us"] * US,
        hop_s_per_token=hops * shard.hidden_size * ACTIVATION_BYTES / shard.pp_group.link_bytes_s,
        host_s=0.0 if ideal or not main else max(host["step_us"] * US, speculation.host_s) + speculation.drafting_host_s,
        host_s_per_sequence=0.0 if ideal or not main else host["sequence_us"] * US,
        overlapped_host_s_per_sequence=0.0 if ideal or not main else host["overlapped_sequence_us"] * US,
        eager_floor_s=floor if engine.enforce_eager else 0.0,
        graph_sequences=GRAPH_SEQUENCES[engine.name],
        ungraphed_floor_s=floor,
        dispatch_s=layers * assumed["dispatch_layer_us"] * US if engine.name == "vllm" and main and not ideal else 0.0,
        pipeline=shard.pipeline_parallel_size,
        data_parallel=shard.data_parallel_size,
        drafts=speculation.num_speculative_tokens,
        draft_passes=speculation.draft_passes,
        weight_read_s=read,
        token_compute_s=compute,
    )
    draft: StepTime | float | None = None
    if speculation.draft_cost_fraction is not None and speculation.speculates:
        draft = speculation.num_speculative_tokens * speculation.draft_cost_fraction
    elif speculation.draft_passes:
        draft = _draft(scenario, arch, gpu, scale)
    notes = c.problems() if main and not ideal else ()
    api_s = 0.0 if ideal or not main else host["api_us"] * US
    sources = c.sources()
    if main and not ideal:
        value = f"{host['step_us']:g} µs a step, {host['api_us']:g} µs a request"
        sources += (Source(f"host: {engine.name} from {host['from_version']}", value, "measured", host["source"], host["date"]),)
        sources += _calibrated(scenario, gpu)
    return StepTime(parts, scenario.fidelity, scale, notes, draft, api_s, 0.0 if ideal else c.spread, sources)


def _calibrated(scenario: Scenario, gpu: Gpu) -> tuple[Source, ...]:
    """The user's own factor on every step, where it is for this engine and GPU."""
    own = scenario.calibration
    if own is None or (own.engine, own.gpu) != (scenario.engine.name, gpu.slug):
        return ()
    return (Source("calibration", f"{own.factor:g} × every step", "user", own.source or "calibration.factor", None),)


def _draft(scenario: Scenario, arch: Architecture, gpu: Gpu, scale: float) -> StepTime | None:
    """One drafting pass as a step time of its own; it runs on the last pipeline stage, over the same TP × DP ranks."""
    s = scenario.speculative
    assert s is not None
    model = architecture.of(Model(name=s.draft_model)) if s.draft_model else None
    found = drafter(s.method, arch, s.num_speculative_tokens, model)
    if found is None:
        return None
    layout: Parallel = scenario.parallel.model_copy(update={"pipeline_parallel_size": 1})
    precision = scenario.precision if s.method in ("draft_model", "mtp") else scenario.precision.model_copy(update={"weights": "bf16"})
    shard = sharding.shard(found.pass_, layout, precision, gpu, scenario.hardware)
    return _kernel_sum(scenario.model_copy(update={"parallel": layout}), found.pass_, shard, gpu, scale, main=False)


def _weights(shard: Shard, gpu: Gpu, block: bool, c: Constants) -> tuple[float, float]:
    """Seconds of reading one rank's weights once, all stages, and of the arithmetic that one token of the replica gives it.

    Of a batch, every data-parallel rank computes its share of the products, and its share of the experts for all of it.
    """
    read = compute = 0.0
    for stage in shard.stages:
        products = [(g, layer.count) for layer in stage.layers for g in layer.gemms]
        if stage.lm_head is not None:
            products.append((stage.lm_head, 1))
        for g, count in products:
            row = c.row("gemm", c.dtype(g.precision, block))
            read += count * g.weight_bytes / (gpu.memory_bandwidth_bytes_s * row["memory"])
            compute += count * MULTIPLY_ADD_FLOPS * g.n * g.k / (c.peak(row) * row["compute"]) / shard.data_parallel_size
        for layer in stage.layers:
            if layer.moe is not None:
                m = layer.moe
                row = moe_row(m, c, block)
                read += layer.count * m.experts_per_rank * m.weight_bytes_per_expert / (gpu.memory_bandwidth_bytes_s * row["memory"])
                pair = MULTIPLY_ADD_FLOPS * m.matrices * m.hidden * m.intermediate
                compute += layer.count * m.top_k / m.ep_size * pair / (c.peak(row) * row["compute"])
    return read, compute
