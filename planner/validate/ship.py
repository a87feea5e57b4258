"""Makes the data files behind error bands and the Accuracy page: `python -m planner.validate.ship MEASURED.csv [--configs DIR]`.

Writes `catalog/measured.csv` (rows whose source may be passed on, tiers A and B, needed columns) and `catalog/residuals.csv`
(predictions for them at two levels). Run it whenever constants or step time change; a test compares the constants' hash.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import re
from pathlib import Path

from planner.catalog.kernels import fingerprint
from planner.catalog.residuals import CLASSES, COLUMNS, MEASURED_FILE, METRICS, RESIDUALS_FILE
from planner.validate import Report, score
from planner.validate.rows import Row, parse

LICENCES = {
    "trt": "Apache-2.0 (NVIDIA/TensorRT-LLM documentation)",
    "aic": "Apache-2.0 (ai-dynamo/aiconfigurator; InferenceX results as tabulated there)",
    "mlperf51": "MLCommons results, MLPerf Inference v5.1 closed; result not verified by the MLCommons Association",
    "deepseek": "CC0 (DeepSeek open-infra note)",
}
"""Sources whose rows may be passed on, by the start of their ids."""

KEPT = (
    *("id", "source", "date", "engine", "engine_version", "model", "gpu", "n_gpu", "tp", "pp", "dp", "ep", "weight_precision"),
    *("kv_precision", "spec_decode", "isl_mean", "osl_mean", "load_kind", "load_value", "max_num_seqs", "max_batched_tokens"),
    *("out_tok_s_total", "ttft_mean_ms", "ttft_p50_ms", "tpot_mean_ms", "tpot_p50_ms", "e2e_mean_ms", "notes", "tier", "disagg"),
    *("cached_input_tokens", "length_half_width"),
)
MARKS = (
    "enable_attention_dp",
    "dp_attention True",
    "InferenceX",
    "max-load offline",
    "offered rate infinite",
    "500 requests",
    "MLPerf v5.1",
)
"""Words of a row's notes that decide how it is modelled; the rest is left out of the shipped copy."""


def may_ship(row_id: str) -> bool:
    """Whether the row's source allows passing it on."""
    return row_id.startswith(tuple(LICENCES))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m planner.validate.ship", description=__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    with args.measured.open(encoding="utf-8", newline="") as file:
        records = [r for r in csv.DictReader(file) if may_ship(r["id"]) and r["tier"] in ("A", "B")]
    for record in records:
        record["notes"] = shortened(record["notes"])
    with MEASURED_FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, KEPT, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    rows = [parse(record, record["id"]) for record in records]
    reports = {level: score(rows, args.configs, level, args.processes) for level in ("calibrated", "datasheet")}
    write(rows, reports, args.measured)
    for report in reports.values():
        print(report.text().split("\n\n")[0], report.reasons()[:5])


def shortened(notes: str) -> str:
    """The words of a row's notes that decide how it is modelled."""
    pools = re.search(r"disaggregated: .*? GPUs, .*? GPUs", notes)
    return "; ".join([mark for mark in MARKS if mark in notes] + ([pools.group(0)] if pools else []))


def write(rows: list[Row], reports: dict[str, Report], measured: Path) -> None:
    """The residuals: one line a row that was modelled at the calibrated level."""
    scored = {level: {r.id: r for r in report.rows} for level, report in reports.items()}
    with RESIDUALS_FILE.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# kernels={fingerprint()} rows={digest(measured)} made={max(row.date for row in rows)[:10]}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            best = scored["calibrated"].get(row.id)
            if best is None:
                continue
            plain = scored["datasheet"].get(row.id)
            figures = [best.predicted, plain.predicted if plain else {}]
            predicted = [f"{f[m]:.5g}" if m in f else "" for f in figures for m in METRICS]
            writer.writerow([best.id, *(getattr(best, name) for name in CLASSES), *predicted])


def digest(path: Path) -> str:
    """First digits of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


if __name__ == "__main__":
    main()
