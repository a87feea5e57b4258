"""Attention with short convolutions on keys, values and outputs (Inkling, Inkling 2, ZAYA): a cache that grows and a small fixed state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.architecture import keys, mixers
from planner.architecture.config import Config
from planner.architecture.model import Attention, Recurrent, Tensor

if TYPE_CHECKING:
    from planner.architecture.build import Draft

P = mixers.P
SIDE_KEYS = (
    "number_of_conv_states",
    "log_scaling_n_floor",
    "n_layers_per_attn_res_block",
    "padded_vocab_size",
    "use_global_scale",
    "use_gate_bias",
    "norm_after_topk",
    "gate_activation",
    "shared_experts_size",
    "inference_moe_w13_interleaved",
    "enable_lm_head_output_fp32",
    "chain_hidden_post_norm",
    "mtp_hidden_states_first",
    "mtp_local_layer_ids",
    "mtp_local_extent",
    "loop_config",
)
"""Scalings, layouts of files, and parts of multi-token prediction: no size of the main model."""


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(name, n, params, "norm", linear=False)


def _small(name: str, n: int, k: int) -> Tensor:
    return Tensor(name, n, k, "norm", linear=False)


def _kernel(c: Config) -> int:
    return c.whole("conv_kernel_size", "sconv_kernel_size", default=4)


def _kv_widths(a: Attention) -> int:
    return a.kv_heads * (a.head_dim + a.v_head_dim)


def _history(c: Config, hidden: int, a: Attention) -> Recurrent:
    """The last tokens of the four convolutions: of keys, of values, of both outputs."""
    return Recurrent("short_conv", hidden, 0, (_kv_widths(a) + 2 * hidden) * (_kernel(c) - 1))


def _relative(c: Config, a: Attention) -> tuple[int, int]:
    """(width of a head's relative state, tokens its bias reaches back)."""
    return c.whole("d_rel", default=16), a.window or c.whole("rel_extent", default=1024)


def inkling(c: Config, hidden: int, d: Draft) -> None:
    """Inkling: a relative bias instead of rotation, convolutions in and behind every layer, a router that also weighs shared experts."""
    a = d.attention
    c.get(*SIDE_KEYS, "rel_extent")
    if a is None:
        return
    d_rel, reach = _relative(c, a)
    d.tensors += [Tensor("rel.r_proj", a.heads * d_rel, hidden, "attention", "n"), _small("rel.rel_logits_proj", d_rel, reach)]
    if c.switch("use_sconv", default=True):
        d.recurrent = _history(c, hidden, a)
        d.tensors.append(_small("sconv", _kv_widths(a) + 2 * hidden, _kernel(c)))
    if d.mlp and d.mlp.experts:
        if c.switch("shared_expert_sink", default=True):
            d.tensors.append(Tensor("mlp.gate.shared", c.whole(*keys.SHARED_COUNT, default=0, low=0), hidden, "router", linear=False))
        d.tensors.append(_norm("mlp.gate.global_scale", 1))


def inkling2(c: Config, hidden: int, d: Draft) -> None:
    """Inkling 2: gated outputs, sinks and (in full layers) convolution weights made from the token, residuals by attention."""
    a = d.attention
    c.get(*SIDE_KEYS, "rel_extent", *(f"loop_{k}" for k in ("layer_index_start", "layer_index_end", "num_passes", "gate_rank")))
    if a is None:
        return
    d_rel, reach = _relative(c, a)
    kernel, full = _kernel(c), a.window is None
    d.recurrent = _history(c, hidden, a)
    d.tensors += [
        Tensor("rel.linear", a.heads * d_rel, hidden, "attention", "n"),
        _small("rel.proj", d_rel, reach),
        _small("head_norms", a.heads, a.head_dim + d_rel),
        Tensor("sink_proj", a.heads, hidden, "attention", "n"),
        _small("sconv", _kv_widths(a) + 2 * hidden, kernel),
        _norm("residual_queries_and_norms", hidden, 1 + (5 if full else d.index > 0)),
    ]
    if full:
        d.tensors.append(Tensor("sconv.weight_proj", 2 * kernel * a.kv_heads, hidden, "attention"))
    first, last = c.whole("loop_layer_index_start", default=0, low=0), c.whole("loop_layer_index_end", default=0, low=0)
    if first <= d.index < last:
        rank = c.whole("loop_gate_rank", default=64)
        d.tensors += [
            Tensor("message_gate.down_proj", 4 * rank, 2 * hidden, "mlp"),
            Tensor("message_gate.up_proj", 8 * hidden, rank, "mlp"),
        ]


def inkling_outer(c: Config, hidden: int) -> list[Tensor]:
    """The embedding is normalised (checkpoints switch it), and a head that is not padded has fewer rows."""
    norm = [_norm("embed_norm", hidden)] if c.switch("use_embed_norm", default=True) else []
    return norm + _unpadded(c, hidden)


def inkling2_outer(c: Config, hidden: int) -> list[Tensor]:
    """As in Inkling, and the queries of the last residual; a looped model adds those of its messages."""
    first, last = c.whole("loop_layer_index_start", default=0, low=0), c.whole("loop_layer_index_end", default=0, low=0)
    messages = 4 * max(0, last - first)
    return [_norm("embed_norm", hidden), *_unpadded(c, hidden), _norm("final_and_message_queries", hidden, 1 + messages)]


def _unpadded(c: Config, hidden: int) -> list[Tensor]:
    rows, vocab = c.whole("unpadded_vocab_size", default=0, low=0), c.whole(*keys.VOCAB)
    return [_norm("lm_head.padding_left_out", rows - vocab, hidden)] if 0 < rows < vocab else []


def inkling2_loops(c: Config, layers: int) -> list[int]:
    """Layers in the order they run: a looped model goes through its middle several times."""
    first, last = (min(layers, c.whole(f"loop_layer_index_{end}", default=0, low=0)) for end in ("start", "end"))
    middle = range(first, max(first, last))
    return [*range(first), *list(middle) * c.whole("loop_num_passes", default=1, high=64), *range(middle.stop, layers)]


def zaya(c: Config, hidden: int, d: Draft) -> None:
    """ZAYA: queries and keys through two convolutions, half of the values a token late, a router that is a small network."""
    a = d.attention
    if a is None or d.mlp is None or not d.mlp.experts:
        return
    early, late = c.whole("cca_time0", default=2), c.whole("cca_time1", default=2)
    wide, r = (a.heads + a.kv_heads) * a.head_dim, c.whole("router_hidden_size", default=256)
    d.recurrent = Recurrent("short_conv", hidden, 0, wide * (early + late - 2) + a.kv_heads * a.v_head_dim // 2)
    slots = d.mlp.experts + 1  # the last slot sends a token round the experts
    d.tensors += [
        _small("cca.conv_qk_depthwise", wide, early + 1),
        Tensor("cca.conv_qk_grouped", wide, a.head_dim * late + 1, "attention", linear=False),
        _small("cca.temperature", a.kv_heads, 1),
        Tensor("mlp.gate.down_proj", r, hidden + 1, "router", linear=False),
        Tensor("mlp.gate.router_mlp", 2 * r, r + 1, "router", linear=False),
        Tensor("mlp.gate.out_proj", slots, r, "router", linear=False),
        _norm("mlp.gate.norm_and_scale", r, 1 + (d.index > 0)),
        _norm("mlp.gate.not_one_matrix", -d.mlp.experts, hidden),
        _norm("residual_scales", hidden, 8),
    ]


def zaya_outer(c: Config, hidden: int) -> list[Tensor]:
    return [_norm("input_scale", hidden, 2)]
