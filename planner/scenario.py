"""What the user chose. Every door (links, presets, command line, library) ends in one frozen, hashable `Scenario`.

Names are vLLM's for the engine, Hugging Face's for a model and `vllm bench serve`'s for load, where those exist.
Every field has a default; unknown fields are errors. Adding a field with a default keeps old files readable; renaming
one needs a step in `planner.migrate`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, model_validator
from pydantic_core import core_schema

SCHEMA_VERSION = 1

WeightPrecision = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
KvPrecision = Literal["auto", "bf16", "fp16", "fp8", "int8", "int4"]

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Slug = Annotated[str, Field(max_length=120)]


class FrozenJson:
    """An immutable, hashable JSON object: the text of a pasted `config.json` in canonical form."""

    __slots__ = ("text",)

    def __init__(self, value: dict[str, Any]) -> None:
        object.__setattr__(self, "text", json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False))

    def __setattr__(self, *_: object) -> None:
        raise AttributeError("FrozenJson is immutable")

    @property
    def value(self) -> dict[str, Any]:
        """A fresh copy, so that no caller can change the original."""
        return json.loads(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenJson) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"FrozenJson({self.text[:60]}…)"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        from_dict = core_schema.no_info_after_validator_function(cls, core_schema.dict_schema())
        return core_schema.union_schema(
            [core_schema.is_instance_schema(cls), from_dict],
            serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v.value),
        )


class Part(BaseModel):
    """Base of every section: frozen, strict about names, documented field by field."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Model(Part):
    name: Slug = "llama-3.1-8b"
    """Catalogue slug; a label when `hf_config` is given."""
    hf_config: FrozenJson | None = None
    """A Hugging Face `config.json`; when present it defines the architecture."""
    total_params: Annotated[int, Field(ge=1, le=10**14)] | None = None
    """Overrides the counted number of parameters (the textbook level plans with a published round figure)."""


class Overrides(Part):
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
    gpu: Slug = "h100-sxm"
    """Catalogue slug of the accelerator."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] = 8
    """GPUs in one server."""
    scale_up_domain_gpus: Annotated[int, Field(ge=1, le=4096)] | None = None
    """GPUs joined by the fast link; null means the catalogue's value for this GPU."""
    overrides: Overrides = Overrides()
    """Values that replace the catalogue's, each marked as the user's in the provenance."""


class Precision(Part):
    weights: WeightPrecision = "bf16"
    """Storage of the linear layers; `auto` is the checkpoint's own."""
    kv_cache: KvPrecision = "bf16"
    """Storage of the KV cache; `auto` follows the model's 16-bit type."""


class Parallel(Part):
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
    tier: Literal["cpu", "ssd", "remote"] = "cpu"
    """Where evicted KV blocks go."""
    gib: Positive = 64.0
    """Capacity for one replica, GiB."""
    gb_s: Positive = 25.0
    """Bandwidth at which a replica reads blocks back, GB/s."""


class Engine(Part):
    name: Literal["vllm", "sglang", "trtllm"] = "vllm"
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
    kv_offload: tuple[OffloadTier, ...] = ()
    """Slower tiers that keep evicted blocks."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """vLLM's meaning: share of total GPU memory for weights, activations and KV."""
    max_model_len: Annotated[int, Field(ge=1, le=10**8)] | None = None
    """Longest sequence accepted, tokens; null means the model's own limit."""
    async_scheduling: bool = True
    """Schedule step n + 1 while step n runs: hides host time, adds one step to TTFT."""
    enforce_eager: bool = False
    """Run without CUDA graphs: more launch time, less memory."""


