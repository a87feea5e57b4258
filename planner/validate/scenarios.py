"""From a measured row to the scenario that should reproduce it, or the reason why there is none."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner import architecture, hardware, memory, sharding
from planner.architecture.storage import WEIGHT_BYTES
from planner.catalog.gpus import gpu
from planner.problems import InputError
from planner.scenario import Hardware, Model, Scenario, parse
from planner.units import GB
from planner.validate import harness, names
from planner.validate.rows import Row

TRTLLM_VISIBLE = 0.98
"""Share of the memory an engine sees that TensorRT-LLM finds free before it loads weights."""
TRTLLM_WORKSPACE_BYTES = 3 * GB
"""Activations, NCCL and CUDA graphs that it sets aside before it takes its share for the cache."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row that can be predicted."""

    row: Row
    scenario: Scenario
    model: str
    gpu: str
    family: str
    engine: str
    model_class: str
    """dense or moe."""
    regime: str
    """offline, closed loop, open loop; with speculation or disaggregated pools where those are on."""
    harness: str


class CannotModel(Exception):
    """Why a row has no scenario, in a few words that rows share."""


def case_of(row: Row, configs: Path | None, fidelity: str) -> Case:
    """The case of a row. Raises CannotModel with the reason."""
    slug = names.gpu_slug(row.gpu)
    if slug is None:
        raise CannotModel(f"GPU not in the catalogue: {row.gpu}")
    engine = names.engine_name(row.engine)
    if engine is None:
        raise CannotModel(f"engine not modelled: {row.engine}")
    model = names.model_of(row.model, configs)
    if model is None:
        raise CannotModel(f"no configuration of model {row.model}")
    if row.weight_precision not in names.WEIGHTS:
        raise CannotModel(f"weight precision not modelled: {row.weight_precision}")
    if not row.measured:
        raise CannotModel("no measured figure that the planner predicts")
    try:
        arch = architecture.of(model)
        return _case(row, model, arch, slug, engine, fidelity)
    except InputError as error:
        raise CannotModel(f"scenario refused: {str(error)[:120]}") from error


def _case(row: Row, model: Model, arch: architecture.Architecture, slug: str, engine: str, fidelity: str) -> Case:
    moe = any(g.mlp and g.mlp.experts for g in arch.layers)
    family = gpu(slug).family
    weights = _weights(row, family)
    known = harness.settings(row, engine, slug, weights, family, moe)
    lengths = _lengths(row, known)
    parallel, replicas = _layout(row, moe, arch, slug, weights)
    kv = names.KV.get(row.kv_precision, "") or known.kv_precision
    seqs = row.max_num_seqs or known.max_num_seqs
    if parallel["data_parallel_size"] > 1 and not row.max_num_seqs:
        seqs = max(1, math.ceil(seqs / parallel["data_parallel_size"]))
    longest = math.ceil((lengths["input"] + lengths["output"]) * (1 + lengths["half_width"])) + 64
    settings: dict[str, Any] = {
        "name": engine,
        "version": _version(row.engine_version),
        "batching": known.batching,
        "kv_allocation": "contiguous" if known.reserve else "paged",
        "max_num_seqs": seqs,
        "max_num_batched_tokens": row.max_batched_tokens or known.max_num_batched_tokens,
        "enable_chunked_prefill": known.chunked or bool(row.max_batched_tokens),
        "enable_prefix_caching": bool(row.cached_input_tokens),
        "async_scheduling": _async(engine, row, known.name),
    }
    if known.reserve:
        settings["max_model_len"] = longest
        settings["max_num_batched_tokens"] = max(
            settings["max_num_batched_tokens"], longest if not settings["enable_chunked_prefill"] else 1
        )
    elif row.max_model_len:
        settings["max_model_len"] = max(row.max_model_len, longest)
    scenario: dict[str, Any] = {
        "name": row.id[:120],
        "fidelity": fidelity,
        "model": model,
        "hardware": {"gpu": slug, "overrides": names.NVL_OVERRIDES if "h200-nvl" in row.gpu.lower() else {}},
        "precision": {"weights": weights, "kv_cache": kv},
        "parallel": parallel,
        "engine": settings,
        "fleet": {"replicas": replicas},
        "workload": _workload(row, known, lengths),
        "simulation": {"mode": "benchmark", "replications": 1},
        "slo": {"ttft_s": None, "tpot_s": None},
    }
    drafts = _drafts(row, known)
    if drafts:
        scenario["speculative"] = {"method": "mtp", "num_speculative_tokens": drafts}
    regime = {"offline": "offline", "concurrency": "closed loop", "rate": "open loop"}.get(row.load_kind, row.load_kind)
    if known.name == "mlperf" and row.load_kind == "rate":
        regime = "open loop at its limit"  # submitters raise the rate until the promise just holds
    if row.disagg:
        scenario["disaggregation"] = _pools(row, slug, settings, known, kv)
        regime += ", disaggregated"
    if drafts:
        regime += ", speculative"
    built = parse(scenario)
    if not row.disagg:
        built = _with_memory(built, row, known)
    return Case(row, built, built.model.name, slug, family, engine, "moe" if moe else "dense", regime, known.name)


