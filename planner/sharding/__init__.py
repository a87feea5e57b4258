"""What one GPU of a replica holds, computes and sends under TP, PP, DP and EP, and which layouts are refused."""

from planner.sharding.legality import problems
from planner.sharding.model import Gemm, Group, Shard, ShardAttention, ShardLayer, ShardMoe, ShardRecurrent, Stage
from planner.sharding.shard import kv_heads_per_rank, local_shape, shard, shard_attention

__all__ = [
    "Gemm",
    "Group",
    "Shard",
    "ShardAttention",
    "ShardLayer",
    "ShardMoe",
    "ShardRecurrent",
    "Stage",
    "kv_heads_per_rank",
    "local_shape",
    "problems",
    "shard",
    "shard_attention",
]
