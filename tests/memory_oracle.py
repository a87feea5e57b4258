"""One GPU's memory counted the long way: truth for `planner.memory` where engine logs allow a per cent of error.

Rules as the docstrings of `planner.catalog.engine_memory` and the vLLM logs behind it state them; weights and cache bytes per token come
from `planner.sharding`. Blocks are handed out one by one, table after table, as an engine does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from planner import architecture, hardware, sharding
from planner.architecture.drafter import drafter
from planner.catalog.engine_memory import engine_memory
from planner.scenario import Model, Scenario
from planner.units import GIB


@dataclass
class Table:
    """A block table: the layers that share it, and how many tokens of each of them one block holds (0: a state)."""

    block_tokens: int
    window: int = 0
    chunked: bool = False

    def taken(self, tokens: int, caching: bool, overshoot: int = 0) -> int:
        """Blocks held at the end of a sequence that grows token by token."""
        if not self.block_tokens:
            return 2 if caching else 1
        if not self.window:
            return sum(1 for token in range(tokens) if token % self.block_tokens == 0)
        kept = self.window + overshoot - (not self.chunked)
        return sum(1 for token in range(min(tokens, kept)) if token % self.block_tokens == 0) + (not self.chunked)


@dataclass
class Rank:
    """What the budget of one rank of one stage comes to."""

    weights: float
    activation: float
    non_torch: float
    graphs: float
    pool: float
    blocks: int
    block_bytes: float
    tables: list[Table]


def ranks(s: Scenario) -> list[Rank]:
    arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
    shard = sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware)
    c, e = engine_memory(s.engine.name, s.engine.version), s.engine
    tp, pp = s.parallel.tensor_parallel_size, s.parallel.pipeline_parallel_size
    found = []
    for number, stage in enumerate(shard.stages):
        last = number == pp - 1
        drafted, weights = (), stage.weight_bytes + stage.engine_bytes
        if s.speculative and last:
            own = Model(name=s.speculative.draft_model) if s.speculative.draft_model else None
            made = drafter(s.speculative.method, arch, s.speculative.num_speculative_tokens, own and architecture.of(own))
            if made:
                assert tp == 1, "heads are split over ranks, which this oracle does not follow"
                weights += sum(t.params for t in made.resident) * 2
                drafted = tuple(g.attention for g in made.pass_.layers for _ in g.indices if g.attention)
        tokens, width = e.max_num_batched_tokens, arch.hidden_size
        activation = tokens * width * c.activation_bytes_per_token_width + c.activation_base_gib * GIB
        activation += c.multimodal_gib * GIB if arch.tower_params else 0
        if last:
            activation += min(e.max_num_seqs, tokens) * math.ceil(arch.vocab_size / 64) * 64 * c.logits_bytes_per_entry
        else:
            mlps = [g.n for layer in stage.layers for g in layer.gemms if g.name in ("gate_up", "shared_gate_up", "up_proj")]
            activation += tokens * max(mlps, default=0) * 3
            activation += tokens * width * c.pipeline_bytes_per_token_width
        moes = [layer.moe for layer in stage.layers if layer.moe]
        spaces = [tokens * m.top_k * (max((1 + m.gated) * m.intermediate, m.hidden) + m.intermediate) * 2 for m in moes]
        activation += c.moe_workspace_share * max((x for x, m in zip(spaces, moes, strict=True) if m.precision != "mxfp4"), default=0)
        non_torch = (c.non_torch_tp_gib if tp > 1 else c.non_torch_pp_gib if pp > 1 else c.non_torch_gib) * GIB
        layers = sum(layer.count for layer in stage.layers)
        graphs = (c.graph_base_gib + layers * c.graph_gib_per_layer + (c.graph_moe_gib if moes else 0)) * GIB
        graphs *= not e.enforce_eager
        pool = gpu.memory_engine_bytes * e.gpu_memory_utilization - weights - activation - non_torch - graphs * c.graphs_inside_budget
        tables, block_bytes = cut(stage, e, [sharding.shard_attention(a, tp, s.precision.kv_cache) for a in drafted])
        blocks = max(0, math.floor(pool / block_bytes)) if block_bytes else 0
        found.append(Rank(weights, activation, non_torch, graphs, pool, blocks, block_bytes, tables))
    return found


def cut(stage: sharding.Stage, engine: Any, drafted: list[sharding.ShardAttention]) -> tuple[list[Table], float]:
    """Block tables of a stage and the bytes of a block, which every table shares."""
    layers: list[tuple[float, float, int, bool]] = []  # bytes a token, state, window, chunked
    for layer in (x for x in stage.layers for _ in range(x.count)):
        a, r = layer.attention, layer.recurrent
        if a and a.kv_bytes_per_token:
            layers.append((a.kv_bytes_per_token, 0, 0, False))
        if a and a.kv_windowed_bytes_per_token:
            layers.append((a.kv_windowed_bytes_per_token, 0, a.window or a.local_window, a.chunked))
        if r:
            layers.append((0, r.state_bytes, 0, False))
    layers += [(a.kv_bytes_per_token + a.kv_windowed_bytes_per_token, 0, 0, False) for a in drafted]
    if not layers:
        return [], 0.0
    if not any(state or window for _, state, window, _ in layers):
        return [Table(engine.block_size)], sum(x[0] for x in layers) * engine.block_size
    alike = {kind: layers.count(kind) for kind in layers}
    fewest, most = min(alike.values()), max(alike.values())
    each = most if most < 1.25 * fewest else fewest
    widest = max(x[0] for x in layers)
    tokens, state = engine.block_size, max(x[1] for x in layers)
    page = tokens * widest
    if widest and state > page:
        while tokens * widest < state or tokens % 16:
            tokens += 1
        page = tokens * widest
    tables = []
    for (per_token, _, window, chunked), count in alike.items():
        tables += [Table(int(page // per_token) if per_token else 0, window, chunked)] * -(-count // each)
    return tables, each * page


def sequences(s: Scenario, rank: Rank, tokens: int, prefix: int = 0) -> float:
    """How many sequences of so many tokens a rank holds, a shared prefix once."""
    caching = s.engine.enable_prefix_caching
    own = sum(t.taken(tokens, caching) for t in rank.tables)
    shared = 0
    if prefix and caching:
        for t in (t for t in rank.tables if t.block_tokens):
            reach = t.window or tokens
            own -= min(prefix, max(0, reach - (tokens - prefix))) // t.block_tokens
            shared += min(prefix, t.window or prefix) // t.block_tokens
    return (rank.blocks - shared * s.workload.prefix_groups) / max(1, own)
