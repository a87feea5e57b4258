"""Families that differ from their kin in a part or two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.architecture import keys, mixers
from planner.architecture.config import Config
from planner.architecture.model import Mlp, Tensor
from planner.problems import InputError

if TYPE_CHECKING:
    from planner.architecture.build import Draft


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(name, n, params, "norm", linear=False)


def falcon(c: Config, hidden: int, d: Draft) -> None:
    """Falcon: `multi_query` means one KV head whatever `num_kv_heads` says, unless the new decoder is on; one norm when parallel."""
    heads = c.whole(*keys.HEADS)
    new = c.switch("new_decoder_architecture")
    kv = c.whole("num_kv_heads", default=heads) if new else 1 if c.switch("multi_query", default=True) else heads
    parallel = c.switch("parallel_attn", default=True)
    if d.attention:
        d.attention = replace(d.attention, kv_heads=kv)
    if parallel and (not new or c.whole("num_ln_in_parallel_attn", default=2) == 1):
        d.tensors.append(_norm("one_norm_less", -hidden, 2))


def falcon_h1(c: Config, hidden: int, d: Draft) -> None:
    """Falcon-H1 scans and attends in the same layer; its gated norm is off by default."""
    c.get("mamba_use_mlp", "mamba_norm_before_gate")


def gemma3n(c: Config, hidden: int, d: Draft) -> None:
    """Gemma 3n: AltUp, LAuReL and a per-layer input embedding."""
    inputs, rank, ple = (
        c.whole("altup_num_inputs", default=4),
        c.whole("laurel_rank", default=64),
        c.whole("hidden_size_per_layer_input", default=256),
    )
    c.get("vocab_size_per_layer_input")
    d.tensors += [
        Tensor("altup.router", inputs, hidden, "mlp"),
        _norm("altup.small", inputs * inputs * (inputs + 1) + 2 * hidden),
        Tensor("laurel.linear_left", rank, hidden, "mlp"),
        Tensor("laurel.linear_right", hidden, rank, "mlp"),
        Tensor("per_layer_input_gate", ple, hidden, "mlp"),
        Tensor("per_layer_projection", hidden, ple, "mlp"),
        _norm("post_laurel_and_per_layer_norms", hidden, 2),
    ]


def gemma3n_outer(c: Config, hidden: int) -> list[Tensor]:
    inputs = c.whole("altup_num_inputs", default=4)
    return [*_per_layer_embedding(c, hidden), Tensor("altup_projections", 2 * (inputs - 1) * hidden, hidden, "mlp")]


def gemma4(c: Config, hidden: int, d: Draft) -> None:
    """Gemma 4: full layers have their own head width and KV heads; experts beside a dense MLP; per-layer embeddings."""
    a = d.attention
    if a is not None and a.window is None:
        width = c.whole("global_head_dim", default=a.head_dim)
        kv = c.whole("num_global_key_value_heads", default=a.kv_heads) if c.get("attention_k_eq_v") else a.kv_heads
        d.attention = replace(a, head_dim=width, v_head_dim=width, kv_heads=kv)
    c.get("num_global_key_value_heads", "vocab_size_per_layer_input", "enable_moe_block", "use_double_wide_mlp")
    if d.mlp and d.mlp.experts:
        d.mlp = replace(d.mlp, shared_intermediate=c.whole(*keys.FFN))
        d.tensors += [_norm("moe_norms_and_router_scale", hidden, 4), _norm("per_expert_scale", d.mlp.experts)]
    elif d.mlp and a is not None and not a.stores_kv and c.switch("use_double_wide_mlp"):
        d.mlp = replace(d.mlp, intermediate=2 * d.mlp.intermediate)
    ple = c.whole("hidden_size_per_layer_input", default=0, low=0)
    if ple:
        d.tensors += [
            Tensor("per_layer_input_gate", ple, hidden, "mlp"),
            Tensor("per_layer_projection", hidden, ple, "mlp"),
            _norm("post_per_layer_input_norm", hidden),
        ]


def gemma4_outer(c: Config, hidden: int) -> list[Tensor]:
    return _per_layer_embedding(c, hidden) if c.whole("hidden_size_per_layer_input", default=0, low=0) else []


def _per_layer_embedding(c: Config, hidden: int) -> list[Tensor]:
    """One small embedding per layer and token (PLE): parameters, hardly any work."""
    ple, layers = c.whole("hidden_size_per_layer_input", default=256), c.whole(*keys.LAYERS)
    return [
        Tensor("embed_tokens_per_layer", c.whole("vocab_size_per_layer_input", *keys.VOCAB), ple * layers, "embedding", "n", linear=False),
        Tensor("per_layer_model_projection", ple * layers, hidden, "mlp"),
        _norm("per_layer_projection_norm", ple),
    ]


def longcat(c: Config, hidden: int, d: Draft) -> None:
    """LongCat: a published layer is two of ours, each with attention and a dense MLP; the first also routes to experts.

    Some router slots (`zero_expert_num`) are no-ops: they widen the router and lower the experts a token visits.
    """
    dense = c.whole(*keys.FFN)
    idle = c.whole("zero_expert_num", default=0, low=0)
    c.get("zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora")
    if d.index % 2 or not d.mlp:
        d.mlp = Mlp(dense)
        return
    d.mlp = replace(d.mlp, shared_intermediate=dense)
    d.tensors.append(Tensor("mlp.gate.idle", idle, hidden + 1, "router", linear=False))


def lfm2(c: Config, hidden: int, d: Draft) -> None:
    """LFM2 shrinks its MLP to two thirds, rounded up, where the file says so."""
    c.get(
        "conv_L_cache",
        "conv_dim",
        "block_dim",
        "block_mlp_init_scale",
        "block_norm_eps",
        "block_out_init_scale",
        "block_use_swiglu",
        "block_use_xavier_init",
    )
    if d.mlp and not d.mlp.experts and c.switch("block_auto_adjust_ff_dim", default=True):
        step = c.whole("block_multiple_of", default=256)
        width = int(c.number("block_ffn_dim_multiplier", default=1.0) * int(2 * d.mlp.intermediate / 3))
        d.mlp = replace(d.mlp, intermediate=math.ceil(width / step) * step)


def mllama(c: Config, hidden: int, d: Draft) -> None:
    """Llama 3.2 Vision: some layers attend to the image instead of the text and keep no cache of tokens."""
    if d.index not in (c.wholes("cross_attention_layers") or ()) or d.attention is None:
        return
    d.tensors += [
        replace(t, name=t.name.replace(mixers.P, "cross_attn"), role="mlp") for t in mixers.grouped(hidden, d.attention, qk_norm="head")
    ]
    d.tensors.append(_norm("cross_attn_gates", 2))
    d.attention, d.kind = None, "none"


def mllama_outer(c: Config, hidden: int) -> list[Tensor]:
    return [Tensor("embed_tokens.image", 8, hidden, "embedding", linear=False)]


def hyper_connections(c: Config, hidden: int, d: Draft) -> None:
    """Several residual streams with learned mixing, twice a layer (GLM-5-Next)."""
    mult = c.whole("hc_mult", default=4)
    c.get("index_kpool", "index_kpool_always_select_tail", "linear_lower_bound")
    d.tensors.append(_norm("hyper_connections", 2 * ((2 + mult) * mult * (mult * hidden + 1) + 3)))
    if d.attention and d.attention.indexer_heads:
        pool, width = c.whole("index_kpool", default=1), d.attention.indexer_head_dim
        d.attention = replace(d.attention, indexer_pool=pool)
        d.tensors.append(Tensor("indexer.pool", width, hidden + pool, "mlp", linear=False))


def hyper_light(c: Config, hidden: int, d: Draft) -> None:
    """The same with two mixing vectors instead of a matrix (Hunyuan V4)."""
    mult = c.whole("hc_mult", default=4)
    c.get("hc_magnitude")
    d.tensors.append(_norm("hyper_connections", 2 * (2 * mult * (mult * hidden + 1) + 2)))


def minimax_m3(c: Config, hidden: int, d: Draft) -> None:
    """MiniMax M3: an indexer chooses blocks in most layers; its keys are not part of the published cache figures."""
    c.get("index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks", "merged_hidden_size")
    frequency = c.items("sparse_attention_freq")
    heads, width = c.whole("sparse_num_index_heads", default=4), c.whole("sparse_index_dim", default=128)
    if frequency and d.index < len(frequency) and frequency[d.index]:
        p = mixers.P
        d.tensors += [
            Tensor("indexer.qk_proj", (heads + 1) * width, hidden, "attention"),
            _norm(f"indexer.norms_of_{p}", 2 * width),
        ]


def nemotron_h(c: Config, hidden: int, d: Draft) -> None:
    """Nemotron-H: keys of its Mamba layers that change nothing here."""
    c.get("layers_block_type", "mtp_hybrid_override_pattern", "mtp_layers_block_type", "expand", "n_groups")


def nemotron_nas(c: Config, hidden: int, d: Draft) -> None:
    """Nemotron from architecture search: each layer has its own KV grouping and MLP width, or neither (`block_configs`)."""
    blocks = c.items("block_configs") or []
    if d.index >= len(blocks) or not isinstance(blocks[d.index], Mapping):
        raise InputError(f"config key block_configs has no entry for layer {d.index}; it needs one per layer")
    block = blocks[d.index]
    attention, ffn = (
        Config(block.get("attention") or {}, where="block_configs.attention."),
        Config(block.get("ffn") or {}, where="block_configs.ffn."),
    )
    heads = c.whole(*keys.HEADS)
    if attention.switch("no_op") or attention.switch("replace_with_linear"):
        d.attention, d.kind = None, "none"
        if attention.switch("replace_with_linear"):
            d.tensors.append(Tensor("self_attn.linear_attn", hidden, hidden, "mlp"))
    elif d.attention:
        d.attention = replace(d.attention, kv_heads=max(1, heads // attention.whole("n_heads_in_group", default=1)))
    if ffn.switch("no_op"):
        d.mlp = None
    elif ffn.switch("replace_with_linear"):
        d.mlp = None
        d.tensors.append(Tensor("mlp.linear_mlp", hidden, hidden, "mlp"))
    elif ffn.has("intermediate_size"):
        d.mlp = Mlp(ffn.whole("intermediate_size"))
    else:
        width = int(2 * ffn.number("ffn_mult", default=4.0) * hidden / 3)
        d.mlp = Mlp(math.ceil(width / 256) * 256)
    missing = (d.attention is None) + (d.mlp is None)
    if missing:
        d.tensors.append(_norm("norms_of_no_ops", -missing * hidden))


def recurrent_gemma(c: Config, hidden: int, d: Draft) -> None:
    """RecurrentGemma: two recurrent layers, then one with a window; the MLP's width counts both halves."""
    if d.mlp:
        d.mlp = replace(d.mlp, intermediate=d.mlp.intermediate // 2)


def embedding_norm(c: Config, hidden: int) -> list[Tensor]:
    """BLOOM normalises its embeddings."""
    return [_norm("word_embeddings_layernorm", hidden, 2)]


def bitnet(c: Config, hidden: int, d: Draft) -> None:
    """BitNet: norms inside attention and MLP."""
    d.tensors.append(_norm("sub_norms", hidden + (d.mlp.intermediate if d.mlp else 0)))


def doge(c: Config, hidden: int, d: Draft) -> None:
    """Doge: learned residual weights, and values that set how far a token looks."""
    c.get("keep_window_size")
    if c.switch("is_moe"):
        raise InputError("config key is_moe is true; Doge's embedded experts are not understood")
    if d.attention:
        kv, width = d.attention.kv_heads, d.attention.head_dim
        d.tensors += [
            _norm("residuals", hidden, 2),
            Tensor("dynamic_mask.dt_proj", kv, kv * width, "attention"),
            _norm("dynamic_mask.A", kv),
        ]


def image_experts(c: Config, hidden: int, d: Draft) -> None:
    """ERNIE 4.5 VL: tokens of images visit experts of their own, which text never does."""
    c.get("image_moe_layer_start_index", "image_moe_layer_end_index", "image_moe_layer_interval", "image_moe_k", "moe_norm_min")
    if d.mlp and d.mlp.experts and c.has("image_moe_intermediate_size"):
        width, copies = c.whole("image_moe_intermediate_size"), c.whole("image_moe_num_experts", *keys.EXPERTS)
        d.tensors.append(Tensor("mlp.vision_moe", copies * (3 * width * hidden + hidden + 1), 1, "tower", "n", linear=False))


def dots3_note(c: Config, hidden: int, d: Draft) -> None:
    """dots3: the rotary part of a key is normalised; only the layers called indexed have an indexer."""
    if d.attention:
        d.tensors.append(_norm("k_rope_only_layernorm", d.attention.qk_rope_head_dim))


def axk2(c: Config, hidden: int, d: Draft) -> None:
    """A.X K2: norms are gated by a small MLP, and queries and their gate come from one projection of two latents."""
    rank = c.whole("gated_norm_rank", default=0, low=0)
    count = 1 if d.index == 0 else 2
    d.tensors.append(Tensor("gated_norms", 2 * count * rank, hidden, "mlp", linear=False))
    a, latent = d.attention, c.whole("q_lora_rank", default=0, low=0)
    if a and latent:
        d.tensors += [
            Tensor("q_gate_proj.q_half", a.heads * a.head_dim, latent, "attention", "n"),
            Tensor("q_gate_proj.gate", a.heads * a.v_head_dim, 2 * latent, "attention", "n"),
        ]


def idefics(c: Config, hidden: int, d: Draft) -> None:
    """IDEFICS: before every `cross_layer_interval`-th layer a gated one that attends to the image and has an MLP of its own."""
    c.get("qk_layer_norms", "freeze_text_layers", "freeze_vision_layers", "freeze_lm_head", "additional_vocab_size", "alpha_type")
    vision = c.part("vision_config") or {}
    width = Config(vision, {"embed_dim": 768}, "vision_config.").whole("embed_dim", "hidden_size")
    if d.index % c.whole("cross_layer_interval", default=1) == 0 and d.attention and d.mlp:
        out = d.attention.heads * d.attention.head_dim
        weights = 2 * out * (hidden + width) + 3 * hidden * d.mlp.intermediate + 2 * hidden + 2
        d.tensors.append(Tensor("gated_cross_attn", weights, 1, "tower", "n", linear=False))


def post_norms(c: Config, hidden: int, d: Draft) -> None:
    """HyperCLOVA X normalises behind attention and MLP too, where the file says so."""
    if c.switch("use_post_norm"):
        d.tensors.append(_norm("post_norms", hidden, 2))


def mistral_large4(c: Config, hidden: int, d: Draft) -> None:
    """Mistral Large 4: MLA whose unrotated layers cache the latent alone, and layers that read the cache of an earlier one."""
    c.get("index_topk_pattern")
    a, rotated, source = d.attention, c.wholes("no_rope_layers"), c.wholes("kv_source_layers")
    if a is None:
        return
    nope = c.whole("qk_nope_head_dim", low=0)
    if rotated and d.index < len(rotated) and not rotated[d.index]:
        nope, a = a.head_dim, replace(a, qk_rope_head_dim=0)
    if source and d.index < len(source) and source[d.index] != d.index:
        a = replace(a, stores_kv=False)
        d.kind = "shared"
    d.attention = a
    tensors = mixers.latent(hidden, a, 0, nope)
    d.tensors += [t for t in tensors if a.stores_kv or not t.name.endswith("kv_a_proj_with_mqa")]
    small = 2 * (a.heads + a.indexer_heads) + (2 * hidden if a.indexer_heads else 0)
    d.tensors.append(_norm("softmax_scaling_and_index_norm", small))