class Speculative(Part):
    method: Literal["draft_model", "eagle", "eagle3", "mtp", "medusa", "ngram"] = "eagle3"
    """What drafts the tokens."""
    draft_model: Slug | None = None
    """Catalogue slug of the draft model (method `draft_model`)."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=64)] = 3
    """Tokens drafted per step (k)."""
    acceptance_rate: Share | None = None
    """Chance that one more drafted token is accepted (α), when it does not depend on the position."""
    acceptance_rates: tuple[Share, ...] | None = None
    """Unconditional rates by position: entry i is the chance that the first i + 1 drafts are all accepted."""
    draft_cost: NonNegative | None = None
    """Time of drafting ONE token as a fraction of a target decode step; null means computed."""
    verify: Literal["exact", "accept_all"] = "exact"
    """`accept_all` skips the rejection test: the output becomes the draft's."""

    @model_validator(mode="after")
    def _consistent(self) -> Speculative:
        if self.acceptance_rate is not None and self.acceptance_rates is not None:
            raise ValueError("give acceptance_rate or acceptance_rates, not both")
        rates = self.acceptance_rates
        if rates is not None:
            if len(rates) != self.num_speculative_tokens:
                raise ValueError(f"acceptance_rates has {len(rates)} entries, num_speculative_tokens is {self.num_speculative_tokens}; give one rate per drafted token")
            if any(b > a for a, b in zip(rates, rates[1:], strict=False)):
                raise ValueError("acceptance_rates must not increase: each is the chance that all drafts up to that position are accepted")
        return self


class Pool(Part):
    gpu: Slug = "h100-sxm"
    """Catalogue slug of this pool's accelerator."""
    parallel: Parallel = Parallel()
    """Layout of one replica of this pool."""
    engine: Engine = Engine()
    """Engine settings of this pool."""
    replicas: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Replicas of this pool."""


class Disaggregation(Part):
    prefill: Pool = Pool()
    """Pool that computes prompts."""
    decode: Pool = Pool()
    """Pool that generates tokens."""
    link_gb_s: Positive = 50.0
    """Bandwidth of one replica's link for moving KV cache, GB/s."""


class Commitment(Part):
    basis: Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "owned"] = "reserved_1y"
    """How these GPUs are paid for."""
    share: Share | None = None
    """Share of the peak fleet."""
    gpus: NonNegativeInt | None = None
    """Number of GPUs, instead of a share."""
    usd_per_gpu_hour: NonNegative | None = None
    """Price, USD per GPU-hour; null means the catalogue's for this basis."""


class Fleet(Part):
    replicas: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Replicas that take traffic."""
    spares: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Idle replicas paid for failure cover (N+1 is 1)."""
    routing: Literal["round_robin", "least_loaded", "sticky", "longest_prefix"] = "round_robin"
    """How the router picks a replica."""
    target_utilization: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Share of capacity that autoscaling aims at."""
    startup_s: NonNegative = 120.0
    """Time from asking for a replica to its first request, s."""
    min_replicas: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Autoscaling floor."""
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Autoscaling ceiling; null means no ceiling."""
    demand_curve: Slug | tuple[NonNegative, ...] | None = None
    """A named week or 168 hourly shares; null means constant demand."""
    commitments: tuple[Commitment, ...] = ()
    """How the fleet is paid for; empty means all on `price.basis`."""
    interruption_per_hour: Share = 0.0
    """Chance that one spot replica is taken away within an hour."""


class Lengths(Part):
    """A distribution of token counts."""

    kind: Literal["fixed", "uniform", "lognormal", "percentiles", "empirical"] = "fixed"
    """Shape of the distribution."""
    mean: Positive | None = None
    """Mean, tokens (fixed, uniform, lognormal)."""
    half_width: Share | None = None
    """Uniform on mean × (1 ± half_width)."""
    cv: NonNegative | None = None
    """Standard deviation over mean (lognormal)."""
    max: Positive | None = None
    """Longer draws are cut to this."""
    points: tuple[tuple[Share, NonNegative], ...] | None = None
    """(cumulative probability, tokens) pairs, interpolated (percentiles)."""
    values: tuple[NonNegative, ...] | None = None
    """Observed lengths, drawn with replacement (empirical)."""

    @model_validator(mode="after")
    def _complete(self) -> Lengths:
        needs = {"fixed": ["mean"], "uniform": ["mean", "half_width"], "lognormal": ["mean", "cv"], "percentiles": ["points"], "empirical": ["values"]}
        missing = [f for f in needs[self.kind] if getattr(self, f) is None]
        if missing:
            raise ValueError(f"a {self.kind} length distribution needs {' and '.join(missing)}")
        if self.points is not None:
            if len(self.points) < 2:
                raise ValueError("points needs at least two (probability, tokens) pairs")
            if any(b[0] <= a[0] or b[1] < a[1] for a, b in zip(self.points, self.points[1:], strict=False)):
                raise ValueError("points must rise in probability and not fall in tokens")
        if self.values is not None and not self.values:
            raise ValueError("values needs at least one length")
        return self


Length = Annotated[float, Field(ge=0, le=10**8, allow_inf_nan=False)] | Lengths
"""A plain number of tokens or a distribution."""


class Slo(Part):
    ttft_s: Positive | None = 1.0
    """Promise on time to first token, s; null means none."""
    tpot_s: Positive | None = 0.05
    """Promise on time per output token, s; null means none."""
    e2e_s: Positive | None = None
    """Promise on the whole answer, s; null means none."""
    percentile: Literal[50, 90, 95, 99] = 95
    """Percentile at which the promises hold."""


class PriorityClass(Part):
    share: Share = 1.0
    """Share of requests in this class."""
    priority: int = 0
    """vLLM's meaning: lower is served first."""
    slo: Slo | None = None
    """Promise to this class; null means the scenario's."""


