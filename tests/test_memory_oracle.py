"""Every part of the memory of a GPU, counted by hand."""

from __future__ import annotations

import math
from typing import Any

import memory_oracle
import pytest
from test_memory import budget

from planner import architecture
from planner.scenario import Scenario
from planner.units import GB, GIB

AUTO, TP8 = {"weights": "auto"}, {"tensor_parallel_size": 8}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "dense": {"model": {"name": "llama-3.1-8b"}},
    "eager": {"model": {"name": "llama-3.1-8b"}, "engine": {"enforce_eager": True}},
    "an old version": {"model": {"name": "llama-3.1-8b"}, "engine": {"version": "0.11.0"}},
    "graphs inside": {"model": {"name": "qwen3-30b-a3b"}, "engine": {"version": "0.21.0"}},
    "SGLang": {"model": {"name": "llama-3.1-8b"}, "engine": {"name": "sglang", "version": "0.5"}},
    "few batched tokens": {"model": {"name": "llama-3.1-8b"}, "engine": {"max_num_batched_tokens": 100, "max_model_len": 4096}},
    "more memory asked": {"model": {"name": "llama-3.1-8b"}, "engine": {"gpu_memory_utilization": 0.95, "block_size": 32}},
    "8-bit cache": {"model": {"name": "llama-3.1-8b"}, "precision": {"kv_cache": "fp8"}},
    "experts": {"model": {"name": "deepseek-v3"}, "precision": AUTO, "parallel": {"tensor_parallel_size": 16}},
    "experts that work in place": {"model": {"name": "gpt-oss-20b"}, "precision": AUTO},
    "experts without gates": {"model": {"name": "nemotron-3-nano-30b-a3b"}},
    "a tower": {"model": {"name": "gemma-3-27b"}},
    "caches of earlier layers": {"model": {"name": "gemma-3n-e4b"}},
    "chunks": {"model": {"name": "llama-4-scout"}, "parallel": TP8, "engine": {"max_model_len": 65_536}},
    "states": {"model": {"name": "qwen3-next-80b-a3b"}, "parallel": {"tensor_parallel_size": 4}},
    "states, no caching": {
        "model": {"name": "qwen3-next-80b-a3b"},
        "parallel": {"tensor_parallel_size": 4},
        "engine": {"enable_prefix_caching": False},
    },
    "compressed cache": {"model": {"name": "deepseek-v4-flash"}, "precision": AUTO, "parallel": TP8},
    "stages": {"model": {"name": "llama-3.1-70b"}, "parallel": {"pipeline_parallel_size": 4}},
    "stages of experts": {"model": {"name": "mixtral-8x22b"}, "parallel": {"pipeline_parallel_size": 8}},
    "stages, split": {"model": {"name": "llama-3.1-405b"}, "parallel": TP8 | {"pipeline_parallel_size": 2}},
    "a head that drafts": {"model": {"name": "llama-3.1-8b"}, "speculative": {"method": "eagle3"}},
    "a model that drafts": {
        "model": {"name": "llama-3.1-8b"},
        "speculative": {"method": "draft_model", "draft_model": "llama-3.2-1b"},
    },
    "a last stage that drafts": {
        "model": {"name": "llama-3.1-70b"},
        "parallel": {"pipeline_parallel_size": 4},
        "speculative": {"method": "eagle3"},
    },
    "seven windows and six full layers a stage": {"model": {"name": "gemma-2-2b"}, "parallel": {"pipeline_parallel_size": 2}},
    "too large": {"model": {"name": "llama-3.1-70b"}},
}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_part_is_what_the_rules_give(name: str) -> None:
    parts = DEPLOYMENTS[name] | {"workload": {"input_len": 3000, "output_len": 77, "shared_prefix_len": 1500, "prefix_groups": 3}}
    s, plan = Scenario.model_validate(parts), budget(**parts)
    ranks = memory_oracle.ranks(s)
    held = [memory_oracle.sequences(s, r, 3077, 1500) for r in ranks]
    worst = ranks[min(range(len(ranks)), key=lambda i: held[i])]
    assert plan.weights_bytes_per_gpu == pytest.approx(worst.weights)
    assert plan.activation_bytes_per_gpu == pytest.approx(worst.activation)
    assert plan.non_torch_bytes_per_gpu == pytest.approx(worst.non_torch)
    assert plan.cuda_graph_bytes_per_gpu == pytest.approx(worst.graphs)
    assert plan.kv_pool_bytes_per_gpu == pytest.approx(worst.pool)
    assert plan.blocks == min(r.blocks for r in ranks)
    assert plan.cache_limited_batch == max(0, math.floor(min(held)))
    assert plan.sequences == pytest.approx(max(0.0, min(held)))
    own = sum(t.taken(3077, s.engine.enable_prefix_caching) for t in worst.tables)
    alone = budget(**parts | {"workload": {"input_len": 3000, "output_len": 77}})
    assert alone.sequence_bytes_per_gpu == pytest.approx(own * worst.block_bytes)
    longest = s.engine.max_model_len or architecture.of(s.model).max_position_embeddings or 0
    if longest <= 131_072:
        needs = [sum(t.taken(longest, s.engine.enable_prefix_caching, s.engine.max_num_batched_tokens) for t in r.tables) for r in ranks]
        at_once = min(r.blocks / need for r, need in zip(ranks, needs, strict=True))
        assert plan.max_model_len_concurrency == pytest.approx(at_once)
        assert plan.engine_log[1] == f"Maximum concurrency for {longest:,} tokens per request: {at_once:.2f}x"
        fits = all(r.pool >= 0 for r in ranks) and at_once >= (s.engine.name == "vllm")
        assert plan.fits == fits
        if not fits and worst.pool < 0:
            need = max(needs) * worst.block_bytes if s.engine.name == "vllm" else own * worst.block_bytes
            assert plan.shortfall_bytes_per_gpu == pytest.approx(need - worst.pool)


