"""Check a claim: what batch a quoted speed or price implies, whether it fits, how far it is from the floor and from the prediction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.economics import operating
from planner.plan import deployment
from planner.plan.alone import lone_ttft_s
from planner.plan.deployment import Deployment
from planner.plan.steady import input_tokens
from planner.problems import InputError, Problem
from planner.scenario import Overrides, Precision, Scenario
from planner.units import GB, GIB, HOUR_S, MS, MTOK

CLOSE = 1.25
"""Within this factor a prediction explains a measurement."""
PCIE_GB_S = 32.0
"""One direction of PCIe 4.0 x16, GB/s: the link of a box that left the fast one out."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says. Give a rate, or a price that implies one; everything else sharpens the verdict."""

    output_tokens_per_s: float | None = None
    """Of one replica."""
    usd_per_mtok_output: float | None = None
    """A quoted price per million output tokens."""
    usd_per_gpu_hour: float | None = None
    """The hourly price behind it."""
    concurrency: int | None = None
    """Requests in flight, or the batch."""
    ttft_s: float | None = None
    weights_gb_per_gpu: float | None = None
    """What the source says the weights take, GB (decimal)."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Something that may have been different from what was assumed."""

    cause: str
    output_tokens_per_s: float
    """What the planner predicts if so."""
    ratio: float
    """That over the claim: near 1 it explains the number."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The check of one claim."""

    output_tokens_per_s: float
    implied_batch: float
    """Sequences that the rate needs if every step only read the weights once (bandwidth floor)."""
    implied_batch_calibrated: float | None
    """Sequences at which the calibrated steady state gives this rate; None when no batch that fits does."""
    fits: bool
    shortfall_gib_per_gpu: float
    cache_limited_batch: int
    floor_output_tokens_per_s: float | None
    """Bandwidth floor at the stated concurrency: tokens/s if steps only read weights; None without a concurrency."""
    times_below_floor: float | None
    predicted_output_tokens_per_s: float | None
    """Calibrated steady state at the stated concurrency."""
    claimed_over_predicted: float | None
    step_s: float | None
    """The step time that the claim implies at its concurrency."""
    floor_step_s: float
    lone_ttft_s: float
    weights_gb_per_gpu: float
    """What the weights of this model at this precision and split really take."""
    findings: tuple[str, ...]
    explanations: tuple[Explanation, ...]
    """Likely causes, nearest to the claimed number first."""


def check(scenario: Scenario, claim: Claim) -> Verdict:
    """Compare a claim with what the deployment of `scenario` could do.

    Raises InputError when neither a rate nor a price with its hourly price is given, or when the layout is illegal.
    """
    wrong = next((p for p in deployment.problems(scenario) if p.severity == "error"), None)
    if wrong is not None:
        raise InputError(f"{wrong.field}: {wrong.message}; {wrong.remedy}")
    rate = _rate(scenario, claim)
    real = deployment.of(scenario)
    n = claim.concurrency
    weights_s = _floor_step_s(real, n or 1)
    shortfall = real.memory.shortfall_bytes_per_gpu / GIB
    floor_rate = None if n is None else n / weights_s
    predicted = None if n is None or not real.memory.fits else _throughput(real, n)
    weights_gb = real.memory.weights_bytes_per_gpu / GB
    verdict = Verdict(
        output_tokens_per_s=rate,
        implied_batch=rate * weights_s,
        implied_batch_calibrated=_implied_batch(real, rate) if real.memory.fits else None,
        fits=real.memory.fits,
        shortfall_gib_per_gpu=shortfall,
        cache_limited_batch=real.memory.cache_limited_batch,
        floor_output_tokens_per_s=floor_rate,
        times_below_floor=None if floor_rate is None else floor_rate / rate,
        predicted_output_tokens_per_s=predicted,
        claimed_over_predicted=None if predicted is None else rate / predicted,
        step_s=None if n is None else n / rate,
        floor_step_s=weights_s,
        lone_ttft_s=lone_ttft_s(real, max(1, round(input_tokens(scenario)))),
        weights_gb_per_gpu=weights_gb,
        findings=(),
        explanations=(),
    )
    causes = () if predicted is None else _explanations(scenario, n or 1, rate)
    return _told(verdict, claim, scenario, causes, real.step_time.notes)


