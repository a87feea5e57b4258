"""What one GPU of a replica holds, computes and sends, in the terms a kernel-sum step-time model needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gemm:
    """One matrix product of one layer on one rank: T tokens × (k → n). Fused as engines fuse (qkv, gate_up)."""

    name: str
    n: int
    """Output features on this rank."""
    k: int
    """Input features on this rank."""
    weight_bytes_per_element: float
    precision: str
    """Storage of the weight in the scenario's words (bf16, fp8, int4 …); compute runs at it where the GPU has such a path."""

    @property
    def weight_bytes(self) -> float:
        return self.n * self.k * self.weight_bytes_per_element


@dataclass(frozen=True, slots=True)
class ShardAttention:
    """Attention of one layer on one rank."""

    heads: int
    """Query heads on this rank."""
    kv_heads: int
    """KV heads on this rank (replicated when TP exceeds them); 1 for MLA."""
    head_dim: int
    """Width of a query and key head (nope + rope for MLA)."""
    v_head_dim: int
    window: int | None
    """Tokens this layer looks back; None for full attention."""
    chunked: bool
    stores_kv: bool
    """False: reads the cache of an earlier layer and adds nothing to it."""
    kv_bytes_per_token: float
    """Cache bytes that one more token adds in ONE such layer on this rank (indexer included); 0 in a windowed layer."""
    kv_windowed_bytes_per_token: float
    """Cache bytes of one token inside the window of ONE such layer on this rank; 0 in a full-context layer."""
    kv_read_bytes_per_token: float
    """Bytes that decode attention reads per context token in one such layer on this rank."""
    kv_lora_rank: int
    """MLA latent width; 0 for other attention. Absorbed decode: each head does 2·ctx·(2·kv_lora_rank + qk_rope_head_dim) operations."""
    qk_rope_head_dim: int
    indexer_heads: int
    """Sparse attention: indexer heads (not divided by TP); 0 without one."""
    indexer_head_dim: int
    indexer_topk: int
    """Sparse attention reads min(context, this many) tokens; 0 without an indexer."""
    compression: int
    """Tokens per cached entry (DeepSeek V4); 1 otherwise."""
    local_window: int = 0
    """Latest tokens cached uncompressed beside the compressed ones (DeepSeek V4); 0 otherwise."""

    @property
    def mla(self) -> bool:
        return self.kv_lora_rank > 0


@dataclass(frozen=True, slots=True)
class ShardMoe:
    """Routed experts of one layer on one rank (shared experts are among the layer's GEMMs)."""

    experts: int
    """Routed experts of the whole layer."""
    experts_per_rank: int
    """Routed experts held by this rank, the most of any rank."""
    top_k: int
    hidden: int
    """Input and output width of an expert."""
    intermediate: int
    """Width of one expert on this rank."""
    gated: bool
    ep_size: int
    """Ranks the experts are spread over; 1 when each expert is cut instead."""
    weight_bytes_per_element: float
    precision: str

    @property
    def weight_bytes_per_expert(self) -> float:
        """Bytes of one expert on this rank."""
        return self.matrices * self.hidden * self.intermediate * self.weight_bytes_per_element

    @property
    def matrices(self) -> int:
        """Products of one expert: up and down, and the gate beside up."""
        return 3 if self.gated else 2


@dataclass(frozen=True, slots=True)
class ShardRecurrent:
    """Recurrent part of one layer on one rank, beside its projections (those are GEMMs)."""

    kind: str
    state_bytes: float
    """State of one sequence in one layer on this rank: read and written once per decode step."""


@dataclass(frozen=True, slots=True)
class ShardLayer:
    """A group of equal layers on one pipeline stage, as one rank sees one of them."""

    count: int
    """Layers of this group on this stage."""
    kind: str
    gemms: tuple[Gemm, ...]
    """Dense products, shared experts and router included, routed experts not."""
    attention: ShardAttention | None
    moe: ShardMoe | None
    recurrent: ShardRecurrent | None
    weight_bytes: float
    """Resident bytes of one layer on this rank, experts included."""
    all_reduces: int
    """Tensor-parallel all-reduces of tokens × hidden per layer (0 when TP = 1)."""
    all_to_alls: int
    """Exchanges of tokens × top_k × hidden over the `ep_group` per layer: dispatch and combine under DP + MoE."""
    group: int = 0
    """Index of the group in `Architecture.layers`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: consecutive layers and, at the ends, embedding and head."""

    index: int
    layers: tuple[ShardLayer, ...]
    layer_count: int
    last: bool
    """The stage that makes logits."""
    lm_head: Gemm | None
    """The head's product, on the last stage: one row per sequence that needs logits."""
    weight_bytes: float
    """Resident weight bytes of one rank of this stage."""
    engine_bytes: float
    """What an engine builds beside them on that rank: rotary table, absorbed copies of MLA's up-projection."""
    decode_read_bytes: float
    """Weight bytes read by a decode step that touches every local expert: embedding and towers are not read."""
    kv_bytes_per_token: float
    """Cache bytes per token of this stage's full-context layers on one rank."""
    kv_windowed_bytes_per_token: float
    """Cache bytes per token of this stage's windowed layers on one rank."""
    state_bytes_per_sequence: float
    """Recurrent state of one sequence on one rank of this stage."""


@dataclass(frozen=True, slots=True)
class Group:
    """A communicator: how many ranks, over which link."""

    size: int
    link: str
    """Name of the slowest link inside the group."""
    link_bytes_s: float
    """One direction, per GPU."""
    inter_node: bool
    """True when it leaves the scale-up domain and the server."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One replica laid out over TP × PP × DP ranks. All ranks of a stage are alike; stages may differ."""

    stages: tuple[Stage, ...]
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    expert_parallel_size: int
    """Ranks that whole experts are spread over; 1 when experts are cut by TP (× DP) instead."""
    hidden_size: int
    vocab_size: int
    """Padded as the engine pads it."""
    tp_group: Group
    ep_group: Group
    pp_group: Group
    activation_bytes_per_element: int = 2

    @property
    def gpus(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def worst(self) -> Stage:
        """The stage whose rank holds the most weight bytes."""
        return max(self.stages, key=lambda s: s.weight_bytes)

    @property
    def layer_count(self) -> int:
        return sum(s.layer_count for s in self.stages)

    @property
    def weight_bytes(self) -> float:
        """Weight bytes of the worst rank."""
        return self.worst.weight_bytes
