"""Memory where a plan turns from one answer to the next: pools filled to the last block, versions next to a change, the smallest layouts.

Expected values are counted in the tests: vLLM starts when the cache of `max_model_len` needs no more than there is
(`check_enough_kv_cache_memory` raises where needed > available), and its release notes say from which version on constants hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import memory_oracle
import pytest
from test_memory import budget

from planner import architecture, hardware, sharding
from planner.catalog import engine_memory
from planner.memory import reserves
from planner.scenario import Scenario
from planner.units import GB, GIB

LLAMA = {"name": "llama-3.1-8b"}
TOKEN = 32 * 2 * 8 * 128 * 2
"""Bytes that Llama 3.1 8B keeps of a token: 32 layers, K and V, 8 heads of 128, 16 bit."""
BLOCK = 16 * TOKEN
CARD = {"gpu": "l40s", "overrides": {"memory_gib": 24}}
SGLANG = {"name": "sglang", "version": "0.5"}
PLAIN: dict[str, Any] = {
    "model_type": "plain",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "vocab_size": 32_000,
}
PLAIN |= {"num_attention_heads": 8, "num_key_value_heads": 2}


def test_a_pool_that_the_longest_sequence_fills_to_the_last_block_is_enough() -> None:
    blocks = budget(model=LLAMA, hardware=CARD).blocks
    full = budget(model=LLAMA, hardware=CARD, engine={"max_model_len": blocks * 16})
    assert (full.fits, full.shortfall_bytes_per_gpu, full.max_model_len_concurrency, full.remedies) == (True, 0, 1.0, ())
    over = budget(model=LLAMA, hardware=CARD, engine={"max_model_len": blocks * 16 + 1})
    assert not over.fits
    assert over.shortfall_bytes_per_gpu == pytest.approx((blocks + 1) * BLOCK - over.kv_pool_bytes_per_gpu)
    assert 0 < over.shortfall_bytes_per_gpu <= BLOCK


@pytest.mark.parametrize(("prefix", "groups"), [(0, 1), (1600, 1), (1600, 3)])
def test_where_only_the_planned_sequence_counts_it_may_fill_the_pool(prefix: int, groups: int) -> None:
    """SGLang starts whatever the longest sequence; a shared prefix of 100 blocks stands beside the sequence, once for each group."""
    blocks = budget(model=LLAMA, hardware=CARD, engine=SGLANG).blocks
    own = blocks - groups * prefix // 16

    def planned(tokens: int) -> Any:
        load = {"input_len": prefix + tokens - 200, "output_len": 200, "shared_prefix_len": prefix, "prefix_groups": groups}
        return budget(model=LLAMA, hardware=CARD, engine=SGLANG, workload=load)

    full, over = planned(own * 16), planned(own * 16 + 1)
    assert (full.fits, full.cache_limited_batch, full.sequences) == (True, 1, 1.0)
    assert (over.fits, over.cache_limited_batch) == (False, 0)
    assert 0 < over.shortfall_bytes_per_gpu <= BLOCK


def test_a_short_sequence_takes_one_block() -> None:
    plan = budget(model=LLAMA, workload={"input_len": 12, "output_len": 4})
    assert plan.cache_limited_batch == plan.blocks
    assert plan.sequence_bytes_per_gpu == BLOCK
    assert budget(model=LLAMA, workload={"input_len": 13, "output_len": 4}).cache_limited_batch == plan.blocks // 2


def test_a_model_that_names_no_longest_context_is_planned_for_the_sequences_it_gets() -> None:
    plan = budget(model={"hf_config": PLAIN}, workload={"input_len": 1000, "output_len": {"kind": "lognormal", "mean": 300.5, "cv": 1}})
    assert plan.max_model_len == 1301
    assert plan.engine_log[1].startswith("Maximum concurrency for 1,301 tokens")
    assert budget(model={"hf_config": PLAIN}, engine={"max_model_len": 4096}).max_model_len == 4096
    assert budget(model={"hf_config": PLAIN | {"max_position_embeddings": 512}}).max_model_len == 512


@pytest.mark.parametrize("fidelity", ["textbook", "calibrated"])
def test_nothing_but_the_limit_on_sequences_limits_a_model_without_a_cache(fidelity: str) -> None:
    mlps = PLAIN | {"model_type": "nemotron_h", "hybrid_override_pattern": "----"}
    plan = budget(fidelity=fidelity, model={"hf_config": mlps}, engine={"max_num_seqs": 77})
    assert (plan.fits, plan.cache_limited_batch, plan.sequences, plan.max_model_len_concurrency) == (True, 77, 77, 77)
    assert plan.kv_pool_tokens == plan.kv_bytes_per_token == plan.sequence_bytes_per_gpu == plan.shortfall_bytes_per_gpu == 0
    tiers = budget(fidelity=fidelity, model={"hf_config": mlps}, engine={"kv_offload": [{"gib": 8}]}).offload
    assert (plan.blocks, [t.tokens for t in tiers]) == (0, [0] if fidelity == "calibrated" else [])
    if fidelity == "calibrated":
        small = budget(model={"hf_config": mlps}, hardware={"gpu": "l40s", "overrides": {"memory_gib": 0.5}})
        assert (small.fits, small.cache_limited_batch, small.sequences) == (False, 0, 0)
        assert small.shortfall_bytes_per_gpu == -small.kv_pool_bytes_per_gpu > 0
    for params, fits in ((40 * 10**9, True), (40 * 10**9 + 1, False)):  # two bytes each on a card of 80 GB
        by_hand = budget(fidelity="textbook", model={"hf_config": mlps, "total_params": params}, engine={"max_num_seqs": 77})
        assert (by_hand.fits, by_hand.sequences, by_hand.max_model_len_concurrency) == (fits, 77 * fits, 77 * fits)


def test_a_window_is_filled_by_a_sequences_own_tokens_before_its_prefix() -> None:
    """Mistral 7B as first published: every layer keeps 4,096 tokens. A prefix of 6,000 and 2,000 tokens of their own."""
    config = {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "vocab_size": 32_000}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 32_768}
    model = {"hf_config": config, "total_params": 7 * 10**9}
    load = {"input_len": 7000, "output_len": 1000, "shared_prefix_len": 6000}
    plan = budget(fidelity="textbook", model=model, workload=load)
    assert plan.sequence_bytes_per_gpu == 2000 * TOKEN
    assert plan.sequences == pytest.approx((66 * GB - 4096 * TOKEN) / (2000 * TOKEN))
    assert plan.cache_limited_batch == int(plan.sequences)
    long = budget(fidelity="textbook", model=model, workload=load | {"output_len": 9000})
    assert long.sequence_bytes_per_gpu == 4096 * TOKEN
    assert {t.name: t.formula for t in long.terms}["sequence"] == "10,000 tokens × 53,687 B on average ÷ 1 GPUs"


def test_hand_arithmetic_to_the_byte() -> None:
    """80 GB less two bytes a parameter leave exactly one sequence of 4,000 tokens; a parameter more, and it does not fit."""
    params = (80 * GB - 4000 * TOKEN) // 2
    load = {"input_len": 3000, "output_len": 1000}
    full = budget(fidelity="textbook", model=LLAMA | {"total_params": params}, workload=load)
    assert (full.fits, full.sequences, full.cache_limited_batch, full.kv_pool_tokens) == (True, 1.0, 1, 4000)
    over = budget(fidelity="textbook", model=LLAMA | {"total_params": params + 1}, workload=load)
    assert (over.fits, over.cache_limited_batch, over.shortfall_bytes_per_gpu) == (False, 0, 2)
    four = budget(
        fidelity="textbook",
        model=LLAMA | {"total_params": 2 * params},
        workload=load | {"shared_prefix_len": 2000, "prefix_groups": 2},
        parallel={"tensor_parallel_size": 2},
    )
    assert four.sequences == pytest.approx((8000 - 2 * 2000) / 2000)
    assert four.max_model_len_concurrency == pytest.approx(8000 / 131_072)
    assert four.sequence_bytes_per_gpu == 2000 * TOKEN / 2


def noted(version: str, name: str = "vllm") -> tuple[str, ...]:
    return budget(model=LLAMA, engine={"name": name, "version": version}).notes


def test_the_oldest_known_version_is_no_older_one() -> None:
    assert noted("0.8") == noted("0.8.0") == noted("0.16.9") == noted("0.17") == noted("0.20.2") == ()
    (older,) = noted("0.7.3")
    assert older == "vllm 0.7.3 is older than any version known here (0.8); its constants are used"
    for version, of_a_logit in (("0.7.3", 37.87), ("0.16.9", 37.87), ("0.17", 14.658)):
        activation = budget(model=LLAMA, engine={"version": version}).activation_bytes_per_gpu
        assert activation == pytest.approx(256 * 128_256 * of_a_logit + 8192 * 4096 * 1.779 + 0.048 * GIB)
    assert len(noted("latest")) == 2
    assert "moves; the constants of 0.21" in noted("latest")[1]


def test_a_version_after_the_newest_measured_one_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch releases bring no new memory profile; the next minor or major version may."""
    rows = tuple(replace(row, measured=True) for row in engine_memory._rows())
    monkeypatch.setattr(engine_memory, "_rows", lambda: rows)
    assert noted("0.21") == noted("0.21.9") == ()
    for version in ("0.22", "0.22.1", "1.0"):
        assert noted(version) == (f"vllm {version} is newer than any version known here (0.21); its constants are used",)


