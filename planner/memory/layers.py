"""The model layer by layer: what each group of equal layers weighs and caches, whole and on one GPU."""

from __future__ import annotations

from planner.architecture import Architecture, Layer
from planner.memory.model import LayerRow
from planner.sharding import Shard

SHOWN_RANGES = 4


def layers(arch: Architecture, shard: Shard) -> tuple[LayerRow, ...]:
    """A row per group, in the order of the model; the weight per GPU is at this shard's layout and precision."""
    weights: dict[int, float] = {}
    for stage in shard.stages:
        for layer in stage.layers:
            weights.setdefault(layer.group, layer.weight_bytes)
    rows = []
    for i, g in enumerate(arch.layers):
        a = g.attention
        cached = (a.growing_elements_per_token + a.windowed_elements_per_token) * 2 if a else 0.0
        rows.append(
            LayerRow(
                positions(g.indices),
                g.count,
                g.kind,
                _mixer(g),
                _mlp(g),
                g.params,
                round(g.active_params),
                weights[i],
                cached,
                float(g.recurrent.state_bytes) if g.recurrent else 0.0,
            )
        )
    return tuple(rows)


def positions(indices: tuple[int, ...]) -> str:
    """Layer numbers as ranges, the first SHOWN_RANGES of them spelled out."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    texts = [f"{a}" if a == b else f"{a}–{b}" for a, b in runs]
    return ", ".join(texts[:SHOWN_RANGES]) + (", …" if len(texts) > SHOWN_RANGES else "")


def _mixer(g: Layer) -> str:
    parts = []
    if g.recurrent:
        parts.append(f"{g.recurrent.kind.replace('_', ' ')}, {g.recurrent.heads} heads")
    a = g.attention
    if a and a.mla:
        parts.append(f"MLA {a.heads} heads, latent {a.kv_lora_rank} + {a.qk_rope_head_dim}")
    elif a:
        parts.append(f"{a.heads} heads, {a.kv_heads} KV × {a.head_dim}")
        if a.window:
            parts.append(f"{'chunk' if a.chunked else 'window'} {a.window:,}")
        if a.local_window:
            parts.append(f"window {a.local_window}, then {a.compression or 'no'} tokens an entry")
        if not a.stores_kv:
            parts.append("cache of an earlier layer")
    if a and a.indexer_heads:
        parts.append(f"indexer {a.indexer_heads} × {a.indexer_head_dim}")
    return ", ".join(parts) or "none"


def _mlp(g: Layer) -> str:
    m = g.mlp
    if m is None or not (m.intermediate or m.experts):
        return "none"
    if not m.experts:
        return f"dense {m.intermediate:,}"
    shared = f" + shared {m.shared_intermediate:,}" if m.shared_intermediate else ""
    return f"{m.top_k} of {m.experts} experts × {m.intermediate:,}{shared}"
