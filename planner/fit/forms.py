"""Forms of kernel time and how their constants are found: robust least squares on log(predicted / measured).

Every row holds `n`, the kernels it was fitted on, and `error`, their median absolute error; `datasheet_error` is what
max(operations / peak, bytes / bandwidth) would leave on the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from planner import hardware
from planner.architecture import KV_BYTES
from planner.catalog.kernels import COMPUTE
from planner.fit.tables import Columns, Key
from planner.scenario import Hardware
from planner.units import US

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4": 0.53, "mxfp4": 0.53125, "mxfp4_fp8": 0.53125}
"""Bytes of one weight, scales included, as the benchmarks store them."""


def gemm(key: Key, rows: Columns) -> dict | None:
    """launch + (compute^knee + memory^knee)^(1/knee): a max with a rounded corner.

    Narrow products have too few tiles to fill the GPU and shallow ones never leave the pipeline's start: arithmetic costs
    (1 + half_n / n)·(1 + half_k / k) of its share, reading weights (1 + half_n / n).
    """
    peak, bandwidth = _rates(key, COMPUTE[key["dtype"]])
    m, n, k = (rows[c].astype(float) for c in "mnk")
    compute = 2 * m * n * k / peak
    memory = (n * k * WEIGHT_BYTES[key["dtype"]] + 2 * m * k + 2 * m * n) / bandwidth

    def time(x: np.ndarray) -> np.ndarray:
        return _knee(compute / x[0] * (1 + x[4] / n) * (1 + x[5] / k), memory / x[1] * (1 + x[6] / n), x[3]) + x[2] * US

    names = ("compute", "memory", "launch_us", "knee", "half_n_compute", "half_k_compute", "half_n_memory")
    start, low, high = [0.6, 0.8, 5, 2, 300, 100, 300], [0.01, 0.05, 0, 1, 0, 0, 0], [1.5, 1.2, 400, 8, 20000, 20000, 20000]
    return _row(key, names, time, rows["seconds"], start, low, high, np.maximum(compute, memory))


SHAPES = {
    (8, 4096, 14336): "mixtral-8x7b",
    (8, 6144, 16384): "mixtral-8x22b",
    (16, 5120, 8192): "llama-4-scout",
    (128, 5120, 8192): "llama-4-maverick",
    (32, 2880, 2880): "gpt-oss-20b",
    (128, 2880, 2880): "gpt-oss-120b",
    (128, 2048, 768): "qwen3-30b-a3b",
    (128, 4096, 1536): "qwen3-235b-a22b",
    (256, 7168, 2048): "deepseek-v3",
    (384, 7168, 2048): "kimi-k2",
    (512, 4096, 1024): "qwen3.5-397b-a17b",
    (256, 3072, 1536): "minimax-m2.5",
    (160, 5120, 1536): "glm-4.6",
}
"""(experts, hidden, width) of expert layers in wide use: they get rows of their own beside the general one."""


def moe(key: Key, rows: Columns) -> dict | list[dict] | None:
    """As `gemm` over the experts that the tokens touch; narrow shards read and multiply less well.

    One general row, and one per shape of `SHAPES` that was measured, with the general row's half widths.
    """
    peak, bandwidth = _rates(key, COMPUTE[key["dtype"]])
    tokens, hidden, inter, top_k, experts, tp = (rows[c].astype(float) for c in ("tokens", "hidden", "inter", "top_k", "experts", "tp"))
    width = inter / tp
    touched = experts * (1 - (1 - top_k / experts) ** tokens)
    compute = 6 * hidden * width * tokens * top_k / peak
    weights = touched * 3 * hidden * width * WEIGHT_BYTES[key["dtype"]] / bandwidth
    activations = 2 * tokens * hidden * (1 + top_k) / bandwidth
    bound = np.maximum(compute, weights + activations)

    def time(x: np.ndarray) -> np.ndarray:
        memory = (weights * (1 + x[4] / width) + activations) / x[1]
        return _knee(compute * (1 + x[5] / width) / x[0], memory, x[3]) + x[2] * US

    names = ("compute", "memory", "launch_us", "knee", "half_width_memory", "half_width_compute")
    low, high = [0.01, 0.05, 0, 1, 0, 0], [2, 1.5, 300, 8, 2000, 4000]
    general = _row(key, names, time, rows["seconds"], [0.4, 0.8, 40, 1.5, 50, 100], low, high, bound)
    assert general is not None
    out = [general]
    halves = [general[name] for name in names[4:]]
    for shape, model in SHAPES.items():
        pick = (experts == shape[0]) & (hidden == shape[1]) & (inter == shape[2])
        if pick.sum() < 40:
            continue

        def own(x: np.ndarray, pick: np.ndarray = pick) -> np.ndarray:
            return time(np.array([*x, *halves]))[pick]

        start = [general[name] for name in names[:4]]
        row = _row(
            key | {"model": model, "experts": shape[0], "hidden": shape[1]},
            names[:4],
            own,
            rows["seconds"][pick],
            start,
            low[:4],
            high[:4],
            bound[pick],
        )
        # A shape that one form cannot hold (two back ends in one table) says less than all shapes together.
        if row is not None and row["error"] <= 0.15:
            out.append(row | {"half_width_memory": halves[0], "half_width_compute": halves[1]})
    return out


def decode_attention(key: Key, rows: Columns) -> dict | None:
    """launch + heads started + KV read + arithmetic, all linear in the contexts."""
    peak, bandwidth = _rates(key, "bf16")
    batch, context, heads, kv_heads = (rows[c].astype(float) for c in ("batch", "context", "heads", "kv_heads"))
    kv_heads = np.minimum(kv_heads, heads)
    memory = 2 * kv_heads * key["head_dim"] * KV_BYTES[key["dtype"]] * batch * (context + 1) / bandwidth
    compute = 4 * heads * key["head_dim"] * batch * (context + 1) / peak

    def time(x: np.ndarray) -> np.ndarray:
        return (x[0] + x[1] * batch * kv_heads) * US + memory / x[2] + compute / x[3]

    names = ("launch_us", "sequence_head_us", "memory", "compute")
    return _row(
        key, names, time, rows["seconds"], [12, 0.01, 0.85, 0.8], [0, 0, 0.05, 0.05], [300, 1, 1.2, 20], np.maximum(compute, memory)
    )


def prefill_attention(key: Key, rows: Columns) -> dict | None:
    """launch + causal operations at an efficiency that grows with the length attended to."""
    peak, _ = _rates(key, "bf16")
    batch, prompt, heads = (rows[c].astype(float) for c in ("batch", "prompt", "heads"))
    compute = 4 * heads * key["head_dim"] * batch * prompt**2 / 2 / peak

    def time(x: np.ndarray) -> np.ndarray:
        return x[0] * US + compute / (x[1] * prompt / (prompt + x[2]))

    return _row(
        key, ("launch_us", "compute", "half_tokens"), time, rows["seconds"], [12, 0.6, 800], [0, 0.02, 0], [300, 1.5, 20000], compute
    )


def mla_decode(key: Key, rows: Columns) -> dict | None:
    """Absorbed form: one latent of 576 a token for all heads, 576 + 512 multiply-adds a head."""
    peak, bandwidth = _rates(key, "bf16")
    batch, context, heads = (rows[c].astype(float) for c in ("batch", "context", "heads"))
    memory = 576 * KV_BYTES[key["dtype"]] * batch * (context + 1) / bandwidth
    compute = 2 * heads * (576 + 512) * batch * (context + 1) / peak

    def time(x: np.ndarray) -> np.ndarray:
        return (x[0] + x[1] * batch) * US + memory / x[2] + compute / x[3]

    names = ("launch_us", "sequence_us", "memory", "compute")
    return _row(key, names, time, rows["seconds"], [15, 0.03, 0.8, 1], [0, 0, 0.03, 0.05], [300, 10, 1.5, 8], np.maximum(compute, memory))


def mla_prefill(key: Key, rows: Columns) -> dict | None:
    """Expanded form: heads of 192 for queries and keys, 128 for values."""
    peak, _ = _rates(key, "bf16")
    batch, prompt, heads = (rows[c].astype(float) for c in ("batch", "prompt", "heads"))
    compute = 2 * heads * (192 + 128) * batch * prompt**2 / 2 / peak

    def time(x: np.ndarray) -> np.ndarray:
        return x[0] * US + compute / (x[1] * prompt / (prompt + x[2]))

    return _row(key, ("launch_us", "compute", "half_tokens"), time, rows["seconds"], [15, 0.6, 800], [0, 0.02, 0], [300, 2, 20000], compute)


def all_reduce(key: Key, rows: Columns) -> dict | None:
    """Measured times, one point an octave, without the benchmark's hiccups; what lies between is interpolated in log-log."""
    order = np.argsort(rows["bytes"])
    size, seconds = rows["bytes"][order], rows["seconds"][order]
    keep = (size >= 1024) & (size <= 256 * 2**20)
    if keep.sum() < 4:
        return None
    link = hardware.of(Hardware(gpu=key["gpu"])).link_bytes_s
    ring = 2 * (key["ranks"] - 1) / key["ranks"] * size[keep] / link
    out = {**key, "bytes": [int(b) for b in size[keep]], "us": [float(f"{s / US:.4g}") for s in rising(seconds[keep])]}
    return out | {"n": int(keep.sum()), "datasheet_error": _error(ring, seconds[keep])}


