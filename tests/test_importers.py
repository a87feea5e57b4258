"""Results of other benchmark tools become measured rows; damaged and unknown files become one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.measure import importers
from planner.measure.rows import COLUMNS, RESULTS, from_csv, has_results, row, to_csv, with_context
from planner.problems import InputError

SAMPLES = Path(__file__).parent / "data" / "benchmarks"
FILES = sorted(path for path in SAMPLES.iterdir() if path.suffix != ".md" and "failed" not in path.name)


def one(name: str) -> dict:
    (found,) = importers.read(SAMPLES / name)
    return found


def check(found: dict, **expected: object) -> None:
    for name, value in expected.items():
        assert found.get(name) == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name


def test_vllm_bench_serve() -> None:
    check(
        one("vllm_bench_serve.json"),
        engine="vLLM",
        model="facebook/opt-125m",
        date="2026-08-16",
        load_kind="concurrency",
        load_value=2,
        isl_mean=32.0,
        osl_mean=16.0,
        ttft_mean_ms=215.53594200008774,
        ttft_p50_ms=55.68139649994919,
        tpot_mean_ms=11.265828258331112,
        tpot_p99_ms=11.979541883350674,
        out_tok_s_total=82.89297074037474,
        in_tok_s_total=256 / 1.5441598830002476,
        req_s=5.180810671273421,
        n_failed=0,
        e2e_mean_ms=None,
    )


def test_vllm_loads() -> None:
    base = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    loads = {}
    for change in (
        {"request_rate": 4.0, "max_concurrency": None},
        {"request_rate": 4.0},
        {"max_concurrency": None},
        {"request_rate": float("inf")},
    ):
        (found,) = importers.from_text(json.dumps(base | change), "x.json")
        loads[str(change)] = (found["load_kind"], found["load_value"], found["notes"])
    assert list(loads.values()) == [
        ("rate", 4, None),
        ("rate", 4, "at most 2 in flight"),
        ("offline", None, None),
        ("concurrency", 2, None),
    ]


def test_vllm_detailed_lists_give_what_the_summary_leaves_out() -> None:
    base = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    lists = {
        "input_lens": [100, 100, 300],
        "output_lens": [3, 5, 0],
        "ttfts": [0.1, 0.2, 0.0],
        "itls": [[0.01, 0.03], [0.02] * 4, []],
        "errors": ["", "", "ClientError"],
    }
    (found,) = importers.from_text(json.dumps(base | lists), "detail.json")
    check(found, e2e_mean_ms=210.0, e2e_p50_ms=210.0, length_half_width=0.5, tpot_mean_ms=11.265828258331112)


@pytest.mark.parametrize(
    ("fields", "method", "note"),
    [
        ({"spec_decode_acceptance_length": 2.73}, "unknown", "acceptance length 2.73"),
        ({"accept_length": 3.1, "server_info": {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 5}}, "eagle3-5", "length 3.10"),
        ({"accept_length": 1.9, "server_info": {"speculative_algorithm": "NEXTN"}}, "mtp", "acceptance length 1.90"),
        ({"spec_decode_per_position_acceptance_rates": [0.7, 0.5, 0.3]}, "unknown-3", "0.700, 0.500, 0.300"),
        ({"accept_length": 1.0}, None, None),
        ({}, None, None),
    ],
)
def test_accepted_drafts_make_a_speculative_row(fields: dict, method: str | None, note: str | None) -> None:
    base = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    for name in ("spec_decode_acceptance_length", "spec_decode_per_position_acceptance_rates"):
        base.pop(name, None)
    (found,) = importers.from_text(json.dumps(base | fields), "spec.json")
    assert found["spec_decode"] == method
    assert note in found["notes"] if note else "acceptance" not in (found["notes"] or "")


def test_vllm_acceptance_is_noted() -> None:
    base = json.loads((SAMPLES / "vllm_bench_serve.json").read_text())
    (found,) = importers.from_text(json.dumps(base | {"spec_decode_per_position_acceptance_rates": [0.71, 0.53]}), "spec.json")
    assert "acceptance by position 0.710, 0.530" in found["notes"]


def test_several_runs_in_one_file() -> None:
    base = (SAMPLES / "vllm_bench_serve.json").read_text()
    other = (SAMPLES / "vllm_bench_serve_all_failed.json").read_text()
    for text in (f"[{base}, {other}]", base.replace("\n", "") + "\n" + other, base + base):
        found = importers.from_text(text, "runs.json")
        assert {r["id"] for r in found} <= {"runs.json#1", "runs.json#2"}
        assert found[0]["ttft_mean_ms"] == pytest.approx(215.536, rel=1e-4)


def test_printed_tables() -> None:
    check(
        one("vllm_console.txt"),
        isl_mean=999.0,
        load_kind="offline",
        ttft_mean_ms=902.25,
        tpot_mean_ms=44.36,
        tpot_p99_ms=67.41,
        itl_p99_ms=66.37,
    )
    text = "Traffic request rate: inf\nMaximum request concurrency: 32\n" + (SAMPLES / "vllm_console.txt").read_text()
    first, second = importers.from_text(text + "Traffic request rate: 4.0\n" + (SAMPLES / "vllm_console.txt").read_text(), "log.txt")
    check(first, load_kind="concurrency", load_value=32)
    check(second, load_kind="rate", load_value=4)


def test_tables_kept_as_comments_of_a_script() -> None:
    table = (SAMPLES / "vllm_console.txt").read_text()
    runs = "".join(f"Traffic request rate: inf\nMaximum request concurrency: {n}\n{table}\n" for n in (32, 64))
    commented = "#!/bin/sh\n" + "".join(f"# {line}\n" for line in runs.splitlines())
    assert [(r["load_kind"], r["load_value"], r["ttft_mean_ms"]) for r in importers.from_text(commented, "run.sh")] == [
        ("concurrency", 32, 902.25),
        ("concurrency", 64, 902.25),
    ]


def test_sglang() -> None:
    first, second = importers.read(SAMPLES / "sglang_bench_serving.jsonl")
    check(
        first,
        engine="SGLang",
        load_kind="rate",
        load_value=1,
        osl_mean=160347 / 300,
        ttft_p50_ms=218.80842198152095,
        e2e_mean_ms=24370.785914754182,
    )
    check(second, load_value=4, req_s=1200 / 380.2824916690588, tpot_mean_ms=None)


def test_answers_that_were_not_streamed_have_no_ttft() -> None:
    found = one("sglang_console.txt")
    check(found, load_kind="rate", load_value=2, e2e_mean_ms=2098.07, ttft_mean_ms=None, ttft_p50_ms=None, tpot_mean_ms=None)
    assert "not streamed" in found["notes"]


def test_guidellm() -> None:
    check(
        one("guidellm.json"),
        model="Qwen/Qwen3-0.6B",
        date="2026-02-20",
        load_kind="concurrency",
        load_value=1,
        isl_mean=264.0,
        osl_mean=128.0,
        ttft_mean_ms=196.17911902340978,
        ttft_p95_ms=1171.7853546142578,
        tpot_mean_ms=20.59245331422209,
        e2e_mean_ms=2811.793923377991,
        e2e_p99_ms=4029.85954284668,
        req_s=0.35,
        n_failed=0,
    )


@pytest.mark.parametrize(
    ("strategy", "load"),
    [
        ({"type_": "constant", "rate": 5.0}, ("rate", 5)),
        ({"type_": "poisson", "rate": 2.5}, ("rate", 2.5)),
        ({"type_": "concurrent", "streams": 16}, ("concurrency", 16)),
        ({"kind": "throughput", "max_concurrency": 64}, ("concurrency", 64)),
        ({"kind": "throughput"}, ("offline", None)),
        ({"kind": "something new"}, ("concurrency", 1)),
    ],
)
def test_guidellm_strategies(strategy: dict, load: tuple) -> None:
    data = json.loads((SAMPLES / "guidellm.json").read_text())
    data["benchmarks"][0]["config"]["strategy"] = strategy
    (found,) = importers.from_text(json.dumps(data), "g.json")
    assert (found["load_kind"], found["load_value"]) == load
    del data["benchmarks"][0]["config"]
    data["benchmarks"][0]["args"] = {"strategy": strategy}
    (older,) = importers.from_text(json.dumps(data), "g.json")
    assert (older["load_kind"], older["load_value"]) == load


def test_aiperf() -> None:
    check(
        one("aiperf.json"),
        model="qwen3.6-nvfp4",
        date="2026-07-03",
        load_kind="concurrency",
        load_value=8,
        isl_mean=467.4791666666667,
        osl_mean=228.23958333333334,
        ttft_p95_ms=200.52771675,
        tpot_mean_ms=9.05019651281432,
        e2e_p99_ms=6452.356786149998,
        out_tok_s_total=769.5574669258838,
        n_requests=96,
        n_failed=0,
    )


@pytest.mark.parametrize(
    ("config", "load"),
    [
        ({"perf_analyzer": {"stimulus": {"concurrency": 10}}, "model_names": ["m"]}, ("concurrency", 10)),
        ({"loadgen": {"request_rate": 3.5, "concurrency": 1}, "endpoint": {"model_names": ["m"]}}, ("rate", 3.5)),
        ({"concurrency": 4, "request_rate": None, "model": ["m"]}, ("concurrency", 4)),
        (
            {
                "phases": [{"type": "concurrency", "concurrency": 2, "exclude_from_results": True}, {"type": "poisson", "rate": 7}],
                "model": "m",
            },
            ("rate", 7),
        ),
        ({"model": "m"}, (None, None)),
    ],
)
def test_aiperf_and_genai_perf_configurations(config: dict, load: tuple) -> None:
    data = json.loads((SAMPLES / "aiperf.json").read_text()) | {"input_config": config}
    (found,) = importers.from_text(json.dumps(data), "a.json")
    assert (found["load_kind"], found["load_value"], found["model"]) == (*load, "m")
    nested = {"input_config": config, "records": {k: v for k, v in data.items() if isinstance(v, dict) and "avg" in v}}
    (older,) = importers.from_text(json.dumps(nested), "a.json")
    assert older["tpot_mean_ms"] == found["tpot_mean_ms"]


def test_aiperf_command_line_tells_the_load() -> None:
    data = json.loads((SAMPLES / "aiperf.json").read_text()) | {
        "input_config": {},
        "run_info": {"cli_command": "aiperf profile --request-rate '12.5'"},
    }
    (found,) = importers.from_text(json.dumps(data), "a.json")
    assert (found["load_kind"], found["load_value"]) == ("rate", 12.5)


def test_genai_perf_table_and_csv_agree() -> None:
    table, sheet = one("genai_perf_console.txt"), one("genai_perf.csv")
    check(
        table,
        isl_mean=550.06,
        osl_mean=261.9,
        ttft_mean_ms=16.26,
        tpot_mean_ms=1.85,
        tpot_p99_ms=2.02,
        e2e_mean_ms=499.2,
        out_tok_s_total=520.87,
    )
    same = [name for name in COLUMNS if name not in ("id", "source")]
    assert {n: table[n] for n in same} == {n: sheet[n] for n in same}


def test_aiperf_records() -> None:
    check(
        one("aiperf_records.jsonl"), n_requests=2, n_failed=1, osl_mean=9.0, ttft_mean_ms=255.886568, tpot_mean_ms=5.2048325, load_kind=None
    )


def test_inference_perf_derives_tpot_from_tokens() -> None:
    found = one("inference_perf_stage.json")
    check(
        found,
        load_kind="rate",
        load_value=1,
        ttft_mean_ms=39.332198157596095,
        e2e_p95_ms=1783.330243831733,
        tpot_p99_ms=None,
        tpot_p95_ms=None,
    )
    assert found["tpot_mean_ms"] == pytest.approx((797.6201 - 39.3322) / (105.38333 - 1), rel=1e-5)
    assert "inference-perf's own is 5.653 ms" in found["notes"]


def test_inference_perf_requests() -> None:
    records = [
        {
            "start_time": 10.0,
            "end_time": 12.0,
            "request": "",
            "info": {"input_tokens": 100, "output_tokens": 11, "output_token_times": [11.0, 12.0]},
        },
        {"start_time": 10.0, "end_time": None, "info": {"input_tokens": 100, "output_tokens": 0}, "error": {"error_type": "TimeoutError"}},
    ]
    (found,) = importers.from_text(json.dumps(records), "per_request_lifecycle_metrics.json")
    check(found, ttft_mean_ms=1000.0, tpot_mean_ms=100.0, e2e_mean_ms=2000.0, n_requests=2, n_failed=1)


def test_llmperf() -> None:
    found = one("llmperf_summary.json")
    check(
        found,
        model="meta-llama/Llama-2-70b-chat-hf",
        date="2023-12-21",
        load_kind="concurrency",
        load_value=5,
        ttft_p99_ms=474.5305190600024,
    )
    assert found["tpot_mean_ms"] == pytest.approx((2354.6668 - 248.9027) / 145.94667, rel=1e-6), (
        "its own figure spreads TTFT over the tokens"
    )
    assert found["req_s"] == pytest.approx(84.73327721639254 / 60)
    nested = {
        "model": "m",
        "num_concurrent_requests": 2,
        "results": {"ttft_s": {"mean": 0.2, "quantiles": {"p99": 0.3}}, "number_errors": 1},
    }
    (other,) = importers.from_text(json.dumps(nested), "n.json")
    check(other, ttft_mean_ms=200.0, ttft_p99_ms=300.0, n_failed=1)


def test_a_wrappers_file_of_several_runs() -> None:
    found = importers.read(SAMPLES / "llmperf_by_concurrency.json")
    assert [(r["id"].rpartition("#")[2], r["load_value"]) for r in found] == [("1", 1), ("8", 8), ("64", 64)]
    check(found[2], model="meta-llama/Meta-Llama-3-8B-Instruct", load_kind="concurrency", n_requests=128, ttft_p99_ms=16745.895892822155)
    short = importers.read(SAMPLES / "llmperf_bench_summary.json")
    assert [r["ttft_mean_ms"] for r in short] == pytest.approx([r["ttft_mean_ms"] for r in found])
    assert [r["out_tok_s_total"] for r in short] == pytest.approx([r["out_tok_s_total"] for r in found])
    assert all(r["tpot_mean_ms"] is None and "no TPOT" in r["notes"] for r in short)


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".json" and "failed" not in p.name], ids=lambda p: p.name)
def test_any_tools_result_is_found_inside_another_programs_file(path: Path) -> None:
    plain = json.loads(path.read_text())
    wrapped = importers.from_text(json.dumps({"settings": {"tp": 1}, "runs": {"low": plain, "high": plain}}), "wrapped.json")
    rows = importers.read(path)
    assert [r["ttft_mean_ms"] for r in wrapped] == [r["ttft_mean_ms"] for r in rows] * 2
    assert wrapped[0]["id"].startswith("wrapped.json#runs#low")


def test_llmperf_responses() -> None:
    responses = [
        {
            "error_code": None,
            "error_msg": "",
            "ttft_s": 0.2,
            "end_to_end_latency_s": 1.2,
            "number_input_tokens": 550,
            "number_output_tokens": 11,
        },
        {
            "error_code": 500,
            "error_msg": "x",
            "ttft_s": 0,
            "end_to_end_latency_s": 0,
            "number_input_tokens": 550,
            "number_output_tokens": 0,
        },
    ]
    (found,) = importers.from_text(json.dumps(responses), "individual_responses.json")
    check(found, ttft_mean_ms=200.0, tpot_mean_ms=100.0, n_failed=1)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_rows_survive_the_csv(path: Path) -> None:
    found = importers.read(path)
    back = from_csv(to_csv(found))
    for a, b in zip(found, back, strict=True):
        assert set(b) == set(COLUMNS)
        for name in COLUMNS:
            assert b[name] == (pytest.approx(a[name], rel=1e-5) if isinstance(a[name], float) else a[name]), name
    again = importers.from_text(json.dumps({"rows": found}), "rows.json")
    assert [r["id"] for r in again] == [r["id"] for r in found]


def test_means_obey_their_definition() -> None:
    """TTFT + TPOT × (tokens − 1) = E2E, within the spread that means of ratios have."""
    for path in FILES:
        for found in importers.read(path):
            if all(found.get(n) for n in ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms", "osl_mean")):
                whole = found["ttft_mean_ms"] + found["tpot_mean_ms"] * (found["osl_mean"] - 1)
                assert whole == pytest.approx(found["e2e_mean_ms"], rel=0.05), path.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("{}", "is JSON, but no benchmark result known here; give"),
        ("[]", "is JSON, but no benchmark result known here"),
        ('{"hello": 1, "world": 2}', r"\(its fields are hello, world…\)"),
        ('{"completed": 3, ', "is damaged: JSON breaks at line 1"),
        ('{"completed": 3, "mean_ttft_ms": [1], "total_input_tokens": {}}', "nothing was measured: it holds no completed request"),
        ('{"avg_latency": 67.8, "latencies": [67.7], "percentiles": {"50": 67.8}}', "it is of vllm bench latency, which times no streams"),
        ("hello world", "is no benchmark result known here"),
        ("a,b,c\n1,2,3", "is no benchmark result known here"),
        ("ttft_mean_ms,tpot_mean_ms\n1,2,3", "has 3 cells where the header has 2"),
        ("ttft_mean_ms,tpot_mean_ms\nx,", "holds no row with a measured figure"),
        ('{"benchmarks": [{"metrics": {"requests_per_second": 3}}]}', "nothing was measured"),
        ('{"benchmarks": [{"metrics": {}}, 5]}', "nothing was measured"),
        ('{"load_summary": {}, "successes": {"latency": 4}}', "nothing was measured"),
        ('{"request_latency": {"avg": "x"}, "error_summary": [{"count": 7}]}', "all 7 requests failed"),
        ('{"results_ttft_s_mean": null}', "nothing was measured"),
        ("[" * 100_000, "is damaged|nested too deeply"),
        ('{"completed": ' + "9" * 5000 + "}", "is damaged: Exceeds the limit"),
        ("=" * 300_000, "is no benchmark result known here"),
        ("\n" * 200_000 + "x", "is no benchmark result known here"),
        ("Metric,avg\n" + " " * 100_000 + "x,1", "nothing was measured"),
        ('{"schema": "planner-measure/1"}', "looks like a result of planner measure, but is damaged"),
        ('{"schema": "planner-measure/1", "rows": [3]}', "looks like a result of planner measure, but is damaged"),
    ],
)
def test_unknown_and_damaged_files_are_one_sentence(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        importers.from_text(text, "results.json")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith("results.json")


def test_a_run_in_which_everything_failed() -> None:
    with pytest.raises(InputError, match="nothing was measured: all 8 requests failed"):
        importers.read(SAMPLES / "vllm_bench_serve_all_failed.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        importers.read(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        importers.read(tmp_path / "binary.json")


def test_what_only_the_user_knows_fills_empty_cells() -> None:
    (found,) = with_context([row(id="a", ttft_mean_ms=1.0, engine="vLLM")], {"gpu": "H100-SXM-80GB", "tp": "2", "engine": "other"})
    check(found, gpu="H100-SXM-80GB", tp=2.0, engine="vLLM")
    with pytest.raises(InputError, match="is not a column"):
        with_context([], {"gpuu": "x"})


def test_impossible_numbers_are_unknown() -> None:
    found = row(ttft_mean_ms=float("nan"), tpot_mean_ms=-1, e2e_mean_ms=0.0, out_tok_s_total=float("inf"), req_s=True, load_value="4")
    assert [found[n] for n in RESULTS] == [None] * len(RESULTS)
    assert found["load_value"] == 4
    assert not has_results(found)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(10**20), 10**20) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=20, deadline=None)
@given(path=st.sampled_from([p for p in FILES if p.suffix in (".json", ".jsonl")]), data=st.data())
def test_mutilated_results_never_crash(path: Path, data: st.DataObject) -> None:
    """Any value of a real file replaced by anything: rows with finite figures, or one sentence."""
    loaded = [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else json.loads(path.read_text())
    place, steps = loaded, data.draw(st.integers(1, 5))
    for i in range(steps):
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if i == steps - 1 or not isinstance(place[key], (dict, list)) or not place[key]:
            place[key] = data.draw(JSON)
            break
        place = place[key]
    try:
        found = importers.from_text(json.dumps(loaded), "x.json")
    except InputError as error:
        told = str(error)
        found = []
    else:
        told = "rows"
    assert len(told.splitlines()) == 1
    assert not found or from_csv(to_csv(found))