class TraceRef(Part):
    name: Slug = ""
    """A shipped trace, or the label of an uploaded one."""
    content_hash: Annotated[str, Field(max_length=64)] | None = None
    """SHA-256 of an uploaded trace; the rows themselves never travel in a link."""


class Workload(Part):
    request_rate: NonNegative | None = 4.0
    """Open loop: requests per second of the whole fleet; null with `max_concurrency` for a closed loop."""
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Closed loop: clients of the whole fleet, each sending its next request when the last one ends."""
    burstiness: Positive = 1.0
    """Gamma shape of arrival gaps: 1 is Poisson, smaller is burstier."""
    num_prompts: Annotated[int, Field(ge=1, le=10**7)] = 500
    """Requests in one replication."""
    input_len: Length = 1024.0
    """Prompt tokens, shared prefix included."""
    output_len: Length = 256.0
    """Output tokens, thinking included."""
    max_output_len: PositiveInt | None = None
    """Outputs are cut to this many tokens."""
    thinking_share: Share = 0.0
    """Share of output tokens that are thinking, before the answer."""
    shared_prefix_len: NonNegative = 0.0
    """Prompt tokens shared within a prefix group (system prompt), part of input_len."""
    prefix_groups: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Number of distinct shared prefixes."""
    turns: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Turns of one session; each turn's prompt holds all before it, input_len counts the new tokens."""
    think_time_s: NonNegative = 0.0
    """Mean pause between the end of a turn and the next one, s."""
    trace: TraceRef | None = None
    """Replay recorded arrivals and lengths instead of drawing them."""
    priority_classes: tuple[PriorityClass, ...] = ()
    """Classes of traffic; empty means one."""
    retry_rate: Share = 0.0
    """Chance that a request that failed or missed its deadline is sent again."""
    deadline_s: Positive | None = None
    """A request unfinished by then is cancelled, s; null means clients wait for ever."""
    seed: NonNegativeInt = 0
    """Seed of every random draw."""

    @model_validator(mode="after")
    def _one_load(self) -> Workload:
        if self.request_rate is None and self.max_concurrency is None and self.trace is None:
            raise ValueError("give request_rate (open loop), max_concurrency (closed loop) or a trace")
        return self


