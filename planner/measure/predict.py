"""What a plan says for the load and lengths that were measured."""

from __future__ import annotations

from typing import Any

from planner.measure.bands import band
from planner.measure.deployment import as_measured
from planner.measure.rows import Row
from planner.problems import InputError
from planner.scenario import Scenario, parse

LONE_REQUESTS = 20
"""Requests simulated for one client alone; they are alike, so few are enough."""
MOST_REQUESTS = 2_000
REQUESTS_PER_CLIENT = 10
"""Where a row does not say how many requests it holds."""


def scenario_at(scenario: Scenario, row: Row) -> Scenario:
    """The scenario with the lengths and the load of a measured row, and the model, layout, precision and speculation that it states.

    Raises InputError when the row lacks lengths or a load, or is of another GPU or engine.
    """
    scenario, _ = as_measured(scenario, row)
    input_len, output_len, cached = row.get("isl_mean"), row.get("osl_mean"), row.get("cached_input_tokens") or 0.0
    kind, value = row.get("load_kind"), row.get("load_value")
    if not input_len or not output_len:
        raise InputError(f"row {row.get('id')!r} has no mean input and output length; fill isl_mean and osl_mean")
    if kind not in ("concurrency", "rate", "offline") or (kind != "offline" and not value):
        raise InputError(f"row {row.get('id')!r} has no load; fill load_kind (concurrency, rate or offline) and load_value")
    half_width = row.get("length_half_width") or 0.0

    def length(mean: float) -> Any:
        return {"kind": "uniform", "mean": mean, "half_width": min(half_width, 1.0)} if half_width else mean

    lone = kind == "concurrency" and value == 1
    workload = {
        "request_rate": value if kind == "rate" else None,
        "max_concurrency": None if kind == "rate" else round(value or MOST_REQUESTS),
        "input_len": length(float(input_len)),
        "output_len": length(max(1.0, float(output_len))),
        "shared_prefix_len": min(cached, input_len),
        "num_prompts": LONE_REQUESTS if lone else _prompts(row),
        "seed": scenario.workload.seed,
    }
    data = scenario.model_dump(mode="json")
    data["workload"] = workload
    # A benchmark's ramp is part of its figures; the miss that fills a prefix cache is not part of a row of hits.
    mode = "planning" if cached else "benchmark"
    data["simulation"] = {"mode": mode, "replications": 1, "max_requests": MOST_REQUESTS}
    return parse(data)


def _prompts(row: Row) -> int:
    """Requests to simulate: as many as were measured, since the ramp and drain of a benchmark are part of its figures."""
    counted = row.get("n_requests") or REQUESTS_PER_CLIENT * (row.get("load_value") or 0.0)
    return max(LONE_REQUESTS, min(MOST_REQUESTS, round(counted) or MOST_REQUESTS))


def predicted(scenario: Scenario, row: Row) -> dict[str, Any]:
    """The plan (as JSON) of the scenario at a row's load and lengths."""
    from planner.plan import plan

    return plan(scenario_at(scenario, row), effort="full").to_dict()


def by_length(scenario: Scenario, prompt_tokens: list[int], output_tokens: float) -> list[dict[str, Any]]:
    """Predicted TTFT and TPOT of one request alone at each prompt length, with the plan's bands."""
    points = []
    for tokens in prompt_tokens:
        row = {"id": f"{tokens} tokens", "isl_mean": tokens, "osl_mean": output_tokens, "load_kind": "concurrency", "load_value": 1}
        found = predicted(scenario, row)
        ttft, tpot = band(found, "ttft"), band(found, "tpot")
        points.append(
            {
                "prompt_tokens": tokens,
                "ttft_s": ttft.mean,
                "ttft_low_s": ttft.low,
                "ttft_high_s": ttft.high,
                "tpot_s": tpot.mean,
                "tpot_low_s": tpot.low,
                "tpot_high_s": tpot.high,
            }
        )
    return points
