"""Families whose files say the same in other words: a function takes the flat configuration and returns it in the usual ones."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]


def _whole(raw: Raw, name: str) -> int | None:
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def dory(raw: Raw) -> Raw:
    """Released files list attention and MLP as blocks of their own: each pair is one layer."""
    listed = raw.get("layer_types")
    if not isinstance(listed, list) or "mlp" not in listed:
        return raw
    counts = ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers")
    return {**raw, **{k: n // 2 for k in counts if (n := _whole(raw, k))}, "layer_types": listed[::2]}


def hrm_text(raw: Raw) -> Raw:
    """`num_hidden_layers` counts turns where `num_layers_per_stack` is given; two stacks hold the weights."""
    stack = _whole(raw, "num_layers_per_stack") or _whole(raw, "num_hidden_layers")
    return {**raw, "num_hidden_layers": 2 * stack} if stack else raw


def zamba(raw: Raw) -> Raw:
    """Zamba 1 places its shared block by period; the first three layers are exempt."""
    layers, period = _whole(raw, "num_hidden_layers"), _whole(raw, "attn_layer_period")
    if isinstance(raw.get("layers_block_type"), list) or not layers or not period or layers > 10_000:
        return raw
    offset = raw.get("attn_layer_offset")
    placed = ["hybrid" if i % period == offset else "mamba" for i in range(layers - 3)]
    return {**raw, "layers_block_type": ["mamba", "mamba", "hybrid", *placed][:layers]}


def jetmoe(raw: Raw) -> Raw:
    """A query head per KV head and visited expert; the file may leave the product out."""
    kv, top_k = _whole(raw, "num_key_value_heads"), _whole(raw, "num_experts_per_tok")
    return {"num_attention_heads": kv * top_k, **raw} if kv and top_k else raw


def by_modality(raw: Raw) -> Raw:
    """ERNIE 4.5 VL gives what experts have twice: for text first, for images second."""
    pairs = {k: v for k, v in raw.items() if k.startswith("moe_") and isinstance(v, list) and len(v) == 2}
    images = {f"image_{k}": v[1] for k, v in pairs.items()}
    return {**raw, **{k: v[0] for k, v in pairs.items()}, **images}


def without_drafter(raw: Raw) -> Raw:
    """DeepSeek V4.1 counts the stages of its DSpark drafter as MTP layers; they are built unlike the model's."""
    return {k: v for k, v in raw.items() if k != "num_nextn_predict_layers"}


def zaya(raw: Raw) -> Raw:
    """The first files of ZAYA1 list attention and experts as layers of their own and give both halves of the gated MLP as one width.

    Sizes may come as one entry per layer, zero where a layer has none.
    """
    wide = _first(raw.get("ffn_hidden_size_list")) or _first(raw.get("ffn_hidden_size"))
    if "moe_intermediate_size" in raw or not wide:
        return raw
    placed = raw.get("zaya_layers")
    layers = placed.count("a") if isinstance(placed, list) else (_whole(raw, "num_hidden_layers") or 0) // 2
    usual = {
        "num_hidden_layers": layers or None,
        "moe_intermediate_size": wide // 2,
        "num_experts_per_tok": _first(raw.get("moe_router_topk")),
        "num_attention_heads": _first(raw.get("cca_num_q_heads")) or raw.get("num_attention_heads"),
        "num_key_value_heads": _first(raw.get("num_query_groups_list")) or raw.get("num_key_value_heads"),
        "router_hidden_size": _first(raw.get("zaya_mlp_expansion")),
    }
    return {k: v for k, v in raw.items() if k not in ZAYA_LEGACY} | {k: v for k, v in usual.items() if v is not None}


def _first(value: object) -> int | None:
    """The first whole number above zero, of a list or alone."""
    values = value if isinstance(value, list) else [value]
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


ZAYA_LEGACY = frozenset(
    {
        *(
            "cca",
            "cca_num_q_heads",
            "ffn_hidden_size",
            "ffn_hidden_size_list",
            "moe_router_topk",
            "num_query_groups",
            "num_query_groups_list",
        ),
        *(
            "zaya_layers",
            "zaya_mlp_expansion",
            "zaya_use_mod",
            "zaya_high_prec",
            "zaya_use_eda",
            "gated_linear_unit",
            "scale_residual_merge",
        ),
        *("fused_add_norm", "add_bias_linear", "kv_channels", "normalization", "apply_rope_fusion", "clamp_temp", "mamba_cache_dtype"),
        *("bias_activation_fusion", "activation_func_fp8_input_store", "activation_func"),
    }
)
"""Keys that the later files of ZAYA1 no longer have."""
