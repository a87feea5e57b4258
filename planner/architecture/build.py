"""From a configuration to an `Architecture`: one pass over the layers, equal ones grouped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.architecture import doubt, extras, keys, mixers, mlps, patterns, quantization, recurrent, towers
from planner.architecture.config import Config
from planner.architecture.families import Family, Trait
from planner.architecture.model import Architecture, Attention, Layer, Mlp, Recurrent, Tensor
from planner.architecture.reader import PARTS, Reader, class_defaults, layer_count, read
from planner.problems import InputError, one_line

TOWER_DOUBT = 0.005
"""A guessed tower above this share of the text model makes the whole an estimate."""


@dataclass(slots=True)
class Draft:
    """One layer while it is being put together; `extras` may change any of it."""

    index: int
    kind: str
    attention: Attention | None = None
    recurrent: Recurrent | None = None
    mlp: Mlp | None = None
    tensors: list[Tensor] = field(default_factory=list)


def build(raw: Mapping[str, Any], name: str, source: str, params_given: bool = False) -> Architecture:
    """The architecture of a configuration; `InputError` when it cannot be one, or when what is not understood weighs too much.

    `params_given` says that the number of parameters is known from elsewhere, so a doubtful count refuses nothing.
    """
    r = read(raw)
    c, family = r.c, r.family
    hidden = c.whole(*keys.HIDDEN)
    count = layer_count(c) * extras.SUBLAYERS.get(family.extra, 1)
    vocab = c.whole(*keys.VOCAB)
    drafts = layers_of(r, hidden, count)
    if family.extra in extras.ORDER:
        drafts = extras.ORDER[family.extra](c, drafts)
    scheme = quantization.of(raw, r.remarks)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for d in drafts:
        if scheme:
            d.tensors = [scheme.mark(t, d.index) for t in d.tensors]
        groups.setdefault((d.kind, d.attention, d.recurrent, d.mlp, tuple(d.tensors)), []).append(d.index)
    tied = _tied(raw, c)
    outer = outer_tensors(r, hidden, vocab, tied)
    tower = _towers(r, raw, hidden, sum(t.params for t in outer) + sum(t.params for d in drafts for t in d.tensors), params_given)
    outer += tower
    if scheme:
        outer = [scheme.mark(t, None) for t in outer]
    mtp_layers = c.whole(*keys.MTP_LAYERS, default=0, low=0, high=64)
    mtp, mtp_attention = mtp_of(drafts, hidden, mtp_layers)
    longest = c.whole(*keys.POSITIONS, default=0, low=0)
    _not_understood(r, hidden, drafts, sum(t.params for t in outer), params_given)
    attention = next((d.attention for d in drafts if d.attention and d.attention.stores_kv), None)
    return Architecture(
        name=name or r.model_type or "custom",
        source=source,
        model_type=r.model_type,
        hidden_size=hidden,
        vocab_size=vocab,
        max_position_embeddings=longest,
        layers=tuple(Layer(kind, a, r_, m, t, tuple(at)) for (kind, a, r_, m, t), at in groups.items()),
        outer=tuple(outer),
        mtp=mtp,
        mtp_attention=mtp_attention,
        mtp_layers=mtp_layers,
        tied_embeddings=tied,
        rotary_dim=rotary_dim(c, family, attention),
        quantization=scheme.summary if scheme else None,
        rope_rows=rope_rows(c, longest),
        estimate=bool(r.doubts),
        notes=tuple(map(one_line, r.doubts + r.remarks)),
    )


def _towers(r: Reader, raw: Mapping[str, Any], hidden: int, text_params: int, params_given: bool) -> list[Tensor]:
    """Vision and audio towers; what was guessed is a remark while small, a doubt beyond that, and refused where it weighs too much."""
    guesses: list[towers.Guess] = []
    tensors = towers.of(raw, hidden, class_defaults(), guesses, r.c.read)
    share = sum(g.params for g in guesses) / (text_params + sum(t.params for t in tensors))
    if share > doubt.LARGEST_ERROR and not params_given:
        raise InputError(
            f"{guesses[0].note}, {share:.0%} of the whole; give model.total_params, or take the tower out to plan the text alone"
        )
    for guess in guesses:
        if share > TOWER_DOUBT and guess.params:
            r.doubts.append(f"{guess.note}; parameters may be off by up to {share:.1%}")
        else:
            r.remarks.append(guess.note)
    return tensors


def _not_understood(r: Reader, hidden: int, drafts: list[Draft], outer_params: int, params_given: bool) -> None:
    """Doubt keys that nothing read, with how wrong they may make the count; refuse those that may change the cache, or too much."""
    left = dict(r.c.unread())
    strange = keys.unknown((k, v) for k, v in left.items() if k not in PARTS)
    if not strange:
        return
    named = ", ".join(k[:60] for k in strange[:8])
    cached = doubt.caches(k for k in strange if not isinstance(left[k], str))
    if cached:
        raise InputError(
            f"the configuration has {', '.join(k[:60] for k in cached[:4])}, not understood here: what a token leaves in the cache may "
            "depend on it; plan a model of a known family, or take the key out to plan as if it were not there"
        )
    inner = sum(t.params for d in drafts for t in d.tensors)
    most = sum(doubt.params(k, left[k], hidden, len(drafts), inner / len(drafts)) for k in strange) / max(1, inner + outer_params)
    if most > doubt.LARGEST_ERROR and not params_given:
        size = f"{most:.0%} of the parameters counted" if most < 10 else "far more parameters than are counted"
        raise InputError(
            f"the configuration has {named}, not understood here, which may stand for {size}; give model.total_params, "
            "or take the keys out to plan as if they were not there"
        )
    r.doubts.append(f"the configuration has {named}, not understood here; parameters may be off by up to {max(most, 0.001):.1%}")


def layers_of(r: Reader, hidden: int, count: int) -> list[Draft]:
    """Every layer of the model, in order. A layer for which no list was consulted serves all others of its kind."""
    whole, family = r.c, r.family
    kinds = patterns.mixers(whole, family, count, r.doubts)
    routed = patterns.expert_layers(whole, count)
    shared_from = count - whole.whole("num_kv_shared_layers", default=0, low=0)
    has_experts = any(routed) or "moe" in kinds
    alike: dict[tuple[Any, ...], Draft] = {}
    drafts = []
    for i, kind in enumerate(kinds):
        c = whole.layer(i)
        place = i if family.extra in extras.BY_PLACE else i % extras.SUBLAYERS.get(family.extra, 1)
        sort = (kind, routed[i], i < shared_from, place)
        before = whole.lists_read
        d = replace(alike[sort], index=i) if sort in alike and c is whole else layer_of(c, family, hidden, i, *sort[:3], has_experts)
        if whole.lists_read == before and c is whole:
            alike[sort] = d
        drafts.append(d)
    return drafts


def layer_of(c: Config, family: Family, hidden: int, i: int, kind: str, routed: bool, stores_kv: bool, has_experts: bool) -> Draft:
    """Layer `i`: its parts, then what is the family's alone, then the tensors behind them."""
    d = Draft(i, kind)
    if kind in ("full", "window", "chunk", "both"):
        d.attention = replace(attention_of(c, hidden, i, kind), stores_kv=stores_kv)
        d.kind = _cache_kind(d.attention)
    if kind in ("recurrent", "both"):
        d.recurrent, d.tensors = recurrent.of(c, family, hidden)
    if kind in ("mlp", "moe") or not family.single:
        d.mlp = mlp_of(c, family, i, kind == "moe" or (kind != "mlp" and routed), has_experts)
    if kind in ("mlp", "moe"):
        d.kind = "none"
    extra = extras.LAYER.get(family.extra)
    if extra:
        extra(c, hidden, d)
    d.tensors = d.tensors + attention_tensors(c, family, hidden, d)
    if d.mlp:
        d.tensors += mlp_tensors(c, family, hidden, d.mlp)
    if family.norms * family.norm_params:
        d.tensors.append(Tensor("layernorm", hidden, family.norms * family.norm_params, "norm", linear=False))
    return d


