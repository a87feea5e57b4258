"""The answer to a scenario, and its JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from planner.architecture import Architecture
from planner.cost import Cost
from planner.memory import MemoryPlan
from planner.metrics import Latency, Run, Throughput, by_class
from planner.plan.growth import Larger
from planner.plan.provenance import Provenance
from planner.plan.steady import Steady
from planner.problems import Problem
from planner.scenario import Scenario

if TYPE_CHECKING:
    from planner.plan.deployment import Deployment
    from planner.plan.load import Loaded

NOT_MODELLED = (
    "LoRA adapters",
    "several models on the same GPUs (documents can add plans up)",
    "service credits for missed promises",
    "delivery times of hardware",
    "currency, tax and egress",
    "answer quality beyond the notes shown",
    "the network between client and server",
)
"""Printed in every plan, so that nobody takes silence for zero."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan(scenario)` answers. `to_dict()` is the JSON that library, command line and exports share.

    Parts are None where the layout is illegal or the model does not fit; `problems` says why.
    """

    scenario: Scenario
    architecture: Architecture
    problems: tuple[Problem, ...]
    memory: MemoryPlan | None
    roofline: Steady | None
    load: Loaded | None
    """The simulation's results with its timelines; None where nothing was simulated."""
    cost: Cost
    confidence: Any
    provenance: tuple[Provenance, ...]
    deployments: tuple[Deployment, ...] = ()
    """The replica, or the prefill and the decode replica of a disaggregated plan."""
    larger_fleet: Larger | None = None
    """The fleet of the same replicas that would hold the promises this one misses; None where they hold or none would."""

    @property
    def fits(self) -> bool:
        """Whether the plan can run at all."""
        return self.memory is not None and self.memory.fits

    def latency_by_class(self) -> list[dict[str, Any]] | None:
        """TTFT, TPOT and E2E of each priority class with its share; None without classes or simulation."""
        classes = self.scenario.workload.priority_classes
        if self.load is None or not classes:
            return None
        mode, api_s = self.scenario.simulation.mode, self.deployments[0].step_time.api_s
        found: list[dict[str, Any]] = plain(by_class(self.load.timelines, classes, self.scenario.slo, mode, api_s))
        return found

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON: names of `Plan`'s sections, SI units, null for what does not apply, never NaN or infinity."""
        metrics = self.load.metrics if self.load else None
        nothing_ran = dict.fromkeys(field_names(Run)) | {"mode": self.scenario.simulation.mode}
        return {
            "scenario": self.scenario.model_dump(mode="json"),
            "architecture": architecture_dict(self.architecture),
            "problems": plain(self.problems),
            "memory": plain(self.memory) if self.memory else dict.fromkeys(field_names(MemoryPlan)),
            "roofline": plain(self.roofline)
            if self.roofline
            else dict.fromkeys(field_names(Steady)) | {"batch_limits": [], "terms": [], "batch_table": []},
            "latency": plain(metrics.latency) if metrics else dict.fromkeys(field_names(Latency)),
            "latency_by_class": self.latency_by_class(),
            "promises": promises_dict(self.load),
            "throughput": throughput_dict(self.load),
            "simulation": plain(metrics.simulation) if metrics else nothing_ran,
            "transfers": transfers_dict(self.load),
            "larger_fleet": plain(self.larger_fleet),
            "cost": plain(self.cost),
            "confidence": plain(self.confidence),
            "provenance": plain(self.provenance),
            "not_modelled": list(NOT_MODELLED),
        }


def promises_dict(load: Loaded | None) -> list[dict[str, Any]]:
    """What became of each promise, over all requests it was given to; `at_s` is null where too many never got there."""
    return [
        {
            "name": kept.promise.name,
            "to": kept.promise.to,
            "percentile": kept.promise.percentile,
            "limit_s": kept.promise.limit_s,
            "at_s": finite(kept.at_s),
            "kept": kept.strain <= 1,
        }
        for kept in (load.kept if load else ())
    ]


OF_THE_CAPACITY = ("capacity_requests_per_s", "capacity_requests_per_s_ci", "utilization")


def throughput_dict(load: Loaded | None) -> dict[str, Any]:
    """The `throughput` part: what the simulation saw, and how that compares with what the plan could carry."""
    if load is None:
        return dict.fromkeys((*field_names(Throughput), *OF_THE_CAPACITY))
    seen = plain(load.metrics.throughput)
    interval = load.capacity_interval
    return seen | {
        "capacity_requests_per_s": finite(load.capacity_requests_per_s),
        "capacity_requests_per_s_ci": None if interval is None else [finite(end) for end in interval],
        "utilization": finite(load.utilization),
    }


def transfers_dict(load: Loaded | None) -> dict[str, Any] | None:
    """KV caches moved between the pools of a disaggregated plan; None for every other."""
    if load is None or load.transfers is None:
        return None
    moved = load.transfers
    return {
        "link": moved.link.name,
        "count": moved.count,
        "mean_bytes": finite(moved.mean_bytes),
        "mean_s": finite(moved.mean_s),
        "busy_s": finite(moved.busy_s),
        "queue_s": finite(moved.queue_s),
        "blocked_s": finite(moved.blocked_s),
    }


def architecture_dict(arch: Architecture) -> dict[str, Any]:
    """The `architecture` part."""
    return {
        "name": arch.name,
        "source": arch.source,
        "total_params": arch.total_params,
        "active_params": arch.active_params,
        "active_params_convention": "every weight that one token touches, both embeddings included, towers not",
        "layers": arch.layers_by_kind(),
        "kv_bytes_per_token": arch.kv_bytes_per_token("bf16"),
        "kv_windowed_bytes_per_token": arch.kv_windowed_bytes_per_token("bf16"),
        "window": arch.window,
        "fixed_state_bytes_per_sequence": arch.fixed_state_bytes_per_sequence,
        "estimate": arch.estimate,
        "notes": list(arch.notes),
    }


def field_names(kind: type) -> list[str]:
    """Names of a dataclass's fields."""
    return [f.name for f in fields(kind)]


def finite(value: float | None) -> float | None:
    """The number, or None where it is not one."""
    return None if value is None or not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """Dataclasses, tuples and numpy scalars as JSON data; NaN and infinities as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if hasattr(value, "item"):
        value = value.item()
    return finite(value) if isinstance(value, float) else value