def test_the_hand_arithmetic_of_the_chapter_in_every_field() -> None:
    """405 B parameters in FP8 on eight 80 GB cards: 640 − 405 = 235 GB over 8,192 tokens of 258,048 B (two bytes a pair of K and V)."""
    plan = budget(
        fidelity="textbook",
        model={"name": "llama-3.1-405b", "total_params": 405 * 10**9},
        precision={"weights": "fp8", "kv_cache": "fp8"},
        parallel=TP8,
        workload={"input_len": 4000, "output_len": 4192},
        engine={"max_model_len": 16_384},
    )
    token = 126 * 2 * 8 * 128
    assert plan.kv_bytes_per_token == token
    assert plan.kv_bytes_per_token_per_gpu == plan.full_kv_bytes_per_token_per_gpu == token / 8
    assert plan.windowed_kv_bytes_per_token_per_gpu == plan.state_bytes_per_sequence_per_gpu == 0
    assert plan.kv_pool_tokens == 235 * GB // token
    assert plan.sequences == pytest.approx(235 * GB / (8192 * token))
    assert plan.max_model_len_concurrency == pytest.approx(235 * GB / (16_384 * token))
    assert plan.sequence_bytes_per_gpu == 8192 * token / 8
    assert plan.shortfall_bytes_per_gpu == 0
    assert plan.gpu_memory_bytes == plan.budget_bytes_per_gpu == 80 * GB
    assert (plan.activation_bytes_per_gpu, plan.non_torch_bytes_per_gpu, plan.cuda_graph_bytes_per_gpu) == (0, 0, 0)
    parts = {t.name: t.bytes for t in plan.terms}
    assert parts == {"memory": 80 * GB, "weights": 405 * GB / 8, "kv_pool": 235 * GB / 8, "sequence": 8192 * token / 8}
    formulas = {t.name: t.formula for t in plan.terms}
    assert formulas["weights"] == "405,000,000,000 parameters × 1 B ÷ 8 GPUs"
    assert formulas["kv_pool"] == "(80 − 50.62) GB, 235 GB over 8 GPUs"
    assert formulas["sequence"] == "8,192 tokens × 258,048 B ÷ 8 GPUs"
    shared = budget(
        fidelity="textbook",
        model={"name": "llama-3.1-8b", "total_params": 8 * 10**9},
        workload={"input_len": 3000, "output_len": 1000, "shared_prefix_len": 2000, "prefix_groups": 3},
    )
    eight = 32 * 2 * 8 * 128 * 2
    assert shared.sequences == pytest.approx((64 * GB - 3 * 2000 * eight) / (2000 * eight))
    nothing = budget(fidelity="textbook", model={"name": "llama-3.1-405b"}, precision={"weights": "bf16"})
    assert (nothing.kv_pool_tokens, nothing.sequences, nothing.max_model_len_concurrency, nothing.cache_limited_batch) == (0, 0, 0, 0)


