"""Reading kernel measurements: one `(key, columns)` pair a table, whatever the layout they come in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Key = dict[str, Any]
Columns = dict[str, np.ndarray]

GPUS = {
    "a100_sxm": "a100-80-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
ENGINES = ("vllm", "sglang", "trtllm")
DTYPES = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4_fp8",
}
VERSIONS = {
    ("gemm", "vllm", "fp8_block"): ("0.19.0", tuple(GPUS.values())),
    ("moe", "vllm", "fp8"): ("0.19.0", ("h100-sxm", "h200-sxm")),
}
"""Tables that are passed over for an older one: vLLM 0.24's block-FP8 products spend 70 µs a call in a set-up path that serving
does not take, and its FP8 experts on Hopper ran a back end five times slower than the one before and after."""
PASSED_OVER = {("mla_decode", "vllm"), ("mla_prefill", "vllm")}
"""Tables of vLLM 0.14 that time the operator with its Python set-up (145 to 300 µs a call); a captured graph does not pay that."""
MIN_ROWS = 40
ROUTING = ("balanced", "power_law_1.2")
"""Routing patterns pooled: real routers lie between perfectly even and this skew."""

FILES = {
    "gemm": "gemm/{engine}/{version}/gemm_perf.parquet",
    "decode_attention": "attention/{engine}/{version}/generation_attention_perf.parquet",
    "prefill_attention": "attention/{engine}/{version}/context_attention_perf.parquet",
    "all_reduce": "comm/{engine}/{version}/custom_allreduce_perf.parquet",
    "moe": "moe/{engine}/{version}/moe_perf.parquet",
    "mla_decode": "mla/{engine}/{version}/generation_mla_perf.parquet",
    "mla_prefill": "mla/{engine}/{version}/context_mla_perf.parquet",
    "all_to_all": "comm/{engine}/{version}/wideep_deepep_ll_perf.parquet",
    "recurrent": "linear_attention/{engine}/{version}/gdn_perf.parquet",
}
CSVS = {
    "decode_attention": "decode_attention.csv",
    "prefill_attention": "prefill_attention.csv",
    "all_reduce": "allreduce_us.csv",
    "moe": "moe_us.csv",
    "all_to_all": "deepep_low_latency_us.csv",
}


def read(directory: str | Path, kernel: str) -> Iterator[tuple[Key, Columns]]:
    """Tables of one kernel. Key: gpu, engine, version and what else tells tables apart; columns: arrays, `seconds` among them.

    Raises FileNotFoundError when `directory` holds neither layout.
    """
    root = Path(directory)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder of kernel tables")
    if any((root / gpu).is_dir() for gpu in GPUS):
        yield from _database(root, kernel)
    elif kernel in CSVS and (root / CSVS[kernel]).exists():
        yield from _csv(root / CSVS[kernel], kernel)


def _database(root: Path, kernel: str) -> Iterator[tuple[Key, Columns]]:
    import pandas as pd

    if kernel == "all_to_all":
        yield from _deepep(root)
        return
    for folder, gpu in GPUS.items():
        for engine in ENGINES:
            if (kernel, engine) in PASSED_OVER:
                continue
            seen: set[tuple] = set()
            for path in _newest_first(root / folder, kernel, engine):
                frame = pd.read_parquet(path).rename(columns=RENAME)
                if kernel == "gemm":
                    # From N, K of 512 up and 8,192 rows down: the layers and steps that exist.
                    frame = frame[(frame.m <= 8192) & frame.n.between(512, 65536) & frame.k.between(512, 32768)]
                frame["seconds"] = frame.pop("latency") / 1e3
                for extra, rows in _split(kernel, frame):
                    version = path.parent.name
                    if kernel == "gemm" and extra["dtype"] == "fp8":
                        rows = _static_scales(root / folder, engine, version, rows)
                    wanted, where = VERSIONS.get((kernel, engine, extra.get("dtype", "")), (None, ()))
                    wanted = wanted if gpu in where else None
                    if tuple(extra.values()) in seen or (len(rows) < MIN_ROWS and kernel != "all_reduce") or wanted not in (None, version):
                        continue
                    seen.add(tuple(extra.values()))
                    yield {"gpu": gpu, "engine": engine, "version": version} | extra, {c: rows[c].to_numpy() for c in rows.columns}


RENAME = {
    "num_heads": "heads", "num_key_value_heads": "kv_heads", "batch_size": "batch", "step": "context", "kv_cache_dtype": "kv",
    "num_gpus": "ranks", "message_size": "bytes", "num_tokens": "tokens", "hidden_size": "hidden", "inter_size": "inter",
    "topk": "top_k", "num_experts": "experts", "moe_tp_size": "tp", "isl": "prompt",
}  # fmt: skip


def _split(kernel: str, frame: Any) -> Iterator[tuple[Key, Any]]:
    """Sub-tables that get constants of their own; the fastest kernel is kept where several were timed."""
    if kernel == "gemm":
        for dtype, rows in frame.groupby("gemm_dtype"):
            if dtype in DTYPES:
                yield {"dtype": DTYPES[dtype]}, _fastest(rows, ["m", "n", "k"])
    elif kernel in ("decode_attention", "prefill_attention"):
        if "window_size" in frame:
            frame = frame[frame.window_size == 0]
        if "attn_dtype" in frame and kernel == "prefill_attention":
            frame = frame[frame.attn_dtype == "bfloat16"]
        frame = frame[frame.heads >= 4]
        frame = (
            frame[(frame.context >= 64) & (frame.batch * frame.context < 3e6)]
            if kernel == "decode_attention"
            else frame[frame.prompt >= 64]
        )
        for (kv, head_dim), rows in frame.groupby(["kv", "head_dim"]):
            if head_dim in (64, 128, 256):
                axis = "context" if kernel == "decode_attention" else "prompt"
                yield {"dtype": DTYPES[kv], "head_dim": int(head_dim)}, _fastest(rows, ["heads", "kv_heads", "batch", axis])
    elif kernel == "all_reduce":
        mode = frame["backend"] if "backend" in frame else frame["kernel_source"]
        # The database counts 16-bit elements: its largest messages would else run at half of what the link is known to do.
        frame = frame.assign(eager=mode.str.contains("eager"), bytes=2 * frame["bytes"])
        for (ranks, eager), rows in frame.groupby(["ranks", "eager"]):
            yield {"ranks": int(ranks), "eager": bool(eager)}, _fastest(rows, ["bytes"])
    elif kernel == "moe":
        frame = frame[frame.distribution.isin(ROUTING) & (frame.moe_ep_size == 1) & (frame.tokens <= 8192)]
        frame = frame[(frame.inter / frame.tp >= 128) & (frame.experts >= 8)]
        for dtype, rows in frame.groupby("moe_dtype"):
            if dtype in DTYPES:
                yield {"dtype": DTYPES[dtype]}, _fastest(rows, ["tokens", "hidden", "inter", "top_k", "experts", "tp", "distribution"])
    elif kernel in ("mla_decode", "mla_prefill"):
        axis = "context" if kernel == "mla_decode" else "prompt"
        frame = frame[(frame.heads >= 4) & (frame[axis] >= 64)]
        for kv, rows in frame.groupby("kv"):
            yield {"dtype": DTYPES[kv]}, _fastest(rows, ["heads", "batch", axis])
    elif kernel == "recurrent":
        keys = ["batch", "seq_len", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"]
        frame = _fastest(frame, ["phase", "kernel_source", *keys])
        for phase, rows in frame.groupby("phase"):
            yield {"phase": phase}, rows.groupby(keys, as_index=False).seconds.sum()


def _static_scales(folder: Path, engine: str, version: str, rows: Any) -> Any:
    """FP8 products without the pass that computes the activations' scale: published FP8 checkpoints bring static scales.

    Only where the collection timed that pass by itself (TensorRT-LLM); elsewhere the rows come back as they are.
    """
    import pandas as pd

    table = folder / f"quantize/{engine}/{version}/computescale_perf.parquet"
    if not table.exists():
        return rows
    scale = pd.read_parquet(table).groupby(["m", "k"], as_index=False).latency.min()
    joined = rows.merge(scale, on=["m", "k"], how="inner")
    return joined.assign(seconds=(joined.seconds - joined.latency / 1e3).clip(lower=joined.seconds * 0.2)).drop(columns="latency")


def _fastest(rows: Any, keys: list[str]) -> Any:
    return rows.groupby(keys, as_index=False).seconds.min()


def _newest_first(folder: Path, kernel: str, engine: str) -> list[Path]:
    pattern = FILES[kernel].format(engine=engine, version="*")

    def natural(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.parent.name)]

    return sorted(folder.glob(pattern), key=natural, reverse=True)


def _deepep(root: Path) -> Iterator[tuple[Key, Columns]]:
    import pandas as pd

    for folder, gpu in GPUS.items():
        seen: set[int] = set()
        for path in _newest_first(root / folder, "all_to_all", "sglang"):
            rows = pd.read_parquet(path)
            rows = rows[~rows.node_num.isin(seen)]
            if len(rows):
                yield from _all_to_all(gpu, path.parent.name, {c: rows[c].to_numpy() for c in rows.columns})
            seen |= set(rows.node_num)


def _all_to_all(gpu: str, version: str, rows: Columns) -> Iterator[tuple[Key, Columns]]:
    for nodes in np.unique(rows["node_num"]):
        pick = rows["node_num"] == nodes
        elements = rows["num_token"] * rows["num_topk"] * rows["hidden_size"]
        yield (
            {"gpu": gpu, "engine": "sglang", "version": version, "nodes": int(nodes)},
            {
                "elements": elements[pick].astype(float),
                "dispatch": rows["dispatch_avg_t_us"][pick] / 1e6,
                "combine": rows["combine_avg_t_us"][pick] / 1e6,
            },
        )


def _csv(path: Path, kernel: str) -> Iterator[tuple[Key, Columns]]:
    """The small tables: head width 128, one version per engine; the column `us` is microseconds."""
    import csv

    with path.open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    names = (
        {}
        if kernel == "all_to_all"
        else RENAME
        | {"inter_size": "inter", "moe_tp_size": "tp", "tp": "ranks", "isl": "prompt", "kv_cache_dtype": "kv", "step": "context"}
    )
    groups: dict[tuple, list[dict]] = {}
    for record in records:
        row = {names.get(name, name): value for name, value in record.items()}
        if row.get("distribution", ROUTING[0]) not in ROUTING:
            continue
        engine, _, version = row.get("engine", "sglang ").replace("_", " ").partition(" ")
        extra = _csv_key(kernel, row)
        if extra is not None and row["gpu"] in GPUS:
            groups.setdefault((row["gpu"], engine, version, *extra.items()), []).append(row)
    for (gpu, engine, version, *pairs), rows in groups.items():
        key = {"gpu": GPUS[gpu], "engine": engine, "version": version} | dict(pairs)
        columns = {name: np.array([float(r[name]) for r in rows]) for name in rows[0] if _number(rows[0][name])}
        if kernel == "all_to_all":
            yield from _all_to_all(key["gpu"], version, columns)
            continue
        columns["seconds"] = columns.pop("us") / 1e6
        keep = np.ones(len(rows), bool)
        if kernel == "decode_attention":
            keep = (columns["heads"] >= 4) & (columns["context"] >= 64) & (columns["batch"] * columns["context"] < 3e6)
        elif kernel == "prefill_attention":
            keep = (columns["heads"] >= 4) & (columns["prompt"] >= 64)
        elif kernel == "moe":
            keep = (columns["tokens"] <= 8192) & (columns["inter"] / columns["tp"] >= 128) & (columns["experts"] >= 8)
        if keep.sum() >= 8:
            yield key, {name: values[keep] for name, values in columns.items()}


def _csv_key(kernel: str, row: dict) -> Key | None:
    if kernel in ("decode_attention", "prefill_attention"):
        return {"dtype": DTYPES[row.get("kv", "bfloat16")], "head_dim": 128}
    if kernel == "all_reduce":
        return {"ranks": int(row["ranks"]), "eager": "eager" in row["mode"]}
    if kernel == "moe":
        return {"dtype": DTYPES[row["moe_dtype"]]} if row["moe_dtype"] in DTYPES else None
    return {}


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
