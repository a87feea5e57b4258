"""The numbers behind one level of step time: ideal ones for the datasheet, measured ones for the calibrated level."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from planner.catalog import kernels
from planner.catalog.gpus import gpus
from planner.hardware import Gpu
from planner.problems import Problem, Severity
from planner.roofline.model import Source
from planner.units import GB, US

IDEAL = math.inf
"""Knee of a plain max(compute, memory)."""

IDEAL_ROW: dict[str, Any] = {
    "compute": 1.0,
    "memory": 1.0,
    "launch_us": 0.0,
    "knee": IDEAL,
    "half_n_compute": 0.0,
    "half_k_compute": 0.0,
    "half_n_memory": 0.0,
    "half_width_memory": 0.0,
    "half_width_compute": 0.0,
    "half_tokens": 0.0,
    "sequence_head_us": 0.0,
    "sequence_us": 0.0,
}
"""Row of a kernel that was not timed, or of the datasheet level: full peak and bandwidth, nothing to launch."""

UNPACKING_KNEE = 1.0
"""Knee of 16-bit kernels that stand in for weight-only ones: arithmetic waits for unpacked weights, so the two add up, as they nearly do
in every weight-only kernel that was measured (knee 1.0 to 1.8) and not in 16-bit ones (3 to 4 on Hopper)."""

BORROWED_TYPE = 0.25
"""Half-width, on the log scale, that kernels of another data type add to the error of a step: TensorRT-LLM's own weight-only kernels take
1.0 (L40S), 1.3 (A100) and 1.7 times (H200) the step of a small batch that its 16-bit ones would give by this rule."""

SHOWN = (("compute", "compute", " of the peak"), ("memory", "memory", " of the bandwidth"), ("launch_us", "launch", " µs"))
"""Constants of a kernel that a source shows."""

SLOW = 0.3
"""Share of the memory bandwidth below which a measured kernel is doubted: others of its kind reach 0.6 to 1.0, and the benchmark may have
run a backend that the engine would not choose (MXFP4 experts and FP8 MLA of SGLang on Hopper)."""

ACTIVATION_BYTES = 2
"""Bytes of one 16-bit activation: what matrix products read and write, and what ranks send each other."""

RING_PASSES = 2
"""A ring all-reduce is a reduce-scatter and an all-gather."""

STAND_IN_RANKS = 4
"""Ranks of the all-reduce that stands in where an engine's was not timed with the right number."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What stands in for a kernel that was not timed as it runs."""

    how: str
    """In words."""
    severity: Severity
    """warning: the efficiency itself is another part's, another data type's or the datasheet's; info: the same arithmetic in
    another engine's kernels, or over another link."""


DATASHEET = Borrowed("no measurement; datasheet figure", "warning")


