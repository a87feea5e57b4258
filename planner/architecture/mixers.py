"""Token mixers: attention (grouped, latent) and recurrent layers, as tensors."""

from __future__ import annotations

from planner.architecture.model import Attention, Tensor


def attention(
    hidden: int, a: Attention, *, qkv_bias: bool = False, o_bias: bool = False, qk_norm: str = "", sinks: bool = False, gate: bool = False, norm_params: int = 1
) -> list[Tensor]:
    """Grouped-query attention. `qk_norm`: "" none, "head" one weight per head width, "full" per whole projection.

    `gate` doubles the query projection (Qwen3-Next); `norm_params` is 2 where norms carry a bias.
    """
    q_out, k_out, v_out = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
    p = "self_attn"
    tensors = [Tensor(f"{p}.q_proj", q_out * (1 + gate), hidden, "attention", "n")]
    if a.stores_kv:
        tensors.append(Tensor(f"{p}.k_proj", k_out, hidden, "attention", "kv"))
        tensors.append(Tensor(f"{p}.v_proj", v_out, hidden, "attention", "kv"))
    tensors.append(Tensor(f"{p}.o_proj", hidden, a.heads * a.v_head_dim, "attention", "k"))
    if qkv_bias:
        tensors.append(Tensor(f"{p}.q_proj.bias", q_out * (1 + gate), 1, "attention", "n", linear=False))
        if a.stores_kv:
            tensors.append(Tensor(f"{p}.kv_proj.bias", k_out + v_out, 1, "attention", "kv", linear=False))
    if o_bias:
        tensors.append(Tensor(f"{p}.o_proj.bias", hidden, 1, "attention", linear=False))
    if sinks:
        tensors.append(Tensor(f"{p}.sinks", a.heads, 1, "attention", "n", linear=False))
    if qk_norm == "head":
        tensors.append(Tensor(f"{p}.q_norm", a.head_dim, norm_params, "norm", linear=False))
        if a.stores_kv:
            tensors.append(Tensor(f"{p}.k_norm", a.head_dim, norm_params, "norm", linear=False))
    elif qk_norm == "full":
        tensors.append(Tensor(f"{p}.q_norm", q_out, norm_params, "norm", linear=False))
        tensors.append(Tensor(f"{p}.k_norm", k_out, norm_params, "norm", linear=False))
    return tensors


def latent_attention(hidden: int, a: Attention, q_lora_rank: int, qk_nope_head_dim: int, bias: bool = False) -> list[Tensor]:
    """MLA (DeepSeek V2 and later), with the sparse indexer where the layer has one. The down-projections are replicated under TP."""
    p = "self_attn"
    q_out, latent = a.heads * a.head_dim, a.kv_lora_rank + a.qk_rope_head_dim
    tensors: list[Tensor] = []
    if q_lora_rank:
        tensors += [
            Tensor(f"{p}.q_a_proj", q_lora_rank, hidden, "attention"),
            Tensor(f"{p}.q_a_layernorm", q_lora_rank, 1, "norm", linear=False),
            Tensor(f"{p}.q_b_proj", q_out, q_lora_rank, "attention", "n"),
        ]
    else:
        tensors.append(Tensor(f"{p}.q_proj", q_out, hidden, "attention", "n"))
    tensors += [
        Tensor(f"{p}.kv_a_proj_with_mqa", latent, hidden, "attention"),
        Tensor(f"{p}.kv_a_layernorm", a.kv_lora_rank, 1, "norm", linear=False),
        Tensor(f"{p}.kv_b_proj", a.heads * (qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank, "attention", "n"),
        Tensor(f"{p}.o_proj", hidden, a.heads * a.v_head_dim, "attention", "k"),
    ]
    if bias:
        tensors.append(Tensor(f"{p}.bias", (q_lora_rank or q_out) + latent + hidden, 1, "attention", linear=False))
    if a.indexer_head_dim:
        tensors += [
            Tensor(f"{p}.indexer.wq_b", a.indexer_heads * a.indexer_head_dim, q_lora_rank or hidden, "attention"),
            Tensor(f"{p}.indexer.wk", a.indexer_head_dim, hidden, "attention"),
            Tensor(f"{p}.indexer.k_norm", a.indexer_head_dim, 2, "norm", linear=False),
            Tensor(f"{p}.indexer.weights_proj", a.indexer_heads, hidden, "attention"),
        ]
    return tensors
