"""Names under which families write the same fact, and keys that change no size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

NEUTRAL_FILE = Path(__file__).with_name("neutral_keys.txt")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads", "multi_query_group_num", "num_attention_groups")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "block_ff_dim")
VOCAB = ("vocab_size", "padded_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx", "model_max_length")
WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "moe_num_primary_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k")
EXPERT_FFN = (
    "moe_intermediate_size",
    "expert_intermediate_size",
    "expert_ffn_hidden_size",
    "moe_ffn_hidden_size",
    "moe_expert_ffn_hidden_size",
)
DENSE_FFN = ("dense_intermediate_size", "intermediate_size_mlp", "prefix_dense_intermediate_size")
SHARED_FFN = (
    "shared_expert_intermediate_size",
    "shared_experts_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "share_expert_dims",
    "shared_intermediate_size",
)
SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers", "num_mtp_layers")

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder_config")
FLAT_PARTS = ("attn_config", "ffn_config", "linear_attn_config", "sparse_attention_config")
TOWER_PARTS = ("vision_config", "audio_config", "vit_config", "audio_encoder_config", "sound_config", "talker_config", "token2wav_config")

_NEUTRAL_PATTERN = re.compile(
    r"(_token_ids?|_id|_token_index|_tokens?_id|_pdrop|dropout|_eps|_epsilon|_coef|_range|_std|_theta|_base_freq|_loss|_noise|_alpha|_beta|"
    r"_scale|_multiplier|_factor|_act|_activation|_clip|_decay|_bias_update\w*|_method|_func|_penalty|_seed|_version|_softcap|_softcapping|_capping|_threshold|_path|_name|_mode)$"
    r"|^(rope|rotary|yarn|initializer|summary_|suppress|begin_|forced_|decoder_start|_|eos_|bos_|pad_|sep_|image_token|video_token|layernorm_|"
    r"unsloth|transformers|tokenizer|processor|media_|output_router|router_aux|router_jitter|router_z|mrope|longrope|llama_4_scaling)",
    re.IGNORECASE,
)
_STRUCTURAL_PATTERN = re.compile(
    r"layer|head|dim|size|rank|expert|moe|window|state|kernel|conv|ratio|kv|latent|group|num_|^n_|width|depth|block|pattern|types?$|share|"
    r"mtp|lora|hidden|inter|compress|index|sparse|mamba|ssm|attn|attention|mixer|memory|stack|level|branch|stage|parallel|tie|embed|bias|"
    r"norm|gate|cache|recur|topk|loop|cycle|repeat|passes|gram|table|rows",
    re.IGNORECASE,
)
_ALIASES = {
    *HIDDEN, *LAYERS, *HEADS, *KV_HEADS, *HEAD_DIM, *FFN, *VOCAB, *POSITIONS, *EXPERTS, *TOP_K,
    *EXPERT_FFN, *DENSE_FFN, *SHARED_FFN, *SHARED_COUNT, *MTP_LAYERS,
}  # fmt: skip
"""Read where they matter: an unread one (KV heads of an MLA model, expert width without experts) changes nothing."""
LARGE = 100_000
"""From here on a number may be the rows of a table, whatever it is called."""
_TRIVIAL: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})


@cache
def neutral() -> frozenset[str]:
    """Keys that change nothing here, from `neutral_keys.txt`."""
    lines = NEUTRAL_FILE.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def unknown(unread: Iterable[tuple[str, Any]]) -> list[str]:
    """Those of the unread (key, value) pairs that smell of structure: a size, a count, a list, an object, a switch that is on."""
    found = []
    for key, value in unread:
        if key in neutral() or key in _ALIASES or _NEUTRAL_PATTERN.search(key) or _trivial(key, value):
            continue
        large = isinstance(value, int) and value >= LARGE
        listed = isinstance(value, (list, tuple)) and len(value) > 8 and all(isinstance(v, int) for v in value)
        if large or listed or isinstance(value, Mapping) or _STRUCTURAL_PATTERN.search(key):
            found.append(key)
    return found


def _trivial(key: str, value: Any) -> bool:
    """Values that cannot size anything: off, empty, a fraction; one, unless it counts something."""
    if isinstance(value, float) and not value.is_integer():
        return True
    if value == 1 and not isinstance(value, bool):
        return not key.startswith(("num_", "n_"))
    return any(value == t and type(value) is type(t) for t in _TRIVIAL)
