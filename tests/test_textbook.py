"""The book chapter's worked figures, to the digit it prints, through the command line a reader would use."""

import json
from functools import cache

import pytest

from planner.command import main

FP8 = "beacon-405b-8xh100-fp8"
BF16 = "beacon-405b-16xh100-bf16"
INT4 = "beacon-405b-8xh100-int4"


@cache
def plan(preset: str, *changes: str) -> dict:
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = [word for change in changes for word in ("--set", change)]
        assert main(["plan", preset, "--json", *options]) == 0
    return json.loads(printed.getvalue())


def batch_row(preset: str, batch: int) -> dict:
    return next(row for row in plan(preset)["roofline"]["batch_table"] if row["batch"] == batch)


def test_one_decode_step_takes_15_1_ms_whatever_the_batch() -> None:
    rows = plan(FP8)["roofline"]["batch_table"]
    assert {round(row["decode_step_s"] * 1e3, 1) for row in rows} == {15.1}
    assert plan(FP8)["roofline"]["decode_step_s"] == pytest.approx(405e9 / (8 * 3.35e12))


@pytest.mark.parametrize(
    ("batch", "tokens_per_s", "usd_per_mtok_output", "kv_gb", "fits"),
    [(1, 66, 100.75, 2.1, True), (8, 529, 12.59, 16.9, True), (64, 4235, 1.57, 135.3, True), (256, 16940, 0.39, 541.2, False)],
)
def test_batch_table(batch: int, tokens_per_s: float, usd_per_mtok_output: float, kv_gb: float, fits: bool) -> None:
    row = batch_row(FP8, batch)
    assert round(row["decode_tokens_per_s"]) == tokens_per_s
    assert round(row["usd_per_mtok_output"], 2) == usd_per_mtok_output
    assert round(row["usd_per_mtok_input"], 2) == 1.35
    assert round(row["kv_bytes"] / 1e9, 1) == kv_gb
    assert row["fits"] is fits


def test_floor_price_at_the_plan_batch_of_64() -> None:
    p = plan(FP8)
    assert p["roofline"]["batch"] == 64
    assert round(p["cost"]["floor"]["usd_per_mtok_output"], 2) == 1.57
    assert round(p["cost"]["floor"]["usd_per_mtok_input"], 2) == 1.35
    assert p["cost"]["usd_per_hour"] == pytest.approx(24.0)


def test_prefill() -> None:
    roofline = plan(FP8)["roofline"]
    assert int(roofline["prefill_tokens_per_s"]) == 4938
    assert round(roofline["prefill_s"], 1) == 0.8


def test_one_sequence_needs_a_fifth_of_a_millisecond_of_arithmetic() -> None:
    arithmetic_s = plan(FP8)["roofline"]["arithmetic_batch1_s"]
    assert round(arithmetic_s * 1e3, 1) == 0.2
    assert pytest.approx(0.8e12, rel=0.02) == 2 * 405e9


def test_kv_bytes_per_token_and_cache_limited_batch() -> None:
    memory = plan(FP8)["memory"]
    assert memory["kv_bytes_per_token"] == 258_048
    assert memory["cache_limited_batch"] == 111
    assert memory["fits"] is True
    assert memory["kv_pool_bytes_per_gpu"] * 8 == pytest.approx(235e9)


def test_compute_bound_batch_is_in_the_hundreds() -> None:
    assert round(plan(FP8)["roofline"]["compute_bound_batch"]) == 295


def test_bf16_needs_sixteen_gpus() -> None:
    assert plan(BF16)["memory"]["fits"] is True
    assert plan(BF16)["roofline"]["decode_step_s"] * 1e3 == pytest.approx(15, abs=0.2)
    eight = plan(BF16, "parallel.pipeline_parallel_size=1", "parallel.tensor_parallel_size=8")
    assert eight["memory"]["fits"] is False
    assert eight["memory"]["shortfall_bytes_per_gpu"] * 8 >= 810e9 - 640e9
    assert any(problem["code"] == "does_not_fit" for problem in eight["problems"])


def test_a_plan_that_does_not_fit_has_no_price() -> None:
    cost = plan(BF16, "parallel.pipeline_parallel_size=1", "parallel.tensor_parallel_size=8")["cost"]
    assert [cost[k] for k in ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended", "usd_per_request")] == [None] * 4


def test_int4_halves_the_step() -> None:
    p = plan(INT4)
    assert round(p["roofline"]["decode_step_s"] * 1e3, 2) == 7.56
    assert p["memory"]["kv_pool_bytes_per_gpu"] * 8 == pytest.approx(437.5e9)


def test_the_closing_table_of_the_chapter() -> None:
    from planner import plan as answer
    from planner import presets
    from planner.lessons.worked_example import worked_example

    rows = worked_example(answer(presets.load(FP8), "quick"))
    assert [row.value for row in rows] == [
        "15.1 ms",
        "258 KB",
        "111 sequences",
        "$1.57",
        "2 to 3×",
        "2 to 4×",
        "$5 to $10 / $25 to $50",
        "not disclosed",
    ]
    assert "258,048 bytes" in rows[1].formula
    assert "235 GB free / (8,192 × 258,048 bytes)" in rows[2].formula
    assert all(row.source for row in rows if row.evidence != "unknown")


@pytest.mark.parametrize(
    ("k", "alpha", "tokens", "speedup"),
    [
        (2, 0.6, 1.96, 1.78),
        (2, 0.8, 2.44, 2.22),
        (2, 0.9, 2.71, 2.46),
        (4, 0.6, 2.31, 1.92),
        (4, 0.8, 3.36, 2.80),
        (4, 0.9, 4.10, 3.41),
        (8, 0.6, 2.47, 1.77),
        (8, 0.8, 4.33, 3.09),
        (8, 0.9, 6.13, 4.38),
    ],
)
def test_speculation_in_a_plan(k: int, alpha: float, tokens: float, speedup: float) -> None:
    changes = (f"speculative.num_speculative_tokens={k}", f"speculative.acceptance_rate={alpha}")
    plain_step_s = plan(FP8)["roofline"]["decode_step_s"]
    speculating = plan(FP8, *changes)
    row = next(r for r in speculating["roofline"]["batch_table"] if r["batch"] == 64)
    tokens_per_step = row["decode_tokens_per_s"] * row["decode_step_s"] / 64
    assert round(tokens_per_step, 2) == tokens
    assert round(row["decode_tokens_per_s"] / (64 / plain_step_s), 2) == speedup
