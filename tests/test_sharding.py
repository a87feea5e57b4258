"""What one GPU holds and sends, and which layouts are refused (tests/data/models/tp_limits.csv)."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import architecture, hardware, sharding
from planner.architecture import Architecture, from_hf_config
from planner.scenario import Hardware, Model, Parallel, Precision, Scenario
from planner.sharding import Shard
from planner.sharding.legality import refusals
from planner.sharding.shard import stage_spans
from planner.units import GIB

DATA = Path(__file__).parent / "data" / "models"
FILES = {r["model"]: DATA / r["config_file"] for r in csv.DictReader((DATA / "truth.csv").open(encoding="utf-8"))}
H100 = Hardware()


def arch(slug: str) -> Architecture:
    return architecture.of(Model(name=slug))


def lay(slug: str, precision: str = "bf16", gpu: str = "h100-sxm", kv_cache: str = "bf16", **parallel: object) -> Shard:
    node = Hardware(gpu=gpu)
    layout = Parallel.model_validate(parallel)
    return sharding.shard(arch(slug), layout, Precision(weights=precision, kv_cache=kv_cache), hardware.of(node), node)


def test_every_tensor_parallel_size_of_every_model_is_judged_by_the_engines_rules():
    words = {"attention heads": "heads", "KV heads": "kv_heads", "vocabulary": "vocab", "FP8 blocks": "fp8_block(moe)"}
    for row in csv.DictReader((DATA / "tp_limits.csv").open(encoding="utf-8")):
        model = from_hf_config(json.loads(FILES[row["model"]].read_text(encoding="utf-8")))
        for tp in (2, 3, 4, 5, 6, 8, 16):
            reasons = refusals(model, tp, Parallel(tensor_parallel_size=tp), Precision(weights="auto"))
            found = {word for reason in reasons for text, word in words.items() if text in reason}
            expected = set() if row[f"tp{tp}"] == "ok" else set(row[f"tp{tp}"].split("+"))
            assert found == expected, (row["model"], tp)


def test_a_refusal_says_why_and_lists_what_is_legal():
    found = sharding.problems(arch("qwen2.5-7b"), Parallel(tensor_parallel_size=8), Precision(), H100)
    errors = [p for p in found if p.severity == "error"]
    assert errors
    assert "28 attention heads" in errors[0].message
    assert "1, 2, 4" in errors[0].remedy
    assert errors[0].field == "parallel.tensor_parallel_size"


def test_expert_parallelism_keeps_block_fp8_experts_whole():
    cut = Parallel(tensor_parallel_size=8)
    whole = cut.model_copy(update={"enable_expert_parallel": True})
    fp8 = arch("qwen3-30b-a3b-fp8")
    assert any("FP8 blocks" in p.message for p in sharding.problems(fp8, cut, Precision(weights="auto"), H100))
    assert not any(p.severity == "error" for p in sharding.problems(fp8, whole, Precision(weights="auto"), H100))


def test_uneven_experts_and_too_many_stages_are_refused():
    ep = Parallel(tensor_parallel_size=3, enable_expert_parallel=True)
    assert any("128 experts" in p.message for p in sharding.problems(arch("gpt-oss-120b"), ep, Precision(), H100))
    pp = sharding.problems(arch("gpt-oss-20b"), Parallel(pipeline_parallel_size=25), Precision(), H100)
    assert "at most 24" in next(p for p in pp if p.severity == "error").remedy


def test_expert_parallelism_without_experts_is_said_to_do_nothing():
    found = sharding.problems(arch("llama-3.1-8b"), Parallel(enable_expert_parallel=True), Precision(), H100)
    assert [p.code for p in found] == ["no_effect"]


def test_copies_of_the_cache_and_slow_links_are_said():
    found = {p.code: p for p in sharding.problems(arch("deepseek-v3"), Parallel(tensor_parallel_size=16), Precision(), H100)}
    assert "16 copies" in found["kv_replicated"].message
    assert found["slow_link"].severity == "warning"
    assert "450" in found["slow_link"].message


@pytest.mark.parametrize(("gpu", "tp", "inter_node"), [("h100-sxm", 8, False), ("h100-sxm", 16, True), ("gb200-nvl72", 16, False)])
def test_groups_use_the_fast_link_within_their_domain(gpu: str, tp: int, inter_node: bool):
    shard = lay("llama-3.1-405b", gpu=gpu, tensor_parallel_size=tp)
    assert shard.tp_group.inter_node == inter_node
    assert shard.tp_group.size == tp


def test_pipeline_stages_cut_as_the_engine_cuts_them():
    assert [len(s) for s in stage_spans(36, 3)] == [12, 12, 12]
    assert [len(s) for s in stage_spans(61, 4)] == [15, 15, 16, 15]
    assert [len(s) for s in stage_spans(7, 1)] == [7]


def test_first_and_last_stage_hold_embedding_and_head():
    shard = lay("llama-3.1-8b", pipeline_parallel_size=4)
    sizes = [(s.weight_bytes + s.engine_bytes) / GIB for s in shard.stages]
    assert sizes[0] == pytest.approx(4.26, abs=0.005), "printed by vLLM 0.19 for PP 4"
    assert sizes[1] == pytest.approx(sizes[2])
    assert shard.stages[-1].lm_head is not None
    assert shard.stages[0].lm_head is None


def test_weights_of_one_gpu_as_the_engine_prints_them():
    quantised = lay("llama-3.3-70b", "fp8", tensor_parallel_size=2)
    assert (quantised.weight_bytes + quantised.worst.engine_bytes) / GIB == pytest.approx(33.88, abs=0.02)
    scout = lay("llama-4-scout", tensor_parallel_size=4)
    assert scout.worst.engine_bytes == pytest.approx(2.5 * GIB, rel=0.01), "rotary table of 10.5 million positions on every rank"


@pytest.mark.parametrize(
    ("slug", "tp", "copies"),
    [
        ("llama-3.1-8b", 8, 1),
        ("llama-3.1-8b", 16, 2),
        ("qwen2.5-7b", 4, 1),
        ("gemma-3-27b", 16, 1),
        ("deepseek-v3", 8, 8),
        ("gpt-oss-120b", 16, 2),
    ],
)
def test_cache_over_all_ranks_is_one_copy_or_said_to_be_more(slug: str, tp: int, copies: int):
    stage = lay(slug, tensor_parallel_size=tp).stages[0]
    model = arch(slug)
    whole = model.kv_bytes_per_token() + model.kv_windowed_bytes_per_token()
    assert (stage.kv_bytes_per_token + stage.kv_windowed_bytes_per_token) * tp == whole * copies


@settings(max_examples=40, deadline=None)
@given(
    kv_heads=st.sampled_from([1, 2, 4, 8, 16, 32]),
    head_dim=st.sampled_from([64, 128, 192]),
    layers=st.integers(1, 40),
    tp=st.sampled_from([1, 2, 4, 8, 16]),
    pp=st.integers(1, 4),
    window=st.sampled_from([None, 512]),
    kv_cache=st.sampled_from(["bf16", "fp8"]),
)
def test_cache_is_divided_by_tensor_parallelism_and_never_below_one_head(
    kv_heads: int, head_dim: int, layers: int, tp: int, pp: int, window: int | None, kv_cache: str
):
    raw = {
        "model_type": "mistral",
        "hidden_size": 2048,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": 4096,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "sliding_window": window,
    }
    model = from_hf_config(raw)
    layout = Parallel(tensor_parallel_size=tp, pipeline_parallel_size=min(pp, layers))
    shard = sharding.shard(model, layout, Precision(kv_cache=kv_cache), hardware.of(H100), H100)
    per_rank = sum(s.kv_bytes_per_token + s.kv_windowed_bytes_per_token for s in shard.stages)
    heads = max(1, kv_heads // tp)
    assert per_rank == layers * heads * 2 * head_dim * (2 if kv_cache == "bf16" else 1)
    assert sum(s.layer_count for s in shard.stages) == layers


@settings(max_examples=30, deadline=None)
@given(
    slug=st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b", "qwen3-next-80b-a3b", "gemma-3-27b"]),
    tp=st.sampled_from([2, 4, 8]),
)
def test_ranks_together_hold_the_model(slug: str, tp: int):
    one, many = lay(slug), lay(slug, tensor_parallel_size=tp)
    total = tp * sum(stage.weight_bytes for stage in many.stages)
    assert total >= one.weight_bytes * 0.9999
    assert total <= one.weight_bytes * 1.06, "norms, routers and copied KV projections are all that is repeated"


def test_experts_are_placed_whole_or_cut():
    whole = lay("deepseek-v3", "fp8", tensor_parallel_size=8, data_parallel_size=4, enable_expert_parallel=True)
    cut = lay("deepseek-v3", "fp8", tensor_parallel_size=8)
    moe_whole = next(x.moe for x in whole.stages[0].layers if x.moe)
    moe_cut = next(x.moe for x in cut.stages[0].layers if x.moe)
    assert (moe_whole.experts_per_rank, moe_whole.intermediate, moe_whole.ep_size) == (8, 2048, 32)
    assert (moe_cut.experts_per_rank, moe_cut.intermediate, moe_cut.ep_size) == (256, 256, 1)
    assert next(x for x in whole.stages[0].layers if x.moe).all_to_alls == 2
    assert next(x for x in cut.stages[0].layers if x.moe).all_to_alls == 0


def test_gemms_are_the_engines_fused_ones():
    layer = lay("llama-3.1-8b", "fp8", tensor_parallel_size=4).stages[0].layers[0]
    assert [(g.name, g.n, g.k, g.weight_bytes_per_element) for g in layer.gemms] == [
        ("qkv", 1536, 4096, 1.0),
        ("o", 4096, 1024, 1.0),
        ("gate_up", 7168, 4096, 1.0),
        ("down", 4096, 3584, 1.0),
    ]
    assert layer.all_reduces == 2


def test_gemms_and_experts_weigh_what_the_layer_does():
    for slug in ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "qwen3.5-35b-a3b"):
        for layer in lay(slug, tensor_parallel_size=4).stages[0].layers:
            dense = sum(g.weight_bytes for g in layer.gemms)
            experts = layer.moe.weight_bytes_per_expert * layer.moe.experts_per_rank if layer.moe else 0.0
            assert dense + experts == pytest.approx(layer.weight_bytes, rel=2e-3), "norms and convolutions are the rest"


@pytest.mark.parametrize(
    ("slug", "chosen", "tp", "name", "gb_s", "leaves"),
    [
        ("l40s", None, 4, "PCIe 4.0 x16", 32, False),
        ("l40s", None, 16, "network", 50, True),
        ("h100-sxm", None, 8, "NVLink 4 / NVSwitch", 450, False),
        ("h100-sxm", None, 16, "network", 50, True),
        ("h100-nvl", None, 2, "NVLink 4 bridge (pairs)", 300, False),
        ("h100-nvl", None, 4, "PCIe of the server (64 GB/s assumed)", 64, False),
        ("h100-sxm", 4, 8, "PCIe of the server (64 GB/s assumed)", 64, False),
        ("h100-sxm", 1, 2, "PCIe of the server (64 GB/s assumed)", 64, False),
        ("gb200-nvl72", None, 16, "NVLink 5 / NVSwitch", 900, False),
    ],
)
def test_a_group_uses_the_network_only_beyond_its_server(slug, chosen, tp, name, gb_s, leaves):
    s = Scenario.model_validate(
        {
            "model": {"name": "llama-3.1-405b"},
            "hardware": {"gpu": slug, "scale_up_domain_gpus": chosen},
            "parallel": {"tensor_parallel_size": tp},
        }
    )
    model, gpu = architecture.of(s.model), hardware.of(s.hardware)
    g = sharding.shard(model, s.parallel, s.precision, gpu, s.hardware).tp_group
    assert (g.link, g.link_bytes_s / 1e9, g.inter_node) == (name, gb_s, leaves)
    said = [p.message for p in sharding.problems(model, s.parallel, s.precision, s.hardware) if p.code == "slow_link"]
    assert bool(said) == ("PCIe" in name or leaves)
    assert all(("network" in text) == leaves for text in said)