def _rate(scenario: Scenario, claim: Claim) -> float:
    if claim.output_tokens_per_s is not None:
        if claim.output_tokens_per_s <= 0:
            raise InputError(f"output_tokens_per_s: {claim.output_tokens_per_s:g} must be above 0")
        return claim.output_tokens_per_s
    hourly = claim.usd_per_gpu_hour if claim.usd_per_gpu_hour is not None else scenario.price.usd_per_gpu_hour
    if not claim.usd_per_mtok_output or not hourly:
        raise InputError(
            "claim: give a rate (output_tokens_per_s; --tokens-per-s on the command line), or usd_per_mtok_output with usd_per_gpu_hour"
        )
    return hourly * scenario.parallel.gpus / HOUR_S / claim.usd_per_mtok_output * MTOK


def _floor_step_s(real: Deployment, batch: int) -> float:
    """Reading what `batch` tokens touch of the worst GPU's weights once at the datasheet bandwidth: no step is faster without speculation.

    Of routed experts a token visits top_k, so n tokens with independent choices visit E (1 − (1 − k/E)ⁿ) of E on average. The textbook
    level reads every weight.
    """
    if real.scenario.fidelity == "textbook":
        return real.memory.weights_bytes_per_gpu / real.gpu.memory_bandwidth_bytes_s
    touched = []
    for stage in real.shard.stages:
        left_alone = sum(
            layer.count
            * layer.moe.experts_per_rank
            * layer.moe.weight_bytes_per_expert
            * (1 - layer.moe.top_k / layer.moe.experts) ** batch
            for layer in stage.layers
            if layer.moe is not None
        )
        touched.append(stage.decode_read_bytes - left_alone)
    return max(touched) / real.gpu.memory_bandwidth_bytes_s


def _throughput(real: Deployment, batch: int) -> float:
    """Output tokens/s of the calibrated steady state with this many requests in flight, as many decoding as fit."""
    return operating.operating(real, max(1, min(batch, operating.largest_batch(real)))).output_tokens_per_s


def _implied_batch(real: Deployment, rate: float) -> float | None:
    most = operating.largest_batch(real)
    if most < 1 or _throughput(real, most) < rate:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _throughput(real, middle) <= rate else (low, middle)
    return float(high if _throughput(real, low) < rate else low)


def _explanations(scenario: Scenario, batch: int, rate: float) -> tuple[Explanation, ...]:
    """What the planner predicts if one thing was different, nearest to the claim first."""
    engine, hardware = scenario.engine, scenario.hardware
    slow_link = hardware.model_copy(
        update={"overrides": Overrides.model_validate(hardware.overrides.model_dump() | {"link_gb_s": PCIE_GB_S})}
    )
    changed: dict[str, dict[str, Any]] = {
        "the engine runs in eager mode (no CUDA graphs)": {"engine": engine.model_copy(update={"enforce_eager": True})},
        "all-reduce goes over PCIe or a slow path": {"hardware": slow_link},
        "the weights are 16-bit after all": {"precision": Precision(weights="bf16", kv_cache=scenario.precision.kv_cache)},
        "the host schedules between steps (no asynchronous scheduling)": {"engine": engine.model_copy(update={"async_scheduling": False})},
    }
    found = []
    for cause, update in changed.items():
        if update.get("precision") == scenario.precision or (
            cause.startswith("all-reduce") and scenario.parallel.tensor_parallel_size == 1
        ):
            continue
        other = deployment.of(scenario.model_copy(update=update))
        if other.memory.fits:
            found.append(_explanation(cause, _throughput(other, batch), rate))
    real = deployment.of(scenario)
    implied = _implied_batch(real, rate)
    if implied is not None and implied < batch / CLOSE:
        found.append(
            _explanation(
                f"the client or a limit keeps only {implied:.0f} of {batch} requests in flight", _throughput(real, round(implied)), rate
            )
        )
    if real.memory.cache_limited_batch < batch:
        most = real.memory.cache_limited_batch
        found.append(_explanation(f"the cache holds only {most} sequences", _throughput(real, most), rate))
    return tuple(sorted(found, key=lambda e: max(e.ratio, 1 / e.ratio)))