def test_data_parallel_ranks_each_hold_their_own() -> None:
    parts: dict[str, Any] = {"model": {"name": "qwen3-30b-a3b"}, "workload": {"input_len": 3000, "output_len": 77}}
    parts["parallel"] = {"data_parallel_size": 4, "enable_expert_parallel": True}
    plan, (rank,) = budget(**parts), memory_oracle.ranks(Scenario.model_validate(parts))
    each = memory_oracle.sequences(Scenario.model_validate(parts), rank, 3077)
    assert plan.cache_limited_batch == 4 * math.floor(each)
    assert plan.sequences == pytest.approx(4 * each)
    assert plan.blocks == rank.blocks
    assert plan.kv_pool_tokens == 4 * rank.blocks * 16
    assert plan.max_model_len_concurrency == pytest.approx(
        4 * memory_oracle.sequences(Scenario.model_validate(parts), rank, plan.max_model_len)
    )


def test_terms_say_which_stage_and_what_is_in_it() -> None:
    plan = budget(model={"name": "llama-3.1-70b"}, parallel={"pipeline_parallel_size": 4}, speculative={"method": "eagle3"})
    formulas = {t.name: t.formula for t in plan.terms}
    assert formulas["weights"] == "33.83 GiB of tensors at TP 1, stage 4 of 4 + 0.03 GiB rotary table + 2.61 GiB drafter"
    assert formulas["activation"] == "256 rows × 128,256 vocabulary × 14.658 B + 8,192 tokens × 8,192 × 1.779 B + 0.05 GiB"
    assert formulas["non_torch"].endswith("pipeline stage")
    assert formulas["cuda_graph"] == "0.35 + 20 layers × 0.016 GiB, on top of the share"
    assert formulas["sequence"] == "one sequence of 1,280 tokens takes 80 blocks of 1,344 KiB"
    split = budget(model={"name": "deepseek-v3"}, precision=AUTO, parallel={"tensor_parallel_size": 16}, engine={"version": "0.21.0"})
    formulas = {t.name: t.formula for t in split.terms}
    assert "rotary table and MLA copies" in formulas["weights"]
    assert "stage" not in formulas["weights"]
    assert " + expert workspace 0.97 GiB + " in formulas["activation"]
    assert formulas["non_torch"].endswith("with NCCL")
    assert formulas["cuda_graph"] == "0.35 + 61 layers × 0.016 GiB + experts, inside the share"
    assert formulas["kv_pool"].endswith("− cuda_graph")
    first = budget(model={"name": "llama-3.1-70b"}, parallel={"pipeline_parallel_size": 2}, engine={"max_num_seqs": 1})
    assert "8,192 tokens × MLP width 57,344 × 3 B" in {t.name: t.formula for t in first.terms}["activation"]


def test_layers_in_words() -> None:
    def mixers(name: str, **more: Any) -> list[str]:
        return [row.mixer for row in budget(model={"name": name}, **more).layers]

    assert mixers("deepseek-v4-flash", precision=AUTO, parallel=TP8) == [
        "64 heads, 1 KV × 512, window 128, then no tokens an entry",
        "64 heads, 1 KV × 512, window 128, then 4 tokens an entry, indexer 64 × 128",
        "64 heads, 1 KV × 512, window 128, then 128 tokens an entry",
    ]
    assert mixers("qwen3-next-80b-a3b")[0] == "gated deltanet, 32 heads"
    assert mixers("gemma-3n-e4b")[2] == "8 heads, 2 KV × 256, window 512, cache of an earlier layer"
    assert mixers("llama-4-scout")[0] == "40 heads, 8 KV × 128, chunk 8,192"
    deepseek = budget(model={"name": "deepseek-v3"}).layers
    assert [row.mlp for row in deepseek] == ["dense 18,432", "8 of 256 experts × 2,048 + shared 2,048"]
    assert [row.layers for row in deepseek] == ["0–2", "3–60"]
    assert deepseek[0].mixer == "MLA 128 heads, latent 512 + 64"
    assert deepseek[0].kv_bytes_per_token_each == (512 + 64) * 2
    states = budget(model={"name": "nemotron-h-56b"}).layers
    assert "none" in {row.mlp for row in states}
    assert "none" in {row.mixer for row in states}


