"""Settings that a known benchmark runs with and its tables do not repeat, read from its public scripts.

InferenceX: SemiAnalysisAI/InferenceX `benchmarks/` at 843c6254f (2026-10) and, for the Llama-70B runs since removed there, the
server table of an early copy (jyothisambolu/InferenceMAX README, 2025-08). TensorRT-LLM tables: docs/source/performance/
perf-overview.md at 00f37686 (v1.0, 2025-09): every request queued at once, so many of them per length, `max_num_tokens` 8192.
MLPerf dataset means are from memory, unverified; the results repository does not state them.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.validate.rows import Row

TRTLLM_REQUESTS = {
    (128, 128): 30_000,
    (128, 2048): 3000,
    (128, 4096): 1500,
    (500, 2000): 3000,
    (1000, 1000): 3000,
    (1000, 2000): 1500,
    (2048, 128): 3000,
    (2048, 2048): 1500,
    (5000, 500): 1500,
    (20000, 2000): 1000,
}
"""Requests per (input, output) length in NVIDIA's tables."""

MLPERF_INPUT = {"llama-2-70b": 294, "llama-3.1-405b": 9400, "llama-3.1-8b": 778, "deepseek-r1": 800}
"""Mean prompt of the MLPerf Inference v5.1 datasets, tokens."""

CONSTANT = 1e6
"""`burstiness` of evenly spaced arrivals."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to assume where a row is silent."""

    name: str
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_precision: str
    memory_share: float
    """In the engine's own meaning: vLLM of the whole, SGLang weights and pool of the whole, TensorRT-LLM pool of what is free."""
    batching: str = "mixed"
    chunked: bool = True
    reserve: bool = False
    """Reserve input and output of a sequence when it is admitted (TensorRT-LLM's guaranteed no-evict policy)."""
    num_prompts: int | None = None
    drafts: int = 3
    burstiness: float = 1.0


def name_of(row: Row) -> str:
    """Which benchmark a row comes from, or an empty string."""
    text = f"{row.id} {row.source} {row.notes} {row.isl_desc}".lower()
    if "mlperf" in text:
        return "mlperf"
    if "inferencex" in text or "inferencemax" in text or "uniform 0.8-1.0x" in text or row.id.startswith(("ix-", "ixdb-")):
        return "inferencex"
    if "perf-overview" in text or ("max-load offline" in text and "trt" in row.engine.lower()):
        return "trtllm-tables"
    return ""


def settings(row: Row, engine: str, gpu: str, precision: str, family: str, moe: bool) -> Settings:
    """Settings of the row's benchmark; engine defaults where it is unknown."""
    name = name_of(row)
    blackwell = family.startswith(("blackwell", "rubin"))
    amd = family.startswith("cdna")
    concurrency = round(row.load_value or 1) if row.load_kind == "concurrency" else 0
    isl = round(row.isl_mean or 1024)
    quantized = precision in ("fp8", "nvfp4", "mxfp4", "int8")
    if name == "inferencex":
        return _inferencex(row, engine, max(concurrency, 1), isl, blackwell, amd, moe)
    if engine == "trtllm":
        kv = "fp8" if quantized and "gpt-oss" not in row.model else "bf16"
        requests = TRTLLM_REQUESTS.get((round(row.isl_mean or 0), round(row.osl_mean or 0))) if name == "trtllm-tables" else None
        offline = row.load_kind == "offline"
        seqs = 2048 if offline or name == "mlperf" else max(256, concurrency)
        return Settings(name, seqs, max(8192, isl + 64), kv, 0.9, chunked=False, reserve=True, num_prompts=requests)
    if engine == "sglang":
        return Settings(name, max(256, concurrency), 8192, "bf16", 0.88, batching="prefill_first")
    constant = CONSTANT if "constant-rate" in row.notes else 1.0
    return Settings(name, max(256, concurrency) if name != "mlperf" else 1024, 8192, "bf16", 0.9, burstiness=constant)


def _inferencex(row: Row, engine: str, concurrency: int, isl: int, blackwell: bool, amd: bool, moe: bool) -> Settings:
    requests = 10 * concurrency
    gpt_oss = "gpt-oss" in row.model
    if engine == "vllm":
        budget = 131_072 if amd else 8192
        return Settings(
            "inferencex", concurrency, budget, "fp8" if blackwell or amd else "bf16", 0.94 if amd else 0.9, num_prompts=requests
        )
    if engine == "sglang":
        budget = 131_072 if amd else 32_768
        kv = "fp8" if blackwell or amd else "bf16"
        return Settings("inferencex", 512, budget, kv, 0.82, "prefill_first", num_prompts=requests, drafts=3 if amd else 2)
    budget = 20_000 if gpt_oss else max(8192, concurrency + isl + 64)
    kv = "bf16" if gpt_oss and not blackwell else "fp8"
    return Settings("inferencex", concurrency, budget, kv, 0.85 if gpt_oss else 0.8, chunked=False, reserve=True, num_prompts=requests)
