"""What serves: model, hardware, precision, layout, engine, speculation, disaggregation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from planner.scenario.base import FrozenJson, NonNegative, Part, Positive, PositiveShare, Share, Slug

WeightPrecision = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
KvPrecision = Literal["auto", "bf16", "fp16", "fp8", "int8", "int4"]
EngineName = Literal["vllm", "sglang", "trtllm"]
Method = Literal["draft_model", "eagle", "eagle3", "mtp", "medusa", "ngram"]
Verify = Literal["exact", "accept_all"]
DEFAULT_MODEL = "llama-3.1-8b"


class Model(Part):
    """What is served: a model of the catalogue, or a configuration of one's own."""

    name: Slug = DEFAULT_MODEL
    """Catalogue slug; a label when `hf_config` is given, made from the configuration where none is chosen."""
    hf_config: FrozenJson | None = None
    """A Hugging Face `config.json`; when present it defines the architecture."""
    total_params: Annotated[int, Field(ge=1, le=10**14)] | None = None
    """Overrides the counted number of parameters (the textbook level plans with a published round figure)."""

    @model_validator(mode="before")
    @classmethod
    def _named_after_its_configuration(cls, data: Any) -> Any:
        """The default slug stands for another model: its prices, measurements and repository are not this configuration's."""
        if not isinstance(data, Mapping) or data.get("name", DEFAULT_MODEL) != DEFAULT_MODEL:
            return data
        config = data.get("hf_config")
        found = config.value if isinstance(config, FrozenJson) else config
        return {**data, "name": label(found)} if isinstance(found, Mapping) else data


def label(config: Mapping[str, Any]) -> str:
    """A name for the model of a configuration, safe as one word of a command: where it came from, if it says so, else its kind."""
    origin = _word(config.get("_name_or_path"))
    return origin if origin not in ("", DEFAULT_MODEL) else f"pasted-{_word(config.get('model_type')) or 'config'}"


def _word(text: object) -> str:
    last = text[-200:].replace("\\", "/").rstrip("/ ").rpartition("/")[2] if isinstance(text, str) else ""
    return re.sub(r"[^A-Za-z0-9._]+", "-", last).strip("-._")[:80]


class Overrides(Part):
    """Datasheet figures of the GPU that the user knows better."""

    memory_gib: Positive | None = None
    """Memory an engine sees per GPU, GiB."""
    memory_bandwidth_gb_s: Positive | None = None
    """HBM bandwidth per GPU, GB/s."""
    bf16_dense_tflops: Positive | None = None
    """Dense 16-bit peak per GPU, TFLOP/s."""
    fp8_dense_tflops: Positive | None = None
    """Dense FP8 peak per GPU, TFLOP/s."""
    int8_dense_tops: Positive | None = None
    """Dense INT8 peak per GPU, TOP/s."""
    fp4_dense_tflops: Positive | None = None
    """Dense FP4 peak per GPU, TFLOP/s."""
    link_gb_s: Positive | None = None
    """Scale-up link per GPU, one direction, GB/s."""


class Hardware(Part):
    """The accelerator and how many of it are joined."""

    gpu: Slug = "h100-sxm"
    """Catalogue slug of the accelerator."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] = 8
    """GPUs in one server."""
    scale_up_domain_gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs joined by the fast link; null means the catalogue's value for this GPU."""
    overrides: Overrides = Field(default_factory=Overrides)
    """Values that replace the catalogue's, each marked as the user's in the provenance."""


class Precision(Part):
    """How weights and cache are stored."""

    weights: WeightPrecision = "bf16"
    """Storage of the linear layers; `auto` is the checkpoint's own."""
    kv_cache: KvPrecision = "bf16"
    """Storage of the KV cache; `auto` follows the model's 16-bit type."""


