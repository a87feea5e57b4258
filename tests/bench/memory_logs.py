"""Prints how well memory plans reproduce real vLLM start-up logs, and refits the reserves without the model being predicted.

python tests/bench/memory_logs.py            table: weights, tokens from the printed pool, whole budget
python tests/bench/memory_logs.py --constants  the constants fitted on all rows, as in planner/catalog/engine_memory.json
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from planner import architecture, hardware, memory, sharding  # noqa: E402
from planner.architecture import Architecture  # noqa: E402
from planner.catalog.engine_memory import EngineMemory, engine_memory  # noqa: E402
from planner.hardware import Gpu  # noqa: E402
from planner.memory import blocks, drafting  # noqa: E402
from planner.scenario import Scenario  # noqa: E402
from planner.sharding import Shard  # noqa: E402
from planner.units import GIB  # noqa: E402

DATA = ROOT / "tests" / "data" / "models"
CONFIGS = {  # first match on the name of a log's model; fine-tunes have their base's shapes
    "deepseek-v2-lite": "deepseek-ai__DeepSeek-V2-Lite",
    "llama-3.3-70b": "meta-llama__Llama-3.1-70B-Instruct",
    "llama-3.1-8b": "meta-llama__Llama-3.1-8B-Instruct",
    "llama-3-8b": "meta-llama__Meta-Llama-3.1-8B",
    "llama-4-scout": "meta-llama__Llama-4-Scout-17B-16E-Instruct",
    "llama-2-70b": "meta-llama__Llama-2-70b-hf",
    "codellama-34b": "codellama__CodeLlama-34b-Instruct-hf",
    "gemma-2-2b": "google__gemma-2-2b-it",
    "gemma-2-9b": "google__gemma-2-9b-it",
    "gemma-3-12b": "google__gemma-3-12b-it",
    "gemma-3-27b": "google__gemma-3-27b-it",
    "granite-3.1-2b": "ibm-granite__granite-3.1-2b-instruct",
    "granite-3.": "ibm-granite__granite-3.1-8b-instruct",
    "phi-2": "microsoft__phi-2",
    "phi-4": "microsoft__phi-4",
    "mistral-small-3": "mistralai__Mistral-Small-3.1-24B-Instruct-2503",
    "mixtral-8x7b": "mistralai__Mixtral-8x7B-v0.1",
    "kimi-dev-72b": "Qwen__Qwen2.5-72B-Instruct",
    "gpt-oss-20b": "openai__gpt-oss-20b",
    "gpt-oss-120b": "openai__gpt-oss-120b",
    "qwen2.5-7b": "Qwen__Qwen2.5-7B-Instruct",
    "qwen2.5-72b": "Qwen__Qwen2.5-72B-Instruct",
    "qwen3-30b-a3b": "Qwen__Qwen3-30B-A3B",
    "qwen3-0.6b": "Qwen__Qwen3-0.6B",
    "qwen3-32b": "Qwen__Qwen3-32B",
    "qwen3-vl-8b": "Qwen__Qwen3-VL-8B-Instruct",
    "qwen3.6-35b": "Qwen__Qwen3.5-35B-A3B",
}
H100_GIB = 79.19


@dataclass(frozen=True)
class Log:
    """One start-up report with the configuration it belongs to."""

    row: dict[str, str]
    scenario: Scenario
    arch: Architecture
    shard: Shard
    gpu: Gpu

    @property
    def shape(self) -> str:
        return self.scenario.model.name

    def gib(self, column: str) -> float | None:
        return float(self.row[column]) if self.row[column] else None


def logs() -> list[Log]:
    """vLLM rows whose configuration is known."""
    found = []
    with (DATA / "vllm_memory_logs.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            name = next((c for key, c in CONFIGS.items() if key in row["model"].lower()), None)
            if row["engine"] == "vllm" and name:
                config = json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))
                s = scenario(row, name, config)
                arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
                found.append(Log(row, s, arch, sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware), gpu))
    return found


def scenario(row: dict[str, str], name: str, config: dict) -> Scenario:
    model = row["model"].lower()
    weights = (
        "int8" if "w8a8" in model else "fp8" if row["quant"] == "fp8" or "fp8" in model else "fp32" if row["dtype"] == "float32" else "bf16"
    )
    weights = "auto" if "gpt-oss" in model else "nvfp4" if "nvfp4" in model else "int4" if "awq" in model else weights
    share = row["gpu_memory_utilization"]
    version = row["engine_version"].split()[0]
    return Scenario.model_validate(
        {
            "model": {"name": name, "hf_config": config},
            "hardware": {"gpu": "h100-sxm", "overrides": {"memory_gib": float(row["total_gpu_gib"] or H100_GIB)}},
            "precision": {"weights": weights, "kv_cache": "fp8" if row["kv_cache_dtype"] == "fp8" else "bf16"},
            "parallel": {"tensor_parallel_size": int(row["tp"] or 1), "pipeline_parallel_size": int(row["pp"] or 1)},
            "engine": {
                "version": version,
                "max_num_seqs": 1024,
                "max_num_batched_tokens": 8192,
                "gpu_memory_utilization": float(share) if share.replace(".", "").isdigit() else 0.9,
                "max_model_len": int(row["max_model_len"] or 8192),
            },
            "speculative": {"method": "eagle"} if "eagle" in model else None,
            "workload": {"input_len": 1024, "output_len": 256},
        }
    )


def complete(found: list[Log]) -> list[Log]:
    """Rows of vLLM 0.19 that print every term."""
    return [x for x in found if x.row["engine_version"] == "0.19.0" and x.gib("activation_peak_gib") and x.gib("kv_cache_gib_per_gpu")]


def weights_error(log: Log) -> float | None:
    printed = log.gib("weights_gib_per_gpu")
    if printed is None:
        return None
    stage = log.shard.stages[0]
    return (stage.weight_bytes + stage.engine_bytes) / GIB / printed - 1


def tokens_error(log: Log) -> float | None:
    """Tokens from the printed pool against the printed tokens."""
    printed, pool = log.gib("kv_cache_tokens"), log.gib("kv_cache_gib_per_gpu")
    if not printed or not pool or pool < 0:
        return None
    e = log.scenario.engine
    draft = drafting.built(log.arch, log.scenario)
    extra = drafting.kv_bytes_per_token(draft, log.shard, log.scenario) if draft else ()
    size = pool * GIB * (0.5 if log.row["dtype"] == "float32" else 1.0)  # fp32 caches fp32, which no setting of ours asks for
    p = blocks.pool(log.shard.stages[0], size, e, extra)
    return blocks.printed_tokens(p, engine_memory("vllm", e.version).tokens_printed, e.max_model_len or 8192, e) / printed - 1


def features(log: Log) -> np.ndarray:
    """Multipliers of (logits bytes, bytes per token width, workspace share, multimodal GiB, base GiB) in the activation peak."""
    e, shard = log.scenario.engine, log.shard
    tokens, size = e.max_num_batched_tokens, shard.activation_bytes_per_element
    moe = [layer.moe for stage in shard.stages for layer in stage.layers if layer.moe and layer.moe.precision != "mxfp4"]
    work = max((tokens * m.top_k * (max(2 * m.intermediate, m.hidden) + m.intermediate) * 2 for m in moe), default=0)
    multimodal = GIB if log.arch.tower_params else 0
    return np.array([e.max_num_seqs * shard.vocab_size, tokens * shard.hidden_size * size / 2, work, multimodal, GIB]) / GIB


def fit(rows: list[Log]) -> EngineMemory:
    """Least squares of the reserves on `rows`, each model shape with equal weight."""
    base = engine_memory("vllm", "0.19.0")
    single = [x for x in rows if x.scenario.parallel.pipeline_parallel_size == 1]
    shapes = [x.shape for x in single]
    weight = np.array([shapes.count(s) ** -0.5 for s in shapes])
    extra = np.array([(2.0 * features(x)[0] if x.row["dtype"] == "float32" else 0.0) for x in single])
    a = np.array([features(x) for x in single]) * weight[:, None]
    b = (np.array([x.gib("activation_peak_gib") for x in single]) - extra) * weight
    keep = [i for i in range(5) if a[:, i].any()]
    logits, width, work, multimodal, ground = np.zeros(5)
    solved = dict(zip(keep, np.linalg.lstsq(a[:, keep], b, rcond=None)[0], strict=True))
    logits, width, work, multimodal, ground = (float(solved.get(i, 0.0)) for i in range(5))
    one = [x.gib("non_torch_gib") or 0.0 for x in single if x.scenario.parallel.tensor_parallel_size == 1]
    more = [x.gib("non_torch_gib") or 0.0 for x in single if x.scenario.parallel.tensor_parallel_size > 1]
    return replace(
        base,
        logits_bytes_per_entry=logits,
        activation_bytes_per_token_width=width,
        moe_workspace_share=work,
        multimodal_gib=multimodal,
        activation_base_gib=ground,
        non_torch_gib=float(np.median(one)),
        non_torch_tp_gib=float(np.median(more)) if more else base.non_torch_tp_gib,
    )


def budget_error(log: Log, constants: EngineMemory) -> tuple[float, memory.MemoryPlan]:
    """(pool from the configuration alone against the printed tokens or pool, plan), with the given constants."""
    with mock.patch("planner.memory.reserves.engine_memory", return_value=constants):
        plan = memory.plan(log.arch, log.shard, log.gpu, log.scenario)
    if log.scenario.parallel.pipeline_parallel_size > 1:  # the printed GiB are another rank's; tokens are the smallest rank's
        return plan.kv_pool_tokens / (log.gib("kv_cache_tokens") or 1) - 1, plan
    return plan.kv_pool_bytes_per_gpu / GIB / (log.gib("kv_cache_gib_per_gpu") or 1) - 1, plan


def without(rows: list[Log], log: Log) -> list[Log]:
    """Rows of other models: same shapes and same names are left out."""
    return [x for x in rows if x.shape != log.shape]


def within(errors: list[float], bound: float) -> str:
    return f"{sum(abs(e) <= bound for e in errors)}/{len(errors)} within {bound:.0%}, mean |error| {np.mean(np.abs(errors)):.2%}"


def main() -> None:
    found = logs()
    rows = complete(found)
    if "--constants" in sys.argv:
        c = fit(rows)
        print({k: round(getattr(c, k), 3) for k in c.__slots__ if isinstance(getattr(c, k), float)})
        return
    weights = [(x, e) for x in found if (e := weights_error(x)) is not None and x.row["engine_version"].startswith(("0.11.0", "0.19"))]
    tokens = [(x, e) for x in found if (e := tokens_error(x)) is not None]
    print("weights per GPU:   ", within([e for _, e in weights], 0.01))
    print("tokens from pool:  ", within([e for _, e in tokens], 0.01))
    budgets = [(x, *budget_error(x, fit(without(rows, x)))) for x in rows]
    print("pool, model left out:", within([e for _, e, _ in budgets], 0.05))
    print(f"\n{'id':>3} {'model':46} {'layout':7} {'weights':>8} {'activ.':>7} {'pool printed':>12} {'predicted':>9} {'error':>7}")
    for x, e, plan in budgets:
        p = x.scenario.parallel
        layout = f"TP{p.tensor_parallel_size}" + (f" PP{p.pipeline_parallel_size}" if p.pipeline_parallel_size > 1 else "")
        predicted = [b / GIB for b in (plan.weights_bytes_per_gpu, plan.activation_bytes_per_gpu, plan.kv_pool_bytes_per_gpu)]
        print(
            f"{x.row['id']:>3} {x.row['model'][:46]:46} {layout:7} {predicted[0]:8.2f} {predicted[1]:7.2f} "
            f"{x.gib('kv_cache_gib_per_gpu'):12.2f} {predicted[2]:9.2f} {e:+7.1%}"
        )
    for what, pairs, bound in (("weights", weights, 0.01), ("tokens from printed pool", tokens, 0.01)):
        print(f"\n{what} beyond {bound:.0%}:")
        for x, e in pairs:
            if abs(e) > bound:
                print(f"  {x.row['id']:>3} vLLM {x.row['engine_version']} {x.row['model'][:60]} {e:+.2%} {x.row['note'][:80]}")


if __name__ == "__main__":
    main()
