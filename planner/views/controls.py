"""What the sidebar shows, as data: one control per setting, in reading order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from planner.links.fields import leaves

Kind = Literal["number", "whole", "select", "segments", "steps", "toggle", "length", "several"]


@dataclass(frozen=True, slots=True)
class Control:
    """A widget for one setting; its key is the setting's dotted path."""

    path: str
    label: str
    kind: Kind
    step: float = 1.0
    format: str | None = None
    minimum: float = 0.0
    options: tuple[str | int, ...] = ()
    """What is offered, in this order; empty where the setting's own choices are, in theirs, or the page knows them."""
    note: str = ""
    """Shown before the field's own description."""
    stated: bool = False
    """No default: whatever it holds stands in the link."""

    @property
    def choices(self) -> tuple[str | int, ...]:
        """What a closed choice offers."""
        return self.options or leaves()[self.path].choices

    @property
    def help(self) -> str:
        """What the setting means, and its name in files, links and the engine."""
        return f"{self.note} {leaves()[self.path].help}".strip() + f" `{self.path}`"


WEIGHTS = ("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "fp16", "fp32", "auto")
KV = ("bf16", "fp8", "int8", "int4", "fp16", "auto")
METHODS = ("eagle3", "mtp", "draft_model", "ngram", "eagle", "medusa")

MODEL = (Control("model.name", "Model", "select"),)
PRECISION = (
    Control("precision.weights", "Weights", "select", options=WEIGHTS),
    Control("precision.kv_cache", "KV cache", "select", options=KV),
)
GPU = (Control("hardware.gpu", "GPU", "select"),)
SIZE = (Control("parallel.tensor_parallel_size", "GPUs per replica (TP)", "steps", options=(1, 2, 4, 8, 16, 32, 64)),)
FLEET = (
    Control("fleet.replicas", "Replicas", "whole", minimum=1),
    Control("price.usd_per_gpu_hour", "$ per GPU-hour", "number", step=0.1, format="%.2f"),
)
LENGTHS = (
    Control("workload.input_len", "Prompt tokens", "length", step=64, format="%.0f"),
    Control("workload.output_len", "Output tokens", "length", step=32, format="%.0f"),
)
RATE = (Control("workload.request_rate", "Requests/s", "number", step=0.5, format="%.2f"),)
RATE_STATED = (replace(RATE[0], stated=True),)
CLIENTS = (Control("workload.max_concurrency", "Clients", "whole", minimum=1),)
PROMISE = (
    Control("slo.ttft_s", "First token, s", "number", step=0.1, format="%.2f", note="TTFT; 0 is no promise."),
    Control("slo.tpot_s", "Next tokens, s", "number", step=0.005, format="%.3f", note="TPOT, from token to token; 0 is no promise."),
)
PERCENTILE = (Control("slo.percentile", "Promised for this percent of requests", "segments"),)

TRAFFIC_DETAIL = (
    Control("workload.input_len.cv", "Prompt spread (cv)", "number", step=0.1, format="%.2f"),
    Control("workload.output_len.cv", "Output spread (cv)", "number", step=0.1, format="%.2f"),
    Control("workload.burstiness", "Burstiness", "number", step=0.1, format="%.2f"),
    Control("workload.num_prompts", "Requests per run", "whole", minimum=1, step=100),
    Control("workload.shared_prefix_len", "Shared prefix", "number", step=256, format="%.0f"),
    Control("workload.prefix_groups", "Prefix groups", "whole", minimum=1),
    Control("workload.turns", "Turns per session", "whole", minimum=1),
    Control("workload.think_time_s", "Pause, seconds", "number", format="%.1f"),
    Control("workload.thinking_share", "Thinking share", "number", step=0.05, format="%.2f"),
    Control("slo.e2e_s", "Whole answer, s", "number", format="%.1f", note="Empty is no promise."),
)
ENGINE = (
    Control("engine.name", "Engine", "select"),
    Control("engine.batching", "Batching", "select"),
    Control("engine.max_num_seqs", "Most sequences", "whole", minimum=1, step=16),
    Control("engine.max_num_batched_tokens", "Tokens per step", "whole", minimum=1, step=1024),
    Control("engine.gpu_memory_utilization", "Memory share", "number", step=0.01, format="%.2f"),
    Control("engine.max_model_len", "Longest sequence", "whole", minimum=1, step=1024),
    Control("engine.kv_allocation", "KV allocation", "select"),
    Control("engine.block_size", "Block, tokens", "whole", minimum=1, step=16),
)
ENGINE_SWITCHES = (
    Control("engine.enable_chunked_prefill", "Chunked prefill", "toggle"),
    Control("engine.enable_prefix_caching", "Prefix caching", "toggle"),
    Control("engine.async_scheduling", "Async scheduling", "toggle"),
    Control("engine.enforce_eager", "Eager (no graphs)", "toggle"),
)
SPECULATION_SWITCH = (Control("speculative", "Draft tokens and verify them", "toggle"),)
SPECULATION = (
    Control("speculative.method", "Method", "select", options=METHODS),
    Control("speculative.text", "Kind of text", "select"),
    Control("speculative.num_speculative_tokens", "Drafted per step", "whole", minimum=1),
    Control(
        "speculative.acceptance_rate",
        "Acceptance",
        "number",
        step=0.05,
        format="%.2f",
        note="Empty takes the measured rates of the method on this kind of text.",
    ),
    Control("speculative.draft_cost", "Draft cost", "number", step=0.01, format="%.3f"),
)
LAYOUT = (
    Control("parallel.pipeline_parallel_size", "Pipeline (PP)", "whole", minimum=1),
    Control("parallel.data_parallel_size", "Data parallel (DP)", "whole", minimum=1),
    Control("fleet.spares", "Spare replicas", "whole"),
    Control("fleet.routing", "Routing", "select"),
)
WEEK = (
    Control("fleet.demand_curve", "Week of demand", "select"),
    Control("fleet.target_utilization", "Target busy share", "number", step=0.05, format="%.2f"),
    Control("fleet.startup_s", "Start-up, seconds", "number", step=10, format="%.0f"),
)
CHOICE = (
    Control(
        "quality.allowed_weight_precisions",
        "Weights that Recommend may choose",
        "several",
        options=("bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4"),
    ),
    Control("quality.allowed_kv_precisions", "KV caches it may choose", "several", options=("bf16", "fp8", "int8")),
)
LAYOUT_SWITCHES = (Control("parallel.enable_expert_parallel", "Whole experts per GPU (EP)", "toggle"),)
PRICE = (
    Control("price.basis", "Basis", "select"),
    Control("price.other_usd_per_hour", "Other $ per hour", "number", format="%.2f"),
    Control("price.utilization", "Busy share (floor)", "number", step=0.05, format="%.2f"),
)
LEVEL = (
    Control("fidelity", "Step time", "select", options=("calibrated", "datasheet", "textbook")),
    Control("simulation.mode", "Simulation", "select"),
)
TRACE = (Control("workload.trace.name", "Replay a trace", "select"),)

MAIN = (*MODEL, *PRECISION, *GPU, *SIZE, *FLEET, *LENGTHS, *RATE, *CLIENTS, *PROMISE, *PERCENTILE)
DETAIL = (
    *TRAFFIC_DETAIL,
    *ENGINE,
    *ENGINE_SWITCHES,
    *SPECULATION_SWITCH,
    *SPECULATION,
    *LAYOUT,
    *LAYOUT_SWITCHES,
    *WEEK,
    *CHOICE,
    *PRICE,
    *LEVEL,
    *TRACE,
)
PATHS = frozenset(control.path for control in (*MAIN, *DETAIL))
"""Settings with a control of their own; every other one is text in "More settings"."""