@dataclass(slots=True)
class Constants:
    """Kernel constants of one (GPU, engine). With `ideal` every efficiency is 1 and every launch is free."""

    gpu: Gpu
    engine: str
    ideal: bool
    eager: bool = False
    substitutes: dict[str, Borrowed] = field(default_factory=dict)
    """What had to be borrowed, by kernel: becomes a problem of the plan."""
    spread: float = 0.0
    """Half-width on the log scale that borrowed kernels add to the error of the step."""

    used: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows handed out, by kernel and data type: the sources of the step time."""

    def dtype(self, precision: str, block_scaled: bool) -> str:
        """Kernel data type for weights of this storage precision on this GPU."""
        if precision in ("auto", "bf16", "fp16", "fp32"):
            return "bf16"
        if precision == "int8":
            return "fp8" if self.gpu.native("int8") or self.gpu.native("fp8") else kernels.WEIGHT_ONLY
        if not self.gpu.native(precision):
            return kernels.WEIGHT_ONLY
        if precision == "fp8":
            return "fp8_block" if block_scaled else "fp8"
        return "nvfp4" if precision == "mxfp4" else precision

    def moe_dtype(self, precision: str, block_scaled: bool) -> str:
        """As `dtype`, for experts: MXFP4 has kernels of its own, with 16-bit activations or, on 4-bit parts, 8-bit ones."""
        if precision == "mxfp4":
            return "mxfp4_fp8" if self.gpu.native("mxfp4") else "mxfp4"
        return self.dtype(precision, block_scaled)

    def row(self, kernel: str, dtype: str | None = None, **key: Any) -> dict[str, Any]:
        """Constants of one kernel; what was borrowed is noted."""
        if self.ideal:
            return IDEAL_ROW | {"dtype": dtype}
        found = kernels.find(kernel, self.gpu.slug, self.engine, dtype, **key)
        if found is None:
            self.substitutes[kernel] = DATASHEET
            return IDEAL_ROW | {"dtype": dtype}
        row = found.row
        if not found.same_dtype:
            self.spread = BORROWED_TYPE
            if dtype == kernels.WEIGHT_ONLY:
                row = row | {"knee": UNPACKING_KNEE}
        borrowed = _borrowed(found, dtype)
        if borrowed is not None:
            self.substitutes[kernel] = borrowed
        return self.doubted(kernel, row)

    def sources(self) -> tuple[Source, ...]:
        """The measured kernels behind the constants, and what was assumed beside them."""
        if self.ideal:
            return (Source("step time", "kernels at the datasheet's peaks", "derived", "operations ÷ peak, bytes ÷ bandwidth", None),)
        known = kernels.document()
        found = []
        for name, row in self.used.items():
            value = ", ".join(f"{words} {row[key]:g}{unit}" for key, words, unit in SHOWN if row.get(key))
            runs = f"{row['engine']} {row.get('version', '')} on {row['gpu']}, {row['n']:,} kernels, median error {row.get('error', 0):.0%}"
            found.append(Source(f"kernels: {name}", value or "times by size", "measured", f"{known['source']}: {runs}", known["date"]))
        others = Source("kernels not measured", "norms, routers, sampling, messages", "assumed", known["assumed"]["note"], known["date"])
        return (*found, others)

    def doubted(self, kernel: str, row: dict[str, Any]) -> dict[str, Any]:
        """The row; a note where its kernels were measured far below all others of their kind."""
        self.used[f"{kernel}{' ' + row['dtype'] if row.get('dtype') else ''}"] = row
        if row.get("memory", 1.0) < SLOW:
            self.spread = BORROWED_TYPE
            share = f"efficiencies of {row['memory']:.0%} of the memory bandwidth"
            how = f"{share} as measured, perhaps not on the backend that runs in production"
            self.substitutes[kernel] = Borrowed(how, "warning")
        return row

    def peak(self, row: dict[str, Any]) -> float:
        """FLOP/s of the arithmetic that this row's kernels do on this GPU."""
        return self.gpu.peak_flops(kernels.COMPUTE[row.get("dtype") or "bf16"])

    def share(self, name: str) -> float:
        """An assumed share of a peak or of the bandwidth; all of it at the datasheet level."""
        return 1.0 if self.ideal else kernels.assumed()[name]

    def all_reduce(self, ranks: int, link_bytes_s: float, inter_node: bool, gpus_per_node: int) -> Callable[[float], float]:
        """Seconds of one all-reduce of so many bytes over `ranks` GPUs."""
        inner = min(ranks, gpus_per_node) if inter_node else ranks
        nodes = math.ceil(ranks / inner)
        local = self._local_all_reduce(inner, link_bytes_s if not inter_node else self.gpu.link_bytes_s)
        if nodes == 1:
            return local
        network = link_bytes_s * self.share("network_share")
        delay = 0.0 if self.ideal else RING_PASSES * kernels.assumed()["network_us"] * US
        return lambda size: local(size) + delay + RING_PASSES * (nodes - 1) / nodes * size / inner / network

    def _local_all_reduce(self, ranks: int, link_bytes_s: float) -> Callable[[float], float]:
        if ranks <= 1:
            return lambda size: 0.0
        ring = ring_s_per_byte(ranks, link_bytes_s)
        if self.ideal:
            return lambda size: ring * size
        timed_ranks = max(n for n in kernels.timed_on("all_reduce", "ranks") if n <= ranks)
        slug = self.gpu.slug if kernels.find("all_reduce", self.gpu.slug, self.engine, ranks=timed_ranks) else kernels.REFERENCE
        pcie = kernels.pcie_part(link_bytes_s)
        if pcie is not None and kernels.pcie_part(_link_bytes_s(slug)) is None:
            slug = pcie  # a box that leaves out its part's faster link
        attempts = ((timed_ranks, self.eager), (timed_ranks, False), (STAND_IN_RANKS, False))
        tables = (kernels.find("all_reduce", slug, self.engine, ranks=n, eager=eager) for n, eager in attempts)
        found = next(filter(None, tables), None)
        if found is None:
            self.substitutes["all_reduce"] = DATASHEET
            return lambda size: ring * size
        row = found.row
        self.used["all_reduce"] = row
        if row["gpu"] != self.gpu.slug:
            self.substitutes["all_reduce"] = Borrowed(f"{row['gpu']} all-reduce scaled by the link", "info")
        stretch = ring / ring_s_per_byte(row["ranks"], _link_bytes_s(row["gpu"]))
        return interpolated(row["bytes"], [us * US for us in row["us"]], stretch)

    def problems(self) -> tuple[Problem, ...]:
        """One sentence when constants had to be borrowed."""
        if not self.substitutes:
            return ()
        what = "; ".join(f"{kernel}: {borrowed.how}" for kernel, borrowed in sorted(self.substitutes.items()))
        severity: Severity = "warning" if any(borrowed.severity == "warning" for borrowed in self.substitutes.values()) else "info"
        message = f"kernels of {self.engine} on {self.gpu.slug} were not all measured, so the step time borrows: {what}"
        return (Problem("low_confidence", severity, "hardware.gpu", message, "measure this deployment and recalibrate on your own points"),)


