"""Measured rows become scenarios, predictions become scores, and what cannot be modelled is counted."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from hostile import one_sentence

from planner.catalog.residuals import MEASURED_FILE
from planner.command import main
from planner.problems import InputError
from planner.validate import CannotModel, Report, Row, Scored, case_of, harness, measured_points, names, predict, read, score
from planner.validate.points import link
from planner.validate.rows import parse

CONFIGS = Path(__file__).parent / "data" / "models"

RECORD = {
    "id": "mine-1",
    "engine": "vLLM",
    "engine_version": "0.19.0",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "H100-SXM-80GB",
    "n_gpu": "1",
    "tp": "1",
    "weight_precision": "bf16",
    "isl_mean": "512",
    "osl_mean": "64",
    "load_kind": "concurrency",
    "load_value": "4",
    "tpot_mean_ms": "7.2",
    "ttft_mean_ms": "40",
    "ttft_p50_ms": "38",
    "e2e_mean_ms": "500",
    "out_tok_s_total": "480",
    "tier": "A",
}


def row(**changes: str) -> Row:
    return parse(RECORD | changes, "test")


# ---- reading


def test_a_row_is_read_in_si() -> None:
    r = row()
    assert r.measured == {"tpot": 7.2e-3, "ttft": 0.04, "ttft_p50": 0.038, "e2e": 0.5, "throughput": 480.0}
    assert (r.tp, r.dp, r.isl_mean, r.load_value, r.disagg) == (1, None, 512.0, 4.0, False)


def test_the_median_stands_in_for_a_missing_mean() -> None:
    assert row(tpot_mean_ms="", tpot_p50_ms="7").measured["tpot"] == pytest.approx(7e-3)


@pytest.mark.parametrize("field", ["isl_mean", "tpot_mean_ms"])
def test_text_where_a_number_belongs_is_one_sentence(field: str) -> None:
    with pytest.raises(InputError, match=r"test: .*number or leave it empty"):
        row(**{field: "fast"})


def test_a_table_without_the_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("id,engine\na,vLLM\n")
    with pytest.raises(InputError, match="lacks the columns model, gpu"):
        read(file)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read(tmp_path / "nothing.csv")


# ---- names


@pytest.mark.parametrize(
    ("label", "slug"),
    [
        ("H100-SXM-80GB", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H200-NVL-141GB", "h200-sxm"),
        ("A100-SXM4-80GB", "a100-80-sxm"),
        ("B200-SXM-180GB", "b200-sxm"),
        ("GB200-186GB", "gb200-nvl72"),
        ("GB300-288GB", "gb300-nvl72"),
        ("RTX-PRO-6000-Blackwell-SE-96GB", "rtx-pro-6000"),
        ("MI300X-192GB", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("L40S", "l40s"),
        ("L4", "l4"),
        ("Arc-Pro-B60-Dual-48GB", None),
    ],
)
def test_gpu_labels(label: str, slug: str | None) -> None:
    assert names.gpu_slug(label) == slug


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("nvidia/Llama-3.1-405B-Instruct-FP4", "llama-3.1-405b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("nvidia/Llama-4-Maverick-17B-128E-Instruct-NVFP4", "llama-4-maverick"),
        ("nvidia/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
    ],
)
def test_model_names(name: str, slug: str) -> None:
    found = names.model_of(name, None)
    assert found is not None
    assert found.name == slug


def test_a_model_outside_the_catalogue_comes_from_the_configs_folder(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "intermediate_size": 1024,
        "vocab_size": 1000,
    }
    (tmp_path / "acme__Tiny-Chat.json").write_text(json.dumps(config))
    for name in ("acme/Tiny-Chat", "other/Tiny-Chat-FP8"):
        found = names.model_of(name, tmp_path)
        assert found is not None
        assert found.hf_config is not None
        assert found.hf_config.value["hidden_size"] == 512
    assert names.model_of("acme/Unknown", tmp_path) is None
    with pytest.raises(InputError, match="not a folder"):
        names.model_of("acme/Unknown", tmp_path / "missing")


# ---- scenarios


def test_a_closed_loop_row_becomes_a_benchmark_scenario() -> None:
    s = case_of(row(length_half_width="0.11"), None, "calibrated").scenario
    assert s.simulation.mode == "benchmark"
    assert (s.workload.max_concurrency, s.workload.request_rate, s.workload.num_prompts) == (4, None, 40)
    assert s.workload.input_len.half_width == 0.11  # type: ignore[union-attr]
    assert (s.engine.name, s.engine.version, s.engine.enable_prefix_caching) == ("vllm", "0.19.0", False)


def test_cached_prompts_share_a_prefix_and_even_arrivals_are_even() -> None:
    found = case_of(
        row(
            load_kind="rate",
            load_value="5",
            cached_input_tokens="480",
            prefix_cache_note="ran 10 groups x 10 prompts (100 distinct prompts, repeated)",
            notes="constant-rate arrivals, 600 s",
        ),
        None,
        "calibrated",
    )
    w = found.scenario.workload
    assert (w.request_rate, w.shared_prefix_len, w.prefix_groups, w.burstiness) == (5, 480, 100, harness.CONSTANT)
    assert found.scenario.engine.enable_prefix_caching
    assert found.regime == "open loop"


def test_vendor_tables_queue_everything_and_reserve_whole_sequences() -> None:
    found = case_of(
        row(
            engine="TensorRT-LLM",
            engine_version="1.0 (PyTorch backend)",
            weight_precision="fp8",
            isl_mean="128",
            osl_mean="2048",
            load_kind="offline",
            load_value="",
            source="NVIDIA/TensorRT-LLM:docs/source/performance/perf-overview.md",
        ),
        None,
        "calibrated",
    )
    s = found.scenario
    assert (s.workload.max_concurrency, s.workload.num_prompts) == (3000, 3000)
    assert (s.engine.kv_allocation, s.engine.max_num_seqs, s.precision.kv_cache) == ("contiguous", 2048, "fp8")
    assert s.engine.max_model_len is not None
    assert 2176 <= s.engine.max_model_len < 2300
    assert found.regime == "offline"


def test_attention_data_parallelism_is_read_from_the_notes() -> None:
    found = row(
        model="deepseek-ai/DeepSeek-R1", tp="8", n_gpu="8", weight_precision="fp8", gpu="H200", notes="dp_attention True; closed loop"
    )
    s = case_of(found, None, "calibrated").scenario
    assert (s.parallel.tensor_parallel_size, s.parallel.data_parallel_size, s.parallel.enable_expert_parallel) == (1, 8, True)


def test_dense_copies_are_replicas() -> None:
    s = case_of(row(n_gpu="8", tp="2", dp="4"), None, "calibrated").scenario
    assert (s.parallel.data_parallel_size, s.fleet.replicas) == (1, 4)


def test_disaggregated_pools_are_read_from_the_notes() -> None:
    found = case_of(
        row(
            model="deepseek-ai/DeepSeek-R1",
            engine="SGLang (Dynamo)",
            gpu="B200-SXM-180GB",
            weight_precision="fp4",
            n_gpu="12",
            tp="",
            disagg="True",
            spec_decode="mtp",
            notes="disaggregated: prefill 1 x (tp4 ep4 dpattn True) on 4 GPUs, decode 2 x (tp8 ep8 dpattn False) on 16 GPUs",
        ),
        None,
        "calibrated",
    )
    split = found.scenario.disaggregation
    assert split is not None
    assert (split.prefill.parallel.data_parallel_size, split.prefill.replicas) == (4, 1)
    assert (split.decode.parallel.tensor_parallel_size, split.decode.replicas) == (8, 2)
    assert found.scenario.speculative is not None
    assert found.regime == "closed loop, disaggregated, speculative"


def test_the_gpus_of_a_pool_correct_a_layout_left_at_its_default() -> None:
    notes = "disaggregated: prefill 4 x (tp1 ep1 dpattn True) on 16 GPUs, decode 1 x (tp1 ep1 dpattn True) on 32 GPUs"
    found = row(model="deepseek-ai/DeepSeek-R1", gpu="GB200-186GB", weight_precision="fp4", tp="", n_gpu="48", disagg="True", notes=notes)
    split = case_of(found, None, "calibrated").scenario.disaggregation
    assert split is not None
    assert (split.prefill.parallel.data_parallel_size, split.prefill.parallel.enable_expert_parallel) == (4, True)
    assert split.decode.parallel.gpus == 32


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "Arc-Pro-B60"}, "GPU not in the catalogue"),
        ({"engine": "DeepSeek in-house"}, "engine not modelled"),
        ({"model": "acme/Unknown-7B"}, "no configuration of model"),
        ({"weight_precision": "fp6"}, "weight precision not modelled"),
        ({"isl_mean": ""}, "prompt length not stated"),
        ({"osl_mean": ""}, "output length not stated"),
        ({"load_kind": "", "load_value": ""}, "load not stated"),
        ({"tpot_mean_ms": "", "ttft_mean_ms": "", "ttft_p50_ms": "", "e2e_mean_ms": "", "out_tok_s_total": ""}, "no measured figure"),
        ({"disagg": "True"}, "disaggregated pools not stated"),
        ({"model": "meta-llama/Llama-3.1-405B"}, "the planner says: does_not_fit"),
    ],
)
def test_what_cannot_be_modelled_has_a_reason(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotModel, match=reason):
        predict(case_of(row(**changes), None, "calibrated"))


# ---- scores


@pytest.fixture(scope="module")
def report() -> Report:
    return score([row(), row(id="mine-2", load_value="16", tier="B"), row(id="lost", gpu="Arc-Pro-B60", tier="A")])


def test_errors_are_signed_fractions_of_the_measured_figure(report: Report) -> None:
    first = report.rows[0]
    assert first.error["tpot"] == pytest.approx(first.predicted["tpot"] / 7.2e-3 - 1)
    assert abs(first.error["tpot"]) < 0.2
    assert set(first.error) == {"tpot", "ttft", "ttft_p50", "e2e", "throughput"}


def test_the_json_has_rows_groups_and_skipped(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict()))
    assert set(data["rows"][0]) >= {"id", "predicted", "measured", "error"}
    assert data["rows"][0]["id"] == "mine-1"
    assert data["skipped"] == [{"reason": "GPU not in the catalogue: Arc-Pro-B60", "count": 1, "ids": ["lost"]}]
    group = next(g for g in data["groups"] if g["grouping"] == "all" and g["metric"] == "tpot")
    errors = [r["error"]["tpot"] for r in data["rows"]]
    assert group["n"] == 2
    assert group["bias"] == pytest.approx(sum(errors) / 2)
    assert group["mean_absolute_error"] == pytest.approx(sum(map(abs, errors)) / 2)
    assert {g["grouping"] for g in data["groups"]} >= {"gpu", "model class", "engine", "regime"}


def test_the_share_of_modelled_rows_counts_tiers_a_and_b(report: Report) -> None:
    assert report.modelled_share() == pytest.approx(2 / 3)
    assert "2 of 3 rows modelled" in report.text()
    assert "Arc-Pro-B60" in report.text()


@pytest.mark.slow
def test_rows_come_back_in_order_from_several_processes() -> None:
    rows = [row(id=f"r{i}", load_value=str(i + 1)) for i in range(4)]
    one, two = score(rows), score(rows, processes=2)
    assert [r.id for r in two.rows] == [r.id for r in rows]
    assert [r.predicted for r in one.rows] == [r.predicted for r in two.rows]


def test_the_command_prints_scores_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, RECORD)
        writer.writeheader()
        writer.writerow(RECORD)
    assert main(["validate", str(file), "--json", "--processes", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["id"] == "mine-1"
    assert main(["validate", str(file), "--processes", "1", "--fidelity", "datasheet"]) == 0
    assert "at the datasheet level" in capsys.readouterr().out
    assert main(["validate", str(tmp_path / "nothing.csv")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


# ---- shipped rows


def test_shipped_rows_are_of_sources_that_allow_it() -> None:
    from planner.validate.ship import may_ship

    rows = read(MEASURED_FILE)
    assert len(rows) > 1000
    assert all(may_ship(r.id) and r.tier in ("A", "B") for r in rows)
    assert not any(r.id.startswith(("isimtr", "ix", "lmsys")) for r in rows)
    assert len({r.id for r in rows}) == len(rows)


def test_points_for_the_page_are_complete() -> None:
    points = measured_points()
    assert len(points) > 1000
    for p in points:
        assert p.predicted > 0
        assert p.measured > 0
        assert math.isclose(p.error, p.predicted / p.measured - 1, rel_tol=1e-6, abs_tol=1e-9)
        assert p.link.startswith("https://")


def test_links_name_the_file_at_its_commit() -> None:
    found = link("NVIDIA/TensorRT-LLM@258c7540:docs/source/performance/perf-overview.md (v0.17 throughput table)")
    assert found == "https://github.com/NVIDIA/TensorRT-LLM/blob/258c7540/docs/source/performance/perf-overview.md"
    assert link("somewhere else") == ""


@pytest.mark.slow
def test_a_sample_of_shipped_rows_scores_as_recorded() -> None:
    """Every fortieth shipped row again: the recorded predictions are today's, and dense rows are close to what was measured."""
    from planner.catalog.residuals import residuals

    recorded = {r.id: r for r in residuals()}
    sample = [r for r in read(MEASURED_FILE) if r.id in recorded and r.load_kind == "concurrency" and (r.osl_mean or 0) < 2000][::40]
    assert len(sample) > 5
    report = score(sample)
    for found in report.rows:
        for metric, value in found.predicted.items():
            assert value == pytest.approx(recorded[found.id].predicted["calibrated"][metric], rel=0.05), (found.id, metric)
    dense: list[Scored] = [r for r in report.rows if r.model_class == "dense"]
    assert sum(abs(r.error["tpot"]) for r in dense) / len(dense) < 0.15


@pytest.mark.parametrize(("field", "wrong"), [("tp", "1e15"), ("isl_mean", "1e15"), ("load_value", "1e15"), ("osl_mean", "1e9")])
def test_a_row_beyond_all_scenarios_is_skipped_with_a_reason(field: str, wrong: str) -> None:
    with pytest.raises(CannotModel, match="scenario refused: ") as reason:
        case_of(row(**{field: wrong}), None, "calibrated")
    one_sentence(str(reason.value))
