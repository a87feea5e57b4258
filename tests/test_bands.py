"""Error bands: what they hold on rows they have not seen, how wide they are for it, and what a plan says."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean

import pytest

from planner import architecture, bands
from planner.bands import Target, band, confidence, quantile
from planner.catalog.kernels import fingerprint
from planner.catalog.residuals import Residual, residuals, version
from planner.scenario import Scenario

FIGURES = {"tpot": 0.01, "ttft": 0.1, "throughput": 1000.0, "usd": 2.0}


def ask(figures: dict[str, float] = FIGURES, sampling=None, rerun=None, **fields: object) -> dict:  # type: ignore[no-untyped-def, type-arg]
    s = Scenario.model_validate(fields)
    return confidence(s, architecture.of(s.model), s.hardware.gpu, figures, sampling, rerun)


def target_of(row: Residual) -> Target:
    return Target(row.model, row.gpu, row.family, row.model_class, row.engine, row.regime)


# ---- honesty: whole (model, GPU) groups left out, each counting once


def held_out(metric: str, level: str = "calibrated") -> dict[str, float]:
    """Coverage, width and interval score (log scale, 80 %) of the bands and of one constant band, over groups they have not seen."""
    groups: defaultdict[tuple[str, str], list[Residual]] = defaultdict(list)
    for row in residuals():
        if row.log_error(metric, level) is not None:
            groups[row.model, row.gpu].append(row)
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for group, rows in groups.items():
        rest = tuple(r for r in residuals() if (r.model, r.gpu) != group)
        others = [(1 / len(g), r.log_error(metric, level) or 0.0) for key, g in groups.items() if key != group for r in g]
        constant = quantile(others, 0.1), quantile(others, 0.9)
        by_name: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            found = band(target_of(row), metric, level, rest)
            assert found is not None
            error = row.log_error(metric, level) or 0.0
            for name, (low, high) in {"band": (math.log(found.low), math.log(found.high)), "constant": constant}.items():
                by_name[f"{name} coverage"].append(low <= error <= high)
                by_name[f"{name} width"].append(high - low)
                by_name[f"{name} score"].append(high - low + 10 * max(0.0, low - error) + 10 * max(0.0, error - high))
        for name, values in by_name.items():
            seen[name].append(fmean(values))
    return {name: fmean(values) for name, values in seen.items()} | {"groups": len(groups)}


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "widest"), [("tpot", 1.0), ("ttft", 2.0), ("throughput", 0.55)])
def test_four_of_five_measurements_fall_into_the_band(metric: str, widest: float) -> None:
    found = held_out(metric)
    assert found["band coverage"] == pytest.approx(0.80, abs=0.07)
    assert found["band width"] < widest
    assert found["band score"] < found["constant score"], "wide must not be free: a constant band would score better"


@pytest.mark.slow
def test_a_better_level_of_step_time_has_narrower_bands() -> None:
    for metric in ("tpot", "throughput"):
        assert held_out(metric)["band score"] < 0.75 * held_out(metric, "datasheet")["band score"]


# ---- the pieces


def test_weighted_quantiles() -> None:
    even = [(1.0, float(v)) for v in range(11)]
    assert quantile(even, 0.5) == pytest.approx(5.0)
    assert quantile(even, 0.0) == 0.0
    assert quantile(even, 1.0) == 10.0
    assert quantile([(9.0, 1.0), (1.0, 5.0)], 0.5) < 3.0
    assert quantile([(1.0, 2.0)], 0.9) == 2.0


def test_groups_count_once_however_many_rows_they_have() -> None:
    base = next(r for r in residuals() if r.log_error("tpot") is not None)

    def row(gpu: str, error: float) -> Residual:
        figures = {"tpot": 1.0}
        fields = {name: getattr(base, name) for name in base.__slots__}
        changes = {
            "gpu": gpu,
            "model": "m",
            "measured": {"tpot": math.exp(error)},
            "predicted": {"calibrated": figures, "datasheet": figures},
        }
        return Residual(**(fields | changes))

    one = (row("a100-80-sxm", 0.2), row("h100-sxm", -0.2))
    many = (row("a100-80-sxm", 0.2),) * 50 + (row("h100-sxm", -0.2),)
    t = Target("other", "l40s", base.family, base.model_class, base.engine, base.regime)
    first, second = band(t, "tpot", "calibrated", one), band(t, "tpot", "calibrated", many)
    assert first is not None
    assert second is not None
    assert second.low == pytest.approx(first.low, rel=0.02)


def test_no_rows_no_band() -> None:
    assert band(Target("x", "h100-sxm", "hopper", "dense", "vllm", "closed loop"), "tpot", "calibrated", ()) is None


@pytest.mark.parametrize(
    ("fields", "grade"),
    [
        ({"model": {"name": "llama-3.3-70b"}, "precision": {"weights": "fp8"}, "parallel": {"tensor_parallel_size": 4}}, "A"),
        ({"model": {"name": "qwen3-8b"}}, "B"),
        ({"model": {"name": "llama-3.1-8b"}, "hardware": {"gpu": "l4"}}, "C"),
        ({"model": {"name": "mixtral-8x7b"}, "hardware": {"gpu": "mi300x"}}, "C"),
    ],
)
def test_grades(fields: dict[str, object], grade: str) -> None:
    assert ask(**fields)["grade"] == grade


def test_bands_hold_the_figure_and_widen_where_less_is_known() -> None:
    near, far = (
        ask(model={"name": "llama-3.3-70b"}, parallel={"tensor_parallel_size": 4}, hardware={"gpu": gpu}) for gpu in ("h100-sxm", "mi300x")
    )
    for found in (near, far):
        for metric, (low, high) in found["bands"].items():
            assert low <= FIGURES[metric] <= high
            assert low < high

    def width(found: dict, metric: str) -> float:  # type: ignore[type-arg]
        low, high = found["bands"][metric]
        return math.log(high / low)

    assert width(near, "tpot") < width(far, "tpot")


def test_kernels_borrowed_from_another_data_type_widen_the_band_and_cost_the_best_grade() -> None:
    s = Scenario.model_validate({"model": {"name": "llama-3.3-70b"}, "parallel": {"tensor_parallel_size": 4}})
    own, lent = (confidence(s, architecture.of(s.model), "h100-sxm", FIGURES, borrowed=b) for b in (0.0, 0.25))
    assert (own["grade"], lent["grade"]) == ("A", "B")
    for metric in FIGURES:
        assert lent["bands"][metric][0] < own["bands"][metric][0]
        assert lent["bands"][metric][1] > own["bands"][metric][1]


def test_a_slower_step_moves_price_and_throughput_the_other_way() -> None:
    found = ask(model={"name": "deepseek-v3"}, hardware={"gpu": "h200-sxm"}, workload={"request_rate": None, "max_concurrency": 64})
    low, high = (x / FIGURES["throughput"] for x in found["bands"]["throughput"])
    cheap, dear = (x / FIGURES["usd"] for x in found["bands"]["usd"])
    assert cheap == pytest.approx(1 / high)
    assert dear == pytest.approx(1 / low)


def test_classes_known_to_fail_get_a_bound() -> None:
    moe = {"model": {"name": "gpt-oss-120b"}, "precision": {"weights": "auto"}, "workload": {"request_rate": None, "max_concurrency": 16}}
    found = ask(**moe)
    assert found["one_sided"].get("ttft") == "at least"
    assert found["bands"]["ttft"][1] > 1.4 * FIGURES["ttft"]
    assert not ask(model={"name": "llama-3.1-70b"}, parallel={"tensor_parallel_size": 4})["one_sided"]


def test_queues_amplify_the_error_of_the_step() -> None:
    """The band of a figure reaches as far as the plan run again with the step's own error does."""
    asked: list[float] = []

    def rerun(scale: float) -> dict[str, float]:
        asked.append(scale)
        return {"tpot": 0.01 * scale, "ttft": 5.0 if scale > 1 else 0.01, "throughput": 700.0 if scale > 1 else 1000.0}

    found = ask(rerun=rerun)
    assert len(asked) == 2
    assert min(asked) < 1 < max(asked)
    assert found["bands"]["ttft"] == pytest.approx([0.01, 5.0])
    assert found["bands"]["throughput"] == [700.0, 1000.0], "an open loop sends what it sends"