def _cache_kind(a: Attention) -> str:
    if not a.stores_kv:
        return "shared"
    if a.window is not None:
        return "chunk" if a.chunked else "window"
    return "mla" if a.mla else "full"


def attention_of(c: Config, hidden: int, i: int, kind: str) -> Attention:
    """Attention of layer `i`; a windowed layer may have its own head counts and widths."""
    local = ("swa_",) if kind == "window" else ()
    sliding = ("num_sliding_attention_heads", "swa_num_attention_heads") if local else ()
    if not c.has(*sliding, "num_attention_heads_per_layer", *keys.HEADS):
        raise InputError(f"config key {keys.HEADS[0]} is missing; paste the model's whole config.json")
    heads = c.at(i, *sliding, "num_attention_heads_per_layer", *keys.HEADS)
    if heads > hidden * 64:
        raise InputError(f"config key num_attention_heads is {heads:,}, more than hidden_size {hidden:,} can hold; check the file")
    window = _window(c, kind)
    if c.has("kv_lora_rank"):
        nope, rope = c.whole("qk_nope_head_dim", low=0), c.whole("qk_rope_head_dim", low=0)
        sparse = c.has("index_n_heads", "index_head_dim") and _has_indexer(c, i)
        return Attention(
            heads,
            1,
            nope + rope,
            c.whole("v_head_dim", default=nope),
            window,
            kv_lora_rank=c.whole("kv_lora_rank"),
            qk_rope_head_dim=rope,
            indexer_heads=c.whole("index_n_heads", default=64) if sparse else 0,
            indexer_head_dim=c.whole("index_head_dim", default=128) if sparse else 0,
            indexer_topk=c.whole("index_topk", default=2048) if c.has("index_topk") else 0,
        )
    if hidden % heads and not c.has(*(f"{p}head_dim" for p in local), *keys.HEAD_DIM):
        raise InputError(
            f"hidden_size {hidden:,} is no multiple of num_attention_heads {heads:,} and config key head_dim is missing; give it"
        )
    head_dim = c.whole(*(f"{p}head_dim" for p in local), *keys.HEAD_DIM, default=max(1, hidden // heads))
    kv_heads = c.at(i, *(f"{p}num_key_value_heads" for p in local), *keys.KV_HEADS, default=1 if c.get("multi_query") is True else heads)
    if kv_heads > heads:
        raise InputError(f"config key num_key_value_heads is {kv_heads}, more than the {heads} attention heads; check the file")
    if heads % kv_heads:
        raise InputError(f"config key num_key_value_heads is {kv_heads}, which does not divide the {heads} attention heads; check the file")
    v_head_dim = c.whole(*(f"{p}v_head_dim" for p in local), "v_head_dim", default=head_dim)
    return Attention(heads, kv_heads, head_dim, v_head_dim, window, chunked=kind == "chunk")


def _window(c: Config, kind: str) -> int | None:
    c.get(*keys.WINDOW, "attention_chunk_size", "use_sliding_window", "max_window_layers")
    if kind not in ("window", "chunk"):
        return None
    window = c.optional_whole("attention_chunk_size") if kind == "chunk" else c.optional_whole(*keys.WINDOW)
    longest = c.whole(*keys.POSITIONS, default=0, low=0)
    return window if window and not 0 < longest <= window else None


def _has_indexer(c: Config, i: int) -> bool:
    """Not every layer of a sparse model runs an indexer of its own (GLM-5.2 reuses the choice of an earlier one)."""
    types, mixers_ = c.items("indexer_types"), c.items("layer_types")
    if mixers_ and i < len(mixers_) and any("indexed" in str(t) for t in mixers_) and "indexed" not in str(mixers_[i]):
        return False
    return types is None or i >= len(types) or str(types[i]) in ("full", "indexer", "own", "compute", "True")


def mlp_of(c: Config, family: Family, i: int, routed: bool, has_experts: bool) -> Mlp:
    """MLP of layer `i`."""
    if not routed:
        names = (*keys.DENSE_FFN, *keys.FFN) if has_experts else keys.FFN
        if c.get(*keys.EXPERTS) == 0:  # a dense sibling of a mixture keeps only what every token visits (Granite 4 micro)
            names = ("shared_intermediate_size", *names)
        ratio = c.whole("expansion_ratio", "ffn_ratio", default=family.ffn_ratio, low=0)
        default = c.whole(*keys.HIDDEN) * ratio or (0 if c.has("block_configs") else None)
        return Mlp(c.at(i, *names, default=default, low=0), family.gated)
    width = c.at(i, *keys.EXPERT_FFN, *keys.FFN)
    experts = c.at(i, *keys.EXPERTS)
    top_k = c.at(i, *keys.TOP_K)
    if top_k > experts:
        raise InputError(f"config key num_experts_per_tok is {top_k}, more than the {experts} experts; check the file")
    shared = c.get(*keys.SHARED_FFN)
    copies = c.at(i, *keys.SHARED_COUNT, default=family.shared_experts, low=0)
    total = c.at(i, *keys.SHARED_FFN, low=0) if shared is not None else copies * width
    return Mlp(
        width,
        family.gated,
        experts,
        top_k,
        total,
        c.whole("moe_latent_size", "moe_hidden_size", "routed_expert_hidden_size", default=0, low=0),
    )


def attention_tensors(c: Config, family: Family, hidden: int, d: Draft) -> list[Tensor]:
    """Weights of a layer's attention; none where it has no attention, or an extra has put them there already."""
    a = d.attention
    if a is None or any(t.name.startswith(mixers.P) for t in d.tensors):
        return []
    tensors = []
    if a.mla:
        gate = "full" if c.get("mla_use_output_gate") is True else family.gate
        tensors = mixers.latent(
            hidden,
            a,
            c.optional_whole("q_lora_rank") or 0,
            c.whole("qk_nope_head_dim", low=0),
            bias=flag(c, family.qkv_bias),
            gate=gate,
        )
    else:
        c.get("use_qk_norm")
        norm = family.qk_norm if not family.qk_norm_if or flag(c, family.qk_norm_if) else ""
        if c.text("qk_norm_type") == "per_head":
            norm = norm and "head"
        gate = "" if c.get("attn_output_gate") is False or c.get("use_head_wise_attn_gate") is False else family.gate
        tensors = mixers.grouped(
            hidden,
            a,
            qkv_bias=flag(c, family.qkv_bias),
            o_bias=flag(c, family.o_bias),
            qk_norm=norm,
            gate=gate,
            norm_params=family.norm_params or 1,
            shared_kv=c.get("attention_k_eq_v") is True and a.window is None,
        )
    if family.sinks:
        tensors.append(Tensor(f"{mixers.P}.sinks", a.heads, 1, "attention", "n", linear=False))
    return tensors


def mlp_tensors(c: Config, family: Family, hidden: int, mlp: Mlp) -> list[Tensor]:
    """Weights of a layer's MLP: dense, or experts with their router and shared ones."""
    if not mlp.experts:
        return mlps.dense(hidden, mlp, bias=flag(c, family.mlp_bias)) if mlp.intermediate else []
    return mlps.moe(
        hidden,
        mlp,
        expert_bias=family.expert_bias,
        router_bias=family.router_bias,
        correction_bias=family.correction_bias,
        shared_gate=family.shared_gate,
        beside=family.experts_beside,
    )


def outer_tensors(r: Reader, hidden: int, vocab: int, tied: bool) -> list[Tensor]:
    """Embeddings, final norm and head."""
    c, family = r.c, r.family
    width = c.whole("word_embed_proj_dim", default=hidden)
    outer = [Tensor("embed_tokens", vocab, width, "embedding", "n", linear=False)]
    if family.norm_params and family.norms:
        outer.append(Tensor("norm", hidden, family.norm_params, "norm", linear=False))
    if not tied:
        outer.append(Tensor("lm_head", vocab, width, "lm_head", "n"))
    if flag(c, family.head_bias):
        outer.append(Tensor("lm_head.bias", vocab, 1, "norm", linear=False))
    if family.positions >= 0:
        outer.append(Tensor("embed_positions", c.whole(*keys.POSITIONS) + family.positions, hidden, "embedding", linear=False))
    if width != hidden:
        outer += [Tensor("project_in", hidden, width, "mlp"), Tensor("project_out", width, hidden, "mlp")]
    extra = extras.OUTER.get(family.extra)
    return outer + (extra(c, hidden) if extra else [])


def _tied(raw: Mapping[str, Any], c: Config) -> bool:
    """Whether the head is the input embedding: the whole model's key wins over the text part's."""
    nested = c.switch("tie_word_embeddings")
    top = raw.get("tie_word_embeddings")
    return top if isinstance(top, bool) else nested


def mtp_of(drafts: list[Draft], hidden: int, layers: int) -> tuple[tuple[Tensor, ...], Attention | None]:
    """Multi-token-prediction layers: a copy of the last attention layer behind a projection of two hidden vectors.

    They share the main model's embedding and head, as engines run them.
    """
    last = next((d for d in reversed(drafts) if d.attention and d.attention.window is None), None)
    if not layers or last is None:
        return (), None
    merge = (Tensor("eh_proj", hidden, 2 * hidden, "mtp"), Tensor("mtp_norms", hidden, 3, "norm", linear=False))
    body = tuple(last.tensors)
    if last.mlp is None:  # mixer and MLP are layers of their own
        body += tuple(next((d.tensors for d in reversed(drafts) if d.mlp), []))
    return (merge + body) * layers, last.attention


def rotary_dim(c: Config, family: Family, attention: Attention | None) -> int:
    """Rotary dimensions of one head; 0 where positions are learned or absent."""
    if attention is None or family.positions >= 0 or c.text("position_embedding_type") == "nope" or not flag(c, family.rotary):
        return 0
    if attention.mla or attention.local_window:
        return attention.qk_rope_head_dim or c.whole("qk_rope_head_dim", default=0, low=0)
    if c.has("rotary_dim"):
        return c.whole("rotary_dim", low=0)
    parameters = c.get("rope_parameters", "rope_scaling")
    factor = c.get("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage")
    if factor is None and isinstance(parameters, Mapping):
        factor = parameters.get("partial_rotary_factor")
        by_type = [p.get("partial_rotary_factor", 1.0) for p in parameters.values() if isinstance(p, Mapping)]
        if factor is None and by_type:  # one table serves all types of layers
            factor = max((f for f in by_type if isinstance(f, (int, float))), default=None)
    share = float(factor) if isinstance(factor, (int, float)) and 0 < factor <= 1 else 1.0
    return int(attention.head_dim * share)


def rope_rows(c: Config, longest: int) -> int:
    """Positions of the rotary table: engines stretch it by the factor of linear, dynamic and YaRN scaling."""
    scaling = c.get("rope_scaling", "rope_parameters")
    if not isinstance(scaling, Mapping):
        return longest
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 1 <= factor <= 10_000:
        return longest
    if kind in ("linear", "dynamic"):
        return int(longest * factor)
    original = scaling.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int) and 0 < original <= longest:
        return int(original * factor)
    return longest


def flag(c: Config, trait: Trait) -> bool:
    """A trait that is the family's own, or the configuration's under the key that it names."""
    return c.switch(trait) if isinstance(trait, str) else trait