def pipelines(slug: str, pp: int = 1, **more: Any) -> list[tuple[int, bool]]:
    """The pipeline stages that the remedies end with, alone, and whether they are enough."""
    plan = budget(
        model={"name": slug}, hardware={"gpu": "l40s"}, parallel={"pipeline_parallel_size": pp}, engine={"max_model_len": 4096}, **more
    )
    assert not plan.fits
    return [(r.value, r.fits) for r in plan.remedies if r.field == "parallel.pipeline_parallel_size" and not r.also]


def test_pipeline_stages_double_until_the_weights_fit() -> None:
    """An L40S lends 40 GiB of its 44.4: 61 GiB (32 B in 16 bit) go on two stages, 131 GiB (70 B) on four, 229 GiB (123 B) on eight."""
    assert pipelines("qwen2.5-32b") == [(2, True)]
    assert pipelines("llama-3.1-70b") == pipelines("llama-3.1-70b", 2) == [(4, True)]
    assert pipelines("mistral-large-2407") == pipelines("mistral-large-2407", 4) == [(8, True)]
    assert pipelines("llama-3.1-405b") == [(8, False)], "755 GiB: more than eight hold"
    assert pipelines("llama-3.1-405b", 8) == []
    assert pipelines("llama-3.1-405b", fidelity="textbook") == [(8, False)]


