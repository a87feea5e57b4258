"""Accelerators as data: one `GpuRow` per slug, in the vendors' units, each with its sources and date."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from planner.catalog import lookup

GPUS_FILE = Path(__file__).with_name("gpus.json")


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """The fast link between GPUs of one domain."""

    name: str
    gb_s_per_direction_per_gpu: float
    domain_gpus: int
    """GPUs joined by it; 1 means only the host's PCIe is there."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One accelerator as its sources print it. `hardware.of` turns it into SI."""

    slug: str
    vendor: str
    name: str
    family: str
    """Silicon generation that kernels are built for: ampere, ada, hopper, blackwell, cdna3, …"""
    architecture: str
    release_year: int
    compute_capability: str | None
    status: str
    memory_gb: float
    """Number on the label."""
    memory_label_unit: str
    """GB or GiB: what the label's number is counted in."""
    memory_driver_gib: float | None
    memory_driver_source: str | None
    memory_engine_gib: float | None
    memory_engine_source: str | None
    memory_bandwidth_gb_s: float
    dense_tflops: dict[str, float | None]
    """Dense peaks by precision (int8: TOP/s); None means no speed-up path over 16 bit."""
    sparse_note: str | None
    scale_up: ScaleUp
    nic_gbit_s_per_gpu: float | None
    tdp_w: float | None
    notes: str
    confidence: str
    """high, medium or low: how far the sources agree."""
    sources: tuple[str, ...]
    verified_date: str


@cache
def gpus() -> dict[str, GpuRow]:
    """Every accelerator of the catalogue by slug."""
    rows = json.loads(GPUS_FILE.read_text(encoding="utf-8"))["gpus"]
    return {slug: _row(slug, raw) for slug, raw in rows.items()}


def gpu(slug: str) -> GpuRow:
    """The accelerator called `slug`. Raises InputError naming the nearest slug."""
    return lookup.row(gpus(), slug, "hardware.gpu", "Pick the nearest part and set hardware.overrides to describe another one.")


def _row(slug: str, raw: dict) -> GpuRow:
    typed = {"scale_up": ScaleUp(**raw["scale_up"]), "sources": tuple(raw["sources"])}
    return GpuRow(slug=slug, **(raw | typed))
