"""One replica made concrete: architecture, GPU, shard, memory, speculation and step time, built once per scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from planner import architecture, hardware, memory, roofline, sharding, speculation
from planner.architecture import Architecture
from planner.hardware import Gpu
from planner.memory import MemoryPlan
from planner.problems import Problem
from planner.roofline import StepTime, Textbook
from planner.scenario import Pool, Scenario
from planner.sharding import Shard
from planner.speculation import Profile


@dataclass(frozen=True, slots=True)
class Deployment:
    """A replica that can be asked about memory and time."""

    scenario: Scenario
    """The scenario as this replica sees it; for a pool of a disaggregated plan, with that pool's GPU, layout and engine."""
    architecture: Architecture
    gpu: Gpu
    shard: Shard
    memory: MemoryPlan
    """Without remedies and the table of layers, which a search over many replicas does not read: `explained` adds them."""
    profile: Profile
    step_time: StepTime | Textbook


Deployments = tuple[Deployment, ...]
"""One, or the prefill and the decode deployment of a disaggregated plan."""


def problems(scenario: Scenario) -> tuple[Problem, ...]:
    """Why the layout is illegal, if it is. A `Deployment` exists only where this holds no error."""
    arch = architecture.of(scenario.model)
    return (*parameter_problems(scenario, arch), *sharding.problems(arch, scenario.parallel, scenario.precision, scenario.hardware))


ROUND_FIGURE = 0.1
"""A published round number of parameters is this close to the counted one."""


def parameter_problems(scenario: Scenario, arch: Architecture) -> list[Problem]:
    """A number of parameters that the configuration does not have: above the textbook level, memory and time are counted layer by layer."""
    stated, counted = scenario.model.total_params, arch.counted_params
    if stated is None or scenario.fidelity == "textbook" or abs(stated - counted) <= ROUND_FIGURE * counted:
        return []
    message = (
        f"model.total_params = {stated:,} is not what the configuration of {arch.name} has, {counted:,}; "
        "at this level memory and step time are counted from its layers"
    )
    remedy = "Leave total_params out, paste the config.json of the model that has them, or set fidelity to textbook."
    return [Problem("parameters_differ", "error", "model.total_params", message, remedy)]


def of(scenario: Scenario, scale: float = 1.0) -> Deployment:
    """The replica of a scenario whose layout is legal. `scale` multiplies every step time (error bands, calibration)."""
    # Name, traffic statistics, prices and promises change nothing here; the lengths do, through the memory budget.
    return _of(scenario.model_copy(update=IGNORED), scale)


_DEFAULTS = Scenario()
IGNORED = {name: getattr(_DEFAULTS, name) for name in ("name", "notes", "disaggregation", "fleet", "simulation", "slo", "price", "quality")}


@lru_cache(maxsize=128)
def _of(scenario: Scenario, scale: float) -> Deployment:
    arch = architecture.of(scenario.model)
    gpu = hardware.of(scenario.hardware)
    shard = sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware)
    return Deployment(
        scenario=scenario,
        architecture=arch,
        gpu=gpu,
        shard=shard,
        memory=memory.budget(arch, shard, gpu, scenario),
        profile=speculation.profile(scenario.speculative),
        step_time=roofline.step_time(scenario, arch, shard, gpu, scale),
    )


def explained(deployment: Deployment) -> Deployment:
    """The replica with its memory layer by layer, and with what would make it fit where it does not."""
    d = deployment
    return replace(d, memory=memory.plan(d.architecture, d.shard, d.gpu, d.scenario))


def pool_scenario(scenario: Scenario, pool: Pool) -> Scenario:
    """The scenario that one pool of a disaggregated plan lives in."""
    hardware_of_pool = scenario.hardware.model_copy(update={"gpu": pool.gpu})
    changes = {"hardware": hardware_of_pool, "parallel": pool.parallel, "engine": pool.engine, "disaggregation": None}
    return scenario.model_copy(update=changes)