def test_tensor_parallel_sizes_are_powers_of_two() -> None:
    """Llama 2 13B has 40 heads: five cards of 9 GiB would hold a fifth of 24 GiB each beside 3 GiB of reserves, but eight are offered."""
    card = {"gpu": "l40s", "overrides": {"memory_gib": 9}}
    assert budget(model={"name": "llama-2-13b"}, hardware=card, parallel={"tensor_parallel_size": 5}, engine={"max_model_len": 2048}).fits
    plan = budget(model={"name": "llama-2-13b"}, hardware=card, engine={"max_model_len": 2048})
    assert [r.value for r in plan.remedies if r.field == "parallel.tensor_parallel_size" and not r.also] == [8]


def test_no_more_stages_are_offered_than_there_are_layers() -> None:
    few = {"hf_config": PLAIN | {"max_position_embeddings": 4096}, "total_params": 10**12}
    plan = budget(fidelity="textbook", model=few)
    assert [r.value for r in plan.remedies if r.field == "parallel.pipeline_parallel_size" and not r.also] == [4]


def test_activations_of_32_bits() -> None:
    """Hidden states and what passes between stages double; of a logit only the model's own copy does: 14.658 + 2 B."""
    stages = {"pipeline_parallel_size": 2}
    one = budget(model=LLAMA, precision={"weights": "fp32"})
    assert one.activation_bytes_per_gpu == pytest.approx(256 * 128_256 * 16.658 + 8192 * 4096 * 1.779 * 2 + 0.048 * GIB)
    first = budget(model=LLAMA, precision={"weights": "fp32"}, parallel=stages, engine={"max_num_seqs": 1})
    assert first.activation_bytes_per_gpu == pytest.approx(8192 * (28_672 * 1.5 * 4 + 4096 * (1.779 + 8) * 2) + 0.048 * GIB)
    assert "8,192 tokens × 4,096 × 16 B between stages" in {t.name: t.formula for t in first.terms}["activation"]