def rising(seconds: np.ndarray) -> np.ndarray:
    """Times of messages in order of size, none dearer than a longer one.

    A point that stands out from both neighbours takes the nearer one's time (median of three): it is a hiccup of the benchmark. What
    still falls is lowered to the cheapest longer message, which the shorter one could be padded to.
    """
    inner = np.median([seconds[:-2], seconds[1:-1], seconds[2:]], axis=0)
    smooth = np.concatenate([seconds[:1], inner, seconds[-1:]])
    return np.minimum.accumulate(smooth[::-1])[::-1]


def all_to_all(key: Key, rows: Columns) -> dict | None:
    """Dispatch and combine of expert parallelism: constant + time per element moved (tokens × top_k × hidden)."""
    out: dict[str, Any] = dict(key)
    errors = []
    for name in ("dispatch", "combine"):
        seconds, elements = rows[name], rows["elements"]
        x = _solve(lambda x, e=elements: (x[0] + x[1] * e / 1e6) * US, seconds, [15, 4], [0, 0], [500, 500])
        out |= {f"{name}_us": _short(x[0]), f"{name}_us_per_million": _short(x[1])}
        errors.append(_error((x[0] + x[1] * elements / 1e6) * US, seconds))
    return out | {"n": len(rows["dispatch"]), "error": max(errors)}


