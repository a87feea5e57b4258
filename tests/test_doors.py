"""Every door: whatever comes in, an answer or one clear sentence; no traceback, no hang, no figure that is none.

CI gives the doors the same few thousand inputs every time. A long run with fresh ones:
`PLANNER_FUZZ_EXAMPLES=10000 python -m pytest tests/test_doors.py -s`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import hostile
import pytest
from hostile import broken, broken_table, damaged, door, examples, finite, one_sentence, scalars, texts, to_json, values
from hypothesis import example, given
from hypothesis import strategies as st

from planner import architecture, bounds, export, links, presets, traces
from planner.command import main, parser
from planner.command.inputs import json_or_text
from planner.links.fields import leaves
from planner.measure import importers, metrics_text
from planner.measure import rows as measured_rows
from planner.plan import plan
from planner.scenario import Scenario, parse, set_path
from planner.sweep import axis
from planner.validate import rows as validate_rows

DATA = Path(__file__).parent / "data"
CONFIGS = [json.loads(path.read_text()) for path in sorted((DATA / "models" / "configs").glob("*.json"))[::12]]
BENCHMARKS = [path.read_text() for path in sorted((DATA / "benchmarks").iterdir()) if path.suffix != ".md"]
BENCHMARK_JSON = [
    json.loads(text) for text in BENCHMARKS if text.lstrip().startswith("{") and len(text) < 40_000 and text.count("\n{") == 0
]
METRICS = [path.read_text() for path in sorted((DATA / "prometheus").glob("*.txt"))]
DOCUMENTS = {path.name: path.read_bytes() for path in sorted((DATA / "documents").glob("schema-1.*"))}
TRACE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:04.03,3180,8\n2023-11-16 18:17:09,12,300\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1024, "output_length": 3, "hash_ids": [0, 1]}\n'
    '{"timestamp": 27, "input_length": 512, "output_length": 9, "hash_ids": [0]}\n'
)
MEASURED = (
    "id,source,date,engine,engine_version,model,gpu,n_gpu,tp,weight_precision,kv_precision,isl_mean,osl_mean,load_kind,load_value,"
    "out_tok_s_total,ttft_mean_ms,tpot_mean_ms,e2e_mean_ms\n"
    "a,here,2026-11-01,vllm,0.19.0,meta-llama/Llama-3.1-8B,H100,1,1,bf16,bf16,1024,128,concurrency,16,1500,80,9.5,1300\n"
)
RICH: dict[str, Any] = json.loads(
    parse(
        {
            "model": {"name": "mine", "hf_config": CONFIGS[0]},
            "engine": {"kv_offload": [{"tier": "ssd", "gib": 500, "gb_s": 6.5}]},
            "speculative": {"num_speculative_tokens": 2, "acceptance_rates": [0.6, 0.35]},
            "disaggregation": {"decode": {"parallel": {"tensor_parallel_size": 2}}},
            "fleet": {"commitments": [{"share": 0.5}]},
            "workload": {"input_len": {"kind": "lognormal", "mean": 500, "cv": 1}, "priority_classes": [{"share": 0.2, "slo": {}}]},
            "price": {"owned": {}, "compare_to": ["openai:gpt-5", {"label": "ours", "output": 1.5}]},
            "calibration": {"factor": 1.2},
        }
    ).model_dump_json()
)


@pytest.fixture(scope="module", autouse=True)
def _count():
    yield
    if hostile.EXAMPLES:
        total = sum(hostile.ran.values())
        print(f"\n{total:,} inputs: " + ", ".join(f"{name} {count:,}" for name, count in sorted(hostile.ran.items())))


@examples(150)
@example({"fleet.demand_curve": " , "})
@given(
    st.dictionaries(
        st.one_of(st.sampled_from([*leaves(), "preset", "schema_version"]), texts), st.one_of(texts, scalars.map(str)), max_size=5
    )
)
def test_links(query):
    scenario, notes = door("links", links.decode, query)
    for note in notes:
        one_sentence(note)
    assert links.decode(links.encode(scenario)) == (scenario, ())


@examples(120)
@given(
    st.one_of(texts, st.text(alphabet="&=?#%;.+0123456789abcdef", max_size=80), values.map(to_json).map(lambda v: f"model.hf_config={v}"))
)
def test_link_texts(text):
    scenario, notes = door("links", links.decode, text)
    assert isinstance(scenario, Scenario)
    for note in notes:
        one_sentence(note)


@examples(200)
@example('{"model": {"name": "mine", "hf_config": {"\\ud800": null}}}')
@given(st.one_of(broken(RICH).map(to_json), values.map(to_json), texts, st.binary(max_size=40)))
def test_scenario_files(text):
    found = door("scenario files", presets.from_text, text)
    if found:
        assert presets.from_text(presets.to_text(found[0]))[0] == found[0]


@examples(50)
@given(st.sampled_from(CONFIGS).flatmap(broken))
def test_model_configurations(config):
    found = door("model configurations", architecture.from_hf_config, config, "x", "y")
    if found:
        assert found.total_params > 0
        finite([found.total_params, found.active_params, found.kv_bytes_per_token("bf16"), found.kv_windowed_bytes_per_token("fp8")])
        for note in found.notes:
            one_sentence(note)


@examples(200)
@given(
    st.one_of(
        broken_table(TRACE).map(lambda t: t.encode("utf-8", "surrogatepass")),
        damaged(MOONCAKE.encode()),
        st.lists(broken(json.loads(MOONCAKE.splitlines()[0])).map(to_json), max_size=3).map(lambda rows: "\n".join(rows).encode()),
        st.binary(max_size=60),
    )
)
def test_traces(data):
    found = door("traces", traces.parse, data, "mine")
    if found:
        finite([found.arrival_s.tolist(), found.input_tokens.tolist(), found.output_tokens.tolist()])
        assert (found.arrival_s >= 0).all()
        assert found.request_rate > 0


@examples(250)
@given(broken_table(MEASURED))
def test_measured_rows(text):
    def read(table: str) -> list[validate_rows.Row]:
        return validate_rows.table(io.StringIO(table, newline=""), "mine.csv")

    for row in door("measured rows", read, text) or ():
        finite([row.measured, row.load_value, row.isl_mean, row.osl_mean])
    for found in door("measured rows", measured_rows.from_csv, text, "mine.csv") or ():
        finite(found)


@examples(200)
@example('{"model": NaN, "mean_input_tokens": 550, "results_ttft_s_mean": 0.25, "num_concurrent_requests": 5}')
@given(
    st.one_of(
        st.sampled_from(BENCHMARK_JSON).flatmap(broken).map(to_json),
        st.sampled_from(BENCHMARKS).flatmap(lambda t: damaged(t[:20_000].encode())).map(lambda b: b.decode("utf-8", "replace")),
        values.map(to_json),
        texts,
    )
)
def test_benchmark_files(text):
    for row in door("benchmark files", importers.from_text, text, "result.json") or ():
        finite(row)


@examples(200)
@given(st.sampled_from(METRICS).flatmap(lambda t: damaged(t[:20_000].encode())).map(lambda b: b.decode("utf-8", "replace")), st.booleans())
def test_metrics_text(text, twice):
    found = door("metrics text", metrics_text.facts, text, METRICS[0] if twice else None, 60.0 if twice else None)
    if found:
        finite(found.to_dict())
        workload = door("metrics text", parse, {"workload": found.workload()})
        assert workload is None or workload.workload


@examples(160)
@given(st.one_of(st.sampled_from([*leaves()]), texts), st.one_of(texts, values.map(to_json)))
def test_set_values(path, text):
    changed = door("--set values", lambda: set_path(Scenario(), path.strip(), json_or_text(text)))
    assert changed is None or isinstance(changed, Scenario)


@examples(300)
@given(
    st.one_of(
        texts,
        st.tuples(st.sampled_from(["workload.request_rate", "hardware.gpu"]), st.text("0123456789:.,-eElog ", max_size=20)).map("=".join),
    )
)
def test_sweep_axes(text):
    found = door("sweep axes", axis, text)
    if found:
        assert found.values


@examples(50)
@given(st.sampled_from([*DOCUMENTS]).flatmap(lambda name: st.tuples(st.just(name), damaged(DOCUMENTS[name]))))
def test_documents(file):
    name, data = file
    found = door("documents", export.read, data, name)
    if found and found.plan:
        finite(found.plan)


@examples(30)
@given(broken(json.loads(DOCUMENTS["schema-1.json"])).map(to_json))
def test_plan_json(text):
    found = door("documents", export.read, text.encode("utf-8", "surrogatepass"), "plan.json")
    if found and found.plan:
        finite(found.plan)


ARGUMENTS = (
    ("plan", "chat-70b-2xh100", "--quick"),
    ("sweep", "chat-70b-2xh100", "--axis", "workload.request_rate=1,2"),
    ("compare", "chat-70b-2xh100", "chat-70b-2xh100", "--quick"),
    ("seats", "chat-70b-2xh100", "--requests-per-minute", "5"),
    ("batch", "chat-70b-2xh100", "--documents", "1000", "--hours", "1"),
    ("claim", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tokens-per-s", "100"),
    ("gpus", "h100"),
    ("import", "nothing.json"),
    ("check", "plan.json", "results.json"),
    ("diff", "a.json", "b.json"),
    ("drill", "chat-70b-2xh100", "--at", "0.4"),
    ("burst", "nothing.json"),
    ("prefixes", "nothing.jsonl", "--replicas", "2", "--pool-tokens", "4096"),
)


@pytest.fixture
def _small_runs(monkeypatch):
    for name, value in {
        "MAX_STEPS_PER_RUN": 3000,
        "MAX_WORK_PER_PLAN": 6000,
        "MOST_REQUESTS_PER_RUN": 60,
        "MAX_REQUESTS_PER_RUN": 60,
    }.items():
        monkeypatch.setattr(bounds, name, value)
    monkeypatch.setattr(bounds, "MAX_KEYED_BLOCKS_PER_RUN", 20_000)


@pytest.mark.usefixtures("_small_runs")
class TestAnswers:
    """What passes the doors is planned: every figure is a number, whatever was asked."""

    @examples(35)
    @given(st.lists(st.tuples(st.sampled_from([*leaves()]), scalars), min_size=1, max_size=4))
    def test_plans(self, changes):
        scenario = Scenario()
        for path, value in changes:
            changed = door("plans", set_path, scenario, path, value)
            scenario = changed or scenario
        answer = door("plans", plan, scenario, effort="quick")
        if answer:
            finite(answer.to_dict())
            json.dumps(answer.to_dict(), allow_nan=False)
            for problem in answer.problems:
                one_sentence(problem.message)

    @examples(40)
    @example(words=ARGUMENTS[0], at=1, text="[" * 2000)
    @given(
        st.sampled_from(ARGUMENTS), st.integers(0, 8), st.one_of(texts, st.sampled_from(["-1", "0", "nan", "1e999", "--help-me", "--json"]))
    )
    def test_command_lines(self, words, at, text):
        line = list(words)
        line[min(at, len(line) - 1)] = text
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = door("command lines", main, line)
        assert status in (0, 1, 2)
        if status == 2:
            for line in err.getvalue().splitlines():  # what a link could not use, then what is wrong
                one_sentence(line)


OPTIONS = {
    "breakeven": ["chat-70b-2xh100"],
    "week": ["chat-70b-2xh100"],
    "seats": ["chat-70b-2xh100", "--requests-per-minute", "5"],
    "batch": ["overnight-batch-8b", "--documents", "1000", "--hours", "1"],
    "claim": ["--model", "llama-3.1-8b", "--gpu", "h100-sxm"],
    "drill": ["chat-70b-2xh100"],
    "prefixes": ["mooncake-conversation"],
    "sweep": ["chat-70b-2xh100", "--axis", "workload.request_rate=1,2"],
    "sensitivity": ["chat-70b-2xh100", "--no-flips"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
@pytest.mark.parametrize("name", OPTIONS)
def test_numbers_on_the_command_line(name):
    """Every option that takes a number, given one that is none, too small, too large or of the wrong sign."""
    known = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices[name]
    options = [a.option_strings[0] for a in known._actions if a.type in (float, int)]
    assert options
    for option in options:
        for value in ("nan", "-inf", "-1", "0", "1e-300", "1e15", "1000000000", "9" * 400, "x", ""):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = door("numbers on the command line", main, [name, *OPTIONS[name], f"{option}={value}"])
            assert status in (0, 1, 2), (option, value)
            assert not {"nan", "inf", "-inf"} & set(out.getvalue().lower().split()), (option, value)
            for line in err.getvalue().splitlines():
                one_sentence(line)


EXTREMES: tuple[Any, ...] = (
    *(0, 1, 2, 0.5, 1e-12, 1e-6, 10**4, 10**6, 10**8, 1e15, 10**15, None, True, "0.²", "owned", "spot", "static", "contiguous"),
    *("sglang", "trtllm", "longest_prefix", "sticky", "textbook", "benchmark", "int4", "nvfp4", [1.0], [0.9, 0.1], [0] * 24),
    {"kind": "lognormal", "mean": 1000, "cv": 1e15},
    {"kind": "uniform", "mean": 1e8, "half_width": 1},
    {"kind": "empirical", "values": [0, 1e8]},
    {"name": "mooncake-conversation"},
    [{"share": 0.0}, {"share": 1.0, "priority": -(10**9), "slo": {"ttft_s": 1e-12}}],
    [{"share": 0.5}, {"gpus": 10**15}],
)
"""Values at the ends of what some field takes."""


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
@examples(200)
@given(st.lists(st.tuples(st.sampled_from([*leaves()]), st.sampled_from(EXTREMES)), min_size=2, max_size=9))
def test_extremes_together(changes):
    scenario = Scenario()
    for path, value in changes:
        scenario = door("extremes", set_path, scenario, path, value) or scenario
    answer = door("extremes", plan, scenario, effort="quick")
    if answer:
        json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_runs")
@pytest.mark.parametrize("value", ["0", "-1", "1e15", "1e-12", "1e400", "NaN", "true", "null", "²", "1,5", "[]", "{}"])
def test_every_field_at_every_extreme(value):
    for path in leaves():
        changed = door("--set values", set_path, Scenario(), path, json_or_text(value))
        answer = door("plans", plan, changed, effort="quick") if changed not in (None, Scenario()) else None
        if answer:
            json.dumps(answer.to_dict(), allow_nan=False)
            for problem in answer.problems:
                one_sentence(problem.message)
