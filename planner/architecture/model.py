"""What a model is made of: groups of equal layers, each with a mixer, an MLP and the tensors behind both.

The tensors are the one truth: parameters, weight bytes, GEMM shapes and what a GPU holds are all sums over them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Split = Literal["none", "n", "k", "kv"]
Role = Literal["attention", "recurrent", "mlp", "shared_expert", "expert", "router", "embedding", "lm_head", "norm", "tower", "mtp"]

KV_BYTES = {"auto": 2.0, "bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of one cached element by KV precision."""
NGRAM_TABLE = "ngram_embedding"
"""Embedding of token n-grams: far larger than the vocabulary's, a token reads a few rows of it (Qwen3.8-Flash-Next)."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight, or `copies` equal ones (experts). A token multiplies a vector of `k` into one of `n`; vectors have k = 1."""

    name: str
    """Path below the layer as in the checkpoint, e.g. `self_attn.q_proj`; ignore lists of quantisers match on it."""
    n: int
    """Output features."""
    k: int
    """Input features."""
    role: Role
    """Which part of the model it belongs to."""
    split: Split = "none"
    """What tensor parallelism divides: output features, input features, KV heads (never below one head), or nothing."""
    copies: int = 1
    """Equal tensors under this name (experts of one layer)."""
    linear: bool = True
    """A matrix that a quantiser may shrink; norms, biases, convolutions, routers and embeddings stay 16-bit."""
    stored: str = ""
    """Precision in the checkpoint where its `quantization_config` shrinks this tensor; empty for plain 16-bit."""
    elsewhere: bool = False
    """Computed and read here, held by another layer: blocks that several layers share, layers that run more than once."""

    @property
    def params(self) -> int:
        return 0 if self.elsewhere else self.n * self.k * self.copies


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of one layer, before sharding."""

    heads: int
    kv_heads: int
    """KV heads; 1 for MLA, whose latent is shared by all heads."""
    head_dim: int
    """Width of one query and key head as attention computes it (nope + rope for MLA)."""
    v_head_dim: int
    """Width of one value head."""
    window: int | None = None
    """Tokens a windowed or chunked layer looks back; None for full attention."""
    chunked: bool = False
    """The window is an aligned chunk (Llama 4), not a sliding one."""
    stores_kv: bool = True
    """False when the layer reuses the cache of an earlier one (Gemma 3n and 4)."""
    kv_lora_rank: int = 0
    """MLA: width of the cached latent; 0 for other attention."""
    qk_rope_head_dim: int = 0
    """MLA: width of the cached rotary key."""
    indexer_heads: int = 0
    """Sparse attention: heads of the indexer; 0 without one."""
    indexer_head_dim: int = 0
    """Sparse attention: width of the indexer's cached key."""
    indexer_topk: int = 0
    """Sparse attention: tokens that attention reads at most."""
    indexer_pool: int = 1
    """Sparse attention: tokens that share one cached key of the indexer."""
    compression: int = 0
    """Tokens that share one cached latent (DeepSeek V4); 0 for everything else."""
    local_window: int = 0
    """Latest tokens that are cached uncompressed beside the compressed ones (DeepSeek V4); 0 for everything else."""

    @property
    def mla(self) -> bool:
        return self.kv_lora_rank > 0

    @property
    def growing_elements_per_token(self) -> float:
        """Elements that each further token adds in this layer, all heads, one copy; the indexer's key included."""
        if self.window is not None:
            return 0
        if not self.stores_kv:
            return self.indexer_elements_per_token
        if self.local_window:
            return (self.head_dim + self.indexer_head_dim) / self.compression if self.compression else 0
        return self._elements + self.indexer_elements_per_token

    @property
    def indexer_elements_per_token(self) -> float:
        """Part of the growing elements that is the indexer's key; every rank holds it whole."""
        return self.indexer_head_dim / self.indexer_pool if self.window is None and not self.local_window else 0

    @property
    def windowed_elements_per_token(self) -> float:
        """Elements of one token in a cache that ends at the window."""
        if self.local_window:
            return self.head_dim
        if not self.stores_kv:
            return 0
        return self._elements if self.window is not None else 0

    @property
    def _elements(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim if self.mla else self.kv_heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer with a fixed state per sequence instead of a growing cache."""

    kind: Literal["mamba1", "mamba2", "gated_deltanet", "lightning", "kda", "short_conv", "rwkv", "rg_lru"]
    heads: int
    """State heads (channels for Mamba 1); tensor parallelism divides them."""
    state_elements: int
    """Elements of the recurrent state of one sequence."""
    conv_elements: int
    """Elements of the convolution's history of one sequence."""
    state_bytes_per_element: int = 4
    conv_bytes_per_element: int = 2

    @property
    def state_bytes(self) -> int:
        """Bytes held for one sequence in one such layer, whole model."""
        return self.state_elements * self.state_bytes_per_element + self.conv_elements * self.conv_bytes_per_element


@dataclass(frozen=True, slots=True)
class Mlp:
    """Feed-forward part of one layer: dense when `experts` is 0."""

    intermediate: int
    """Width of the dense MLP, or of one routed expert."""
    gated: bool = True
    """Three matrices (gate, up, down) instead of two."""
    experts: int = 0
    top_k: int = 0
    """Routed experts that one token visits."""
    shared_intermediate: int = 0
    """Total width of the experts that every token visits."""
    expert_hidden: int = 0
    """Width of an expert's input and output; differs from the model's only where experts work on a projection of it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A group of equal layers."""

    kind: Literal["full", "window", "chunk", "mla", "compressed", "recurrent", "shared", "none"]
    """Kind of cache: grows, capped, latent, compressed latent, fixed state, another layer's, nothing."""
    attention: Attention | None
    recurrent: Recurrent | None
    mlp: Mlp | None
    tensors: tuple[Tensor, ...]
    """Weights of ONE layer of the group."""
    indices: tuple[int, ...] = ()
    """Positions of the layers of this group in the model."""

    @property
    def count(self) -> int:
        return len(self.indices)

    @property
    def params(self) -> int:
        """Parameters of one layer of the group."""
        return sum(t.params for t in self.tensors)

    @property
    def active_params(self) -> float:
        """Parameters of one layer that one token touches."""
        return sum(active(t, self.mlp) for t in self.tensors)


def active(tensor: Tensor, mlp: Mlp | None) -> float:
    """Parameters of `tensor` that one token of text touches: routed experts count top_k times, what serves images not at all."""
    if tensor.role == "tower":
        return 0
    if tensor.role == "expert" and mlp is not None and mlp.experts:
        return tensor.params * mlp.top_k / mlp.experts
    return tensor.params


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the checkpoint itself is stored, as its `quantization_config` says; which tensors shrink is on each `Tensor`."""

    method: str
    """The quantiser's own word: fp8, mxfp4, awq, gptq, compressed-tensors, modelopt …"""
    weights: str
    """Precision of most converted layers in the scenario's words; bf16 when the method is not understood."""
    bytes_per_element: float
    """Bytes of one such element, scales included."""
    block: int = 0
    """Side of a weight block with its own scale (block FP8); 0 when scales are per tensor, channel or group."""
    kv_cache: str = ""
    """KV precision that the checkpoint asks for; empty when it does not."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model, layer by layer. Sizes are of the whole model, one copy; `sharding` divides them."""

    name: str
    source: str
    """Where the configuration came from."""
    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    layers: tuple[Layer, ...]
    """Groups of equal layers, in order of first appearance."""
    outer: tuple[Tensor, ...]
    """Weights outside the layers: embeddings, head, final norm, vision and audio towers."""
    mtp: tuple[Tensor, ...] = ()
    """Weights of multi-token-prediction layers; in memory only when speculation uses them, not in `total_params`."""
    mtp_attention: Attention | None = None
    """Attention of one MTP layer: it adds a KV layer when used."""
    mtp_layers: int = 0
    tied_embeddings: bool = False
    rotary_dim: int = 0
    """Rotary dimensions of one head; an engine keeps a cos/sin table of max_position_embeddings × this."""
    quantization: Quantization | None = None
    estimate: bool = False
    """True when something in the configuration was not understood; `notes` names it."""
    notes: tuple[str, ...] = ()
    """What was assumed or not understood, one sentence each."""
    rope_rows: int = 0
    """Positions of the rotary table an engine builds: longer than `max_position_embeddings` under linear scaling."""
    total_params_override: int | None = None

    @property
    def counted_params(self) -> int:
        """Parameters counted from the configuration: towers included, MTP layers not, tied weights once."""
        return sum(t.params for t in self.outer) + sum(g.count * g.params for g in self.layers)

    @property
    def total_params(self) -> int:
        """Parameters of the model; the scenario's override where given."""
        return self.total_params_override or self.counted_params

    @property
    def active_params(self) -> int:
        """Every weight that one token touches: routed experts top_k times, both embeddings, no tower, no table of n-grams.

        Published figures differ in convention: Qwen3 and Mixtral count as here, gpt-oss leaves the input embedding out,
        GLM-4.5 and MiniMax-M1 both embeddings.
        """
        outer = sum(t.params for t in self.outer if t.role != "tower" and t.name != NGRAM_TABLE)
        counted = outer + sum(g.count * g.active_params for g in self.layers)
        if self.total_params_override:
            return round(counted * self.total_params_override / self.counted_params)
        return round(counted)

    @property
    def rope_table_bytes(self) -> int:
        """Cosine and sine table in 16 bit that every rank of an engine holds."""
        return self.rope_rows * self.rotary_dim * 2

    @property
    def tower_params(self) -> int:
        """Vision and audio towers: in memory, not in decode."""
        return sum(t.params for t in self.outer if t.role == "tower")

    @property
    def num_hidden_layers(self) -> int:
        return sum(g.count for g in self.layers)

    @property
    def window(self) -> int | None:
        """Widest window of the windowed layers; None when there is none."""
        return max((g.attention.window or g.attention.local_window for g in self.layers if g.attention), default=0) or None

    @property
    def kv_heads(self) -> int:
        """Most KV heads of any layer (1 for MLA, 0 for a model without attention)."""
        return max((g.attention.kv_heads for g in self.layers if g.attention), default=0)

    @property
    def heads(self) -> int:
        return max((g.attention.heads for g in self.layers if g.attention), default=0)

    def layers_by_kind(self) -> dict[str, int]:
        """Number of layers by kind of cache."""
        kinds: Counter[str] = Counter()
        for group in self.layers:
            kinds[group.kind] += group.count
        return dict(kinds)

    def kv_bytes_per_token(self, kv_precision: str = "bf16") -> int:
        """Bytes that one more token adds to the cache of the full-context layers, whole model, one copy."""
        return self._kv(kv_precision, windowed=False)

    def kv_windowed_bytes_per_token(self, kv_precision: str = "bf16") -> int:
        """Bytes of one token in the windowed layers, whole model, one copy; a sequence holds at most `window` of them."""
        return self._kv(kv_precision, windowed=True)

    @property
    def fixed_state_bytes_per_sequence(self) -> int:
        """Recurrent state that one sequence holds whatever its length, whole model."""
        return sum(g.count * g.recurrent.state_bytes for g in self.layers if g.recurrent)

    def kv_bytes(self, tokens: float, kv_precision: str = "bf16") -> float:
        """Cache bytes of one sequence of `tokens`: full layers grow, windowed layers stop at their window, state is fixed."""
        elements = 0.0
        for g in self.layers:
            if g.attention is not None:
                held = min(tokens, g.attention.window or g.attention.local_window or tokens)
                elements += g.count * (g.attention.growing_elements_per_token * tokens + g.attention.windowed_elements_per_token * held)
        return elements * KV_BYTES[kv_precision] + self.fixed_state_bytes_per_sequence

    def _kv(self, kv_precision: str, windowed: bool) -> int:
        elements = sum(
            g.count * (g.attention.windowed_elements_per_token if windowed else g.attention.growing_elements_per_token)
            for g in self.layers
            if g.attention
        )
        return round(elements * KV_BYTES[kv_precision])
