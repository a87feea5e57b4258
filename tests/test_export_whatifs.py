"""What-ifs with a planner of known answers: proportions, prices, failures, the busiest hour, and where they stop."""

import pytest

from planner.export import promises, whatifs
from planner.export.extras import Outcome, from_dict, peak_to_mean
from planner.export.subject import Subject
from planner.scenario import Lengths, Scenario


def planner_of(step=0.1, work=100, fits=True):
    """A planner whose TTFT is `step` × rate per replica (× calibration), and whose fleet costs a dollar per replica and hour."""

    def ask(scenario):
        w, fleet = scenario.workload, scenario.fleet
        load = (w.max_concurrency or w.request_rate) / fleet.replicas
        slow = scenario.calibration.factor if scenario.calibration else 1.0
        ttft = step * load * slow
        hour = float(fleet.replicas + fleet.spares)
        row = {"mean": ttft / 2, "p50": ttft / 2, "p90": ttft, "p95": ttft, "p99": 2 * ttft}
        served = w.request_rate or 1.0
        return {
            "scenario": scenario.model_dump(mode="json"),
            "memory": {"fits": fits},
            "latency": {"ttft_s": row, "tpot_s": None, "e2e_s": None},
            "throughput": {"requests_per_s": served},
            "simulation": {"steps": work, "requests": 0},
            # Half a percent off, as a short run's count of served requests is.
            "cost": {"usd_per_hour": hour, "usd_per_month": hour * 730, "usd_per_request": hour / 3600 / served * 1.005},
            "problems": [],
        }

    return ask


def scenario(**parts):
    parts = {"slo": {"ttft_s": 1.0, "tpot_s": None}} | parts
    return Scenario.model_validate(parts)


def test_rows_are_the_plans_own_figure_times_the_ratio_of_two_runs():
    s = scenario(workload={"request_rate": 4.0})
    plan = planner_of(step=0.2)(s)
    found = whatifs.extras(s, plan, planner_of(step=0.1))
    by_name = {p.name: p.latency["ttft_s"]["p95"] for p in found.load_points}
    assert by_name == pytest.approx({"50%": 0.4, "80%": 0.64, "100%": 0.8, "120%": 0.96})
    assert next(c for c in found.cases if c.name == "Base").latency["ttft_s"]["p95"] == pytest.approx(0.8)
    assert [p.meets_slo for p in found.load_points] == [True] * 4


def test_only_price_and_volume_move_the_cost_of_a_request():
    s = scenario(workload={"request_rate": 4.0})
    plan = planner_of()(s)
    levers = {lever.name: lever for lever in whatifs.extras(s, plan, planner_of()).levers}
    now = plan["cost"]["usd_per_request"]
    assert levers["GPU price"].high.usd_per_request == pytest.approx(1.2 * now)
    assert levers["Volume"].low.usd_per_request == pytest.approx(now / 0.8)
    assert levers["Efficiency"].high.usd_per_request == pytest.approx(now)
    assert levers["Efficiency"].high.latency["ttft_s"]["p95"] == pytest.approx(1.2 * 0.4)


def test_a_spare_covers_a_replica_and_nothing_covers_the_last_one():
    with_spare = scenario(workload={"request_rate": 4.0}, fleet={"replicas": 2, "spares": 1}, hardware={"gpus_per_node": 1})
    replica, server = whatifs.failures(with_spare, planner_of())
    assert (replica.replicas, server.replicas) == (2, 2)
    alone = scenario(workload={"request_rate": 4.0})
    lost = whatifs.failures(alone, planner_of())[0]
    assert (lost.replicas, lost.meets_slo) == (0, False)
    crowded = scenario(workload={"request_rate": 4.0}, fleet={"replicas": 12}, hardware={"gpus_per_node": 8})
    assert [f.replicas for f in whatifs.failures(crowded, planner_of())] == [11, 4]


def test_with_a_demand_curve_everything_is_asked_at_the_busiest_hour():
    s = scenario(workload={"request_rate": 4.0}, fleet={"demand_curve": [1.0] * 12 + [3.0] * 12})
    assert peak_to_mean(s) == pytest.approx(1.5)
    plan = planner_of()(s)
    found = whatifs.extras(s, plan, planner_of())
    assert next(p for p in found.load_points if p.name == "100%").request_rate == pytest.approx(6.0)
    base = next(c for c in found.cases if c.name == "Base")
    assert base.latency["ttft_s"]["p95"] == pytest.approx(0.6)
    assert base.usd_per_request == pytest.approx(plan["cost"]["usd_per_request"]), "a request costs what it costs over the week"
    assert peak_to_mean(scenario(workload={"request_rate": None, "max_concurrency": 8}, fleet={"demand_curve": [1.0, 2.0] * 12})) == 1.0


