"""Architectures against the true sizes of 123 configurations (tests/data/models/README.md), and what happens to odd ones."""

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import architecture
from planner.architecture import Architecture, from_hf_config
from planner.problems import InputError
from planner.scenario import Model
from planner.scenario.base import FrozenJson

DATA = Path(__file__).parent / "data" / "models"
TRUTH = list(csv.DictReader((DATA / "truth.csv").open(encoding="utf-8")))
COUNTED = [r for r in TRUTH if r["total_params"]]
KINDS = {
    "full": "full",
    "swa": "window",
    "chunk": "chunk",
    "mla": "mla",
    "state": "recurrent",
    "none": "none",
    "shared": "shared",
    "dsv4": "compressed",
}


def config(name: str) -> dict[str, Any]:
    return json.loads((DATA / "configs" / f"{name}.json").read_text(encoding="utf-8"))


@cache
def read(row_file: str) -> Architecture:
    return from_hf_config(config(Path(row_file).stem))


LLAMA_8B = config("meta-llama__Llama-3.1-8B-Instruct")


def test_parameters_of_every_counted_model():
    errors = {r["model"]: read(r["config_file"]).total_params / int(r["total_params"]) - 1 for r in COUNTED}
    assert max(map(abs, errors.values())) < 1e-5, "router corrections that the count left out are the only difference"
    exact = sum(read(r["config_file"]).total_params == int(r["total_params"]) for r in COUNTED)
    assert exact >= 0.85 * len(COUNTED)


def test_active_parameters_count_every_weight_a_token_touches():
    for r in COUNTED:
        assert read(r["config_file"]).active_params == pytest.approx(int(r["active_params"]), rel=1e-4), r["model"]


@pytest.mark.parametrize(
    ("column", "attribute"),
    [
        ("kv_bytes_per_token_bf16", lambda a: a.kv_bytes_per_token()),
        ("kv_windowed_bytes_per_token_bf16", lambda a: a.kv_windowed_bytes_per_token()),
        ("fixed_state_bytes_per_seq", lambda a: a.fixed_state_bytes_per_sequence),
        ("window", lambda a: a.window),
    ],
)
def test_cache_by_kind_of_layer_is_exact(column: str, attribute: Any):
    rows = [r for r in TRUTH if r[column] and "dsv4" not in r["layer_kinds"]]
    assert len(rows) > 20
    wrong = {
        r["model"]: (attribute(read(r["config_file"])), r[column]) for r in rows if attribute(read(r["config_file"])) != float(r[column])
    }
    assert not wrong


def test_kinds_of_layers():
    for r in TRUTH:
        kinds = {KINDS[k]: n for k, n in json.loads(r["layer_kinds"]).items()}
        assert read(r["config_file"]).layers_by_kind() == kinds, r["model"]


def test_few_are_estimates_and_all_of_those_say_why():
    estimates = [r["model"] for r in TRUTH if read(r["config_file"]).estimate]
    assert len(estimates) <= 0.06 * len(TRUTH)
    assert all("V4" in name for name in estimates), "only DeepSeek V4, whose cache nobody has confirmed"
    assert all(read(r["config_file"]).notes for r in TRUTH if read(r["config_file"]).estimate)


def test_keys_left_out_of_a_nested_part_are_the_classes_own():
    gemma_3_4b = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152,
            "image_size": 896,
            "intermediate_size": 4304,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "patch_size": 14,
        },
    }
    arch = from_hf_config(gemma_3_4b)
    assert arch.total_params == 4_300_079_472, "the checkpoint's own count"
    assert not arch.estimate
    assert any("num_attention_heads 8" in n for n in arch.notes)


