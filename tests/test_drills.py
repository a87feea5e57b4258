"""Drills on the command line: before, during and after; bursts beside random arrivals; prefix hits by routing."""

import json
import math

import numpy as np
import pytest

from planner import lessons, traces
from planner.command import main
from planner.economics import burst
from planner.problems import InputError
from planner.scenario import parse

FLEET = {"workload": {"request_rate": 60.0, "num_prompts": 900}, "fleet": {"replicas": 3, "startup_s": 4.0}}


def told(capsys, *words):
    status = main([str(w) for w in words])
    out, err = capsys.readouterr()
    return status, out, err


def as_file(tmp_path, scenario):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(scenario))
    return path


def test_phases_split_every_request_once_and_the_loss_hurts_while_a_replica_starts():
    calm, lost, _ = lessons.replica_loss(parse(FLEET | {"fleet": {"replicas": 2, "startup_s": 4.0}}))
    assert [p.name for p in calm.phases] == ["before"]
    before, during, after = lost.phases
    assert [p.name for p in lost.phases] == ["before", "during", "after"]
    assert sum(p.requests for p in lost.phases) == 900
    assert during.ttft_p95_s > before.ttft_p95_s
    assert during.requests >= lost.rerouted > 0
    assert after.kept is not None


def test_phases_by_hand():
    drill = lessons.replica_loss(parse(FLEET))[1]
    (asked_s,) = [s.asked_s for s in drill.run.spans if s.asked_s > 0]
    t = drill.run.timeline
    in_flight = (t.arrival_s < asked_s) & (t.finish_s >= asked_s)
    starting = (t.arrival_s >= asked_s) & (t.arrival_s < asked_s + 4.0)
    by_name = {p.name: p for p in drill.phases}
    assert by_name["during"].requests == int((in_flight | starting).sum())
    assert by_name["before"].requests == int((t.finish_s < asked_s).sum())
    assert by_name["after"].requests == int((t.arrival_s >= asked_s + 4.0).sum())


def test_drill_commands_print_what_clients_saw(capsys, tmp_path):
    path = as_file(tmp_path, FLEET)
    status, out, _ = told(capsys, "drill", path)
    assert status == 0
    for word in ("nothing happens", "a replica is lost, 0 spares", "before", "during", "after", "TTFT p95 s", "replica-hours"):
        assert word in out
    status, out, _ = told(capsys, "drill", path, "--kind", "spot", "--set", "fleet.interruption_per_hour=0.1", "--hours", 10, "--json")
    found = json.loads(out)
    assert status == 0
    calm, spot = found["drills"]
    assert calm["rerouted"] == 0 < spot["rerouted"]
    assert spot["replica_hours"] > 0
    assert {p["name"] for p in spot["phases"]} <= {"before", "during", "after"}