def test_the_widest_layer_of_a_stage_decides_its_peak() -> None:
    """DeepSeek V3 on eight GPUs a stage: its first layers are dense and 18,432 wide, its experts share one of 2,048."""
    s = Scenario.model_validate({"model": {"name": "deepseek-v3"}, "precision": {"weights": "auto"}})
    layout = s.parallel.model_copy(update={"tensor_parallel_size": 8, "pipeline_parallel_size": 2})
    arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
    laid = sharding.shard(arch, layout, s.precision, gpu, s.hardware)
    first, last = (reserves.of(arch, laid, stage, s.engine) for stage in laid.stages)
    assert first.activation_formula.startswith("8,192 tokens × MLP width 4,608 × 3 B")
    assert last.activation_formula.startswith("256 rows")


def test_a_chunk_holds_no_more_blocks_once_it_is_full() -> None:
    """Llama 4 Scout: three tables of chunks of 8,192 tokens, one of 20,010 tokens that all grow."""
    parts: dict[str, Any] = {"model": {"name": "llama-4-scout"}, "precision": {"weights": "fp8"}, "engine": {"max_model_len": 65_536}}
    plan = budget(**parts, parallel={"tensor_parallel_size": 8}, workload={"input_len": 20_000, "output_len": 10})
    assert plan.sequence_bytes_per_gpu == (3 * 512 + 1251) * 16 * 12 * 512


def test_a_setting_just_over_what_is_offered_is_offered() -> None:
    """A row of the sampler is 1.9 MB, a token of a step 7 kB, a ten-thousandth of the card 1.7 MB: enough where 5 kB are missing."""

    def offered(limits: dict[str, Any], missing: float) -> dict[str, Any]:
        limits = {"max_model_len": 2048, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "gpu_memory_utilization": 0.95} | limits
        share = limits["gpu_memory_utilization"] * GIB
        short = budget(model=LLAMA, hardware={"gpu": "l40s", "overrides": {"memory_gib": 16}}, engine=limits).shortfall_bytes_per_gpu
        card = {"gpu": "l40s", "overrides": {"memory_gib": 16 + (short - missing) / share}}
        plan = budget(model=LLAMA, hardware=card, engine=limits)
        assert plan.shortfall_bytes_per_gpu == pytest.approx(missing, rel=0.01)
        return {r.field: (r.value, r.fits) for r in plan.remedies if r.field.startswith("engine.") and not r.also}

    assert offered({"max_num_seqs": 65}, 5000) == {"engine.max_num_seqs": (64, True)}
    assert offered({"max_num_batched_tokens": 2049}, 5000) == {"engine.max_num_batched_tokens": (2048, True)}
    assert offered({"gpu_memory_utilization": 0.9499}, 5000) == {"engine.gpu_memory_utilization": (0.95, True)}
    assert offered({"max_num_seqs": 65}, 18.0e6) == {"engine.max_num_seqs": (64, False)}, "a tenth of what is missing is worth saying"
    assert offered({"max_num_seqs": 65}, 19.0e6) == {}


@pytest.mark.parametrize("slug", ["gpt-oss-20b", "gemma-2-2b"])
def test_a_drafters_layer_makes_kinds_of_unequal_size(slug: str) -> None:
    """Twelve windowed and thirteen full layers: vLLM pads where the larger kind is less than a quarter larger, and cuts no table of one."""
    parts = {"model": {"name": slug}, "speculative": {"method": "eagle3"}, "engine": {"max_model_len": 8192}}
    plan, (rank,) = budget(**parts), memory_oracle.ranks(Scenario.model_validate(parts))
    assert len(rank.tables) == 2
    assert plan.blocks == rank.blocks
    assert plan.kv_pool_bytes_per_gpu == pytest.approx(rank.pool)
