"""One function per engine: a replica → its command. Names as in each engine's published argument list (`flags.json`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from planner import architecture, catalog, hardware
from planner.export import support
from planner.export.launch import HOST, PORT, Command, Replica, sglang_fraction, trtllm_fraction, vllm_fraction
from planner.export.yaml_text import yaml_text

DTYPES = {"fp32": "float32", "fp16": "float16"}
CHECKPOINT_NEEDED = {
    "int8": "a checkpoint quantised to INT8",
    "int4": "a checkpoint quantised to 4 bit (AWQ, GPTQ or compressed-tensors)",
    "mxfp4": "a checkpoint in MXFP4",
    "nvfp4": "a checkpoint in NVFP4",
}
VLLM_QUANTIZATION = {"fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "modelopt_fp4"}
SGLANG_QUANTIZATION = {"fp8": "fp8", "int8": "w8a8_int8", "mxfp4": "mxfp4", "nvfp4": "modelopt_fp4"}
SGLANG_SPECULATION = {"draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN", "ngram": "NGRAM"}
TRTLLM_SPECULATION = {
    "draft_model": "Draft_Target",
    "eagle": "Eagle",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "ngram": "NGram",
    "medusa": "Medusa",
}
NGRAM_LOOKUP_MAX, NGRAM_LOOKUP_MIN = 4, 2
"""Longest and shortest n-gram looked up in the prompt; the plan's acceptance does not depend on them, so they are stated."""
TRTLLM_CONFIG_FILE = "trtllm.yaml"


def vllm(replica: Replica) -> Command:
    """`vllm serve` with every value the plan rests on."""
    s, engine, layout = replica.scenario, replica.scenario.engine, replica.scenario.parallel
    arguments = ["--host", HOST, "--port", str(PORT), "--served-model-name", replica.model]
    arguments += ["--dtype", _dtype(replica)]
    if quantization := VLLM_QUANTIZATION.get(s.precision.weights):
        arguments += ["--quantization", quantization]
    kv = "fp8" if s.precision.kv_cache == "fp8" else "auto"
    arguments += ["--kv-cache-dtype", kv]
    arguments += _pairs(
        ("--tensor-parallel-size", layout.tensor_parallel_size),
        ("--pipeline-parallel-size", layout.pipeline_parallel_size),
        ("--data-parallel-size", layout.data_parallel_size),
    )
    arguments += [_switch("enable-expert-parallel", layout.enable_expert_parallel)]
    arguments += _pairs(
        ("--max-model-len", replica.max_model_len),
        ("--max-num-seqs", engine.max_num_seqs),
        ("--max-num-batched-tokens", engine.max_num_batched_tokens),
        ("--gpu-memory-utilization", _vllm_fraction(replica)),
    )
    blocks, blocks_note = support.block_size(s)
    if blocks is not None:
        arguments += ["--block-size", str(blocks)]
    arguments += [
        _switch("enable-prefix-caching", engine.enable_prefix_caching),
        _switch("enable-chunked-prefill", engine.enable_chunked_prefill),
        _switch("async-scheduling", engine.async_scheduling),
        _switch("enforce-eager", engine.enforce_eager),
    ]
    arguments += ["--scheduling-policy", "priority" if s.workload.priority_classes else "fcfs", "--seed", str(s.workload.seed)]
    offload_gib = sum(tier.gib for tier in engine.kv_offload if tier.tier == "cpu")
    if offload_gib:
        arguments += ["--kv-offloading-size", _number(offload_gib), "--kv-offloading-backend", "native"]
    if speculation := speculative_config(replica):
        arguments += ["--speculative-config", json.dumps(speculation)]
    if replica.role:
        role = "kv_producer" if replica.role == "prefill" else "kv_consumer"
        arguments += ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})]
    return Command("vllm", ("vllm", "serve", replica.model), tuple(arguments), tuple(_vllm_notes(replica, blocks_note)), role=replica.role)


def _vllm_notes(replica: Replica, blocks_note: str) -> list[str]:
    s, notes = replica.scenario, _notes(replica, {"bf16", "fp16", "fp8", "auto"})
    build = support.BUILDS.get(support.platform(s.hardware))
    if build:
        notes.append(f"On {s.hardware.gpu} this needs {build}, whose arguments may differ: check each before use.")
    notes += [note for note in (support.version_note(s), blocks_note) if note]
    if s.engine.batching != "mixed":
        notes.append(f"vLLM mixes prefill and decode in every step; the plan assumes {s.engine.batching} batching.")
    if replica.memory and replica.memory.get("kv_pool_bytes_per_gpu") and s.fidelity != "textbook":
        pool = int(replica.memory["kv_pool_bytes_per_gpu"])
        notes.append(f"To pin the pool instead of sizing it by profiling, add --kv-cache-memory-bytes {pool}.")
    return notes


