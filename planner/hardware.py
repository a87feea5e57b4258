"""What one GPU can do, in SI: peaks by precision, the memory an engine sees, links. Datasheet values, no derating."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.gpus import GpuRow, gpu
from planner.problems import InputError
from planner.scenario import Hardware
from planner.units import GB, GBIT_BYTES, GIB

TERA = 10**12

# Storage formats that compute at the rate of a column of the datasheet; int4 weights are unpacked to 16 bit.
RATE_OF = {
    "fp32": "fp32",
    "tf32": "tf32",
    "bf16": "bf16",
    "fp16": "fp16",
    "auto": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "int4": "bf16",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
    "fp4": "fp4",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator in SI units, with the user's overrides applied."""

    slug: str
    name: str
    family: str
    """Silicon generation: ampere, ada, hopper, blackwell, blackwell_rtx, cdna3, cdna4, …"""
    label_gb: float
    """The number on the label (its unit differs by vendor); the textbook level reads it as decimal GB."""
    memory_engine_bytes: float
    """Memory a serving engine sees."""
    memory_basis: str
    """Where that came from: engine log, driver, label (assumed) or user."""
    memory_bandwidth_bytes_s: float
    peaks: tuple[tuple[str, float], ...]
    """(precision, dense FLOP/s) where the part has such a rate."""
    link_name: str
    link_bytes_s: float
    """Scale-up link, one direction, per GPU; PCIe where there is no other."""
    scale_up_domain_gpus: int
    """GPUs joined by that link; 1 means PCIe only."""
    nic_bytes_s: float | None
    """Network between servers per GPU, one direction; None where nobody publishes it."""
    tdp_w: float | None
    sources: tuple[str, ...]
    verified_date: str
    confidence: str
    overridden: tuple[str, ...] = ()
    """Names of `hardware.overrides` fields in effect, for the provenance."""

    def peak_flops(self, compute_precision: str = "bf16") -> float:
        """Dense FLOP/s (int8: OP/s) at this precision; the 16-bit rate where the part has no faster path.

        Raises InputError for an unknown precision, or where not even a 16-bit rate is published.
        """
        peaks = dict(self.peaks)
        rate = peaks.get(_rate_name(compute_precision))
        if rate is None:
            rate = peaks.get("bf16") or peaks.get("fp16")
        if rate is None:
            raise InputError(
                f"hardware.gpu: no agreed 16-bit peak is published for {self.slug}; "
                "set hardware.overrides.bf16_dense_tflops or choose another GPU"
            )
        return rate

    def native(self, precision: str) -> bool:
        """Whether arithmetic runs at this precision; when not, weights are unpacked and only bytes are saved."""
        if precision == "int4":
            return False
        return _rate_name(precision) in dict(self.peaks)


def _rate_name(precision: str) -> str:
    name = RATE_OF.get(precision)
    if name is None:
        raise InputError(f"precision: {precision!r} is unknown; use one of {', '.join(RATE_OF)}")
    return name


@lru_cache(maxsize=256)
def of(hardware: Hardware) -> Gpu:
    """The GPU a scenario names, with its overrides. Raises InputError for an unknown slug."""
    row = gpu(hardware.gpu)
    user = hardware.overrides
    memory_bytes, memory_basis = _memory(row)
    if user.memory_gib is not None:
        memory_bytes, memory_basis = user.memory_gib * GIB, "user"
    tflops = {name: rate for name, rate in row.dense_tflops.items() if rate is not None}
    if user.bf16_dense_tflops is not None:
        tflops |= {"bf16": user.bf16_dense_tflops, "fp16": user.bf16_dense_tflops}
    for name, rate in (("fp8", user.fp8_dense_tflops), ("int8", user.int8_dense_tops), ("fp4", user.fp4_dense_tflops)):
        if rate is not None:
            tflops[name] = rate
    return Gpu(
        slug=row.slug,
        name=row.name,
        family=row.family,
        label_gb=row.memory_gb,
        memory_engine_bytes=memory_bytes,
        memory_basis=memory_basis,
        memory_bandwidth_bytes_s=(user.memory_bandwidth_gb_s or row.memory_bandwidth_gb_s) * GB,
        peaks=tuple((name, rate * TERA) for name, rate in tflops.items()),
        link_name=row.scale_up.name,
        link_bytes_s=(user.link_gb_s or row.scale_up.gb_s_per_direction_per_gpu) * GB,
        scale_up_domain_gpus=hardware.scale_up_domain_gpus or row.scale_up.domain_gpus,
        nic_bytes_s=None if row.nic_gbit_s_per_gpu is None else row.nic_gbit_s_per_gpu * GBIT_BYTES,
        tdp_w=row.tdp_w,
        sources=row.sources,
        verified_date=row.verified_date,
        confidence=row.confidence,
        overridden=tuple(name for name, value in user if value is not None),
    )


def _memory(row: GpuRow) -> tuple[float, str]:
    """Bytes an engine sees and where the figure came from: best evidence first."""
    if row.memory_engine_gib is not None:
        return row.memory_engine_gib * GIB, "engine log"
    if row.memory_driver_gib is not None:
        return row.memory_driver_gib * GIB, "driver"
    return row.memory_gb * (GIB if row.memory_label_unit == "GiB" else GB), "label (assumed)"
