"""What one GPU holds."""

from __future__ import annotations

from typing import Any

from planner.units import GIB
from planner.views.charts import BLUE, ORANGE, PURPLE, RED, Ink, Rows, Spec, base, x
from planner.views.text import gibibytes

PARTS = ("weights", "activations", "runtime", "graphs", "KV, planned", "KV, spare", "left free")
COLOURS = (BLUE, PURPLE, "#7F7F7F", "#A9A9A9", ORANGE, "#F6D999", "#9AA5B1")
BEYOND = "beyond this GPU"


def parts(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The stack of one GPU, GiB, left to right. The cache is split at the plan's batch."""
    memory, batch = plan["memory"], plan["roofline"]["batch"] or 0
    pool = max(memory["kv_pool_bytes_per_gpu"] or 0, 0)
    limit = memory["cache_limited_batch"] or 0
    used = pool * min(1.0, batch / limit) if limit else 0.0
    held = {
        "weights": memory["weights_bytes_per_gpu"],
        "activations": memory["activation_bytes_per_gpu"],
        "runtime": memory["non_torch_bytes_per_gpu"],
        "graphs": memory["cuda_graph_bytes_per_gpu"],
        "KV, planned": used,
        "KV, spare": pool - used,
    }
    held["left free"] = max(memory["gpu_memory_bytes"] - sum(v or 0 for v in held.values()), 0)
    return _cut([(part, (held[part] or 0) / GIB) for part in PARTS if (held[part] or 0) > 0], memory["gpu_memory_bytes"] / GIB)


def _cut(stack: list[tuple[str, float]], end: float) -> list[dict[str, Any]]:
    """What reaches beyond the memory's end becomes a part of its own."""
    rows: list[dict[str, Any]] = []
    held, missing = 0.0, 0.0
    for part, gib in stack:
        inside = max(0.0, min(gib, end - held))
        held, missing = held + inside, missing + gib - inside
        if inside:
            rows.append({"part": part, "order": len(rows), "gib": inside})
    return [*rows, {"part": BEYOND, "order": len(rows), "gib": missing}] if missing > 1e-6 else rows


def bar(plan: dict[str, Any], ink: Ink) -> Spec:
    """One stacked bar, with a line where the GPU's memory ends."""
    rows = parts(plan)
    end = plan["memory"]["gpu_memory_bytes"] / GIB
    names = [row["part"] for row in rows]
    colours = dict(zip((*PARTS, BEYOND), (*COLOURS, RED), strict=True))
    top = max(end, sum(row["gib"] for row in rows)) * 1.01
    stacked = {
        "mark": {"type": "bar", "height": 26, "stroke": ink.paper, "strokeWidth": 1},
        "encoding": {
            "x": x("gib", "GiB per GPU", stack="zero", scale={"domain": [0, top], "nice": False}, axis={"grid": False, "tickCount": 10}),
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {"domain": names, "range": [colours[n] for n in names]},
            },
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": [{"field": "part", "title": "Part"}, {"field": "gib", "title": "GiB per GPU", "format": ".3~g"}],
        },
    }
    limit = {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "color": ink.text},
        "encoding": {"x": {"datum": end}},
    }
    label = {
        # One row of its own: over the parts the same words would be drawn once for each, on top of each other.
        "data": {"values": [{}]},
        "mark": {"type": "text", "align": "right", "dx": -5, "dy": -22, "color": ink.text},
        "encoding": {"x": {"datum": end}, "text": {"value": f"{gibibytes(end * GIB)} on one GPU"}},
    }
    return base(rows, 126 if len(names) <= 3 else 148, ink) | {"layer": [stacked, limit, label]}


def takeaway(plan: dict[str, Any]) -> str:
    """The bar in one sentence."""
    memory = plan["memory"]
    total = memory["gpu_memory_bytes"]
    if not memory["fits"]:
        return f"The model does not fit: each GPU of {gibibytes(total)} lacks {gibibytes(memory['shortfall_bytes_per_gpu'])}."
    return (
        f"Of {gibibytes(total)} per GPU, weights take {gibibytes(memory['weights_bytes_per_gpu'])} and the KV cache can take "
        f"{gibibytes(memory['kv_pool_bytes_per_gpu'])}, which holds {memory['cache_limited_batch']:,} sequences."
    )


def table(plan: dict[str, Any]) -> Rows:
    """The same numbers as rows."""
    return [{"part": row["part"], "GiB per GPU": row["gib"]} for row in parts(plan)]
