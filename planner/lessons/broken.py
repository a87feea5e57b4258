"""The five broken systems: serving as it was before each idea, or as it goes wrong without it."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.catalog.quality import quality_note, quality_rows
from planner.catalog.workloads import workload
from planner.lessons.lesson import Figure, Lesson
from planner.metrics import Metrics, gaps_s, window
from planner.plan import Plan
from planner.speculation import decode

BENCHMARK = {"mode": "benchmark", "replications": 1}


def chat(**changes: Any) -> dict[str, Any]:
    """Azure-conversation lengths, with other arrivals."""
    return {**workload("chat").scenario_part["workload"], **changes}


def metrics(plan: Plan) -> Metrics:
    """What the plan's simulation measured; the lessons' systems always fit and always have traffic."""
    assert plan.load is not None
    return plan.load.metrics


def p(plan: Plan, latency: str, percentile: str) -> float:
    """One percentile of one latency, s."""
    return float(getattr(getattr(metrics(plan).latency, latency), percentile))


def static_batching(batch: int = 16) -> Lesson:
    """Wait for a batch, run it until its longest member ends, and only then take the next."""

    def figures(broken: Plan, sound: Plan) -> tuple[Figure, ...]:
        a, b = metrics(broken).throughput, metrics(sound).throughput
        return (
            Figure("share of the batch still generating", "", a.occupancy, b.occupancy),
            Figure("output tokens per second", "tokens/s", a.output_tokens_per_s, b.output_tokens_per_s),
            Figure("TTFT, median", "s", p(broken, "ttft_s", "p50"), p(sound, "ttft_s", "p50")),
            Figure("TTFT, p95", "s", p(broken, "ttft_s", "p95"), p(sound, "ttft_s", "p95")),
        )

    return Lesson(
        slug="static-batching",
        title="Static batching",
        idea=f"{batch} clients, {batch} seats. A static batch holds every seat until its longest answer ends, and whoever comes "
        "meanwhile waits for that; continuous batching fills a seat the moment it is free.",
        base={
            "workload": chat(request_rate=None, max_concurrency=batch, num_prompts=40 * batch),
            "engine": {"max_num_seqs": batch},
            "simulation": BENCHMARK,
        },
        broken={"engine": {"batching": "static"}},
        sound={"engine": {"batching": "mixed"}},
        figures=figures,
        note="The time to first token of the static system is the rest of somebody else's answer.",
    )


def contiguous_reservation(max_model_len: int = 8192) -> Lesson:
    """Reserve the longest possible sequence for everybody, instead of blocks as they fill."""

    def figures(broken: Plan, sound: Plan) -> tuple[Figure, ...]:
        a, b = metrics(broken).throughput, metrics(sound).throughput
        return (
            Figure("share of the reserved cache that holds no token", "", a.kv_waste, b.kv_waste),
            Figure("sequences decoding together", "", a.mean_batch, b.mean_batch),
            Figure("output tokens per second", "tokens/s", a.output_tokens_per_s, b.output_tokens_per_s),
        )

    return Lesson(
        slug="contiguous-reservation",
        title="Contiguous reservation",
        idea=f"A 12B model on a 40 GB GPU, always work waiting. Reserving {max_model_len:,} tokens for every sequence fills the cache "
        "with space that most answers never reach; blocks on demand admit as many sequences as really fit.",
        base={
            "model": {"name": "mistral-nemo"},
            "hardware": {"gpu": "a100-40-sxm"},
            "workload": chat(request_rate=None, max_concurrency=256, num_prompts=1000),
            "engine": {"max_model_len": max_model_len, "max_num_seqs": 512},
            "simulation": BENCHMARK,
        },
        broken={"engine": {"kv_allocation": "contiguous"}},
        sound={"engine": {"kv_allocation": "paged"}},
        figures=figures,
        note="How much throughput the admitted sequences bring depends on what binds: much while a step is bound by reading weights "
        "and cache, less where prompts already fill the arithmetic.",
    )


def accept_every_draft() -> Lesson:
    """Skip the rejection test: fast, and another model's text."""

    def figures(broken: Plan, sound: Plan) -> tuple[Figure, ...]:
        swapped, kept = distribution_distance("accept_all"), distribution_distance("exact")
        return (
            Figure(
                "tokens per verified step",
                "tokens",
                broken.deployments[0].profile.acceptance_length,
                sound.deployments[0].profile.acceptance_length,
            ),
            Figure("time per output token, median", "s", p(broken, "tpot_s", "p50"), p(sound, "tpot_s", "p50")),
            Figure("distance of the output from the target's distribution (two toy models)", "", swapped, kept),
        )

    speculative = {"method": "draft_model", "draft_model": "llama-3.1-8b", "num_speculative_tokens": 4, "acceptance_rate": 0.8}
    return Lesson(
        slug="accept-every-draft",
        title="Accept every draft",
        idea="A 70B model with an 8B draft. The rejection test is what keeps the output the 70B model's; without it decoding is faster "
        "still, and the text is the 8B model's at the 70B model's price.",
        base={
            "model": {"name": "llama-3.3-70b"},
            "parallel": {"tensor_parallel_size": 4},
            "workload": chat(request_rate=None, max_concurrency=4, num_prompts=200),
            "speculative": speculative,
            "simulation": BENCHMARK,
        },
        broken={"speculative": {"verify": "accept_all"}},
        sound={"speculative": {"verify": "exact"}},
        figures=figures,
        note="The distance is the total variation between what was emitted after each token and the target's own distribution there; "
        "what is left of it under the exact rule is sampling noise.",
    )


