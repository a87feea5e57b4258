"""Memory budgets against real engine reports and the chapter's arithmetic; what fits, how much, and what helps."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import architecture, hardware, memory, sharding, traffic
from planner.catalog.engine_memory import engine_memory
from planner.memory import MemoryPlan, blocks
from planner.memory.layers import positions
from planner.scenario import Engine, Scenario, Workload
from planner.units import GB, GIB

sys.path.insert(0, str(Path(__file__).parent / "bench"))
import memory_logs


def budget(**parts: Any) -> MemoryPlan:
    s = Scenario.model_validate(parts)
    arch = architecture.of(s.model)
    gpu = hardware.of(s.hardware)
    return memory.plan(arch, sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware), gpu, s)


def chapter(weights: str, gpus: int) -> MemoryPlan:
    return budget(
        fidelity="textbook",
        model={"name": "llama-3.1-405b", "total_params": 405 * 10**9},
        precision={"weights": weights, "kv_cache": "fp8"},
        parallel={"tensor_parallel_size": gpus},
        workload={"input_len": 4000, "output_len": 4192},
    )


def test_the_chapters_budget_to_the_digit():
    fp8 = chapter("fp8", 8)
    assert fp8.kv_pool_bytes_per_gpu * 8 == pytest.approx(235 * GB)
    assert fp8.kv_bytes_per_token == 258_048
    assert fp8.cache_limited_batch == 111
    assert chapter("int4", 8).kv_pool_bytes_per_gpu * 8 == pytest.approx(437.5 * GB)
    bf16 = chapter("bf16", 8)
    assert not bf16.fits
    assert bf16.weights_bytes_per_gpu * 8 == pytest.approx(810 * GB)
    assert bf16.shortfall_bytes_per_gpu * 8 == pytest.approx(170 * GB + 8192 * 258_048)
    assert chapter("bf16", 16).fits


LOGS = memory_logs.logs()


def share_within(errors: list[float], bound: float) -> float:
    return sum(abs(e) <= bound for e in errors) / len(errors)


def test_weights_of_one_gpu_match_the_logs():
    errors = [e for x in LOGS if x.row["engine_version"].startswith(("0.11.0", "0.19")) and (e := memory_logs.weights_error(x)) is not None]
    assert len(errors) > 50
    assert share_within(errors, 0.01) >= 0.95
    assert max(map(abs, errors)) < 0.015


def test_tokens_from_a_printed_pool_match_the_logs():
    errors = [e for x in LOGS if (e := memory_logs.tokens_error(x)) is not None]
    assert len(errors) > 50
    assert share_within(errors, 0.01) >= 0.95, "the rest are pipeline rows that print the pool of another rank"
    assert share_within(errors, 0.0005) >= 0.9


def test_the_whole_budget_matches_with_the_model_left_out_of_the_fit():
    rows = memory_logs.complete(LOGS)
    fits = {x.shape: memory_logs.fit(memory_logs.without(rows, x)) for x in rows}
    errors = [memory_logs.budget_error(x, fits[x.shape])[0] for x in rows]
    assert len(errors) >= 45
    assert share_within(errors, 0.05) >= 0.95
    assert sum(map(abs, errors)) / len(errors) < 0.01


def test_the_shipped_constants_are_the_fit():
    fitted, shipped = memory_logs.fit(memory_logs.complete(LOGS)), engine_memory("vllm", "0.19.0")
    for name in ("logits_bytes_per_entry", "activation_bytes_per_token_width", "moe_workspace_share", "non_torch_gib", "non_torch_tp_gib"):
        assert getattr(shipped, name) == pytest.approx(getattr(fitted, name), rel=2e-3), name


def test_the_engines_own_lines_are_reproduced():
    x = next(x for x in LOGS if x.row["id"] == "10")  # Gemma 3 27B: ten full layers, fifty-two windowed
    plan = budget(**x.scenario.model_dump(mode="json"))
    size, concurrency = plan.engine_log
    assert float(size.removeprefix("GPU KV cache size: ").removesuffix(" tokens").replace(",", "")) == pytest.approx(36_560, rel=0.01)
    assert concurrency.startswith("Maximum concurrency for 8,192 tokens per request: 4.4")


def test_terms_add_up_and_say_where_they_come_from():
    plan = budget(model={"name": "llama-3.1-8b"})
    terms = {t.name: t for t in plan.terms}
    parts = terms["weights"].bytes + terms["activation"].bytes + terms["non_torch"].bytes + terms["kv_pool"].bytes
    assert parts == pytest.approx(terms["budget"].bytes)
    assert all(t.formula and t.source for t in plan.terms)
    assert plan.cuda_graph_bytes_per_gpu == terms["cuda_graph"].bytes
    assert "on top" in terms["cuda_graph"].formula


def test_graphs_count_inside_the_share_since_021_and_eager_has_none():
    def base(version: str) -> MemoryPlan:
        return budget(model={"name": "llama-3.1-8b"}, engine={"version": version})

    old, new = base("0.19.0"), base("0.21.0")
    assert old.kv_pool_bytes_per_gpu - new.kv_pool_bytes_per_gpu == pytest.approx(new.cuda_graph_bytes_per_gpu)
    assert budget(model={"name": "llama-3.1-8b"}, engine={"enforce_eager": True}).cuda_graph_bytes_per_gpu == 0
    assert base("0.16.0").activation_bytes_per_gpu > 2 * base("0.17.0").activation_bytes_per_gpu, (
        "the sampler of 0.16 took 38 bytes a logit"
    )


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ({"version": "9.1"}, "not measured"),
        ({"version": "nightly"}, "moves"),
        ({"name": "sglang", "version": "0.5"}, "not measured"),
        ({"version": "0.5"}, "older"),
    ],
)
def test_constants_that_were_not_measured_are_noted(engine: dict[str, str], word: str):
    assert any(word in note for note in budget(model={"name": "llama-3.1-8b"}, engine=engine).notes)


def test_too_big_is_an_answer_with_a_negative_pool_and_remedies_in_order_of_cost():
    plan = budget(model={"name": "gpt-oss-120b"}, precision={"weights": "bf16"})
    assert not plan.fits
    assert plan.kv_pool_bytes_per_gpu < 0
    assert plan.cache_limited_batch == 0
    assert plan.shortfall_bytes_per_gpu > -plan.kv_pool_bytes_per_gpu
    enough = [r for r in plan.remedies if r.fits]
    assert enough == list(plan.remedies[: len(enough)]), "those that are enough come first"
    cost = [("int4" in (r.value, *(value for _, value in r.also)), r.gpus) for r in enough]
    assert cost == sorted(cost), "fewer GPUs first, 4-bit weights last"
    for r in enough:
        asked = {"model": {"name": "gpt-oss-120b"}, "precision": {"weights": "bf16"}}
        for path, value in ((r.field, r.value), *r.also):
            part, name = path.split(".")
            asked[part] = asked.get(part, {}) | {name: value}
        assert budget(**asked).fits


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_two_changes_are_offered_where_none_alone_is_enough_or_they_need_fewer_gpus(tp: int):
    plan = budget(model={"name": "llama-3.1-405b"}, precision={"weights": "bf16"}, parallel={"tensor_parallel_size": tp})
    first, *others = memory.cheapest(plan.remedies)
    changes = {first.field: first.value} | dict(first.also)
    assert changes == {"precision.weights": "fp8", "parallel.tensor_parallel_size": 8}
    assert first.gpus == 8
    assert [r.gpus for r in others if r.value != "int4"] == sorted(r.gpus for r in others if r.value != "int4")
    assert others[-1].value == "int4", "fewer GPUs still, at a loss of quality: last"


def test_no_pair_is_offered_where_a_single_change_needs_as_few_gpus():
    plan = budget(model={"name": "llama-3.3-70b"}, precision={"weights": "bf16"}, parallel={"tensor_parallel_size": 2})
    assert next(r.field for r in memory.cheapest(plan.remedies)) == "engine.max_model_len"
    assert not any(r.also for r in plan.remedies)


def test_a_long_default_context_that_does_not_fit_is_cured_by_max_model_len():
    plan = budget(model={"name": "llama-4-scout"}, precision={"weights": "fp8"}, parallel={"tensor_parallel_size": 4})
    assert not plan.fits
    assert plan.cache_limited_batch > 0, "the planned sequences would fit"
    first = plan.remedies[0]
    assert (first.field, first.value, first.fits) == ("engine.max_model_len", 2048, True)


def test_the_remedy_of_a_shorter_context_lets_the_longest_prompts_through():
    lengths = {"kind": "lognormal", "mean": 1155, "cv": 1.86, "max": 16_000}
    plan = budget(model={"name": "llama-3.3-70b"}, precision={"weights": "int4"}, workload={"input_len": lengths, "output_len": 211})
    assert not plan.fits
    first = plan.remedies[0]
    assert first.field == "engine.max_model_len"
    assert 16_000 < first.value <= 17_408
    turns = traffic.longest_tokens(Workload(input_len=1000, output_len=100, turns=10))
    assert turns == pytest.approx(1100 + 9 * 1100)


def test_a_shared_prefix_is_held_once_per_group():
    load = {"input_len": 4096, "output_len": 256}
    alone = budget(model={"name": "llama-3.1-8b"}, workload=load)
    shared = budget(model={"name": "llama-3.1-8b"}, workload=load | {"shared_prefix_len": 3072})
    off = budget(model={"name": "llama-3.1-8b"}, workload=load | {"shared_prefix_len": 3072}, engine={"enable_prefix_caching": False})
    assert shared.cache_limited_batch == (alone.blocks - 192) // (272 - 192)
    assert off.cache_limited_batch == alone.cache_limited_batch == alone.blocks // 272
    many = budget(model={"name": "llama-3.1-8b"}, workload=load | {"shared_prefix_len": 3072, "prefix_groups": 50})
    assert many.cache_limited_batch == (alone.blocks - 50 * 192) // 80


def test_a_window_borrows_from_the_prefix_only_as_far_as_it_reaches():
    pool = blocks.BlockPool(1000, (blocks.Group(blocks.Kind(10, 1.0, window=1024), 1, 16),), 1.0, 16)
    assert pool.prefix_blocks(4096) == 64
    assert pool.borrowed_blocks(8192, 4096) == 0
    assert pool.borrowed_blocks(4608, 4096) == 32
    assert pool.borrowed_blocks(4096, 4096) == 64


def test_only_vllm_insists_that_the_longest_sequence_fits():
    asked = {"model": {"name": "llama-4-scout"}, "precision": {"weights": "fp8"}, "parallel": {"tensor_parallel_size": 4}}
    assert not budget(**asked).fits
    assert budget(**asked, engine={"name": "sglang", "version": "0.5"}).fits


def test_contiguous_allocation_reserves_the_longest_sequence():
    plan = budget(model={"name": "llama-3.1-8b"}, engine={"kv_allocation": "contiguous", "max_model_len": 8192})
    assert plan.cache_limited_batch == plan.blocks // 512
    assert plan.sequences == pytest.approx(plan.blocks / 512)


def test_windows_and_states_stop_growing():
    def held(tokens: int, **parts: Any) -> float:
        return budget(**parts, workload={"input_len": tokens, "output_len": 1}).sequence_bytes_per_gpu

    gemma = [held(n, model={"name": "gemma-3-27b"}, engine={"max_model_len": 65_536}) for n in (512, 2048, 32_768)]
    assert gemma[1] / gemma[0] > 1.9
    assert gemma[2] / gemma[1] < 8, "sixteen times the tokens, most layers hold 1,024 of them"
    mamba = [held(n, model={"name": "nemotron-h-56b"}, parallel={"tensor_parallel_size": 4}) for n in (64, 1024)]
    assert mamba[0] == mamba[1], "one grown block and the states either way"


def test_a_drafter_takes_weights_and_a_cache_layer():
    base = budget(model={"name": "llama-3.1-8b"})
    eagle = budget(model={"name": "llama-3.1-8b"}, speculative={"method": "eagle3"})
    assert eagle.weights_bytes_per_gpu > base.weights_bytes_per_gpu + 0.5 * GB
    ratio = eagle.kv_pool_tokens / eagle.kv_pool_bytes_per_gpu / (base.kv_pool_tokens / base.kv_pool_bytes_per_gpu)
    assert ratio == pytest.approx(32 / 33, rel=1e-3), "one more KV layer, as an engine log shows"
    draft = budget(model={"name": "llama-3.1-8b"}, speculative={"method": "draft_model", "draft_model": "llama-3.2-1b"})
    assert draft.weights_bytes_per_gpu - base.weights_bytes_per_gpu == pytest.approx(2.47 * GB, rel=0.02)
    mtp = {"model": {"name": "deepseek-v3"}, "precision": {"weights": "fp8"}, "parallel": {"tensor_parallel_size": 16}}
    extra = budget(**mtp, speculative={"method": "mtp"}).weights_bytes_per_gpu - budget(**mtp).weights_bytes_per_gpu
    projection = 2 * 7168 * 7168 * 2  # stays 16-bit and whole on every rank
    assert extra * 16 == pytest.approx(11.5 * GB + 16 * projection, rel=0.05)


def test_offload_tiers_are_capacity_with_a_bandwidth():
    plan = budget(
        model={"name": "llama-3.1-8b"},
        parallel={"tensor_parallel_size": 2},
        engine={"kv_offload": [{"tier": "cpu", "gib": 128, "gb_s": 25}, {"tier": "ssd", "gib": 1024, "gb_s": 5}]},
    )
    cpu, ssd = plan.offload
    assert cpu.tokens == 128 * GIB // 131_072
    assert (ssd.tier, ssd.tokens) == ("ssd", 8 * cpu.tokens)
    assert ssd.seconds_per_token == pytest.approx(131_072 / 5e9)
    replicated = budget(model={"name": "deepseek-v2-lite"}, parallel={"tensor_parallel_size": 2}, engine={"kv_offload": [{"gib": 64}]})
    assert replicated.offload[0].tokens == 64 * GIB // (2 * 31_104), "each rank parks its own full copy"


def test_data_parallel_ranks_add_up():
    one = budget(model={"name": "deepseek-v3"}, precision={"weights": "fp8"}, parallel={"tensor_parallel_size": 16})
    dp = budget(
        model={"name": "deepseek-v3"},
        precision={"weights": "fp8"},
        parallel={"tensor_parallel_size": 1, "data_parallel_size": 16, "enable_expert_parallel": True},
    )
    assert dp.kv_pool_tokens > 6 * one.kv_pool_tokens, "sixteen pools instead of sixteen copies, less the attention weights on each rank"
    assert dp.engine_log[0].endswith(f"{dp.kv_pool_tokens // 16:,} tokens"), "an engine prints one rank"


EVERY_KIND = [
    "llama-3.1-8b",
    "qwen2.5-7b",
    "gemma-3-27b",
    "gpt-oss-20b",
    "deepseek-v2-lite",
    "qwen3.5-35b-a3b",
    "llama-4-scout",
    "nemotron-3-nano-30b-a3b",
]


@settings(max_examples=40, deadline=None)
@given(
    slug=st.sampled_from(EVERY_KIND),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    kv_cache=st.sampled_from(["bf16", "fp8"]),
    gib=st.floats(1.0, 100.0),
)
def test_capacity_in_tokens_is_right_at_every_tensor_parallel_size(slug: str, tp: int, kv_cache: str, gib: float):
    """The same bytes over all ranks hold the same tokens, fewer only by the copies that are stored and by whole blocks."""
    s = Scenario.model_validate({"model": {"name": slug}, "precision": {"kv_cache": kv_cache}, "parallel": {"tensor_parallel_size": tp}})
    arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
    engine = Engine(max_model_len=8192)

    def capacity(size: int) -> tuple[float, float]:
        layout = s.parallel.model_copy(update={"tensor_parallel_size": size})
        stage = sharding.shard(arch, layout, s.precision, gpu, s.hardware).stages[0]
        pool = blocks.pool(stage, gib * GIB * 16 / size, engine)
        copies = (stage.kv_bytes_per_token + stage.kv_windowed_bytes_per_token) * size
        return pool.concurrency(8192, engine), copies

    (one, whole), (many, stored) = capacity(1), capacity(tp)
    if arch.fixed_state_bytes_per_sequence:  # states are divided even where KV heads are copied, and blocks grow in whole steps
        assert 0.88 * one * whole / stored <= many <= 1.12 * one
    else:
        assert many == pytest.approx(one * whole / stored, rel=0.01)


def test_the_layer_table_accounts_for_every_layer():
    s = Scenario.model_validate({"model": {"name": "gemma-3-27b"}, "parallel": {"tensor_parallel_size": 2}})
    arch = architecture.of(s.model)
    gpu = hardware.of(s.hardware)
    rows = memory.layers(arch, sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware))
    assert [r.kind for r in rows] == ["window", "full"]
    assert sum(r.count for r in rows) == arch.num_hidden_layers
    assert sum(r.params_each * r.count for r in rows) + sum(t.params for t in arch.outer) == arch.total_params
    assert "window 1,024" in rows[0].mixer
    assert rows[1].layers == "5, 11, 17, 23, …"
    assert positions((0, 1, 2, 5, 7, 9)) == "0–2, 5, 7, 9"
    assert positions((0, 2, 4, 6, 8)) == "0, 2, 4, 6, …"
    assert all(r.weight_bytes_per_gpu_each > 0 for r in rows)


@pytest.mark.parametrize("slug", ["deepseek-v4-flash", "gemma-3n-e4b", "llama-4-scout", "qwen3-next-80b-a3b"])
def test_the_layer_table_adds_up_to_what_a_token_and_a_sequence_keep(slug: str):
    plan = budget(
        model={"name": slug}, precision={"weights": "auto"}, parallel={"tensor_parallel_size": 8} if slug != "gemma-3n-e4b" else {}
    )
    assert sum(row.kv_bytes_per_token_each * row.count for row in plan.layers) == pytest.approx(plan.kv_bytes_per_token)
    arch = architecture.of(Scenario.model_validate({"model": {"name": slug}}).model)
    assert sum(row.state_bytes_each * row.count for row in plan.layers) == arch.fixed_state_bytes_per_sequence
