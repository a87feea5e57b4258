"""Which tensors the patterns of a quantiser spare, and what hostile ones cost."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.architecture import from_hf_config, regex
from planner.architecture.regex import Matcher, NotUnderstood
from planner.problems import InputError

CONFIGS = Path(__file__).parent / "data" / "models" / "configs"
LLAMA_8B = json.loads((CONFIGS / "meta-llama__Llama-3.1-8B-Instruct.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pattern", ["(.+)+#", "(.*)*(.*)*#", ".?" * 200 + "#", "((a{1000}){1000}){1000}", "(.|.)" * 90 + "#"])
def test_hostile_patterns_of_a_quantiser_cost_no_more_than_others(pattern):
    assert not Matcher().matches(pattern, "model.layers.0.mlp.experts.0.down_proj" * 3)


PIECES = ["a", "b", ".", "(a|b)", "(?:a*b)+", "*", "?", "[ab]", "[^a]", "{1,2}", "$", "^", "(?!b)"]


@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), st.text("abc", max_size=6))
def test_patterns_match_as_in_python(pattern, text):
    try:
        expected = bool(re.match(pattern, text))
        found = Matcher().matches(pattern, text)
    except (re.error, NotUnderstood):
        return
    assert found == expected


def test_a_quantiser_with_too_many_patterns_is_refused(monkeypatch):
    monkeypatch.setattr(regex, "STEPS", 20_000)
    groups = {"all": {"weights": {"num_bits": 4, "type": "int"}, "targets": ["Linear"]}}
    many = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": [f"*a*b{i}*" for i in range(1000)]}
    with pytest.raises(InputError, match="too intricate"):
        from_hf_config({**LLAMA_8B, "quantization_config": many})


def test_a_pattern_not_followed_is_named():
    groups = {"all": {"weights": {"num_bits": 4, "type": "int"}, "targets": ["Linear"]}}
    odd = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": [r"re:(a)\1"]}
    assert "patterns not followed" in " ".join(from_hf_config({**LLAMA_8B, "quantization_config": odd}).notes)


def test_a_pattern_with_layer_numbers_spares_those_layers_alone():
    groups = {"all": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}}
    ignore = [r"re:.*layers\.(0|1)\.mlp\..*", r"re:.*layers\.\d+\.self_attn\.o_proj"]
    scheme = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ignore}
    layers = from_hf_config({**LLAMA_8B, "quantization_config": scheme}).layers
    spared = {i: sum(t.params for t in layer.tensors if t.linear and not t.stored) for layer in layers for i in layer.indices}
    mlp, out = 3 * 4096 * 14336, 4096 * 4096
    assert [spared[i] for i in range(4)] == [mlp + out, mlp + out, out, out]