def sglang(replica: Replica) -> Command:
    """`python -m sglang.launch_server` with every value the plan rests on."""
    s, engine, layout = replica.scenario, replica.scenario.engine, replica.scenario.parallel
    attention_dp = layout.data_parallel_size > 1 and layout.enable_expert_parallel
    arguments = ["--model-path", replica.model, "--served-model-name", replica.model, "--host", HOST, "--port", str(PORT)]
    arguments += ["--dtype", _dtype(replica)]
    if quantization := SGLANG_QUANTIZATION.get(s.precision.weights):
        arguments += ["--quantization", quantization]
    kv = "fp8_e4m3" if s.precision.kv_cache == "fp8" else "auto"
    arguments += ["--kv-cache-dtype", kv]
    # With attention data parallelism SGLang's --tp-size counts all GPUs of the stage, and its limits are shared out among
    # the ranks; the scenario's are vLLM's, per rank.
    tp = layout.tensor_parallel_size * (layout.data_parallel_size if attention_dp else 1)
    experts = layout.tensor_parallel_size * layout.data_parallel_size if layout.enable_expert_parallel else 1
    arguments += _pairs(
        ("--tp-size", tp), ("--pp-size", layout.pipeline_parallel_size), ("--dp-size", 1 if attention_dp else layout.data_parallel_size)
    )
    arguments += _pairs(("--ep-size", experts))
    if attention_dp:
        arguments += ["--attn-dp-size", str(layout.data_parallel_size)]
    ranks = layout.data_parallel_size if attention_dp else 1
    chunk = engine.max_num_batched_tokens * ranks if engine.enable_chunked_prefill else -1
    arguments += _pairs(
        ("--context-length", replica.max_model_len),
        ("--max-running-requests", engine.max_num_seqs * ranks),
        ("--chunked-prefill-size", chunk),
        ("--max-prefill-tokens", engine.max_num_batched_tokens),
    )
    if (fraction := _of_memory(replica, sglang_fraction)) is not None:
        arguments += ["--mem-fraction-static", _number(fraction)]
    if support.attention_kind(s.model) == "full":
        arguments += ["--page-size", str(engine.block_size)]
    arguments += ["--schedule-policy", "priority" if s.workload.priority_classes else "fcfs"]
    if s.workload.priority_classes:
        arguments += ["--enable-priority-scheduling", "--schedule-low-priority-values-first"]
    switches = {
        "--enable-mixed-chunk": engine.batching == "mixed",
        "--disable-radix-cache": not engine.enable_prefix_caching,
        "--disable-overlap-schedule": not engine.async_scheduling,
    }
    arguments += [flag for flag, wanted in switches.items() if wanted]
    if engine.enforce_eager:
        arguments += ["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"]
    offload_gib = sum(tier.gib for tier in engine.kv_offload if tier.tier == "cpu")
    if offload_gib:
        per_gpu = max(1, round(offload_gib / layout.gpus))
        arguments += ["--enable-hierarchical-cache", "--hicache-size", str(per_gpu)]
    arguments += _sglang_speculation(replica)
    if replica.role:
        arguments += ["--disaggregation-mode", replica.role]
    arguments += ["--enable-metrics", "--random-seed", str(s.workload.seed)]
    program = ("python", "-m", "sglang.launch_server")
    return Command("sglang", program, tuple(arguments), tuple(_sglang_notes(replica)), role=replica.role)


def _sglang_speculation(replica: Replica) -> list[str]:
    spec = replica.scenario.speculative
    if spec is None or spec.method not in SGLANG_SPECULATION:
        return []
    found = ["--speculative-algorithm", SGLANG_SPECULATION[spec.method]]
    if spec.method not in ("mtp", "ngram"):
        found += ["--speculative-draft-model-path", _draft(replica)]
    if spec.method != "ngram":
        found += ["--speculative-num-steps", str(spec.num_speculative_tokens), "--speculative-eagle-topk", "1"]
    # The target's own token is counted, hence one more than the drafts.
    return [*found, "--speculative-num-draft-tokens", str(spec.num_speculative_tokens + 1)]


