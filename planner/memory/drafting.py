"""What a drafter holds beside its target on one rank."""

from __future__ import annotations

from planner.architecture import Architecture, of
from planner.architecture.drafter import Drafter, drafter
from planner.architecture.storage import stored_as
from planner.scenario import Model, Scenario
from planner.sharding import Shard, local_shape, shard_attention


def built(arch: Architecture, scenario: Scenario) -> Drafter | None:
    """The drafter of the scenario's speculation, None without one or for n-grams."""
    spec = scenario.speculative
    if spec is None:
        return None
    draft = of(Model(name=spec.draft_model)) if spec.method == "draft_model" and spec.draft_model else None
    return drafter(spec.method, arch, spec.num_speculative_tokens, draft)


def weight_bytes(d: Drafter, arch: Architecture, shard: Shard, scenario: Scenario) -> float:
    """Bytes of the drafter's weights on one rank of the last stage; MTP layers are stored like the target, heads in 16 bit."""
    precision = scenario.precision.weights if scenario.speculative and scenario.speculative.method == "mtp" else "bf16"
    total = 0.0
    for t in d.resident:
        n, k, copies = local_shape(t, shard.tensor_parallel_size, shard.data_parallel_size, shard.expert_parallel_size, 1)
        total += n * k * copies * stored_as(arch, t, precision)[1]
    return total


def kv_bytes_per_token(d: Drafter, shard: Shard, scenario: Scenario) -> tuple[tuple[int, float], ...]:
    """(layers, cache bytes per token on one rank) of the drafter's own attention."""
    found = []
    for g in d.pass_.layers:
        if g.attention is not None:
            a = shard_attention(g.attention, shard.tensor_parallel_size, scenario.precision.kv_cache)
            held = a.kv_bytes_per_token + a.kv_windowed_bytes_per_token
            if held:
                found.append((g.count, held))
    return tuple(found)
