"""Families that need code of their own: 29 classes counted to the parameter, their caches by formula, odd values read or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.architecture import from_hf_config
from planner.architecture.storage import stored_as
from planner.problems import InputError

DATA = Path(__file__).parent / "data" / "models"
CLASSES = {row["name"]: row for row in json.loads((DATA / "classes.json").read_text(encoding="utf-8"))}
CORRECTIONS = 6e-7
"""Router corrections are buffers to the library that counted and parameters here: 256 numbers a layer at most."""


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_of_classes_that_need_code_of_their_own(name: str):
    arch = from_hf_config(CLASSES[name]["config"])
    loose = {"molmo2": 1e-4, "glmga": 2e-5, "muse_spark": 3e-6, "qwen4_exp": 2e-6}  # padding rows, small convolutions, primes
    assert arch.total_params == pytest.approx(CLASSES[name]["params"], rel=loose.get(name, CORRECTIONS))
    assert arch.estimate == (name == "deepseek_v41")


@pytest.mark.parametrize(
    ("name", "kinds", "growing", "windowed", "state"),
    [
        # heads × (key + value) × layers × 2 bytes; QSA keeps one index key of 128 for 4 tokens; GDN and the n-gram convolution are fixed
        (
            "qwen4_exp",
            {"recurrent": 36, "full": 12},
            12 * (2 * 512 + 128 // 4) * 2,
            0,
            36 * (48 * 128 * 128 * 4 + 3 * 10240 * 2) + 9 * 10240 * 2,
        ),
        (
            "inkling_text",
            {"window": 55, "full": 11},
            11 * 8 * 256 * 2,
            55 * 16 * 256 * 2,
            (66 * 2 * 6144 + 11 * 2048 + 55 * 4096) * 3 * 2,
        ),
        ("inkling2", {"window": 40, "full": 8}, 8 * 8 * 256 * 2, 40 * 8 * 256 * 2, 48 * (2 * 4608 + 2048) * 3 * 2),
        # the middle twelve layers run three times, each time with a cache of its own
        (
            "inkling2_loop_text",
            {"window": 40, "full": 8},
            (4 + 2 * 2) * 8 * 256 * 2,
            (20 + 2 * 10) * 8 * 256 * 2,
            48 * (2 * 2304 + 2048) * 6,
        ),
        ("zaya", {"full": 40}, 40 * 2 * 256 * 2, 0, 40 * (1280 * 2 + 128) * 2),
        # 8 + 20 + 8 layers, the 20 twice
        ("dory", {"window": 42, "full": 14}, 14 * 4 * 512 * 2, 42 * 4 * 512 * 2, 0),
        ("hrm_text", {"full": 128}, 128 * 12 * 256 * 2, 0, 0),
        ("zamba", {"recurrent": 63, "full": 13}, 13 * 16 * 928 * 2, 0, 76 * (7424 * 16 * 4 + 7424 * 3 * 2)),
        ("zamba2", {"recurrent": 45, "full": 9}, 9 * 32 * 320 * 2, 0, 54 * (5120 * 64 * 4 + 5248 * 3 * 2)),
        # layers without rotation cache the latent alone
        ("mistral_large4", {"mla": 72}, (54 * 576 + 18 * 512 + 72 * 128) * 2, 0, 0),
        ("axk2", {"mla": 48}, 48 * (160 + 128) * 2, 0, 0),
        ("jetmoe", {"full": 12}, 12 * 16 * 256 * 2, 0, 0),
    ],
)
def test_caches_of_those_classes(name: str, kinds: dict[str, int], growing: int, windowed: int, state: int):
    arch = from_hf_config(CLASSES[name]["config"])
    assert arch.layers_by_kind() == kinds
    assert (arch.kv_bytes_per_token(), arch.kv_windowed_bytes_per_token(), arch.fixed_state_bytes_per_sequence) == (
        growing,
        windowed,
        state,
    )


def test_a_table_of_n_grams_is_in_memory_and_not_in_a_token():
    raw = CLASSES["qwen4_exp"]["config"]
    arch = from_hf_config(raw)
    table = next(t for t in arch.outer if t.name == "ngram_embedding")
    assert table.params == pytest.approx(51.2e9, rel=1e-4)
    assert arch.active_params - 2 * 248320 * 2560 == pytest.approx(6.0e9, rel=0.01), "about 6 B active on the model's card"
    old_name = raw | {"model_type": "qwen3_8_flash_next", "text_config": {k: v for k, v in raw["text_config"].items() if k != "model_type"}}
    assert from_hf_config(old_name).total_params == arch.total_params
    without = from_hf_config({**raw, "text_config": {k: v for k, v in raw["text_config"].items() if k != "ple_layer_ids"}})
    assert arch.total_params - without.total_params == pytest.approx(51.2e9, rel=1e-3)


def test_the_table_is_stored_as_the_checkpoint_says():
    raw = CLASSES["qwen4_exp"]["config"]
    scheme = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_convert": ["ple.ple_embedding.ngram_embedding"]}
    released = {**raw, "quantization_config": scheme, "mtp": {"num_hidden_layers": 1}, "mtp_num_hidden_layers": 1}
    arch = from_hf_config(released)
    table = next(t for t in arch.outer if t.name == "ngram_embedding")
    assert stored_as(arch, table, "auto") == ("fp8", pytest.approx(1, rel=1e-3))
    assert not arch.estimate
    assert arch.mtp
    plain = from_hf_config(raw)
    assert stored_as(plain, table, "fp8") == ("bf16", 2.0), "nobody said that the table shrinks too"


def test_deepseek_v41_is_the_published_checkpoint():
    arch = from_hf_config(CLASSES["deepseek_v41"]["config"])
    tensors = [(t, g.count) for g in arch.layers for t in g.tensors] + [(t, 1) for t in arch.outer]
    tables = sum(t.params for t, _ in tensors if t.name == "ngram_embedding")
    assert (round((arch.total_params - tables) / 1e9), round(tables / 1e9)) == (552, 197), "552 B and 196 B on its card"
    assert arch.active_params == pytest.approx(16e9, rel=0.06)
    size = {"fp8": 1 + 1 / 32**2, "mxfp4": 0.5 + 1 / 32, "bf16": 2}
    in_fp32 = ("hyper_connections", "self_attn.sinks", "mlp.gate.bias")
    stored = 0.0
    for t, count in tensors:
        each = size[stored_as(arch, t, "auto")[0]]
        each = 1 + 1 / 32 if t.name == "ngram_embedding" else 4 if t.name in in_fp32 else each
        stored += t.params * count * each
    h, expert = 5120, 3 * 5120 * 2304
    attention = 1280 * h + 32768 * 1280 + 512 * h + 8192 * 4096 + h * 8192
    stage = (attention + expert) * size["fp8"] + 128 * expert * size["mxfp4"] + 128 * h * 2 + 8 * (24 * (4 * h + 1) + 3)
    drafter = 3 * stage + 3 * h * h * size["fp8"] + 4 * 129280 * 256
    assert stored + drafter == pytest.approx(510_286_023_000, rel=1e-6)
    # three layers write every second token, one every token: a vector of 512 and an index key of 128; 40 windows of 128
    assert arch.kv_bytes_per_token() == 2.5 * (512 + 128) * 2
    assert (arch.kv_windowed_bytes_per_token(), arch.window) == (40 * 512 * 2, 128)
    assert "twice too long" in arch.notes[0]


def test_inkling_in_the_words_of_its_checkpoint():
    raw = {
        "model_type": "inkling_mm_model",
        "text_config": {
            **{"hidden_size": 6144, "num_hidden_layers": 66, "vocab_size": 201024, "num_attention_heads": 64, "num_key_value_heads": 8},
            **{"head_dim": 128, "swa_num_key_value_heads": 16, "sliding_window_size": 512, "use_sconv": True, "sconv_kernel_size": 4},
            **{"local_layer_ids": [i for i in range(66) if (i + 1) % 6], "n_routed_experts": 256, "num_experts_per_tok": 6},
            **{"n_shared_experts": 2, "dense_mlp_idx": 0, "dense_intermediate_size": 24576, "intermediate_size": 3072, "d_rel": 16},
            **{"rel_extent": 1024, "shared_expert_sink": True, "use_embed_norm": True, "model_max_length": 1048576},
        },
        "mtp_config": {"num_nextn_predict_layers": 8, "local_layer_ids": [0, 2, 4, 5, 6, 7]},
        "audio_config": {"n_mel_bins": 80, "mel_vocab_size": 16},
    }
    arch, named = from_hf_config(raw), from_hf_config(CLASSES["inkling_text"]["config"])
    assert arch.total_params - arch.tower_params == named.total_params
    assert arch.tower_params == 80 * 16 * 6144 + 6144
    assert arch.layers_by_kind() == named.layers_by_kind()
    assert arch.fixed_state_bytes_per_sequence == named.fixed_state_bytes_per_sequence
    assert (arch.max_position_embeddings, arch.estimate) == (1048576, False)
    two_dense = from_hf_config({**raw, "text_config": raw["text_config"] | {"dense_mlp_idx": 2}})
    assert [g.mlp.intermediate for g in two_dense.layers if g.mlp and not g.mlp.experts] == [24576]


def test_shared_weights_are_held_once_and_computed_every_time():
    arch = from_hf_config(CLASSES["zamba"]["config"])
    shared = [t for g in arch.layers for t in g.tensors if t.name == "self_attn.q_proj"]
    assert sorted(t.params for t in shared) == [0, 7424 * 7424]
    assert all((t.n, t.k) == (7424, 7424) for t in shared)


@pytest.mark.parametrize(
    "listed",
    [
        {"num_hidden_layers": 80, "ffn_hidden_size": 4096, "num_query_groups": 2},
        {
            **{"num_hidden_layers": 80, "zaya_layers": ["a", 16] * 40, "ffn_hidden_size_list": [0, 4096] * 40, "ffn_hidden_size": 4096},
            **{"cca_num_q_heads": [8, 0] * 40, "num_query_groups_list": [2, 0] * 40, "zaya_mlp_expansion": [0, 256] * 40},
        },
    ],
)
def test_the_first_files_of_zaya_say_the_same_in_other_words(listed: dict[str, Any]):
    raw = {
        **{"model_type": "zaya", "cca": True, "hidden_size": 2048, "head_dim": 128, "kv_channels": 128, "num_attention_heads": 8},
        **{"num_key_value_heads": 2, "num_experts": 16, "moe_router_topk": 1, "vocab_size": 262272, "tie_word_embeddings": True},
        **{"max_position_embeddings": 131072, "activation_func": "swiglu", "gated_linear_unit": True, "sliding_window": None},
    }
    arch, later = from_hf_config(raw | listed), from_hf_config(CLASSES["zaya"]["config"])
    assert (arch.total_params, arch.kv_bytes_per_token(), arch.estimate) == (later.total_params, later.kv_bytes_per_token(), False)


@pytest.mark.parametrize(
    ("name", "more", "rotated"),
    [
        ("inkling_text", {}, 0),
        ("inkling2", {}, 0),
        ("zamba", {}, 0),
        ("zamba2", {}, 0),
        ("zamba2", {"use_mem_rope": True}, 160),
        ("zaya", {"rope_parameters": {"hybrid": {"partial_rotary_factor": 0.5}, "hybrid_sliding": {"partial_rotary_factor": 0.25}}}, 64),
        ("zaya", {"rope_parameters": {"hybrid": {"partial_rotary_factor": 0.5}, "hybrid_sliding": {"rope_theta": 1e4}}}, 128),
        ("zaya", {"rope_parameters": {"partial_rotary_factor": 0.5}}, 64),
    ],
)
def test_what_is_rotated_of_a_head(name: str, more: dict[str, Any], rotated: int):
    assert from_hf_config(CLASSES[name]["config"] | more).rotary_dim == rotated


def test_loops_beyond_the_layers_there_are():
    raw = CLASSES["dory"]["config"] | {"n_input_layers": 1000, "n_output_layers": 1000}
    assert from_hf_config(raw).layers_by_kind() == {"window": 27, "full": 9}
    beyond = CLASSES["inkling2_loop_text"]["config"] | {"loop_layer_index_start": 1000, "loop_layer_index_end": 2000}
    assert from_hf_config(beyond).layers_by_kind() == {"window": 20, "full": 4}


def test_experts_for_images_are_in_memory_and_not_in_a_token_of_text():
    arch = from_hf_config(CLASSES["ernie4_5_vl_moe"]["config"])
    assert arch.active_params < 3.6e9
    assert arch.total_params > 29e9


@pytest.mark.parametrize(
    "key", ["layer_types", "num_hidden_layers", "n_recurrent_loops", "ple_layer_ids", "indexer_head_dim", "moe_intermediate_size"]
)
@pytest.mark.parametrize("value", [0, -1, [], "x", 10**9, {"a": 1}, [[1]], True, None])
@pytest.mark.parametrize("name", ["qwen4_exp", "inkling2_loop_text", "dory", "ernie4_5_vl_moe"])
def test_odd_values_of_those_classes_are_read_or_refused(name: str, key: str, value: Any):
    raw = json.loads(json.dumps(CLASSES[name]["config"]))
    raw.get("text_config", raw)[key] = value
    try:
        arch = from_hf_config(raw)
    except InputError:
        return
    assert arch.total_params > 0