def _borrowed(found: kernels.Found, dtype: str | None) -> Borrowed | None:
    """What a row that is not of this GPU, data type and engine lends: the furthest of the three."""
    row = found.row
    whose = f"{row['gpu']} efficiencies scaled by the datasheet"
    if not found.same_dtype and dtype == kernels.WEIGHT_ONLY:
        return Borrowed(f"{row['dtype']} efficiencies for unpacked weights{'' if found.same_gpu else f', {whose}'}", "warning")
    if not found.same_gpu:
        return Borrowed(whose, "warning")
    if not found.same_dtype:
        return Borrowed(f"{row['dtype']} kernels for {dtype}", "info")
    return None if found.same_engine else Borrowed(f"{row['engine']} kernels", "info")


def _link_bytes_s(slug: str) -> float:
    return gpus()[slug].scale_up.gb_s_per_direction_per_gpu * GB


def ring_s_per_byte(ranks: int, link_bytes_s: float) -> float:
    """Seconds that a ring all-reduce over so many ranks takes for every byte reduced."""
    return RING_PASSES * (ranks - 1) / ranks / link_bytes_s


def interpolated(sizes: list[int], seconds: list[float], stretch: float) -> Callable[[float], float]:
    """Straight lines through measured (bytes, seconds) in log-log; constant below, at the last point's rate above.

    `stretch` multiplies what a point costs above the smallest message: the ring's bytes over the link, relative to the measured one.
    """
    floor = seconds[0]
    logs = [math.log(s) for s in sizes]
    values = [math.log(floor + max(0.0, s - floor) * stretch) for s in seconds]

    def time(size: float) -> float:
        if size <= sizes[0]:
            return floor
        x = math.log(size)
        if x >= logs[-1]:
            return math.exp(values[-1]) * size / sizes[-1]
        i = next(i for i, log in enumerate(logs) if log > x)
        share = (x - logs[i - 1]) / (logs[i] - logs[i - 1])
        return math.exp(values[i - 1] + share * (values[i] - values[i - 1]))

    return time


def knee(compute: float, memory: float, p: float) -> float:
    """max(compute, memory) with a rounded corner of exponent `p`; p = 1 adds them up."""
    if compute <= 0 or memory <= 0:
        return compute + memory
    if p == IDEAL:
        return max(compute, memory)
    if p == 1:
        return compute + memory
    high, low = (compute, memory) if compute > memory else (memory, compute)
    return high * (1 + (low / high) ** p) ** (1 / p)