def _sglang_notes(replica: Replica) -> list[str]:
    s, notes = replica.scenario, _notes(replica, {"bf16", "fp16", "fp8", "auto"})
    if s.speculative and s.speculative.method not in SGLANG_SPECULATION:
        notes.append(f"SGLang has no {s.speculative.method} drafting; this command runs without speculation.")
    if _of_memory(replica, sglang_fraction) is None:
        why = "ignores every reserve at the textbook level" if s.fidelity == "textbook" else "is not in the plan's file"
        notes.append(f"--mem-fraction-static is left to the engine: the KV pool {why}.")
    if support.attention_kind(s.model) != "full":
        notes.append(f"--page-size is left out: SGLang sets what the kernels of this attention take; {_counts_in(replica)}.")
    if s.engine.batching == "static":
        notes.append("SGLang has no static batching; the plan's latencies will not be seen.")
    return notes


def trtllm(replica: Replica) -> Command:
    """`trtllm-serve` and the YAML file that holds what has no flag."""
    s, engine, layout = replica.scenario, replica.scenario.engine, replica.scenario.parallel
    attention_dp = layout.data_parallel_size > 1 and layout.enable_expert_parallel
    gpus_of_stage = layout.tensor_parallel_size * (layout.data_parallel_size if attention_dp else 1)
    arguments = ["--backend", "pytorch", "--host", HOST, "--port", str(PORT)]
    arguments += _pairs(
        ("--tp_size", gpus_of_stage),
        ("--pp_size", layout.pipeline_parallel_size),
        ("--ep_size", gpus_of_stage if layout.enable_expert_parallel else 1),
        ("--gpus_per_node", min(s.hardware.gpus_per_node, layout.gpus)),
        ("--max_batch_size", engine.max_num_seqs),
        ("--max_num_tokens", engine.max_num_batched_tokens),
        ("--max_seq_len", replica.max_model_len),
    )
    fraction = _of_memory(replica, trtllm_fraction)
    if fraction is not None:
        arguments += ["--kv_cache_free_gpu_memory_fraction", _number(fraction)]
    if engine.enable_chunked_prefill:
        arguments += ["--enable_chunked_prefill"]
    arguments += ["--extra_llm_api_options", TRTLLM_CONFIG_FILE]
    config = _trtllm_config(replica, attention_dp, fraction)
    notes = _notes(replica, {"bf16", "fp16", "fp8", "int8", "auto"})
    if layout.data_parallel_size > 1 and not attention_dp:
        notes.append(
            f"trtllm-serve starts one copy; run it {layout.data_parallel_size} times behind a router for the plan's data parallelism."
        )
    if s.precision.weights == "fp8":
        notes.append("TensorRT-LLM reads the weight format from the checkpoint: serve an FP8 one.")
    if support.attention_kind(s.model) != "full":
        notes.append(f"tokens_per_block is left out: the engine sets what the kernels of this attention take; {_counts_in(replica)}.")
    elif engine.block_size & (engine.block_size - 1) or engine.block_size < 2:
        notes.append(f"TensorRT-LLM wants a power of two above one for tokens_per_block; the plan has {engine.block_size}.")
    program = ("trtllm-serve", replica.model)
    return Command("trtllm", program, tuple(arguments), tuple(notes), TRTLLM_CONFIG_FILE, yaml_text(config), replica.role)


def _trtllm_config(replica: Replica, attention_dp: bool, fraction: float | None) -> dict[str, Any]:
    s, engine = replica.scenario, replica.scenario.engine
    kv = s.precision.kv_cache if s.precision.kv_cache in ("fp8", "int8") else "auto"
    cache: dict[str, Any] = {"dtype": kv, "enable_block_reuse": engine.enable_prefix_caching}
    if support.attention_kind(s.model) == "full":
        cache["tokens_per_block"] = engine.block_size
    if fraction is not None:
        cache["free_gpu_memory_fraction"] = fraction
    offload_gib = sum(tier.gib for tier in engine.kv_offload if tier.tier == "cpu")
    if offload_gib:
        cache["host_cache_size"] = int(offload_gib * 2**30 / s.parallel.gpus)
    config: dict[str, Any] = {
        "kv_cache_config": cache,
        "enable_attention_dp": attention_dp,
        "disable_overlap_scheduler": not engine.async_scheduling,
        "enable_iter_perf_stats": True,
    }
    if not engine.enforce_eager:
        config["cuda_graph_config"] = {"enable_padding": True, "max_batch_size": engine.max_num_seqs}
    if s.speculative:
        spec = s.speculative
        drafting: dict[str, Any] = {"decoding_type": TRTLLM_SPECULATION[spec.method], "max_draft_len": spec.num_speculative_tokens}
        if spec.method not in ("mtp", "ngram"):
            drafting["speculative_model"] = _draft(replica)
        config["speculative_config"] = drafting
    return config