class Parallel(Part):
    """How one replica is laid out over its GPUs."""

    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = 1
    """GPUs that split every matrix (TP)."""
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=256)] = 1
    """Stages of consecutive layers (PP)."""
    data_parallel_size: Annotated[int, Field(ge=1, le=1024)] = 1
    """Copies of the attention part inside one replica (DP); with expert parallelism they share the experts."""
    enable_expert_parallel: bool = False
    """Place whole experts on GPUs over TP × DP instead of splitting each expert (EP)."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica: TP × PP × DP."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


class OffloadTier(Part):
    """A slower home for KV blocks that the GPU evicts."""

    tier: Literal["cpu", "ssd", "remote"] = "cpu"
    """Where evicted KV blocks go."""
    gib: Positive = 64.0
    """Capacity for one replica, GiB."""
    gb_s: Positive = 25.0
    """Bandwidth at which a replica reads blocks back, GB/s."""


class Engine(Part):
    """The serving engine and its settings, one of which each replica runs."""

    name: EngineName = "vllm"
    """Serving engine whose memory rules, scheduler and kernels are modelled."""
    version: Annotated[str, Field(max_length=32)] = "0.19.0"
    """Engine version; memory reserves and host time depend on it."""
    batching: Literal["mixed", "prefill_first", "static"] = "mixed"
    """How prefill and decode share steps."""
    static_timeout_s: NonNegative = 1.0
    """Static batching: how long to wait for a full batch, s."""
    kv_allocation: Literal["paged", "contiguous"] = "paged"
    """Blocks on demand, or the maximum length reserved up front."""
    block_size: Annotated[int, Field(ge=1, le=4096)] = 16
    """Tokens in one KV block."""
    max_num_seqs: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Most sequences in one step of one replica."""
    max_num_batched_tokens: Annotated[int, Field(ge=1, le=10**7)] = 8192
    """Token budget of one step, decode and prefill together."""
    enable_chunked_prefill: bool = True
    """Split long prompts over several steps."""
    enable_prefix_caching: bool = True
    """Reuse KV blocks of identical prompt prefixes."""
    prefix_cache_ttl_s: Positive | None = None
    """Lifetime of an unused cached block, s; null means until evicted."""
    kv_offload: Annotated[tuple[OffloadTier, ...], Field(max_length=8)] = ()
    """Slower tiers that keep evicted blocks."""
    gpu_memory_utilization: PositiveShare = 0.9
    """vLLM's meaning: share of total GPU memory for weights, activations and KV."""
    max_model_len: Annotated[int, Field(ge=1, le=10**8)] | None = None
    """Longest sequence accepted, tokens; null means the model's own limit."""
    async_scheduling: bool = True
    """Schedule step n + 1 while step n runs: hides host time, adds one step to TTFT."""
    enforce_eager: bool = False
    """Run without CUDA graphs: more launch time, less memory."""


class Speculative(Part):
    """Tokens drafted ahead and verified together; null in a scenario means none are."""

    method: Method = "eagle3"
    """What drafts the tokens."""
    draft_model: Slug | None = None
    """Catalogue slug of the draft model (method `draft_model`)."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64)] = 3
    """Tokens drafted per step (k)."""
    acceptance_rate: Share | None = None
    """Chance that one more drafted token is accepted (α), when it does not depend on the position."""
    acceptance_rates: Annotated[tuple[Share, ...], Field(max_length=64)] | None = None
    """Unconditional rates by position: entry i is the chance that the first i + 1 drafts are all accepted."""
    text: Literal["prose", "code", "maths", "summaries"] = "prose"
    """Kind of text whose measured acceptance is taken while neither rate is given; methods measured on prose only keep that."""
    draft_cost: NonNegative | None = None
    """Time of drafting ONE token as a fraction of a target decode step; null means computed."""
    verify: Verify = "exact"
    """`accept_all` skips the rejection test: the output becomes the draft's."""

    @model_validator(mode="after")
    def _consistent(self) -> Speculative:
        if self.acceptance_rate is not None and self.acceptance_rates is not None:
            raise ValueError("give acceptance_rate or acceptance_rates, not both")
        rates = self.acceptance_rates
        if rates is not None:
            if len(rates) != self.num_speculative_tokens:
                raise ValueError(
                    f"acceptance_rates has {len(rates)} entries, num_speculative_tokens is {self.num_speculative_tokens}; "
                    "give one rate per drafted token"
                )
            if any(b > a for a, b in pairwise(rates)):
                raise ValueError("acceptance_rates must not increase: each is the chance that all drafts up to that position are accepted")
        return self


class Pool(Part):
    """Replicas of a disaggregated plan that do one of its two phases."""

    gpu: Slug = "h100-sxm"
    """Catalogue slug of this pool's accelerator."""
    parallel: Parallel = Field(default_factory=Parallel)
    """Layout of one replica of this pool."""
    engine: Engine = Field(default_factory=Engine)
    """Engine settings of this pool."""
    replicas: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Replicas of this pool."""


class Disaggregation(Part):
    """Prompts computed by one pool of replicas, tokens generated by another, and the link between them."""

    prefill: Pool = Field(default_factory=Pool)
    """Pool that computes prompts."""
    decode: Pool = Field(default_factory=Pool)
    """Pool that generates tokens."""
    link_gb_s: Positive = 50.0
    """Bandwidth of one replica's link for moving KV cache, GB/s."""