def test_closed_loops_keep_whole_clients():
    s = scenario(workload={"request_rate": None, "max_concurrency": 5})
    assert [p.max_concurrency for p in whatifs.load_points(s, planner_of())] == [2, 4, 5, 6]


def test_lengths_are_stretched_whole():
    s = scenario(workload={"input_len": {"kind": "percentiles", "points": [[0, 10], [1, 100]]}, "shared_prefix_len": 5})
    longer = whatifs.longer_prompts(s, 1.2).workload
    assert isinstance(longer.input_len, Lengths)
    assert longer.input_len.points == ((0.0, 12.0), (1.0, 120.0))
    assert longer.shared_prefix_len == 6.0


def test_what_takes_too_long_is_left_out_and_what_does_not_fit_has_none():
    s = scenario(workload={"request_rate": 4.0})
    heavy = planner_of(work=whatifs.MOST_WORK_OF_LEVERS + 1)
    found = whatifs.extras(s, heavy(s), heavy)
    assert found.load_points
    assert not found.levers
    assert not found.resized
    unfit = planner_of(fits=False)
    assert whatifs.extras(s, unfit(s), unfit).load_points == ()


def test_they_travel_as_json_and_unknown_forms_are_dropped():
    s = scenario(workload={"request_rate": 4.0})
    found = whatifs.extras(s, planner_of()(s), planner_of())
    again = from_dict(found.to_dict())
    assert again.levers == found.levers
    assert again.load_points == found.load_points
    assert from_dict({"load_points": [{}]}) == from_dict({})


def test_a_load_point_is_judged_by_the_capacity_that_many_runs_found() -> None:
    """Its own runs are few: at a rate beyond the capacity they may see the promise kept by chance, and the reverse."""
    plan = {"throughput": {"capacity_requests_per_s": 3.8}}

    def point(rate: float, seen: bool, *problems: str) -> Outcome:
        return Outcome("x", "", rate, None, 1, {}, {}, seen, None, None, problems)

    beyond = whatifs._judged(point(4.2, True, "unstable"), plan)
    assert (beyond.meets_slo, beyond.problems) == (False, ("unstable", "slo_missed"))
    within = whatifs._judged(point(3.5, False, "slo_missed"), plan)
    assert (within.meets_slo, within.problems) == (True, ())
    for unknown in (point(3.5, False, "overloaded"), point(0.0, False), Outcome("x", "", 3.5, None, 1, {}, {}, None, None, None)):
        assert whatifs._judged(unknown, plan) == unknown
    assert whatifs._judged(point(9.0, True), {"throughput": {"capacity_requests_per_s": None}}).meets_slo


def test_promises_are_judged_by_the_plan_and_not_again() -> None:
    """Percentiles over finished requests look kept here; the plan knows of those that were refused, and of a class with its own."""
    s = scenario(workload={"request_rate": 4.0})
    plan = planner_of(step=0.1)(s)
    common = promises.verdict("ttft_s", "", 95, 1.0, 0.4)
    assert whatifs.outcome("x", "", s, plan | {"promises": [common]}).meets_slo
    for broken in (promises.verdict("ttft_s", "", 95, 1.0, None), promises.verdict("ttft_s", "priority 1", 99, 0.2, 0.3)):
        judged = plan | {"promises": [common, broken]}
        assert whatifs.outcome("x", "", s, judged).meets_slo is False
        assert Subject(judged).meets_slo is False
    assert whatifs.outcome("x", "", s, {k: v for k, v in plan.items() if k != "promises"}).meets_slo, "as older plans were"


def test_promises_of_another_run_are_the_plans_times_the_ratio_of_two_runs() -> None:
    def run(at_s: float | None) -> dict:
        return {"promises": [promises.verdict("ttft_s", "", 95, 1.0, at_s)]}

    (scaled,) = promises.in_proportion(run(0.4), run(0.2), run(0.6))
    assert (scaled["at_s"], scaled["kept"]) == (pytest.approx(1.2), False)
    (lost,) = promises.in_proportion(run(0.4), run(0.2), run(None))
    assert (lost["at_s"], lost["kept"]) == (None, False)
    assert promises.in_proportion(run(0.4), run(0.2), {}) is None
