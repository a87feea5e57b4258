"""`plan(scenario) -> Plan`: the one place where memory, step time, simulation and price meet."""

from __future__ import annotations

from typing import get_args

from planner import architecture, cost, speculation
from planner.catalog import quality
from planner.plan import confidence, growth, provenance
from planner.plan import deployment as deployments
from planner.plan.alone import latency_problems
from planner.plan.deployment import Deployment
from planner.plan.findings import load_problems, memory_notes, memory_problems
from planner.plan.load import Effort, Loaded, simulated
from planner.plan.result import NOT_MODELLED, Plan, plain
from planner.plan.steady import BatchRow, Steady, steady
from planner.problems import InputError, Problem
from planner.scenario import Lengths, Scenario, mean_length, parse

__all__ = ["NOT_MODELLED", "BatchRow", "Deployment", "Effort", "Loaded", "Plan", "Steady", "plain", "plan"]


def plan(scenario: Scenario, effort: Effort = "full") -> Plan:
    """Answer a scenario. Deterministic for a scenario and a state of the data.

    `effort` quick simulates one run, decided as many as it takes to know whether the promise is kept; only full searches the capacity
    and runs the step's error through the queue. What cannot run is a result with `problems`; `InputError`
    is raised only for what is no scenario, what the catalogue does not know or a configuration that cannot be read.
    """
    if effort not in get_args(Effort):
        raise InputError(f"effort = {str(effort)[:40]!r} is not known; use {' or '.join(get_args(Effort))}")
    scenario = parse(scenario)
    parts = sides(scenario)
    illegal = tuple(dict.fromkeys(p for part in parts for p in deployments.problems(part)))
    if any(p.severity == "error" for p in illegal):
        return _cannot_run(scenario, (*illegal, *notes(scenario)), ())
    built = tuple(deployments.explained(deployments.of(part)) for part in parts)
    prices = cost.fleet_hour(scenario)
    split = scenario.disaggregation
    replicas = scenario.fleet.replicas if split is None else split.decode.replicas
    closed = steady(built, replicas, prices.replica_usd if prices else None)
    found: list[Problem] = [*illegal, *notes(scenario), *memory_problems(built), *memory_notes(built)]
    found += dict.fromkeys(note for d in built for note in d.step_time.notes)
    if not all(d.memory.fits for d in built):
        return _cannot_run(scenario, tuple(found), built, closed)
    load = simulated(built, scenario, effort)
    decode = built[-1]
    bill = cost.cost(
        scenario,
        decode_tokens_per_s=closed.batch * decode.profile.acceptance_length / closed.decode_step_s if closed.decode_step_s else None,
        prefill_tokens_per_s=closed.prefill_tokens_per_s,
        load=load.cost_load if load else None,
    )
    late = latency_problems(built, scenario)
    fleet = growth.wanted(built, scenario, load, effort == "full" and not late)
    found += late
    found += load_problems(load, scenario, fleet) if load else [NO_TRAFFIC]
    found += cost.problems(scenario, bill)
    return Plan(
        scenario=scenario,
        architecture=decode.architecture,
        problems=tuple(found),
        memory=decode.memory,
        roofline=closed,
        load=load,
        cost=bill,
        confidence=confidence.confidence(scenario, built, load, bill, effort),
        provenance=provenance.of(built, bill),
        deployments=built,
        larger_fleet=fleet,
    )


def sides(scenario: Scenario) -> tuple[Scenario, ...]:
    """The scenario as each kind of replica sees it: one, or the prefill and the decode pool's."""
    split = scenario.disaggregation
    if split is None:
        return (scenario,)
    return deployments.pool_scenario(scenario, split.prefill), deployments.pool_scenario(scenario, split.decode)


NO_TRAFFIC = Problem(
    "no_traffic",
    "info",
    "workload.request_rate",
    "no request ever arrives, so there are no latencies under load and no price per token",
    "",
)


def _cannot_run(scenario: Scenario, found: tuple[Problem, ...], built: tuple[Deployment, ...], closed: Steady | None = None) -> Plan:
    """A plan without numbers that would mislead: the memory it would need, the bill, and why it cannot run."""
    bill = cost.cost(scenario)
    return Plan(
        scenario=scenario,
        architecture=architecture.of(scenario.model),
        problems=(*found, *cost.problems(scenario, bill)),
        memory=next((d.memory for d in reversed(built) if not d.memory.fits), built[-1].memory) if built else None,
        roofline=closed,
        load=None,
        cost=bill,
        confidence=confidence.confidence(scenario, built, None, bill, "quick"),
        provenance=provenance.of(built, bill),
        deployments=built,
    )


CAPPED = 0.01
"""Share of a stated mean that a cap may take away unmentioned."""


def capped(scenario: Scenario) -> list[Problem]:
    """Lengths whose cap makes their mean another than the stated one."""
    found = []
    for name, what in (("input_len", "prompts"), ("output_len", "answers")):
        length = getattr(scenario.workload, name)
        if not isinstance(length, Lengths) or not length.mean or length.max is None:
            continue
        mean = mean_length(length)
        if mean < (1 - CAPPED) * length.mean:
            message = f"{what} are capped at {length.max:,.0f} tokens, so their mean is {mean:,.0f} and not the stated {length.mean:,.0f}"
            found.append(Problem("capped", "info", f"workload.{name}.max", message, "Raise the cap, or the mean to make up for it."))
    return found


def notes(scenario: Scenario) -> list[Problem]:
    """What the choices themselves call for."""
    arch = architecture.of(scenario.model)
    found = list(speculation.problems(scenario.speculative))
    if arch.estimate:
        message = f"the architecture of {arch.name} is an estimate: {' '.join(arch.notes)}"
        found.append(
            Problem("low_confidence", "warning", "model.hf_config", message, "Check parameters and KV bytes against the engine's log.")
        )
    found += capped(scenario)
    weights, own = scenario.precision.weights, arch.quantization
    if own is not None and own.weights != "bf16" and weights in ("bf16", "fp16", "fp32"):
        message = f"the checkpoint of {arch.name} is published in {own.weights}, and this plan unpacks it to {weights}"
        remedy = "Set precision.weights to auto to serve it as published."
        found.append(Problem("unpacked_checkpoint", "warning", "precision.weights", message, remedy))
    if weights in quality.FOUR_BIT:
        small = arch.total_params < quality.SMALL_MODEL_PARAMS
        message = quality.quality_note(weights, arch.total_params)
        remedy = "Set precision.weights to fp8 for weights published as lossless." if small else ""
        found.append(Problem("quality", "warning" if small else "info", "precision.weights", message, remedy))
    return found
