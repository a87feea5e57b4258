"""What the user chose. Every door (links, presets, command line, library) ends in one frozen, hashable `Scenario`.

Names are vLLM's for the engine, Hugging Face's for a model and `vllm bench serve`'s for load, where those exist.
Every field has a default; unknown fields are errors. Adding a field with a default keeps old files readable; renaming
one needs a step in `planner.migrate`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from planner.problems import InputError
from planner.scenario.base import FrozenJson, Part, PositiveInt, Slug
from planner.scenario.deployment import (
    Disaggregation,
    Engine,
    EngineName,
    Hardware,
    KvPrecision,
    Method,
    Model,
    OffloadTier,
    Overrides,
    Parallel,
    Pool,
    Precision,
    Speculative,
    Verify,
    WeightPrecision,
    label,
)
from planner.scenario.fleet import Basis, Commitment, CustomPrice, Fleet, Owned, Price, Quality, Routing
from planner.scenario.traffic import Length, Lengths, PriorityClass, Slo, TraceRef, Workload, length_quantile, mean_length

SCHEMA_VERSION: Literal[1] = 1
Fidelity = Literal["textbook", "datasheet", "calibrated"]
Mode = Literal["planning", "benchmark"]


class Simulation(Part):
    """How the traffic is simulated."""

    mode: Mode = "planning"
    """`planning` removes warm-up and replicates; `benchmark` keeps ramp and drain as a client measures."""
    replications: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Independent runs; null means until the SLO percentile is known to ±10 %."""
    max_requests: Annotated[int, Field(ge=1, le=10**7)] = 200_000
    """Bound on simulated requests over all replications."""


class Calibration(Part):
    """A factor on every step, measured on the user's own engine and GPU."""

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
    fidelity: Fidelity = "calibrated"
    """Level of the step-time model."""
    model: Model = Field(default_factory=Model)
    hardware: Hardware = Field(default_factory=Hardware)
    precision: Precision = Field(default_factory=Precision)
    parallel: Parallel = Field(default_factory=Parallel)
    engine: Engine = Field(default_factory=Engine)
    speculative: Speculative | None = None
    disaggregation: Disaggregation | None = None
    fleet: Fleet = Field(default_factory=Fleet)
    workload: Workload = Field(default_factory=Workload)
    simulation: Simulation = Field(default_factory=Simulation)
    slo: Slo = Field(default_factory=Slo)
    price: Price = Field(default_factory=Price)
    quality: Quality = Field(default_factory=Quality)
    calibration: Calibration | None = None

    @property
    def gpus(self) -> int:
        """GPUs that take traffic: replicas × TP × PP × DP, or both pools of a disaggregated plan. Spares are apart."""
        if self.disaggregation is None:
            return self.fleet.replicas * self.parallel.gpus
        pools = (self.disaggregation.prefill, self.disaggregation.decode)
        return sum(pool.replicas * pool.parallel.gpus for pool in pools)


def parse(data: object) -> Scenario:
    """A scenario from JSON-like data, whatever door it came through.

    Raises `InputError` with one sentence that names the field, the value, what is allowed and the nearest known field.
    """
    from planner.scenario.errors import explain, shown

    if isinstance(data, Scenario):
        return data
    if not isinstance(data, dict):
        raise InputError(f"a scenario is a JSON object with sections such as model and hardware, not {shown(data)}")
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise InputError(explain(error, Scenario)) from error


def set_path(scenario: Scenario, path: str, value: object) -> Scenario:
    """The scenario with the field at a dotted path replaced and everything validated again.

    A null section on the way (`speculative`, `disaggregation`, `calibration`, `price.owned`) is created with its defaults.
    Raises `InputError` like `parse`.
    """
    data = scenario.model_dump(mode="json")
    *sections, last = path.split(".")
    at = data
    for name in sections:
        if not isinstance(at, dict):
            break
        if at.get(name) is None:
            at[name] = {}  # a section that is off, or a name that `parse` will not know
        at = at[name]
    if not isinstance(at, dict):
        raise InputError(f"{path!r} is not a field of a scenario: {'.'.join(sections)} has no fields of its own")
    if path == "model.hf_config" and (scenario.model.hf_config is None or at["name"] == label(scenario.model.hf_config.value)):
        del at["name"]  # it was another model's
    at[last] = value
    return parse(data)
