"""What a checkpoint weighs as it is stored, tensor by tensor; and quantisers that are not understood."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.architecture import from_hf_config
from planner.architecture.storage import stored_as
from planner.units import GIB

CONFIGS = Path(__file__).parent / "data" / "models" / "configs"


def config(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


LLAMA_8B = config("meta-llama__Llama-3.1-8B-Instruct")


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("openai__gpt-oss-120b", 60.8),  # the checkpoint's files
        ("moonshotai__Kimi-K2.5", 554.0),
        ("Qwen__Qwen3-30B-A3B-FP8", 29.0),
        ("nvidia__Qwen3.5-122B-A10B-NVFP4", 73.0),
        ("Qwen__Qwen2.5-72B-Instruct-AWQ", 38.6),
    ],
)
def test_a_checkpoint_as_it_is_stored(name: str, gib: float):
    arch = from_hf_config(config(name))
    tensors = [(t, g.count) for g in arch.layers for t in g.tensors] + [(t, 1) for t in arch.outer]
    size = sum(t.params * n * stored_as(arch, t, "auto")[1] for t, n in tensors)
    assert size / GIB == pytest.approx(gib, rel=0.01)


def test_what_a_quantiser_leaves_alone_stays_16_bit():
    arch = from_hf_config(config("RedHatAI__Llama-4-Scout-17B-16E-Instruct-FP8-dynamic"))
    stored = {t.name: stored_as(arch, t, "auto")[0] for g in arch.layers for t in g.tensors}
    assert stored["self_attn.q_proj"] == "bf16"
    assert stored["mlp.experts.gate_up_proj"] == "fp8"
    assert stored["mlp.gate"] == "bf16"
    assert all(stored_as(arch, t, "fp8")[0] == "bf16" for t in arch.outer)


def test_precisions_mix_layer_by_layer():
    side_file = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["backbone.layers.0.mixer.in_proj", "lm_head"]}}
    arch = from_hf_config(config("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4") | {"hf_quant_config": side_file})
    in_proj = {stored_as(arch, t, "auto")[0]: g.count for g in arch.layers for t in g.tensors if t.name == "mixer.in_proj"}
    assert in_proj == {"nvfp4": 22, "bf16": 1}


def test_a_quantiser_that_is_not_understood_is_said():
    arch = from_hf_config(LLAMA_8B | {"quantization_config": {"quant_method": "mystery", "wibble": 3}})
    assert any("mystery" in n for n in arch.notes)
    assert stored_as(arch, arch.layers[0].tensors[0], "auto") == ("bf16", 2.0)


@pytest.mark.parametrize(
    ("said", "words"),
    [("fp8", "'fp8', not an object"), ({"quant_method": "gptq", "bits": 3}, "3 bits"), ({"quant_method": "awq", "bits": -4}, "-4 bits")],
)
def test_a_quantisation_that_makes_no_sense_is_said(said: Any, words: str):
    assert any(words in note for note in from_hf_config(LLAMA_8B | {"quantization_config": said}).notes)