def test_settings_that_help_are_offered_with_what_they_give() -> None:
    """131,072 tokens of 128 KiB are 16 GiB: more than is left beside 15 GiB of weights on a card of 24."""
    card = {"gpu": "l40s", "overrides": {"memory_gib": 24}}
    plan = budget(model={"name": "llama-3.1-8b"}, hardware=card)
    assert not plan.fits
    by = {r.field: r for r in plan.remedies if not r.also}
    assert (by["engine.max_model_len"].value, by["engine.max_model_len"].fits) == (2048, True)
    assert by["precision.kv_cache"].value == "fp8"
    more = by["engine.gpu_memory_utilization"]
    assert more.value == 0.95
    assert more.kv_pool_bytes_per_gpu - plan.kv_pool_bytes_per_gpu == pytest.approx(0.05 * 24 * GIB)
    assert more.message == "let the engine use 95% of the memory instead of 90%"
    assert by["parallel.tensor_parallel_size"].value == 2
    assert by["parallel.pipeline_parallel_size"].gpus == 2
    offered, little = (
        {
            r.field: r
            for r in budget(
                model={"name": "llama-3.1-8b"},
                hardware={"gpu": "l40s", "overrides": {"memory_gib": gib}},
                engine={"max_model_len": 2048, "max_num_seqs": 1024, "max_num_batched_tokens": 16_384},
            ).remedies
            if not r.also
        }
        for gib in (18.6, 18.2)
    )
    assert offered["engine.max_num_batched_tokens"].value == 2048
    assert offered["engine.max_num_seqs"].value == 64
    assert "at most 2,048 tokens a step" in offered["engine.max_num_batched_tokens"].message
    assert "engine.max_num_batched_tokens" not in little, "under a tenth of what is missing"
    none = budget(
        model={"name": "llama-3.1-8b"},
        hardware={"gpu": "l40s", "overrides": {"memory_gib": 12}},
        engine={"max_model_len": 2048, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.95},
    )
    assert not any(r.field.startswith("engine.") for r in none.remedies)


def test_hand_arithmetic_of_windows_states_and_prefixes() -> None:
    """Gemma 3 27B on four 80 GB cards: 52 layers keep 1,024 tokens at most; Qwen3-Next holds a state beside its growing cache."""
    load = {"input_len": 3000, "output_len": 1000, "shared_prefix_len": 2000}
    four = {"tensor_parallel_size": 4}
    gemma = budget(fidelity="textbook", model={"name": "gemma-3-27b"}, parallel=four, workload=load)
    layer = 2 * 16 * 128 * 2
    assert gemma.windowed_kv_bytes_per_token_per_gpu == 52 * layer / 4
    assert gemma.full_kv_bytes_per_token_per_gpu == 10 * layer / 4
    next_ = architecture.of(Scenario.model_validate({"model": {"name": "qwen3-next-80b-a3b"}}).model)
    state, token = next_.fixed_state_bytes_per_sequence, next_.kv_bytes_per_token("bf16")
    plan = budget(fidelity="textbook", model={"name": "qwen3-next-80b-a3b"}, parallel=four, workload=load)
    assert plan.state_bytes_per_sequence_per_gpu == state / 4
    free = 320 * GB - 2 * next_.total_params
    assert plan.sequences == pytest.approx((free - 2000 * token) / (state + 2000 * token))
    off = budget(fidelity="textbook", model={"name": "llama-3.1-8b"}, workload=load, engine={"enable_prefix_caching": False}, parallel=four)
    assert off.sequence_bytes_per_gpu == 4000 * 131_072 / 4


def test_two_stages_are_told_apart() -> None:
    plan = budget(model={"name": "llama-3.1-70b"}, parallel={"pipeline_parallel_size": 2})
    assert ", stage 1 of 2" in next(t.formula for t in plan.terms if t.name == "weights") or ", stage 2 of 2" in next(
        t.formula for t in plan.terms if t.name == "weights"
    )
