"""DeepSeek V4 and V4.1: a short window beside a cache that is compressed, and in V4.1 shared between layers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.architecture import keys, mixers
from planner.architecture.config import Config
from planner.architecture.model import NGRAM_TABLE, Attention, Tensor

if TYPE_CHECKING:
    from planner.architecture.build import Draft

P = mixers.P
DRAFTER_KEYS = (
    *("dspark_block_size", "dspark_target_layer_ids", "dspark_markov_rank", "dspark_n_routed_experts", "dspark_num_experts_per_tok"),
    *("candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size", "hc_post_alpha", "engram_gate_clamp"),
    *("engram_vocab_size", "engram_compressed_vocab_size", "engram_layer_ids", "engram_num_embeddings", "engram_head_dim"),
)
"""The drafter, how an index narrows its search, how n-grams are hashed: no size of the main model's layers."""


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(name, n, params, "norm", linear=False)


def deepseek_v4(c: Config, hidden: int, d: Draft) -> None:
    """DeepSeek V4: one shared key-value head, a short window, and older tokens compressed by a ratio per layer; hyper-connections."""
    heads, width, rank = c.whole(*keys.HEADS), c.whole("head_dim"), c.whole("q_lora_rank")
    ratios, types, rates = c.wholes("compress_ratios"), c.items("layer_types"), c.part("compress_rates") or {}
    ratio = ratios[d.index] if ratios and d.index < len(ratios) else 0
    if types and d.index < len(types) and not ratios:
        ratio = Config(rates).whole(str(types[d.index]), default=0, low=0)
    index_heads, index_dim = c.whole("index_n_heads", default=64), c.whole("index_head_dim", default=128)
    sparse = 0 < ratio <= 16  # the lightly compressed layers choose entries with an indexer, the heavily compressed read all
    window = c.whole("sliding_window", default=128)
    d.attention = Attention(
        heads,
        1,
        width,
        width,
        qk_rope_head_dim=c.whole("qk_rope_head_dim", default=64),
        indexer_heads=index_heads if sparse else 0,
        indexer_head_dim=index_dim if sparse else 0,
        indexer_topk=c.whole("index_topk", default=512) if sparse else 0,
        compression=ratio,
        local_window=window,
    )
    d.kind = "compressed"
    d.tensors += _projections(c, hidden)
    if ratio:
        wide = 2 * width if sparse else width
        d.tensors += [
            Tensor(f"{P}.compressor.kv_proj", wide, hidden, "attention"),
            Tensor(f"{P}.compressor.gate_proj", wide, hidden, "attention"),
            _norm(f"{P}.compressor.small", ratio * wide + width),
        ]
    if sparse:
        d.tensors += [
            Tensor(f"{P}.indexer.kv_gate_proj", 4 * index_dim, hidden, "attention"),
            Tensor(f"{P}.indexer.q_b_proj", index_heads * index_dim, rank, "attention"),
            Tensor(f"{P}.indexer.weights_proj", index_heads, hidden, "attention"),
            _norm(f"{P}.indexer.small", ratio * 2 * index_dim + index_dim),
        ]


def deepseek_v4_outer(c: Config, hidden: int) -> list[Tensor]:
    mult = c.whole("hc_mult", default=4)
    return [_norm("hc_head", mult * mult * hidden + mult + 1)]


def _projections(c: Config, hidden: int) -> list[Tensor]:
    """What every layer has: queries and outputs through low ranks, one key-value vector, sinks, two hyper-connections."""
    heads, width, rank = c.whole(*keys.HEADS), c.whole("head_dim"), c.whole("q_lora_rank")
    groups, out_rank, mult = c.whole("o_groups"), c.whole("o_lora_rank"), c.whole("hc_mult", default=4)
    return [
        Tensor(f"{P}.q_a_proj", rank, hidden, "attention"),
        _norm(f"{P}.q_a_norm", rank),
        Tensor(f"{P}.q_b_proj", heads * width, rank, "attention", "n"),
        Tensor(f"{P}.kv_proj", width, hidden, "attention"),
        _norm(f"{P}.kv_norm", width),
        Tensor(f"{P}.o_a_proj", groups * out_rank, heads * width // groups, "attention", "n"),
        Tensor(f"{P}.o_b_proj", hidden, groups * out_rank, "attention", "k"),
        _norm(f"{P}.sinks", heads),
        _norm("hyper_connections", 2 * ((2 + mult) * mult * (mult * hidden + 1) + 3)),
    ]


def deepseek_v41(c: Config, hidden: int, d: Draft) -> None:
    """V4.1: a few layers write a compressed cache and its index keys, the others read the last one written before them.

    Index sources search; n-gram tables feed single layers.
    """
    c.get(*DRAFTER_KEYS)
    ratios, i = c.wholes("compress_ratios") or [], d.index
    ratio = ratios[i] if i < len(ratios) else 0
    writes, searches = i in (c.wholes("kv_source_layer_ids") or ()), i in (c.wholes("index_source_layer_ids") or ())
    width, index_heads, index_dim = c.whole("head_dim"), c.whole("index_n_heads", default=32), c.whole("index_head_dim", default=128)
    d.attention = Attention(
        c.whole(*keys.HEADS),
        1,
        width,
        width,
        stores_kv=writes or not ratio,
        qk_rope_head_dim=c.whole("qk_rope_head_dim", default=64),
        indexer_heads=index_heads if searches else 0,
        indexer_head_dim=index_dim if searches else 0,
        indexer_topk=c.whole("index_topk", default=512) if ratio else 0,
        compression=ratio,
        local_window=c.whole("sliding_window", default=128),
    )
    d.kind = "compressed"
    d.tensors += _projections(c, hidden)
    if writes:
        gates = 1 + (ratio > 1)
        d.tensors += [
            Tensor(f"{P}.compressor.proj", gates * width, hidden, "attention", linear=False),
            Tensor(f"{P}.indexer.wk", index_dim, width, "attention", linear=False),
            _norm(f"{P}.compressor.norms", width + index_dim),
        ]
    if searches:
        d.tensors += [
            Tensor(f"{P}.indexer.weights_proj", index_heads, hidden, "attention", linear=False),
            Tensor(f"{P}.indexer.wq_b", index_heads * index_dim, c.whole("q_lora_rank"), "attention"),
        ]
    if i in (c.wholes("engram_layer_ids") or ()):
        mult, columns = c.whole("hc_mult", default=4), (c.whole("engram_max_ngram_size") - 1) * c.whole("engram_n_heads")
        d.tensors += [
            Tensor("engram.wkv", hidden * (mult + 1), columns * c.whole("engram_head_dim"), "mlp"),
            _norm("engram.gates", 2 * mult * hidden),
        ]


def deepseek_v41_outer(c: Config, hidden: int) -> list[Tensor]:
    """One table of n-grams per layer that has one, in FP8 where the checkpoint is."""
    stored = "fp8" if c.part("quantization_config") else ""
    tables = c.wholes("engram_num_embeddings") or []
    width = c.whole("engram_head_dim", default=256)
    return [replace(Tensor(NGRAM_TABLE, rows, width, "embedding", "n", linear=False), stored=stored) for rows in tables if rows]