def _explanation(cause: str, tokens_per_s: float, rate: float) -> Explanation:
    return Explanation(cause, tokens_per_s, tokens_per_s / rate)


def _told(v: Verdict, claim: Claim, scenario: Scenario, causes: tuple[Explanation, ...], borrowed: tuple[Problem, ...]) -> Verdict:
    """The verdict in sentences."""
    told = [f"{v.output_tokens_per_s:,.0f} output tokens/s imply a batch of {v.implied_batch:.1f} at the bandwidth floor"]
    if not v.fits:
        told.append(
            f"{scenario.model.name} in {scenario.precision.weights} does not fit {scenario.parallel.gpus} × {scenario.hardware.gpu} at "
            f"gpu_memory_utilization {scenario.engine.gpu_memory_utilization:g}: short {v.shortfall_gib_per_gpu:,.2f} GiB per GPU"
        )
    if v.times_below_floor is not None and claim.concurrency is not None:
        step = (
            f"a step of {(v.step_s or 0) / MS:.1f} ms at batch {claim.concurrency} against {v.floor_step_s / MS:.1f} ms to read the weights"
        )
        if v.times_below_floor >= CLOSE:
            told.append(f"{v.times_below_floor:.1f}× above the bandwidth floor: {step}")
        elif v.times_below_floor >= 1:
            told.append(f"close to the bandwidth floor: {step}")
        else:
            told.append(
                f"faster than the bandwidth floor ({step}): it counts input tokens, several replicas, speculation or a smaller model"
            )
    if v.claimed_over_predicted is not None:
        times = v.claimed_over_predicted
        told.append(f"the calibrated prediction is {v.predicted_output_tokens_per_s:,.0f} tokens/s; the claim is {times:.2f} of it")
        if times < 1 / CLOSE:
            near = next((e for e in causes if 1 / CLOSE <= e.ratio <= CLOSE), None)
            nearest = "no single cause explains it" if near is None else f"{near.output_tokens_per_s:,.0f} tokens/s if {near.cause}"
            told.append(f"{nearest}; look at eager mode, all-reduce and the client's concurrency limit")
        elif times > CLOSE and (v.times_below_floor or 0) >= 1:
            why = borrowed[0].message if borrowed else "better kernels than those measured, speculation, or prompts that were cached"
            told.append(f"faster than predicted but not than the hardware allows: {why}")
    if claim.ttft_s is not None:
        if claim.ttft_s < v.lone_ttft_s / CLOSE:
            alone = f"{v.lone_ttft_s / MS:,.0f} ms of a lone uncached prompt"
            told.append(f"TTFT {claim.ttft_s / MS:,.0f} ms is below the {alone}: cached, or a shorter prompt")
        elif claim.ttft_s > v.lone_ttft_s * 2:
            told.append(f"TTFT {claim.ttft_s / MS:,.0f} ms against {v.lone_ttft_s / MS:,.0f} ms alone: the rest is waiting")
    if claim.weights_gb_per_gpu is not None:
        ratio = claim.weights_gb_per_gpu / v.weights_gb_per_gpu
        if not 1 / CLOSE <= ratio <= CLOSE:
            told.append(
                f"weights figure inconsistent: {claim.weights_gb_per_gpu:.0f} GB per GPU claimed, {v.weights_gb_per_gpu:.0f} GB is what "
                f"{scenario.precision.weights} weights over {scenario.parallel.gpus} GPUs take"
            )
    return replace(v, findings=tuple(told), explanations=causes)
