"""Where every figure of a plan comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from planner import catalog
from planner.cost import Cost
from planner.units import GB, GIB, TB

if TYPE_CHECKING:
    from planner.plan.deployment import Deployment

Kind = Literal["measured", "published", "derived", "assumed", "user"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """One input or constant behind the plan."""

    quantity: str
    value: float | str | None
    unit: str
    kind: Kind
    source: str
    date: str | None


def of(deployments: tuple[Deployment, ...], cost: Cost) -> tuple[Provenance, ...]:
    """Sources of hardware, model, memory reserves, step time and prices, in that order, each once."""
    rows = [row for d in deployments for row in (*_hardware(d), *_model(d), *_memory(d), *_step_time(d), *_speculation(d))]
    rows += _prices(cost)
    return tuple(dict.fromkeys(rows))


def _hardware(d: Deployment) -> list[Provenance]:
    gpu = d.gpu
    source = "; ".join(gpu.sources)
    precision = d.scenario.precision.weights
    memory_kind: dict[str, Kind] = {"engine log": "measured", "driver": "published", "user": "user"}

    def row(name: str, value: float | None, unit: str, override: str, kind: Kind = "published") -> Provenance:
        if override in gpu.overridden:
            return Provenance(f"{gpu.name}: {name}", value, unit, "user", f"hardware.overrides.{override}", None)
        return Provenance(f"{gpu.name}: {name}", value, unit, kind, source, gpu.verified_date)

    if d.scenario.fidelity == "textbook":
        memory = row("memory on the label", gpu.label_gb, "GB", "memory_gib")
    else:
        memory = row(
            f"memory ({gpu.memory_basis})", gpu.memory_engine_bytes / GIB, "GiB", "memory_gib", memory_kind.get(gpu.memory_basis, "assumed")
        )
    rate = f"{'bf16' if precision == 'auto' else precision}_dense_tflops"
    return [
        memory,
        row("memory bandwidth", gpu.memory_bandwidth_bytes_s / TB, "TB/s", "memory_bandwidth_gb_s"),
        row(f"dense peak used for {precision} weights", gpu.peak_flops(precision) / 1e12, "TFLOP/s", rate),
        row(f"link, one direction ({gpu.link_name})", gpu.link_bytes_s / GB, "GB/s", "link_gb_s"),
    ]


def _model(d: Deployment) -> list[Provenance]:
    arch = d.architecture
    if arch.total_params_override:
        return [Provenance(f"{arch.name}: parameters", arch.total_params, "parameters", "user", "model.total_params", None)]
    kind: Kind = "assumed" if arch.estimate else "derived"
    known = None if d.scenario.model.hf_config is not None else catalog.models().get(d.scenario.model.name)
    source, date = f"counted from config.json ({arch.source})", known.checked if known else None
    return [Provenance(f"{arch.name}: parameters", arch.total_params, "parameters", kind, source, date)]


def _memory(d: Deployment) -> list[Provenance]:
    return [
        Provenance(f"memory: {term.name}", term.bytes / GIB, "GiB per GPU", "derived", f"{term.formula}; {term.source}", term.date)
        for term in d.memory.terms
    ]


def _step_time(d: Deployment) -> list[Provenance]:
    kinds: dict[str, Kind] = {"measured": "measured", "derived": "derived", "user": "user"}
    return [Provenance(s.quantity, s.value, "", kinds.get(s.kind, "assumed"), s.source, s.date) for s in d.step_time.sources]


def _speculation(d: Deployment) -> list[Provenance]:
    p = d.profile
    if not p.speculates:
        return []
    kinds: dict[str, Kind] = {"measured": "measured", "published": "published", "user": "user"}
    return [Provenance("tokens per verified step", p.acceptance_length, "tokens", kinds.get(p.kind, "assumed"), p.source, None)]


def _prices(cost: Cost) -> list[Provenance]:
    kinds: dict[str, Kind] = {"user": "user", "published": "published", "derived": "derived"}
    rows = [
        Provenance(f"{h.gpu}, {h.basis}", h.usd, "USD per GPU-hour", kinds.get(h.kind, "assumed"), h.source, h.date) for h in cost.gpu_hours
    ]
    rows += [
        Provenance(f"list price {p.label}", f"{p.input} in, {p.output} out", "USD per million tokens", "published", p.source, p.date)
        for p in cost.list_prices
    ]
    return rows