def distribution_distance(verify: str, steps: int = 1_500) -> float:
    """Total variation between text decoded by two fixed toy models and their target's distribution, mean over contexts."""
    rng = np.random.default_rng(19)
    target = rng.dirichlet(np.ones(6), 6)
    draft = 0.5 * target + 0.5 * rng.dirichlet(np.ones(6), 6)
    tokens = decode(rng, target, draft, 4, steps, "accept_all" if verify == "accept_all" else "exact").tokens
    counts = np.zeros_like(target)
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    rows = counts.sum(axis=1)
    distances = 0.5 * np.abs(counts / rows[:, None] - target).sum(axis=1)
    return float(distances @ rows / rows.sum())


def small_model_in_four_bits() -> Lesson:
    """Four bits on 8B parameters: fast, and measurably worse."""

    def figures(broken: Plan, sound: Plan) -> tuple[Figure, ...]:
        large = worst_recovery("llama-3.1-405b")
        assert broken.memory is not None
        assert sound.memory is not None
        return (
            Figure("time per output token, median", "s", p(broken, "tpot_s", "p50"), p(sound, "tpot_s", "p50")),
            Figure("KV pool", "tokens", broken.memory.kv_pool_tokens, sound.memory.kv_pool_tokens),
            Figure("worst published 4-bit recovery, 8B against 405B", "%", worst_recovery("llama-3.1-8b"), large),
        )

    return Lesson(
        slug="four-bits-on-a-small-model",
        title="Four bits on a small model",
        idea="Rounding weights to 4 bits saves bytes at every size, but a small model has fewer weights to average the error over.",
        base={"workload": chat(request_rate=4.0, num_prompts=400), "simulation": BENCHMARK},
        broken={"precision": {"weights": "int4"}},
        sound={"precision": {"weights": "fp8"}},
        figures=figures,
        note=f"{quality_note('int4', 8e9)} {quality_note('int4', 405e9)} {quality_note('fp8', 8e9)}",
    )


def worst_recovery(model: str) -> float:
    """The lowest published 4-bit recovery of a model, %."""
    return min(row.recovery_percent for row in quality_rows() if row.model == model)


def unchunked_prefill(prompt_tokens: int = 100_000) -> Lesson:
    """One long prompt in one piece stalls everybody's next token."""

    def figures(broken: Plan, sound: Plan) -> tuple[Figure, ...]:
        return (
            Figure("longest wait for a next token", "s", longest_gap_s(broken), longest_gap_s(sound)),
            Figure("time per output token, p99", "s", p(broken, "tpot_s", "p99"), p(sound, "tpot_s", "p99")),
            Figure("TTFT of the long prompt", "s", long_ttft_s(broken, prompt_tokens), long_ttft_s(sound, prompt_tokens)),
        )

    lengths = {"kind": "empirical", "values": [1_000] * 199 + [prompt_tokens]}
    return Lesson(
        slug="unchunked-prefill",
        title="Prefill in one piece",
        idea=f"Among chats of 1,000 tokens now and then comes a prompt of {prompt_tokens:,}. Computed whole, it holds up every "
        "sequence in the batch; in chunks of 2,048 tokens it shares each step with them.",
        base={
            "workload": {"request_rate": 6.0, "num_prompts": 600, "input_len": lengths, "output_len": 250, "seed": 1},
            "engine": {"max_num_batched_tokens": 2048, "enable_prefix_caching": False},
            "simulation": BENCHMARK,
        },
        broken={"engine": {"enable_chunked_prefill": False}},
        sound={"engine": {"enable_chunked_prefill": True}},
        figures=figures,
        note="The long prompt itself may wait longer in chunks: what everybody gains, it pays.",
    )


def longest_gap_s(plan: Plan) -> float:
    """Longest time between two emissions of one sequence, s."""
    assert plan.load is not None
    return max(float(gaps_s(window(timeline, "benchmark"))[0].max()) for timeline in plan.load.timelines)


def long_ttft_s(plan: Plan, prompt_tokens: int) -> float:
    """Median TTFT of the long prompts, s."""
    assert plan.load is not None
    timeline = plan.load.timelines[0]
    long = timeline.input_tokens == prompt_tokens
    return float(np.median((timeline.first_token_s - timeline.arrival_s)[long]))


def broken_systems() -> tuple[Lesson, ...]:
    """The five, as the chapter orders them."""
    return static_batching(), contiguous_reservation(), accept_every_draft(), small_model_in_four_bits(), unchunked_prefill()