class Simulation(Part):
    mode: Literal["planning", "benchmark"] = "planning"
    """`planning` removes warm-up and replicates; `benchmark` keeps ramp and drain as a client measures."""
    replications: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Independent runs; null means until the SLO percentile is known to ±10 %."""
    max_requests: Annotated[int, Field(ge=1, le=10**7)] = 200_000
    """Bound on simulated requests over all replications."""


class Owned(Part):
    usd_per_gpu: NonNegative = 31_250.0
    """Capital cost per GPU, its share of server and network included, USD."""
    years: Positive = 5.0
    """Depreciation, years."""
    interest_rate: Share = 0.08
    """Cost of capital per year."""
    power_kw: NonNegative = 1.28
    """Wall power per GPU at load, kW."""
    pue: Annotated[float, Field(ge=1, le=5)] = 1.3
    """Power usage effectiveness."""
    usd_per_kwh: NonNegative = 0.08
    """Electricity, USD per kWh."""
    colocation_usd_per_kw_month: NonNegative = 150.0
    """Space and cooling, USD per kW and month."""
    opex_share_per_year: Share = 0.08
    """Operations and maintenance as a share of capital per year."""


class CustomPrice(Part):
    label: Slug = "custom"
    """Name shown in tables."""
    input: NonNegative = 0.0
    """USD per million input tokens."""
    cached_input: NonNegative | None = None
    """USD per million cached input tokens; null means the input price."""
    cache_write: NonNegative | None = None
    """USD per million tokens written to the cache; null means the input price."""
    output: NonNegative = 0.0
    """USD per million output tokens."""


class Price(Part):
    usd_per_gpu_hour: NonNegative | None = None
    """USD per GPU-hour; null means the catalogue's for this GPU and basis."""
    basis: Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "owned"] = "on_demand"
    """How the GPUs are paid for."""
    owned: Owned | None = None
    """Inputs of the owned basis; null means the catalogue's defaults for this GPU."""
    other_usd_per_hour: NonNegative = 0.0
    """Everything else of the fleet (CPU hosts, network, people), USD per hour."""
    utilization: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of paid time that is busy; divides the floor price only."""
    compare_to: tuple[Slug | CustomPrice, ...] = ()
    """`provider:model` list prices or prices of your own; empty means the hosts of this model."""
    as_of: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = None
    """Date of the price data a link was made with; shown when it differs from today's data."""


class Quality(Part):
    allowed_weight_precisions: tuple[WeightPrecision, ...] = ("bf16", "fp8")
    """What `recommend` may choose for weights."""
    allowed_kv_precisions: tuple[KvPrecision, ...] = ("bf16", "fp8")
    """What `recommend` may choose for the KV cache."""


class Calibration(Part):
    engine: Slug = "vllm"
    """Engine the factor was measured on."""
    gpu: Slug = "h100-sxm"
    """GPU the factor was measured on."""
    factor: Annotated[float, Field(gt=0.05, lt=20)] = 1.0
    """Measured step time over predicted step time."""
    n_points: PositiveInt = 1
    """Measured points behind the factor."""
    source: Annotated[str, Field(max_length=200)] = ""
    """Where they came from."""


class Scenario(Part):
    """One question to the planner, whole. `planner.plan(scenario)` answers it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of these names; older files are migrated before validation."""
    name: Annotated[str, Field(max_length=120)] = ""
    """Title shown on pages and documents."""
    notes: Annotated[str, Field(max_length=4000)] = ""
    """Free text carried along."""
    fidelity: Literal["textbook", "datasheet", "calibrated"] = "calibrated"
    """Level of the step-time model."""
    model: Model = Model()
    hardware: Hardware = Hardware()
    precision: Precision = Precision()
    parallel: Parallel = Parallel()
    engine: Engine = Engine()
    speculative: Speculative | None = None
    disaggregation: Disaggregation | None = None
    fleet: Fleet = Fleet()
    workload: Workload = Workload()
    simulation: Simulation = Simulation()
    slo: Slo = Slo()
    price: Price = Price()
    quality: Quality = Quality()
    calibration: Calibration | None = None

    @property
    def gpus(self) -> int:
        """GPUs that take traffic: replicas × TP × PP × DP, or both pools of a disaggregated plan. Spares are apart."""
        if self.disaggregation is None:
            return self.fleet.replicas * self.parallel.gpus
        pools = (self.disaggregation.prefill, self.disaggregation.decode)
        return sum(pool.replicas * pool.parallel.gpus for pool in pools)


def mean_length(length: float | Lengths) -> float:
    """Mean number of tokens of a `Length`; for `percentiles` the piecewise-linear mean, cut at `max` where given."""
    if isinstance(length, (int, float)):
        return float(length)
    if length.kind == "percentiles":
        points = length.points or ()
        inner = sum((p1 - p0) * (v0 + v1) / 2 for (p0, v0), (p1, v1) in zip(points, points[1:], strict=False))
        mean = inner + points[0][0] * points[0][1] + (1 - points[-1][0]) * points[-1][1]
    elif length.kind == "empirical":
        values = length.values or ()
        mean = sum(min(v, length.max or v) for v in values) / len(values)
    else:
        mean = float(length.mean or 0.0)
    return min(mean, length.max) if length.max else mean
