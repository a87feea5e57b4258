"""The constants come out of the measurements again: a refit on the small tables lands on the shipped rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner.catalog import kernels
from planner.fit import fit
from planner.fit.__main__ import render
from planner.fit.forms import gemm, rising
from planner.fit.tables import read

TABLES = Path(__file__).parent / "data" / "kernels"
KEYS = ("gpu", "engine", "dtype", "head_dim", "ranks", "eager", "nodes", "version")


def shipped(kernel: str, row: dict) -> dict | None:
    """The shipped general row with the same key."""
    wanted = {k: row[k] for k in KEYS if k in row}
    return next((r for r in kernels._rows(kernel) if "model" not in r and all(r.get(k) == v for k, v in wanted.items())), None)


@pytest.fixture(scope="module")
def refitted() -> dict[str, list[dict]]:
    return fit(str(TABLES))


@pytest.mark.slow
def test_all_reduce_times_are_the_measured_ones(refitted: dict[str, list[dict]]) -> None:
    """But for the ends of the small tables, which lack the shortest messages that the shipped ones smooth with."""
    agreed = []
    for row in refitted["all_reduce"]:
        known = shipped("all_reduce", row)
        if known is None:
            continue
        times = dict(zip(known["bytes"], known["us"], strict=True))
        for size, us in zip(row["bytes"], row["us"], strict=True):
            agreed.append(us == pytest.approx(times[size], rel=2e-3))
    assert len(agreed) > 400
    assert np.mean(agreed) > 0.95


def test_no_message_is_shipped_as_dearer_than_a_longer_one() -> None:
    rows = kernels._rows("all_reduce")
    assert all(np.all(np.diff(row["us"]) >= 0) for row in rows)


def test_a_hiccup_of_the_benchmark_is_no_property_of_the_link() -> None:
    assert rising(np.array([38.0, 3.5, 3.6, 3.9, 5.0])).tolist() == [3.6, 3.6, 3.6, 3.9, 5.0], "at the start"
    assert rising(np.array([3.5, 3.6, 78.0, 3.9, 5.0])).tolist() == [3.5, 3.6, 3.9, 5.0, 5.0], "dear in between"
    assert rising(np.array([64.0, 64.0, 65.0, 29.0, 66.0, 70.0])).tolist() == [64.0, 64.0, 64.0, 65.0, 66.0, 70.0], "cheap in between"
    steady = np.array([3.0, 3.1, 4.0, 8.0, 16.0])
    assert rising(steady).tolist() == steady.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "names"), [("decode_attention", ("launch_us",)), ("prefill_attention", ("launch_us", "compute"))])
def test_attention_constants_come_out_again(refitted: dict[str, list[dict]], kernel: str, names: tuple[str, ...]) -> None:
    compared = 0
    for row in refitted[kernel]:
        if (known := shipped(kernel, row)) is not None:
            compared += 1
            for name in names:
                assert row[name] == pytest.approx(known[name], rel=0.15), (row["gpu"], name)
    assert compared >= 5


@pytest.mark.slow
def test_the_shipped_attention_rows_predict_the_small_tables() -> None:
    """Constants fitted on all shapes, held against the sample: bandwidth and arithmetic trade places, their sum does not."""
    errors = []
    for key, rows in read(TABLES, "decode_attention"):
        known = shipped("decode_attention", key)
        if known is None or key["gpu"] == "l40s":  # its cache, not its memory, answers small batches
            continue
        from planner import hardware
        from planner.architecture import KV_BYTES
        from planner.scenario import Hardware

        gpu = hardware.of(Hardware(gpu=key["gpu"]))
        kv_heads = np.minimum(rows["kv_heads"], rows["heads"])
        memory = 2 * kv_heads * 128 * KV_BYTES[key["dtype"]] * rows["batch"] * (rows["context"] + 1) / gpu.memory_bandwidth_bytes_s
        compute = 4 * rows["heads"] * 128 * rows["batch"] * (rows["context"] + 1) / gpu.peak_flops("bf16")
        launch = (known["launch_us"] + known["sequence_head_us"] * rows["batch"] * kv_heads) * 1e-6
        errors.append(np.median(np.abs((launch + memory / known["memory"] + compute / known["compute"]) / rows["seconds"] - 1)))
    assert len(errors) >= 6
    assert max(errors) < 0.1


@pytest.mark.slow
def test_expert_constants_come_out_again(refitted: dict[str, list[dict]]) -> None:
    ratios = []
    for row in refitted["moe"]:
        known = None if "model" in row else shipped("moe", row)
        if known is not None:
            ratios += [row["memory"] / known["memory"], row["compute"] / known["compute"]]
            assert row["error"] < 0.15 < row["datasheet_error"]
    assert len(ratios) > 20
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.12


@pytest.mark.slow
def test_all_to_all_constants_come_out_again(refitted: dict[str, list[dict]]) -> None:
    """Dispatch and combine on one server: H100 11.5 + 3.8 and 11.3 + 8.1 µs per million elements, B200 19 + 2 and 18 + 3."""
    found = {row["gpu"]: row for row in refitted["all_to_all"]}
    for gpu, row in found.items():
        known = next(r for r in kernels._rows("all_to_all") if r["gpu"] == gpu and r["nodes"] == 1)
        for name in ("dispatch_us", "dispatch_us_per_million", "combine_us", "combine_us_per_million"):
            assert row[name] == pytest.approx(known[name], rel=0.15)
    assert {"h100-sxm", "b200-sxm"} <= set(found)


@pytest.mark.parametrize("mode", [1, 64, 512, 4096])
def test_gemm_constants_reproduce_the_published_medians(mode: int) -> None:
    """MFU and MBU medians over the shapes of the database (N and K from 1,024 up) at one number of rows."""
    import csv

    datasheet = {"h100-sxm": (989e12, 3.35e12), "h200-sxm": (989e12, 4.8e12), "a100-80-sxm": (312e12, 2.039e12)}
    shapes = [(n, k) for n in (1024, 2048, 4096, 8192, 10240, 16384) for k in (1024, 2048, 4096, 8192, 16384)]
    compared = 0
    with (TABLES / "gemm_eff_by_m.csv").open() as file:
        for record in csv.DictReader(file):
            engine, _, _ = record["framework"].partition(" ")
            if int(record["m"]) != mode or record["dtype"] != "bfloat16" or record["gpu"] not in ("h100_sxm", "h200_sxm", "a100_sxm"):
                continue
            slug = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "a100_sxm": "a100-80-sxm"}[record["gpu"]]
            found = kernels.find("gemm", slug, engine, "bf16")
            assert found is not None
            r, (peak, bandwidth) = found.row, datasheet[slug]
            use = []
            for n, k in shapes:
                flops, moved = 2 * mode * n * k, 2 * (n * k + mode * k + mode * n)
                compute = flops / peak / r["compute"] * (1 + r["half_n_compute"] / n) * (1 + r["half_k_compute"] / k)
                memory = moved / bandwidth / r["memory"] * (1 + r["half_n_memory"] / n)
                seconds = (compute ** r["knee"] + memory ** r["knee"]) ** (1 / r["knee"]) + r["launch_us"] * 1e-6
                use.append(flops / peak / seconds if mode >= 512 else moved / bandwidth / seconds)
            assert np.median(use) == pytest.approx(float(record["mfu" if mode >= 512 else "mbu"]), rel=0.25)
            compared += 1
    assert compared >= 3


def test_the_form_finds_the_constants_that_made_the_times() -> None:
    m, n, k = (a.ravel().astype(float) for a in np.meshgrid([1, 16, 64, 256, 1024, 4096], [1024, 4096, 16384], [1024, 4096, 16384]))
    compute = 2 * m * n * k / 989.4e12 / 0.7 * (1 + 400 / n) * (1 + 100 / k)
    memory = (2 * n * k + 2 * m * k + 2 * m * n) / 3.35e12 / 0.85 * (1 + 500 / n)
    seconds = (compute**3 + memory**3) ** (1 / 3) + 4e-6
    row = gemm({"gpu": "h100-sxm", "engine": "vllm", "dtype": "bf16"}, {"m": m, "n": n, "k": k, "seconds": seconds})
    assert row is not None
    assert row["error"] < 1e-3
    for name, value in {"compute": 0.7, "memory": 0.85, "launch_us": 4, "half_n_memory": 500}.items():
        assert row[name] == pytest.approx(value, rel=0.05)


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a folder of kernel tables"):
        list(read(tmp_path / "nothing", "gemm"))
    assert fit(str(tmp_path)) == {kernel: [] for kernel in fit(str(tmp_path))}


def test_the_constants_file_is_written_one_row_a_line() -> None:
    document = kernels.document()
    text = render(document)
    assert json.loads(text) == document
    assert text == kernels.KERNELS_FILE.read_text()
