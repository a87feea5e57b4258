"""The closing table of the serving chapter: quantity, value, formula with its values, and what kind of evidence that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.catalog import list_prices
from planner.plan import Plan
from planner.speculation import TEXTBOOK_DRAFT_COST, acceptance_length, closed_form_speedup, geometric_rates
from planner.units import GB, HOUR_S, KB, MS, TB

Evidence = Literal["published", "derived", "derived, price assumed", "unknown"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    quantity: str
    value: str
    formula: str
    """How the value comes about, with the numbers in it; empty for what others published."""
    evidence: Evidence
    source: str
    date: str


def worked_example(plan: Plan) -> tuple[Row, ...]:
    """The table for a textbook plan that fits (the preset beacon-405b-8xh100-fp8 gives the chapter's own figures)."""
    deployment = plan.deployments[-1]
    memory, steady, gpu, arch = plan.memory, plan.roofline, deployment.gpu, plan.architecture
    assert memory is not None
    assert steady is not None
    gpus, sheet = deployment.shard.gpus, f"{gpu.name} data sheet"
    weights_gb = memory.weights_bytes_per_gpu * gpus / GB
    free_gb = memory.kv_pool_bytes_per_gpu * gpus / GB
    attention = next(group.attention for group in arch.layers if group.attention is not None)
    length = round(memory.sequence_bytes_per_gpu * gpus / memory.kv_bytes_per_token)
    usd_per_hour = plan.cost.usd_per_hour or 0.0
    rates = geometric_rates(0.8, 4)
    cheap, dear = list_prices.find("anthropic:claude-opus-5"), list_prices.find("anthropic:claude-fable-5")
    return (
        Row(
            f"Decode step on {gpus} × {gpu.name}",
            f"{steady.decode_step_s / MS:.1f} ms",
            f"{weights_gb:,.0f} GB of weights / ({gpus} × {gpu.memory_bandwidth_bytes_s / TB:.2f} TB/s)",
            "derived",
            sheet,
            gpu.verified_date,
        ),
        Row(
            "KV cache per token",
            f"{memory.kv_bytes_per_token / KB:,.0f} KB",
            f"2 × {arch.num_hidden_layers} layers × {attention.kv_heads} KV heads × {attention.head_dim} × 1 byte "
            f"= {memory.kv_bytes_per_token:,.0f} bytes",
            "derived",
            f"model configuration ({arch.source})",
            "",
        ),
        Row(
            f"Cache-limited batch at {length:,} tokens",
            f"{memory.cache_limited_batch} sequences",
            f"{free_gb:,.0f} GB free / ({length:,} × {memory.kv_bytes_per_token:,.0f} bytes)",
            "derived",
            sheet,
            gpu.verified_date,
        ),
        Row(
            f"Cost floor per million output tokens at batch {steady.batch}",
            f"${plan.cost.floor.usd_per_mtok_output:.2f}",
            f"${usd_per_hour:,.0f}/h / {HOUR_S} s / ({steady.batch} / {steady.decode_step_s / MS:.1f} ms)",
            "derived, price assumed",
            "price.usd_per_gpu_hour",
            "",
        ),
        Row(
            "Speculative decoding gain on prose",
            "2 to 3×",
            f"closed form for k = 4, α = 0.8, a draft step at {TEXTBOOK_DRAFT_COST:.0%}: {acceptance_length(rates):.2f} tokens per step, "
            f"{closed_form_speedup(rates):.2f}×, before the cost of verifying a batch",
            "published",
            "Leviathan et al., arXiv 2211.17192",
            "2023-05",
        ),
        Row(
            "Throughput gain from a paged KV cache", "2 to 4×", "", "published", "Kwon et al., PagedAttention, arXiv 2309.06180", "2023-09"
        ),
        Row(
            "Frontier list prices, input / output per million tokens",
            f"${cheap.input:g} to ${dear.input:g} / ${cheap.output:g} to ${dear.output:g}",
            "",
            "published",
            f"{cheap.label} and {dear.label}, {cheap.pricing_url}",
            cheap.date,
        ),
        Row("Closed providers' batch sizes, replica counts, precision", "not disclosed", "", "unknown", "", ""),
    )
