"""The simulated pool of one replica: how many blocks, and whether requests share them."""

from __future__ import annotations

import math

from planner.memory.lengths import final_length, prefix_copies
from planner.plan.deployment import Deployment
from planner.scenario import Engine


def shares_blocks(engine: Engine) -> bool:
    """Whether requests can read each other's blocks: what was reserved for one sequence ahead is its own."""
    return engine.enable_prefix_caching and engine.kv_allocation == "paged"


def pool_blocks(deployment: Deployment) -> int:
    """Blocks of the simulated pool, at least one.

    Where windows or states cap what a sequence keeps, the engine's tokens say nothing about this traffic: the pool is then made to
    hold as many sequences of the planned length as the engine's own blocks do, in blocks that all grow, each shared prefix once.
    """
    memory, engine = deployment.memory, deployment.scenario.engine
    size = engine.block_size
    if not memory.windowed_kv_bytes_per_token_per_gpu and not memory.state_bytes_per_sequence_per_gpu:
        return max(1, memory.kv_pool_tokens // size)
    tokens, prefix = final_length(deployment.scenario)
    shared = int(prefix // size) if shares_blocks(engine) else 0
    if engine.kv_allocation == "contiguous":
        tokens = memory.max_model_len + deployment.profile.num_speculative_tokens
    own = max(1, math.ceil(tokens / size) - shared)
    return max(1, int(memory.sequences * own) + shared * prefix_copies(deployment.scenario))