MLA_LITE = {"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256}


@pytest.mark.parametrize(
    ("shape", "params", "kv_bytes"),
    [
        # Qwen2.5-14B, Yi-34B, Falcon-40B, GLM-4.7-Flash, Codestral Mamba: sizes of the published checkpoints
        (("qwen2", 5120, 48, 40, 8, 13824, 152064, {}), 14_770_033_664, 196_608),
        (("llama", 7168, 60, 56, 8, 20480, 64000, {}), 34_388_917_248, 245_760),
        (
            ("falcon", 8192, 60, 128, None, None, 65024, {"num_kv_heads": 8, "new_decoder_architecture": True, "bias": False}),
            41_303_293_952,
            122_880,
        ),
        (
            (
                "glm4_moe_lite",
                *(2048, 47, 20, 20, 10240, 154880),
                {"moe_intermediate_size": 1536, "n_routed_experts": 64, "num_experts_per_tok": 4, "first_k_dense_replace": 1} | MLA_LITE,
            ),
            29_943_393_920,
            54_144,
        ),
    ],
)
def test_other_well_known_models(shape: tuple[Any, ...], params: int, kv_bytes: int):
    names = (
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    )
    raw = {k: v for k, v in zip(names, shape[:7], strict=True) if v is not None} | {"tie_word_embeddings": shape[0] == "falcon"} | shape[7]
    arch = from_hf_config(raw)
    assert (arch.total_params, arch.kv_bytes_per_token()) == (params, kv_bytes)


def test_a_flat_file_without_heads_is_an_estimate_and_without_layers_is_refused():
    without = {k: v for k, v in LLAMA_8B.items() if k != "num_attention_heads"}
    assert from_hf_config(without).estimate
    with pytest.raises(InputError, match="num_hidden_layers"):
        from_hf_config({k: v for k, v in LLAMA_8B.items() if k != "num_hidden_layers"})


def test_an_unknown_family_is_read_but_marked():
    arch = from_hf_config(LLAMA_8B | {"model_type": "llama9"})
    assert arch.estimate
    assert "llama9" in arch.notes[0]
    assert arch.total_params == read("configs/meta-llama__Llama-3.1-8B-Instruct.json").total_params


@pytest.mark.parametrize(
    ("strange", "most"),
    [
        ({"num_memory_tokens": 128}, 0.5),
        ({"use_double_attention": True}, 7),
        ({"engram_config": {"rows": 5}}, 7),
        ({"num_extra_blocks": 1}, 3),
        ({"projection_bias": True}, 0.2),
    ],
)
def test_an_unknown_key_that_smells_of_structure_is_named_with_what_it_may_weigh(strange: dict[str, Any], most: float):
    arch = from_hf_config(LLAMA_8B | strange)
    assert arch.estimate
    said = next(n for n in arch.notes if next(iter(strange)) in n)
    assert 0 < float(re.findall(r"up to ([0-9.]+)%", said)[0]) <= most


@pytest.mark.parametrize(
    ("strange", "words"),
    [
        ({"kv_compression_ratio": 4}, "cache"),
        ({"cross_layer_kv": [1] * 32}, "cache"),
        ({"decoder_loop_count": 3}, "cache"),
        ({"shared_layer_map": {"3": 1}}, "cache"),
        ({"ngram_table_rows": 20_000_000}, "far more"),
        ({"num_extra_blocks": 12}, "33%"),
        ({"num_fine_experts": 8}, "far more"),
        ({"side_config": {"depth": 8, "hidden_size": 4096}}, "20%"),
        ({"layer_types": ["full_attention", "cross_attention"] * 16}, "cross_attention"),
        ({"layer_types": ["full_attention", "mystery"] * 16}, "mystery"),
        ({"layer_types": ["full_attention", 3] * 16}, "3"),
        ({"layer_types": [None] * 32}, "full_attention"),
        ({"layer_types": ["full_attention"] * 33}, "33 entries for 32 layers"),
        ({"num_key_value_heads": 7}, "does not divide the 32"),
        ({"num_attention_heads": "32"}, "'32'"),
        ({"mlp_layer_types": ["dense", "router"] * 16, "num_experts": 8, "num_experts_per_tok": 2}, "router"),
    ],
)
def test_what_may_be_wrong_by_much_is_refused_by_name(strange: dict[str, Any], words: str):
    with pytest.raises(InputError, match=next(iter(strange))) as refused:
        from_hf_config(LLAMA_8B | strange)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_known_number_of_parameters_answers_a_doubt_about_them():
    config = FrozenJson(LLAMA_8B | {"num_extra_blocks": 12})
    with pytest.raises(InputError, match=r"model\.total_params"):
        architecture.of(Model(name="mine", hf_config=config))
    arch = architecture.of(Model(name="mine", hf_config=config, total_params=10**10))
    assert arch.estimate
    assert arch.total_params == 10**10


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh"])
def test_an_unknown_family_whose_mlp_may_have_two_matrices_or_three_is_refused(activation: str):
    with pytest.raises(InputError, match="two matrices or three"):
        from_hf_config(LLAMA_8B | {"model_type": "llama9", "hidden_act": activation})


def test_an_unknown_family_with_a_plain_activation_has_two_matrices():
    plain = from_hf_config(LLAMA_8B | {"model_type": "llama9", "hidden_act": "relu2"})
    assert plain.total_params == read("configs/meta-llama__Llama-3.1-8B-Instruct.json").total_params - 32 * 4096 * 14336
    assert "83 came within 2 %" in plain.notes[0]


def test_experts_that_are_switched_off_are_not_there():
    experts = {"num_experts": 16384, "num_experts_per_tok": 64}
    off = from_hf_config(LLAMA_8B | experts | {"is_moe": False})
    assert off.total_params == read("configs/meta-llama__Llama-3.1-8B-Instruct.json").total_params


def test_a_guessed_tower_says_its_size_and_a_large_one_is_refused():
    small = {"vision_config": {"hidden_size": 768, "num_hidden_layers": 12, "patch_size": 16}}
    arch = from_hf_config(LLAMA_8B | small)
    assert arch.estimate
    assert any("0.1" in n and "up to 1." in n for n in arch.notes)
    with pytest.raises(InputError, match="vision tower"):
        from_hf_config(LLAMA_8B | {"vision_config": {"hidden_size": 3072, "num_hidden_layers": 40}})
    with pytest.raises(InputError, match="left out"):
        from_hf_config(LLAMA_8B | {"vision_config": {"widths": [3, 4]}})


@pytest.mark.parametrize(("kind", "word"), [("bert", "encoder"), ("blt", "byte model"), ("rwkv", "recurrent")])
def test_other_kinds_of_model_are_refused_by_what_they_are(kind: str, word: str):
    with pytest.raises(InputError, match=word):
        from_hf_config(LLAMA_8B | {"model_type": kind})


def test_drafters_are_doubted_and_encoder_decoders_refused():
    assert "drafter" in from_hf_config(config("SpecForge__llama3-8B-eagle3")).notes[0]
    with pytest.raises(InputError, match="encoder-decoder"):
        from_hf_config(LLAMA_8B | {"is_encoder_decoder": True})


def test_keys_that_change_nothing_are_not_doubted():
    assert not from_hf_config(LLAMA_8B | {"my_token_id": 7, "attention_scale": 0.5, "foo_dropout": 0.1, "rope_whatever": 3}).estimate


def test_null_switches_a_window_off_and_absence_does_not():
    mistral = config("mistralai__Mistral-7B-Instruct-v0.3")
    assert from_hf_config(mistral).window is None
    assert from_hf_config({k: v for k, v in mistral.items() if k != "sliding_window"}).window == 4096, "the class's default"
    assert from_hf_config(mistral | {"sliding_window": 40_000}).window is None, "wider than the model reaches"


def test_recurrent_layers_of_an_unknown_family_need_keys_that_size_them():
    linear = LLAMA_8B | {"model_type": "new", "layer_types": ["linear_attention", "full_attention"] * 16}
    with pytest.raises(InputError, match="linear_attention"):
        from_hf_config(linear)
    sized = linear | {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128}
    assert from_hf_config(sized).layers_by_kind() == {"recurrent": 16, "full": 16}


def test_single_layers_may_differ():
    arch = from_hf_config(LLAMA_8B | {"per_layer_config": {"05": {"num_key_value_heads": 4}, "07": {"intermediate_size": 7168}}})
    assert sorted(g.count for g in arch.layers) == [1, 1, 30]
    assert arch.kv_bytes_per_token() == 131072 - 2 * 4 * 128 * 2


def test_mtp_layers_are_apart():
    arch = read("configs/deepseek-ai__DeepSeek-V3.json")
    assert arch.mtp_layers == 1
    extra = sum(t.params for t in arch.mtp)
    assert extra == pytest.approx(11.5e9, rel=0.02), "the hub's 685 B less 671.0 B and the layer's own embedding and head"
    assert arch.mtp_attention is not None
    assert arch.mtp_attention.mla


def test_heads_that_do_not_divide_the_width_need_their_own():
    plain = {k: v for k, v in LLAMA_8B.items() if k != "head_dim"} | {"num_attention_heads": 33, "num_key_value_heads": 33}
    with pytest.raises(InputError, match="head_dim is missing"):
        from_hf_config(plain)
    assert from_hf_config(plain | {"head_dim": 128}).layers


def test_a_list_of_layers_may_go_on_over_the_drafting_ones():
    longer = LLAMA_8B | {"layer_types": ["full_attention"] * 33, "num_nextn_predict_layers": 1}
    assert sum(g.count for g in from_hf_config(longer).layers) >= 32


def test_the_users_parameter_count_scales_the_active_ones():
    arch = architecture.of(Model(name="mixtral-8x7b", total_params=93_405_585_408))
    assert arch.total_params == 2 * arch.counted_params
    assert arch.active_params == pytest.approx(2 * 12_879_925_248, rel=1e-6)


def test_infinities_of_real_files_pass_the_scenarios_door():
    model = Model.model_validate({"name": "mine", "hf_config": config("nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4")})
    assert architecture.of(model).total_params == pytest.approx(120.67e9, rel=1e-3)


GARBAGE: list[Any] = [
    {},
    [],
    "llama",
    {"model_type": 7},
    {"hidden_size": "4096"},
    LLAMA_8B | {"hidden_size": -1},
    LLAMA_8B | {"num_hidden_layers": 10**9},
    LLAMA_8B | {"num_hidden_layers": 2.5},
    LLAMA_8B | {"num_attention_heads": 0},
    LLAMA_8B | {"num_key_value_heads": 64},
    LLAMA_8B | {"vocab_size": True},
    LLAMA_8B | {"vocab_size": float("inf")},
    LLAMA_8B | {"intermediate_size": {"a": 1}},
    LLAMA_8B | {"layer_types": ["full_attention"] * 3},
    LLAMA_8B | {"tie_word_embeddings": "yes"},
    LLAMA_8B | {"num_experts": 8, "num_experts_per_tok": 9},
]


@pytest.mark.parametrize("bad", GARBAGE)
def test_garbage_is_one_sentence(bad: Any):
    with pytest.raises(InputError) as caught:
        from_hf_config(bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 5), max_size=4),
    st.dictionaries(st.sampled_from(["a", "rope_type", "factor"]), st.integers(), max_size=2),
)
NAMES = [
    "deepseek-ai__DeepSeek-V3.2",
    "google__gemma-4-E2B-it",
    "Qwen__Qwen3.5-35B-A3B",
    "nvidia__Nemotron-H-56B-Base-8K",
    "openai__gpt-oss-20b",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_value_under_any_key_is_read_or_refused(data: st.DataObject):
    raw = config(data.draw(st.sampled_from(NAMES)))
    target = raw.get("text_config", raw)
    for key in data.draw(st.lists(st.sampled_from(sorted(target)), min_size=1, max_size=3)):
        target[key] = data.draw(ANYTHING)
    try:
        arch = from_hf_config(raw)
    except InputError:
        return
    assert arch.total_params > 0
    assert arch.active_params <= arch.total_params + 1
    assert arch.kv_bytes_per_token("fp8") * 2 == pytest.approx(arch.kv_bytes_per_token("bf16"), abs=1)
