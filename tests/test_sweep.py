"""Sweeps: every combination once, the same rows whichever backend ran them, wrong axes told in one sentence."""

from dataclasses import replace

import pytest

from planner.plan import plan
from planner.problems import InputError
from planner.scenario import Scenario
from planner.sweep import Axis, Sweep, axis, meets_slo, spread, strain, sweep

SMALL = Scenario.model_validate({"simulation": {"mode": "benchmark"}, "workload": {"input_len": 300, "output_len": 20, "num_prompts": 60}})
RATE = Axis("workload.request_rate", (2.0, 20.0))
SEATS = Axis("engine.max_num_seqs", (4, 64, 128))


def test_two_axes_give_every_combination_in_order() -> None:
    seen: list[tuple[int, int]] = []
    found = sweep(SMALL, [RATE, SEATS], progress=lambda done, of: seen.append((done, of)))
    assert [(r["workload.request_rate"], r["engine.max_num_seqs"]) for r in found.rows] == [
        (r, s) for r in RATE.values for s in SEATS.values
    ]
    assert seen == [(n, 6) for n in range(1, 7)]
    grid = found.grid("tpot_p95_s")
    assert [len(line) for line in grid] == [3, 3]
    assert grid[0][1] < grid[1][1]


def test_rows_are_the_same_on_every_local_backend() -> None:
    here = sweep(SMALL, [RATE])
    assert sweep(SMALL, [RATE], backend="threading", n_jobs=2).rows == here.rows


@pytest.mark.slow
def test_rows_are_the_same_in_other_processes() -> None:
    assert sweep(SMALL, [RATE, SEATS], backend="loky", n_jobs=2).rows == sweep(SMALL, [RATE, SEATS]).rows


@pytest.mark.slow
def test_rows_are_the_same_on_a_real_dask_cluster() -> None:
    from distributed import Client, LocalCluster

    here = sweep(SMALL, [RATE, SEATS])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        there = sweep(SMALL, [RATE, SEATS], backend="dask")
        workers = {worker for worker, tasks in client.run(lambda dask_worker: dask_worker.state.executed_count).items() if tasks}
    assert there.rows == here.rows
    assert workers


def test_a_wrong_combination_is_a_row_and_a_wrong_axis_an_error() -> None:
    found = sweep(SMALL, [Axis("parallel.tensor_parallel_size", (1, 3))])
    assert [r["fits"] for r in found.rows] == [True, False]
    assert set(found.rows[1]["problems"]) == {"illegal_parallelism"}
    unknown = sweep(SMALL, [Axis("model.name", ("llama-3.1-8b", "llama-99"))])
    assert "llama-99" in unknown.rows[1]["error"]
    with pytest.raises(InputError, match=r"workload\.request_rate"):
        sweep(SMALL, [Axis("workload.request_rat", (1.0,))])
    with pytest.raises(InputError, match="one or two axes"):
        sweep(SMALL, [RATE, SEATS, RATE])
    with pytest.raises(InputError, match="backend"):
        sweep(SMALL, [RATE], backend="nowhere")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("workload.request_rate=1:5:3", (1.0, 3.0, 5.0)),
        ("engine.max_num_seqs=8,64", (8, 64)),
        ("precision.weights=bf16,fp8", ("bf16", "fp8")),
        ("workload.request_rate=1:100:3:log", (1.0, 10.0, 100.0)),
        ("engine.enforce_eager=true,false", (True, False)),
    ],
)
def test_axis_text(text: str, values: tuple) -> None:
    read = axis(text)
    assert read.path == text.partition("=")[0]
    assert read.values == pytest.approx(values) if isinstance(values[0], float) else read.values == values


@pytest.mark.parametrize(
    "text", ["workload.request_rate", "=1,2", "a=", "a=5:1:3", "a=1:5", "a=1:5:1", "a=0:5:3:log", "a=1:5:3:lin", "a=1:5:99999"]
)
def test_axis_text_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="--axis"):
        axis(text)


def test_knee_is_the_last_rate_before_latency_leaves_the_flat() -> None:
    rows = tuple({"workload.request_rate": r, "ttft_slo_s": t} for r, t in [(1, 0.1), (2, 0.11), (3, 0.14), (4, 0.9), (5, 8.0)])
    assert Sweep((Axis("workload.request_rate", (1, 2, 3, 4, 5)),), rows).knee() == 3
    assert Sweep((Axis("workload.request_rate", (1, 2, 3)),), rows[:3]).knee() is None
    assert Sweep((SEATS,), rows).knee() is None


def test_strain_is_the_worst_promise() -> None:
    answer = plan(SMALL.model_copy(update={"workload": SMALL.workload.model_copy(update={"request_rate": 5.0})}), "quick")
    latency = answer.load.metrics.latency
    assert strain(answer) == pytest.approx(max(latency.ttft_s.p95 / 1.0, latency.tpot_s.p95 / 0.05))
    assert meets_slo(answer)


def test_spread_is_half_a_band_over_its_middle() -> None:
    answer = plan(SMALL, "quick")
    assert spread(replace(answer, confidence={"bands": {"usd": [0.8, 1.2]}}), "usd") == pytest.approx(0.2)
    assert spread(replace(answer, confidence={"bands": {"usd": [4.0, 6.0]}}), "usd") == pytest.approx(0.2)
    assert spread(replace(answer, confidence={"bands": None}), "usd") is None