def speculative_config(replica: Replica) -> dict[str, Any] | None:
    """vLLM's `--speculative-config` as JSON data; None without speculation."""
    spec = replica.scenario.speculative
    if spec is None:
        return None
    config: dict[str, Any] = {"method": spec.method, "num_speculative_tokens": spec.num_speculative_tokens}
    if spec.method == "ngram":
        return config | {"prompt_lookup_max": NGRAM_LOOKUP_MAX, "prompt_lookup_min": NGRAM_LOOKUP_MIN}
    return config if spec.method == "mtp" else config | {"model": _draft(replica)}


def _draft(replica: Replica) -> str:
    spec = replica.scenario.speculative
    if spec is not None and spec.draft_model:
        row = catalog.models().get(spec.draft_model)
        return row.name if row else spec.draft_model
    return f"DRAFT_OF/{replica.model.rpartition('/')[2]}"


def _notes(replica: Replica, kv_formats: set[str]) -> list[str]:
    """What every engine's command needs said."""
    s, notes = replica.scenario, []
    own = architecture.of(s.model).quantization
    if (needed := CHECKPOINT_NEEDED.get(s.precision.weights)) and (own is None or own.weights != s.precision.weights):
        notes.append(f"Serve {needed}: put its repository in place of {replica.model}.")
    if s.precision.kv_cache not in kv_formats:
        notes.append(
            f"This engine has no {s.precision.kv_cache} KV cache; the command uses the model's own type, and the pool holds fewer tokens."
        )
    if _lacks_bfloat16(replica) and s.precision.weights != "fp32":
        notes.append(f"{s.hardware.gpu} has no bfloat16: the command computes in float16, which a model trained in bfloat16 may overflow.")
    spec = s.speculative
    if spec and spec.method not in ("ngram", "mtp") and not spec.draft_model:
        notes.append(f"Put the repository of the {spec.method} draft in place of {_draft(replica)}.")
    if s.fidelity == "textbook":
        notes.append(
            "The textbook level leaves no room for reserves: plan at the calibrated level before launch, the real pool is smaller."
        )
    if any(tier.tier != "cpu" for tier in s.engine.kv_offload):
        notes.append("Offload to SSD or remote memory needs a connector of its own; only the CPU tier is in this command.")
    if s.parallel.gpus > s.hardware.gpus_per_node:
        nodes = -(-s.parallel.gpus // s.hardware.gpus_per_node)
        notes.append(f"One replica spans {nodes} servers: start the command on each with the engine's multi-node arguments.")
    return notes


def _counts_in(replica: Replica) -> str:
    return f"the plan counts in blocks of {replica.scenario.engine.block_size} tokens"


def _dtype(replica: Replica) -> str:
    weights = replica.scenario.precision.weights
    if _lacks_bfloat16(replica):
        return "float32" if weights == "fp32" else "float16"
    return "auto" if weights == "auto" else DTYPES.get(weights, "bfloat16")


def _lacks_bfloat16(replica: Replica) -> bool:
    return hardware.of(replica.scenario.hardware).family in support.SIXTEEN_BIT_ONLY_FLOAT


def _vllm_fraction(replica: Replica) -> str:
    engine = replica.scenario.engine
    exact = engine.gpu_memory_utilization
    # For a plan of another engine the fraction is the one that leaves its pool.
    converted = None if engine.name == "vllm" else _of_memory(replica, vllm_fraction)
    return _number(exact if converted is None else converted)


def _of_memory(replica: Replica, fraction: Callable[[Mapping[str, Any]], float | None]) -> float | None:
    memory = replica.memory
    # The textbook level's pool ignores every reserve; a fraction made from it would leave an engine nothing to run in.
    if not memory or not memory.get("kv_pool_bytes_per_gpu") or replica.scenario.fidelity == "textbook":
        return None
    return fraction(memory)


def _pairs(*pairs: tuple[str, Any]) -> list[str]:
    return [word for flag, value in pairs for word in (flag, str(value))]


def _switch(name: str, on: bool) -> str:
    return f"--{name}" if on else f"--no-{name}"


def _number(value: float) -> str:
    return f"{value:.10g}"
