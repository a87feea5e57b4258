"""From a configuration to an `Architecture`: one pass over the layers, equal ones grouped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.architecture import mixers, mlps, towers
from planner.architecture.config import MAX_LAYERS, Config
from planner.architecture.families import ALIASES, FAMILIES, Family
from planner.architecture.model import Architecture, Attention, Layer, Mlp, Tensor
from planner.problems import InputError


def build(raw: Mapping[str, Any], name: str, source: str) -> Architecture:
    if not isinstance(raw, Mapping) or not raw:
        raise InputError("hf_config must be a JSON object with the keys of a Hugging Face config.json")
    nested = raw.get("text_config")
    merged = {**raw, **nested} if isinstance(nested, Mapping) else dict(raw)
    model_type = str(merged.get("model_type") or raw.get("model_type") or "")
    family_name = ALIASES.get(model_type, model_type)
    family = FAMILIES.get(family_name)
    notes: list[str] = []
    if family is None:
        notes.append(f"model_type {model_type!r} is not a family known here; its keys are read as those of a Llama-like decoder")
        family = Family()
    c = Config(merged, family.defaults)
    hidden = c.int("hidden_size")
    layers = c.int("num_hidden_layers", high=MAX_LAYERS)
    vocab = c.int("vocab_size")
    groups: dict[tuple[Any, ...], list[int]] = {}
    windows = window_by_layer(c, family, layers)
    experts = expert_layers(c, layers)
    for i in range(layers):
        attn = attention_of(c, hidden, windows[i])
        mlp = mlp_of(c, experts[i])
        tensors = tuple(attention_tensors(c, family, hidden, attn) + mlp_tensors(c, family, hidden, mlp) + norm_tensors(family, hidden))
        kind = "mla" if attn.mla else "full" if attn.window is None else "window"
        groups.setdefault((kind, attn, None, mlp, tensors), []).append(i)
    tied = c.bool("tie_word_embeddings")
    outer = [Tensor("embed_tokens", vocab, hidden, "embedding", "n", linear=False), Tensor("norm", hidden, family.norm_params, "norm", linear=False)]
    if not tied:
        outer.append(Tensor("lm_head", vocab, hidden, "lm_head", "n"))
    outer += towers.of(raw, hidden)
    return Architecture(
        name=name or model_type or "custom",
        source=source,
        model_type=model_type,
        hidden_size=hidden,
        vocab_size=vocab,
        max_position_embeddings=c.int("max_position_embeddings", default=0, low=0),
        layers=tuple(Layer(*key, indices=tuple(at)) for key, at in groups.items()),
        outer=tuple(outer),
        tied_embeddings=tied,
        rotary_dim=c.int("qk_rope_head_dim", "head_dim", default=hidden // c.int("num_attention_heads")),
        estimate=bool(notes),
        notes=tuple(notes),
    )


def window_by_layer(c: Config, family: Family, layers: int) -> list[int | None]:
    window = c.optional_int("sliding_window")
    if not window or (c.get("use_sliding_window") is False):
        return [None] * layers
    types = c.list("layer_types")
    if types is not None:
        return [window if "sliding" in str(t) else None for t in types[:layers]]
    if family.windows == "all":
        return [window] * layers
    if family.windows == "alternate":
        return [window if i % 2 == 0 else None for i in range(layers)]
    if family.windows == "pattern":
        every = c.int("sliding_window_pattern", default=6)
        return [None if (i + 1) % every == 0 else window for i in range(layers)]
    return [None] * layers


def expert_layers(c: Config, layers: int) -> list[bool]:
    if not c.has("num_experts", "num_local_experts", "n_routed_experts"):
        return [False] * layers
    first = c.int("first_k_dense_replace", default=0, low=0)
    return [i >= first for i in range(layers)]


def attention_of(c: Config, hidden: int, window: int | None) -> Attention:
    heads = c.int("num_attention_heads")
    if c.has("kv_lora_rank"):
        nope, rope = c.int("qk_nope_head_dim"), c.int("qk_rope_head_dim")
        return Attention(heads, 1, nope + rope, c.int("v_head_dim"), kv_lora_rank=c.int("kv_lora_rank"), qk_rope_head_dim=rope)
    head_dim = c.int("head_dim", default=hidden // heads)
    return Attention(heads, c.int("num_key_value_heads", default=heads), head_dim, head_dim, window=window)


def mlp_of(c: Config, is_moe: bool) -> Mlp:
    if not is_moe:
        return Mlp(c.int("intermediate_size"))
    width = c.int("moe_intermediate_size", "intermediate_size")
    shared = c.int("n_shared_experts", default=0, low=0) * width
    return Mlp(width, True, c.int("num_experts", "num_local_experts", "n_routed_experts"), c.int("num_experts_per_tok", "experts_per_token"), shared)


def attention_tensors(c: Config, family: Family, hidden: int, a: Attention) -> list[Tensor]:
    if a.mla:
        return mixers.latent_attention(hidden, a, c.optional_int("q_lora_rank") or 0, c.int("qk_nope_head_dim"))
    return mixers.attention(hidden, a, qkv_bias=flag(c, family.qkv_bias), o_bias=flag(c, family.o_bias), qk_norm=family.qk_norm, sinks=family.sinks)


def mlp_tensors(c: Config, family: Family, hidden: int, mlp: Mlp) -> list[Tensor]:
    if not mlp.experts:
        return mlps.dense(hidden, mlp, bias=flag(c, family.mlp_bias))
    return mlps.moe(
        hidden, mlp, expert_bias=family.expert_bias, router_bias=family.router_bias, correction_bias=family.correction_bias, shared_gate=family.shared_gate
    )


def norm_tensors(family: Family, hidden: int) -> list[Tensor]:
    return [Tensor("layernorm", hidden, family.norms * family.norm_params, "norm", linear=False)] if family.norm_params else []


def flag(c: Config, trait: bool | str) -> bool:
    return c.bool(trait) if isinstance(trait, str) else trait