def _weights(row: Row, family: str) -> str:
    if "gpt-oss" in row.model.lower():
        return "auto"  # shipped in MXFP4 only; a table's "FP8" or "FP4" names the activations
    weights = names.WEIGHTS[row.weight_precision]
    if weights == "auto":
        return "auto"
    return "mxfp4" if weights == "nvfp4" and family.startswith("cdna") else weights


def _lengths(row: Row, known: harness.Settings) -> dict[str, float]:
    isl = row.isl_mean
    if isl is None and known.name == "mlperf":
        isl = next((value for name, value in harness.MLPERF_INPUT.items() if any(name in n for n in names.plain_names(row.model))), None)
    if isl is None:
        raise CannotModel("prompt length not stated")
    if row.osl_mean is None:
        raise CannotModel("output length not stated")
    return {"input": isl, "output": row.osl_mean, "half_width": row.length_half_width or 0.0}


def _layout(row: Row, moe: bool, arch: architecture.Architecture, slug: str, weights: str) -> tuple[dict[str, Any], int]:
    """(parallel, replicas): attention data parallelism only where experts are shared, plain copies otherwise."""
    tp, pp, dp, ep = row.tp, row.pp or 1, row.dp or 1, row.ep or 1
    if row.disagg:
        return {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1, "enable_expert_parallel": False}, 1
    attention_dp = moe and ("attention_dp" in row.notes or "dp_attention true" in row.notes.lower())
    if tp is None:
        tp = _smallest_tp(arch, slug, weights, row.n_gpu)
    if attention_dp and dp == 1 and tp > 1:
        tp, dp = 1, tp
        ep = max(ep, dp)
    if not moe and dp > 1:
        dp = 1
    layout = {
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        "data_parallel_size": dp,
        "enable_expert_parallel": moe and ep > 1,
    }
    return layout, max(1, row.n_gpu // (tp * pp * dp))


def _smallest_tp(arch: architecture.Architecture, slug: str, weights: str, gpus: int) -> int:
    """The fewest GPUs (a power of two) whose memory the weights fill by less than 60 %: what a throughput run picks."""
    size = arch.total_params * WEIGHT_BYTES.get(weights, 2.0)
    room = 0.6 * hardware.of(Hardware(gpu=slug)).memory_engine_bytes
    tp = 1
    while size / tp > room and tp < gpus:
        tp *= 2
    return tp


MOST_STEPS, FEWEST_WAVES, MOST_PROMPTS = 30_000, 3, 12_000
"""A run is cut short when it is long: to about so many decode steps, but never under three turns of every client."""


def _workload(row: Row, known: harness.Settings, lengths: dict[str, float]) -> dict[str, Any]:
    half = lengths["half_width"]

    def length(mean: float) -> Any:
        return {"kind": "uniform", "mean": mean, "half_width": half} if half else mean

    work: dict[str, Any] = {"input_len": length(lengths["input"]), "output_len": length(lengths["output"]), "burstiness": known.burstiness}
    value = row.load_value
    if row.load_kind == "concurrency" and value:
        clients = round(value)
        waves = max(FEWEST_WAVES, min(10, MOST_STEPS // max(1, round(lengths["output"]))))
        prompts = min(known.num_prompts or 10 * clients, waves * clients, max(MOST_PROMPTS, FEWEST_WAVES * clients))
        work |= {"request_rate": None, "max_concurrency": clients, "num_prompts": prompts}
    elif row.load_kind == "offline" or (row.load_kind == "rate" and ("rate infinite" in row.notes or value == math.inf)):
        prompts = min(MOST_PROMPTS, known.num_prompts or (500 if "500 requests" in row.notes else 4000))
        work |= {"request_rate": None, "max_concurrency": prompts, "num_prompts": prompts}
    elif row.load_kind == "rate" and value:
        prompts = 500 if "500 requests" in row.notes else 1500 if known.name != "mlperf" else 6000
        work |= {"request_rate": value, "max_concurrency": None, "num_prompts": prompts}
    else:
        raise CannotModel(f"load not stated: {row.load_kind or 'empty'}")
    if row.cached_input_tokens:
        groups = re.search(r"(\d+) distinct prompts", row.prefix_cache_note)
        work |= {"shared_prefix_len": row.cached_input_tokens, "prefix_groups": int(groups.group(1)) if groups else 10}
    return work


def _drafts(row: Row, known: harness.Settings) -> int:
    """Drafted tokens per step; 0 without speculation. A source that does not know counts as none. Raises CannotModel for other methods."""
    found = re.fullmatch(r"mtp(?:-(\d+))?", row.spec_decode)
    if found is None:
        if row.spec_decode and "none" not in row.spec_decode and "not stated" not in row.spec_decode:
            raise CannotModel("speculation other than the model's own (mtp)")
        return 0
    return int(found.group(1) or known.drafts)


POOL = re.compile(r"(\d+) x \(tp(\d+) ep(\d+) dpattn (True|False)\)(?: on (\d+) GPUs)?")


def _pools(row: Row, slug: str, settings: dict[str, Any], known: harness.Settings, kv: str) -> dict[str, Any]:
    pools = {}
    for name in ("prefill", "decode"):
        found = re.search(rf"{name} {POOL.pattern}", row.notes)
        if found is None:
            raise CannotModel("disaggregated pools not stated")
        replicas, tp, ep = (int(found.group(i)) for i in (1, 2, 3))
        if found.group(5) and int(found.group(5)) != replicas * tp:
            tp = max(1, int(found.group(5)) // replicas)  # some sources leave the layout at its default; the GPUs are right
            ep = max(ep, tp)
        dp = tp if found.group(4) == "True" else 1
        concurrency = round(row.load_value or 1)
        layout = {
            "tensor_parallel_size": tp // dp,
            "data_parallel_size": dp,
            "enable_expert_parallel": ep > 1,
        }
        seqs = max(1, math.ceil(concurrency / replicas / dp)) if name == "decode" else 256
        pools[name] = {
            "gpu": slug,
            "parallel": layout,
            "engine": settings | {"max_num_seqs": seqs, "kv_allocation": "paged"},
            "replicas": replicas,
        }
    return pools | {"link_gb_s": 50.0}


def _with_memory(scenario: Scenario, row: Row, known: harness.Settings) -> Scenario:
    """The engine's own memory setting as vLLM's `gpu_memory_utilization`, so that the cache pool comes out as the engine sizes it."""
    engine = scenario.engine
    share = row.gpu_memory_utilization
    if engine.name == "vllm" or (share and engine.name != "trtllm" and known.name == ""):
        return _utilization(scenario, share or known.memory_share)
    part = hardware.of(scenario.hardware)
    arch = architecture.of(scenario.model)
    shard = sharding.shard(arch, scenario.parallel, scenario.precision, part, scenario.hardware)
    base = memory.plan(arch, shard, part, _utilization(scenario, 0.9))
    share = share or known.memory_share
    if engine.name == "sglang":
        pool = share * part.memory_engine_bytes - base.weights_bytes_per_gpu
    else:
        pool = share * (TRTLLM_VISIBLE * part.memory_engine_bytes - base.weights_bytes_per_gpu - TRTLLM_WORKSPACE_BYTES)
    return _utilization(scenario, 0.9 + (pool - base.kv_pool_bytes_per_gpu) / part.memory_engine_bytes)


def _utilization(scenario: Scenario, value: float) -> Scenario:
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"gpu_memory_utilization": min(1.0, max(0.05, value))})})


@cache
def _version(text: str) -> str:
    """The first dotted number of a version string; a recent release where there is none."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?", text)
    return found.group(0) if found else "0.19.0"


def _async(engine: str, row: Row, benchmark: str) -> bool:
    """Whether scheduling runs ahead of the GPU: vLLM from 0.14, by a flag InferenceX set before; TensorRT-LLM but its Triton server."""
    if engine == "vllm" and row.engine_version and benchmark != "inferencex":
        major, minor = (int(x) for x in re.findall(r"\d+", _version(row.engine_version))[:2])
        return (major, minor) >= (0, 14)
    return not (engine == "trtllm" and "Triton" in row.engine_version)