def recurrent(key: Key, rows: Columns) -> dict | None:
    """Gated delta rule: decode reads and writes every sequence's state; prefill works through tokens × value heads."""
    batch, length, heads = (rows[c].astype(float) for c in ("batch", "seq_len", "num_v_heads"))
    if key["phase"] == "generation":
        _, bandwidth = _rates(key, "bf16")
        state = 2 * 4 * heads * rows["head_k_dim"] * rows["head_v_dim"] * batch / bandwidth

        def time(x: np.ndarray) -> np.ndarray:
            return x[0] * US + state / x[1]

        return _row(key, ("launch_us", "memory"), time, rows["seconds"], [8, 0.7], [0, 0.02], [200, 1.5], state)
    peak, _ = _rates(key, "bf16")
    compute = 8 * batch * length * heads * rows["head_k_dim"] * rows["head_v_dim"] / peak

    def prompt_time(x: np.ndarray) -> np.ndarray:
        return x[0] * US + compute / x[1]

    return _row(key, ("launch_us", "compute"), prompt_time, rows["seconds"], [30, 0.1], [0, 0.0005], [500, 1.5], compute)


FITS: dict[str, Callable[[Key, Columns], dict | list[dict] | None]] = {
    "gemm": gemm,
    "moe": moe,
    "decode_attention": decode_attention,
    "prefill_attention": prefill_attention,
    "mla_decode": mla_decode,
    "mla_prefill": mla_prefill,
    "recurrent": recurrent,
    "all_reduce": all_reduce,
    "all_to_all": all_to_all,
}


def _knee(a: np.ndarray, b: np.ndarray, p: float) -> np.ndarray:
    return (a**p + b**p) ** (1 / p)


def _rates(key: Key, precision: str) -> tuple[float, float]:
    gpu = hardware.of(Hardware(gpu=key["gpu"]))
    return gpu.peak_flops(precision), gpu.memory_bandwidth_bytes_s


def _row(
    key: Key, names: tuple, time: Callable, seconds: np.ndarray, start: list, low: list, high: list, datasheet: np.ndarray
) -> dict | None:
    x = _solve(time, seconds, start, low, high)
    fitted = {name: _short(value) for name, value in zip(names, x, strict=True)}
    return {**key, **fitted, "n": len(seconds), "error": _error(time(x), seconds), "datasheet_error": _error(datasheet, seconds)}


def _solve(time: Callable, seconds: np.ndarray, start: list, low: list, high: list) -> np.ndarray:
    from scipy.optimize import least_squares

    scale = [max(abs(s), 1e-2) for s in start]
    found = least_squares(lambda x: np.log(time(x) / seconds), start, bounds=(low, high), loss="soft_l1", f_scale=0.1, x_scale=scale)
    return found.x


def _error(predicted: np.ndarray, seconds: np.ndarray) -> float:
    return float(f"{np.median(np.abs(predicted / seconds - 1)):.3f}")


def _short(value: float) -> float:
    return float(f"{value:.4g}") if value > 1e-4 else 0.0
