"""Qwen3.8-Flash-Next: several residual streams, attention that reads chosen blocks, a table of n-grams in one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.architecture.config import Config
from planner.architecture.model import NGRAM_TABLE, Tensor

if TYPE_CHECKING:
    from planner.architecture.build import Draft

SIDE_KEYS = (
    "hc_mult",
    "make_ngram_vocab_size_divisible_by",
    "number_of_conv_states",
    "ple_embedding_dtype",
    "ple_offload_backend",
    "ple_offload_embedding",
    "split_ngram_parts",
    "index_share_for_mtp_iteration",
)
"""Where the table lies in files and memory: nothing of its size."""


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(name, n, params, "norm", linear=False)


def _mixing(c: Config, hidden: int, prefix: str) -> list[Tensor]:
    """What joins the streams into one vector: a norm and a low-rank map of all of them."""
    wide, rank = c.whole("hc_count", default=4) * hidden, c.whole("hc_lowrank", default=320)
    return [
        _norm(f"{prefix}.hc_norm", wide),
        Tensor(f"{prefix}.input_mix_weight_down", rank, wide, "mlp", linear=False),
        Tensor(f"{prefix}.input_mix_weight_up", wide, rank, "mlp", linear=False),
    ]


def qwen4_exp(c: Config, hidden: int, d: Draft) -> None:
    """Hyper-connections round mixer and MLP, an indexer in the attention layers, n-gram embeddings in the layers that have them."""
    streams = c.whole("hc_count", default=4)
    c.get(*SIDE_KEYS)
    for part in ("attn_hyper_connection", "mlp_hyper_connection"):
        d.tensors += [*_mixing(c, hidden, part), Tensor(f"{part}.block_inject_weight", streams, streams * hidden, "mlp", linear=False)]
    if d.attention and c.has("indexer_n_heads"):
        heads, width = c.whole("indexer_n_heads"), c.whole("indexer_head_dim", default=128)
        d.attention = replace(
            d.attention,
            indexer_heads=heads,
            indexer_head_dim=width,
            indexer_topk=c.whole("indexer_budget", default=2048),
            indexer_pool=c.whole("indexer_compress_ratio", default=1),
        )
        key_heads = c.whole("indexer_kv_heads", default=1)
        d.tensors += [Tensor("indexer.index_qk_proj", (heads + key_heads) * width, hidden, "attention"), _norm("indexer.norms", width, 2)]
    if d.index + 1 in (c.wholes("ple_layer_ids") or ()):
        wide, width, kernel = streams * hidden, _ngram_width(c, hidden), c.whole("ple_conv_kernel_size", default=4)
        d.tensors += [
            Tensor("ple.key_proj", wide, width, "mlp"),
            Tensor("ple.value_proj", hidden, width, "mlp"),
            _norm("ple.norms_and_conv1d", wide, 3 + kernel),
        ]
        if d.recurrent:  # a dilated convolution: it looks back over `kernel` n-grams
            history = wide * (kernel - 1) * c.whole("ngram_size", default=3)
            d.recurrent = replace(d.recurrent, conv_elements=d.recurrent.conv_elements + history)


def _ngram_width(c: Config, hidden: int) -> int:
    return c.whole("ple_embed_dim", default=hidden)


def qwen4_exp_outer(c: Config, hidden: int) -> list[Tensor]:
    """The last mixing, and per layer with n-grams one table: a prime number of rows per head, just above the given base."""
    tables = len(c.wholes("ple_layer_ids") or ())
    heads = (c.whole("ngram_size", default=3) - 1) * c.whole("heads_per_ngram", default=8)
    rows = heads * c.whole("ngram_vocab_size_base", default=20_000_000)
    tensors = _mixing(c, hidden, "hyper_connection_mixer")
    if tables and heads:
        width = max(1, _ngram_width(c, hidden) // heads)
        tensors += [Tensor(NGRAM_TABLE, rows, width, "embedding", "n", linear=False, stored=_table_precision(c))] * tables
    return tensors


def _table_precision(c: Config) -> str:
    """Precision of the table where the checkpoint shrinks it: said by a key of its own, or by name in the quantiser's list."""
    said, scheme = c.get("ple_embedding_dtype"), c.get("quantization_config")
    if isinstance(said, str):
        return next((p for p in ("fp8", "nvfp4") if said.replace("float8", "fp8").startswith(p)), "")
    named = scheme.get("modules_to_convert") if isinstance(scheme, Mapping) else None
    return "fp8" if isinstance(named, list) and any("ngram_embedding" in str(n) for n in named) else ""
