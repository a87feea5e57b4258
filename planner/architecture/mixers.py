"""Attention, grouped or latent, as tensors."""

from __future__ import annotations

from planner.architecture.model import Attention, Tensor

P = "self_attn"


def grouped(
    hidden: int,
    a: Attention,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "",
    gate: str = "",
    norm_params: int = 1,
    shared_kv: bool = False,
) -> list[Tensor]:
    """Grouped-query attention; see `Family` for `qk_norm` and `gate`.

    `shared_kv` projects keys and values with one matrix (full layers of Gemma 4).
    """
    q_out, k_out, v_out = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
    out = a.heads * a.v_head_dim
    doubled = q_out * (2 if gate == "double" else 1)
    tensors = [_linear("q_proj", doubled, hidden)]
    if a.stores_kv:
        tensors.append(Tensor(f"{P}.k_proj", k_out, hidden, "attention", "kv"))
        if not shared_kv:
            tensors.append(Tensor(f"{P}.v_proj", v_out, hidden, "attention", "kv"))
    if gate in ("full", "head"):
        tensors.append(_linear("gate_proj", out if gate == "full" else a.heads, hidden))
    tensors.append(Tensor(f"{P}.o_proj", hidden, out, "attention", "k"))
    if qkv_bias:
        tensors.append(_small("q_proj.bias", doubled, split="n"))
        if a.stores_kv:
            tensors.append(_small("kv_proj.bias", k_out + v_out, split="kv"))
    if o_bias:
        tensors.append(_small("o_proj.bias", hidden))
    return tensors + _qk_norms(a, qk_norm, norm_params)


def _qk_norms(a: Attention, kind: str, norm_params: int) -> list[Tensor]:
    widths = {
        "head": (a.head_dim, a.head_dim),
        "heads": (a.heads * a.head_dim, a.kv_heads * a.head_dim),
        "full": (a.heads * a.head_dim, a.kv_heads * a.head_dim),
    }
    if kind not in widths:
        return []
    q, k = widths[kind]
    params = 1 if kind == "heads" else norm_params
    tensors = [Tensor(f"{P}.q_norm", q, params, "norm", linear=False)]
    if a.stores_kv:
        tensors.append(Tensor(f"{P}.k_norm", k, params, "norm", linear=False))
    return tensors


def latent(hidden: int, a: Attention, q_lora_rank: int, qk_nope_head_dim: int, *, bias: bool = False, gate: str = "") -> list[Tensor]:
    """MLA (DeepSeek V2 and later), with the sparse indexer where the layer has one. Down-projections are replicated under TP."""
    q_out, cached = a.heads * a.head_dim, a.kv_lora_rank + a.qk_rope_head_dim
    tensors: list[Tensor] = []
    if q_lora_rank:
        tensors += [
            Tensor(f"{P}.q_a_proj", q_lora_rank, hidden, "attention"),
            _norm("q_a_layernorm", q_lora_rank),
            _linear("q_b_proj", q_out, q_lora_rank),
        ]
    else:
        tensors.append(_linear("q_proj", q_out, hidden))
    tensors += [
        Tensor(f"{P}.kv_a_proj_with_mqa", cached, hidden, "attention"),
        _norm("kv_a_layernorm", a.kv_lora_rank),
        _linear("kv_b_proj", a.heads * (qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank),
    ]
    if gate in ("full", "head"):
        tensors.append(_linear("gate_proj", a.heads * (a.v_head_dim if gate == "full" else 1), hidden))
    tensors.append(Tensor(f"{P}.o_proj", hidden, a.heads * a.v_head_dim, "attention", "k"))
    if bias:
        tensors.append(_small("bias", q_lora_rank + cached + hidden))
    return tensors + (indexer(hidden, a, q_lora_rank or hidden) if a.indexer_heads else [])


def indexer(hidden: int, a: Attention, q_in: int) -> list[Tensor]:
    """Lightning indexer of sparse attention: small heads that choose the tokens to read; every rank runs it whole."""
    return [
        Tensor(f"{P}.indexer.wq_b", a.indexer_heads * a.indexer_head_dim, q_in, "attention"),
        Tensor(f"{P}.indexer.wk", a.indexer_head_dim, hidden, "attention"),
        _norm("indexer.k_norm", a.indexer_head_dim, 2),
        Tensor(f"{P}.indexer.weights_proj", a.indexer_heads, hidden, "attention"),
    ]


def _linear(name: str, n: int, k: int) -> Tensor:
    return Tensor(f"{P}.{name}", n, k, "attention", "n")


def _small(name: str, n: int, split: str = "none") -> Tensor:
    return Tensor(f"{P}.{name}", n, 1, "attention", split, linear=False)  # type: ignore[arg-type]


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(f"{P}.{name}", n, params, "norm", linear=False)