def test_sampling_error_widens_the_band() -> None:
    alone, noisy = ask(), ask(sampling={"ttft": 0.5})
    assert noisy["bands"]["ttft"][0] < alone["bands"]["ttft"][0]
    assert noisy["bands"]["ttft"][1] > alone["bands"]["ttft"][1]
    assert noisy["bands"]["tpot"] == alone["bands"]["tpot"]


def test_the_textbook_level_has_no_band() -> None:
    found = ask(fidelity="textbook")
    assert found["bands"] is None
    assert found["grade"] == "C"


def test_figures_that_do_not_exist_have_no_band() -> None:
    found = ask(figures={"tpot": 0.01, "ttft": None, "throughput": 0.0})  # type: ignore[dict-item]
    assert set(found["bands"]) == {"tpot"}


def test_the_nearest_measured_rows_come_first_with_their_error() -> None:
    found = ask(model={"name": "llama-3.3-70b"}, precision={"weights": "fp8"}, parallel={"tensor_parallel_size": 4})["nearest_measured"]
    assert len(found) == 3
    assert (found[0]["model"], found[0]["gpu"], found[0]["engine"], found[0]["gpus"]) == ("llama-3.3-70b", "h100-sxm", "vllm", 4)
    for row in found:
        assert row["source"]
        assert row["date"]
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)


# ---- the data


def test_residuals_are_those_of_the_shipped_constants() -> None:
    """Run `python -m planner.validate.ship` after changing constants."""
    assert version()["kernels"] == fingerprint()


def test_residuals_are_complete_and_plausible() -> None:
    rows = residuals()
    assert len(rows) > 1000
    for row in rows:
        assert row.tier in ("A", "B")
        assert set(row.predicted) == {"calibrated", "datasheet"}
        assert row.predicted["calibrated"]
        for metric, value in row.predicted["calibrated"].items():
            assert value > 0
            assert row.measured[metric] > 0
        if "tpot" in row.predicted["datasheet"]:
            assert row.predicted["datasheet"]["tpot"] <= row.predicted["calibrated"]["tpot"] * 1.001
    assert bands.target(Scenario(), architecture.of(Scenario().model), "h100-sxm").regime == "open loop"