def test_autoscaling_command_compares_with_a_fixed_fleet(capsys, tmp_path):
    rising = {"demand_curve": [0.3] * 12 + [1.7] * 12, "startup_s": 3.0, "replicas": 2}
    path = as_file(tmp_path, {"workload": {"request_rate": 12.0, "num_prompts": 900}, "fleet": rising})
    status, out, _ = told(capsys, "drill", path, "--kind", "autoscale", "--capacity", 5, "--seconds-per-hour", 3, "--json")
    fixed, scaled = json.loads(out)["drills"]
    assert status == 0
    assert fixed["replicas"] == 2
    assert scaled["replicas"] > 2
    assert scaled["phases"][0]["name"] == "before"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["drill", "chat-70b-2xh100", "--kind", "spot"], "fleet.interruption_per_hour is 0"),
        (["drill", "chat-70b-2xh100", "--kind", "autoscale"], "fleet.demand_curve is null"),
        (["drill", "chat-70b-2xh100", "--at", "2"], "share of the arrivals"),
        (["drill", "chat-70b-2xh100", "--set", "fleet.replicas=5000"], "at most 256"),
        (["drill", "chat-70b-2xh100", "--set", "hardware.gpu=t4"], "fits in memory"),
        (
            ["drill", "chat-70b-2xh100", "--kind", "spot", "--set", "fleet.interruption_per_hour=0.1", "--hours", "nan"],
            "--hours",
        ),
        (["burst", "chat-70b-2xh100"], "workload.trace is null"),
        (["prefixes", "azure-2023-conv"], "no block ids"),
        (["prefixes", "mooncake-conversatio"], "mooncake-conversation"),
        (["prefixes", "mooncake-conversation", "--replicas", "0"], "--replicas 0"),
        (["prefixes", "mooncake-conversation", "--pool-tokens", "3"], "--pool-tokens 3"),
    ],
)
def test_wrong_input_is_one_line_that_helps(capsys, words, says):
    status, out, err = told(capsys, *words)
    assert (status, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_poisson_rows_are_the_same_requests_at_other_times():
    trace = traces.shipped("mooncake-conversation").head(300)
    smooth = traces.parse(burst.poisson_rows(trace, seed=3), "smooth")
    assert sorted(zip(smooth.input_tokens, smooth.output_tokens, strict=True)) == sorted(
        zip(trace.input_tokens, trace.output_tokens, strict=True)
    )
    assert smooth.hash_tokens == trace.hash_tokens
    assert set(smooth.hash_ids) == set(trace.hash_ids)
    assert smooth.request_rate == pytest.approx(trace.request_rate, rel=0.05)


def test_recorded_bursts_wait_longer_than_the_same_requests_at_random_times():
    replay = parse(
        {
            "workload": {"trace": {"name": "azure-2023-code"}, "request_rate": None, "num_prompts": 1500},
            "slo": {"ttft_s": 0.25},
            "simulation": {"mode": "benchmark", "replications": 1},
        }
    )
    found = burst.bursts(replay)
    recorded, poisson = (p.load.metrics.latency.ttft_s.p95 for p in (found.recorded, found.poisson))
    assert recorded > 1.3 * poisson
    assert found.prefill is not None
    assert found.prefill.ratio > 1.5
    with pytest.raises(InputError, match="azure-2023-code"):
        burst.bursts(parse({}))


def test_burst_prints_both_sides(capsys, tmp_path):
    small = {
        "workload": {"trace": {"name": "azure-2023-code"}, "request_rate": None, "num_prompts": 200},
        "simulation": {"mode": "benchmark", "replications": 1},
    }
    status, out, _ = told(capsys, "burst", as_file(tmp_path, small))
    assert status == 0
    assert "recorded" in out
    assert "poisson" in out
    assert "bursts cost" in out


def test_prefixes_tabulates_every_rule(capsys, tmp_path):
    shared = [[1, 2, 3], [1, 2, 4], [7, 8, 9], [7, 8, 5]] * 20
    rows = [{"timestamp": 1000 * i, "input_length": 1536, "output_length": 10, "hash_ids": ids} for i, ids in enumerate(shared)]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    status, out, _ = told(capsys, "prefixes", path, "--replicas", 2, "--pool-tokens", 1024 * 4, "--json")
    found = json.loads(out)["routing"]
    assert status == 0
    assert set(found) == {"round_robin", "least_loaded", "sticky", "longest_prefix"}
    assert all(0 <= row["hit_rate"] <= 1 and math.isfinite(row["imbalance"]) for row in found.values())
    assert found["longest_prefix"]["hit_rate"] >= found["round_robin"]["hit_rate"]
    assert "longest_prefix" in told(capsys, "prefixes", path)[1]


def test_arrivals_span_what_the_rate_says():
    assert lessons.arrivals_s(parse(FLEET)) == pytest.approx(900 / 60, rel=0.15)
    assert np.isfinite(lessons.undisturbed(parse(FLEET)).ttft_p95_s)
