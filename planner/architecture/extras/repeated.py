"""Weights that work more than once: blocks that several layers share (Zamba), layers that run in loops (Dory, HRM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.architecture import keys, mixers, mlps
from planner.architecture.config import MAX_LAYERS, Config
from planner.architecture.model import Attention, Mlp, Tensor
from planner.problems import InputError

if TYPE_CHECKING:
    from planner.architecture.build import Draft

SHARED = "shared_transformer"


def _norm(name: str, n: int, params: int = 1) -> Tensor:
    return Tensor(name, n, params, "norm", linear=False)


def run(drafts: Sequence[Draft], order: Sequence[int]) -> list[Draft]:
    """The layers in the order they run: from its second turn on, a layer's weights are those of the first, its cache is its own."""
    if len(order) > MAX_LAYERS:
        raise InputError(
            f"the configuration runs {len(order):,} layers a token when its loops are counted; at most {MAX_LAYERS:,} are planned"
        )
    seen: set[int] = set()
    turns = []
    for turn, number in enumerate(order):
        d = drafts[number]
        tensors = [replace(t, elsewhere=True) for t in d.tensors] if number in seen else d.tensors
        turns.append(replace(d, index=turn, tensors=tensors))
        seen.add(number)
    return turns


def zamba(c: Config, hidden: int, d: Draft) -> None:
    """Zamba: before some Mamba layers a transformer block reads the token's embedding beside the stream; all of those share it.

    Zamba 2 alternates between `num_mem_blocks` of them and adds low-rank adapters per place.
    """
    c.get(
        *("attention_hidden_size", "num_query_groups", "hybrid_layer_ids", "num_logits_to_keep", "use_mem_rope", "use_mem_eff_path"),
        *("use_long_context", "hidden_mamba_act", "attn_layer_period", "attn_layer_offset", "num_mem_blocks"),
    )
    if d.attention is None:
        return
    if c.switch("add_bias_linear"):
        raise InputError("config key add_bias_linear is true; Zamba layers with biases are not understood")
    heads, wide = d.attention.heads, 2 * hidden
    width = c.whole("attention_head_dim", default=max(1, wide // heads))
    a = d.attention = Attention(heads, d.attention.kv_heads, width, width)
    mlp = Mlp(c.whole(*keys.FFN, default=4 * hidden))
    block = [replace(t, n=hidden) if t.name.endswith("o_proj") else t for t in mixers.grouped(wide, a)]
    block += [*mlps.dense(hidden, mlp, prefix=f"{SHARED}.feed_forward"), _norm(f"{SHARED}.norms", 3 * hidden)]
    d.tensors += [*block, Tensor("linear", hidden, hidden, "mlp")]
    rank = c.whole("adapter_rank", default=0, low=0) if c.has("num_mem_blocks") else 0
    if rank:
        outputs = 2 * mlp.intermediate
        d.tensors += [Tensor("adapter.gate_up.a", rank, hidden, "mlp"), Tensor("adapter.gate_up.b", outputs, rank, "mlp")]
        if c.switch("use_shared_attention_adapter"):
            d.tensors += [Tensor("adapter.qkv.a", 3 * rank, wide, "mlp"), Tensor("adapter.qkv.b", 3 * heads * width, rank, "mlp")]


def zamba_order(c: Config, drafts: list[Draft]) -> list[Draft]:
    """Only the first `num_mem_blocks` places hold the shared block's weights."""
    blocks, seen, found = c.whole("num_mem_blocks", default=1), 0, []
    for d in drafts:
        held = d.attention is None or seen < blocks
        seen += d.attention is not None
        own = d.tensors if held else [replace(t, elsewhere=_of_block(t)) for t in d.tensors]
        found.append(replace(d, tensors=own))
    return found


def _of_block(tensor: Tensor) -> bool:
    return tensor.name.startswith((mixers.P, SHARED))


def dory(c: Config, hidden: int, d: Draft) -> None:
    """Dory: an nGPT decoder: no norms, learned scales instead."""
    c.get("n_input_layers", "n_output_layers", "n_recurrent_layers", "n_recurrent_loops", "recurrent_kv_cache_mode")
    if d.attention and d.mlp:
        width = d.attention.heads * d.attention.head_dim
        d.tensors.append(_norm("scales", 2 * hidden + 2 * width + 2 * d.mlp.intermediate))


def dory_outer(c: Config, hidden: int) -> list[Tensor]:
    return [_norm("lm_head.logit_scale", c.whole(*keys.VOCAB))]


def dory_order(c: Config, drafts: list[Draft]) -> list[Draft]:
    """The middle runs in loops, with a cache per loop unless the file keeps the last alone."""
    n = len(drafts)
    first, tail = c.whole("n_input_layers", default=0, low=0), c.whole("n_output_layers", default=0, low=0)
    loops = c.whole("n_recurrent_loops", default=1, high=64)
    middle = range(min(first, n), max(min(first, n), n - tail))
    turns = run(drafts, [*range(middle.start), *list(middle) * loops, *range(middle.stop, n)])
    if c.text("recurrent_kv_cache_mode") != "last_loop":
        return turns
    last = middle.start + len(middle) * (loops - 1)
    return [_borrowing(d) if middle.start <= d.index < last else d for d in turns]


def _borrowing(d: Draft) -> Draft:
    """The layer without a cache of its own."""
    return replace(d, kind="shared", attention=replace(d.attention, stores_kv=False)) if d.attention else d


def hrm_outer(c: Config, hidden: int) -> list[Tensor]:
    return [_norm("z_L_init", hidden)]


def hrm_order(c: Config, drafts: list[Draft]) -> list[Draft]:
    """HRM: a fast stack runs `L_cycles` times, then a slow one once, and all of it `H_cycles` times; every turn has its cache."""
    c.get("num_layers_per_stack", "L_bp_cycles", "prefix_lm", "embedding_scale")
    stack = len(drafts) // 2
    fast, slow = list(range(stack)), list(range(stack, 2 * stack))
    outer, inner = c.whole("H_cycles", default=1, high=64), c.whole("L_cycles", default=1, high=64)
    return run(drafts, (fast * inner + slow) * outer)


def jetmoe(c: Config, hidden: int, d: Draft) -> None:
    """JetMoE: queries and outputs are experts too; each visited one has a query head per KV head."""
    if d.attention is None or d.mlp is None:
        return
    kv, width = d.attention.kv_heads, d.attention.head_dim
    d.attention = replace(d.attention, heads=kv * d.mlp.top_k)
    d.tensors += [
        Tensor(f"{mixers.P}.experts.input_linear", kv * width, hidden, "expert", "n", d.mlp.experts),
        Tensor(f"{mixers.P}.experts.output_linear", hidden, kv * width, "expert", "k", d.mlp.experts),
        Tensor(f"{mixers.P}.experts.router", d.mlp.experts, hidden, "router", linear=False),
        Tensor(f"{mixers.P}.kv_proj", 2 * kv * width, hidden, "attention", "kv"),
        _norm("biases", hidden, 2),
    ]
