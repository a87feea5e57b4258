"""Names under which families write the same fact, and keys that change no size."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads", "multi_query_group_num", "num_attention_groups")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "block_ff_dim")
VOCAB = ("vocab_size", "padded_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "moe_num_primary_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k")
EXPERT_FFN = ("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "moe_expert_ffn_hidden_size")
DENSE_FFN = ("dense_intermediate_size", "intermediate_size_mlp", "prefix_dense_intermediate_size")
SHARED_FFN = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim", "share_expert_dims", "shared_intermediate_size")
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers", "num_mtp_layers")

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder_config")
FLAT_PARTS = ("attn_config", "ffn_config", "linear_attn_config", "sparse_attention_config")
TOWER_PARTS = ("vision_config", "audio_config", "vit_config", "audio_encoder_config", "sound_config", "talker_config", "token2wav_config")

# Keys that are read elsewhere or change neither a size nor a cache.
_NEUTRAL = {
    "activation_sparsity_pattern", "architectures", "attention_multiplier", "auto_map", "block_size", "chunk_size", "chunk_size_feed_forward",
    "dtype", "torch_dtype", "embedding_multiplier", "ep_size", "expert_dtype", "eagle_config", "dflash_config", "final_layernorm", "full_attn_mod",
    "hidden_act", "hidden_activation", "id2label", "label2id", "initial_context_length", "init_method", "init_std", "is_causal", "layernorm_epsilon",
    "logits_scaling", "max_window_layers", "model_type", "moe_shared_expert_overlap", "n_group", "topk_group", "n_special", "name_or_path",
    "norm_topk_prob", "normalization_type", "norm_type", "num_logits_to_keep", "original_max_position_embeddings", "pretraining_tp",
    "query_pre_attn_scalar", "residual_multiplier", "routed_scaling_factor", "runner_max_sequence_length", "scale_attn_weights", "scoring_func",
    "seq_aux", "swiglu_limit", "swiglu_alpha", "task_specific_params", "tensor_parallel_size", "time_step_floor", "time_step_limit",
    "time_step_max", "time_step_min", "topk_method", "transformers_version", "use_cache", "use_mrope", "mrope_section", "vision_soft_tokens_per_image",
    "mm_tokens_per_image", "image_grid_pinpoints", "image_seq_length", "vision_feature_layer", "vision_feature_select_strategy", "quantization_config",
    "hf_quant_config", "compression_config", "cache_implementation", "final_logit_softcapping", "attn_logit_softcapping", "attn_logit_softcap", "num_reward_heads",
    "num_return_sequences", "num_beams", "num_beam_groups", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "max_length", "min_length",
    "top_k", "top_p", "temperature", "typical_p", "pruned_heads", "problem_type", "prefix", "prefill_chunk_size", "context_window_size",
    "clip_qkv", "moe_layer_start_offset", "use_unified_vision_chunk", "video_placeholder", "projector_hidden_act", "img_token_compression_config",
    "summary_type", "summary_activation", "scale_attention_softmax_in_fp32", "attention_softmax_in_fp32", "hc_sinkhorn_iters", "index_topk_freq",
    "attention_type", "attn_implementation", "_attn_implementation", "sparse_score_type", "sparse_topk_blocks", "sparse_block_size",
    "sparse_init_block", "sparse_local_block", "use_sparse_attention", "sparse_disable_index_value", "compress_rope_theta", "num_hash_layers",
    "router_dtype", "moe_router_dtype", "moe_router_scaling_factor", "moe_router_activation_func", "moe_renormalize", "use_grouped_topk",
    "num_expert_group", "first_expert_group", "mamba_chunk_size", "mamba_hidden_act", "mlp_hidden_act", "mlp_activation", "conv_act", "ssm_cfg",
    "use_bidirectional_attention", "deepstack_visual_indexes", "image_size", "image_processor", "num_image_tokens", "vocab_file", "draft_vocab_size",
    "num_target_layers", "target_hidden_size", "sample_rate", "unk_token", "norm_eps", "mup_base", "dim_model_base", "scale_emb", "scale_depth",
    "quantization", "rope_ratio", "add_bias_linear_note", "logit_scale", "mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor", "tokenizer_class",
    "attn_temperature_tuning", "floor_scale", "attn_scale", "use_associative_scan", "use_mambapy", "partial_rotary_factors", "yarn", "moe_act",
    "aux_loss_alpha", "router_z_loss", "layer_norm_eps", "layerdrop", "initializer_factor", "activation", "activation_function", "language_model_only",
    "unified_vision_chunk", "attention_window_note", "output_gate_type", "hidden_dropout", "rescale_prenorm_residual", "residual_in_fp32",
    "output_attentions", "output_hidden_states", "output_scores", "return_dict", "is_decoder", "is_encoder_decoder", "add_cross_attention",
    "cross_attention_hidden_size", "torchscript", "use_bfloat16", "tf_legacy_loss", "use_mamba_kernels", "rotary", "alibi", "use_qk_rope",
    "mtp_transformer_layers", "use_mtp", "mtp_use_dedicated_embeddings", "process_image_mode", "moe_loss_weight", "moe_jitter_eps", "for_llm_compressor",
    "use_routing_bias", "use_moe_router_bias", "mlp_type", "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine",
    "position_embedding_type", "multimodal_projector_bias", "projector_hidden_size", "ignore_index", "max_num_tiles", "moe_router_use_sigmoid",
    "qk_head_dim", "kda_safe_gate", "ssm_multipliers", "shared_expert_combination_strategy", "expert_selection_fn", "use_parallel_residual",
    "enable_moe_fp32_combine", "no_rope_layers", "no_rope_layer_interval", "spatial_merge_size", "image_text_hidden_size", "projector_bias",
    "projector_use_layernorm", "vision_aspect_ratio", "window_size_note", "attn_impl", "attn_type", "alibi_bias_max", "no_bias", "scale_embedding",
    "use_gemma_norm", "altup_active_idx", "altup_coef_clip", "altup_correct_scale", "interpolate_factor", "predict_special_tokens", "moe_scaling_factor",
}  # fmt: skip
_NEUTRAL_PATTERN = re.compile(
    r"(_token_ids?|_token_index|_tokens?_id|_pdrop|dropout|_eps|_epsilon|_coef|_range|_std|_theta|_base_freq|_loss|_noise|_alpha|_beta|_scale|_multiplier|_factor|"
    r"_act|_activation|_clip|_decay|_bias_update\w*|_method|_func|_penalty|_seed|_version|_path|_name|_mode)$"
    r"|^(rope|rotary|yarn|initializer|summary_|suppress|begin_|forced_|decoder_start|_|eos_|bos_|pad_|sep_|image_token|video_token|layernorm_|"
    r"unsloth|transformers|tokenizer|processor|media_|output_router|router_aux|router_jitter|router_z|mrope|longrope|llama_4_scaling)",
    re.I,
)
_STRUCTURAL_PATTERN = re.compile(
    r"layer|head|dim|size|rank|expert|moe|window|state|kernel|conv|ratio|kv|latent|group|num_|^n_|width|depth|block|pattern|types?$|share|mtp|lora|"
    r"hidden|inter|compress|index|sparse|mamba|ssm|attn|attention|mixer|memory|stack|level|branch|stage|parallel|tie|embed|bias|norm|gate|cache|recur|topk",
    re.I,
)
_ALIASES = {
    *HIDDEN, *LAYERS, *HEADS, *KV_HEADS, *HEAD_DIM, *FFN, *VOCAB, *POSITIONS, *EXPERTS, *TOP_K, *EXPERT_FFN, *DENSE_FFN, *SHARED_FFN, *SHARED_COUNT, *MTP_LAYERS,
}  # fmt: skip
"""Read where they matter: an unread one (KV heads of an MLA model, expert width without experts) changes nothing."""
_TRIVIAL = (None, False, 0, 0.0, 1, 1.0, "", [], {})


def unknown(unread: Iterable[tuple[str, Any]]) -> list[str]:
    """Those of the unread (key, value) pairs that smell of structure: a size, a count, a list, a switch that is on."""
    found = []
    for key, value in unread:
        if key in _NEUTRAL or key in _ALIASES or _NEUTRAL_PATTERN.search(key) or any(value == t and type(value) is type(t) for t in _TRIVIAL):
            continue
        if isinstance(value, float) and not value.is_integer():
            continue
        if _STRUCTURAL_PATTERN.search(key):
            found.append(key)
    return found
