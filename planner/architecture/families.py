"""What each model family adds to the keys of its configuration: class defaults and traits that no key says.

A new family is one entry here. `defaults` are what the model's class fills in for absent keys; the other fields are
traits hard-coded in its modelling code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """Traits of one `model_type`."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Class defaults of keys that files leave out."""
    qkv_bias: bool | str = "attention_bias"
    """Bias on q, k, v: a fact, or the key that says so."""
    o_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    qk_norm: str = ""
    """"" none, "head" per head width, "full" per projection."""
    norms: int = 2
    """Norms per layer, of hidden width."""
    norm_params: int = 1
    """Parameters per channel of a norm: 1 scale, 2 scale and bias, 0 none."""
    gated: bool = True
    sinks: bool = False
    """A learned sink logit per head (gpt-oss)."""
    router_bias: bool = False
    correction_bias: bool = False
    """Score-correction buffer of the router (DeepSeek V3 and its kin)."""
    expert_bias: bool = False
    shared_gate: bool = False
    """A gate in front of the shared expert (Qwen MoE)."""
    windows: str = ""
    """Which layers are windowed when no `layer_types` says so: "all", "alternate", "pattern:N" (every Nth layer is full)."""


TIED = {"tie_word_embeddings": True}

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(windows="all"),
    "mixtral": Family(windows="all"),
    "qwen2": Family(qkv_bias=True, o_bias=False, windows="use_sliding_window"),
    "qwen3": Family(qk_norm="head", windows="use_sliding_window"),
    "qwen3_moe": Family(qk_norm="head", windows="use_sliding_window"),
    "deepseek_v3": Family(correction_bias=True),
    "deepseek_v2": Family(),
    "gpt_oss": Family(sinks=True, router_bias=True, expert_bias=True, windows="alternate"),
    "gemma3_text": Family(
        defaults={**TIED, "head_dim": 256, "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096, "sliding_window_pattern": 6},
        qk_norm="head",
        norms=4,
        windows="pattern",
    ),
    "phi3": Family(windows="all"),
}
ALIASES = {"gemma3": "gemma3_text", "kimi_k2": "deepseek_v3"}
