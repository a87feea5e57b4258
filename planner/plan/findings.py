"""What a plan has to say beside its numbers: what does not fit, what is overloaded, which promise nothing can keep."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from planner.memory import Remedy, cheapest
from planner.metrics import SENT, Kept, sent_share
from planner.plan.deployment import Deployments
from planner.plan.growth import Larger, larger
from planner.plan.load import Loaded
from planner.plan.sample import left_out, simulated_share
from planner.problems import Problem, Severity
from planner.scenario import Scenario
from planner.units import gibibytes, milliseconds


def memory_problems(deployments: Deployments) -> list[Problem]:
    """The shortfall of each kind of replica that does not fit, with the nearest change that helps."""
    found = []
    for d in deployments:
        memory = d.memory
        if memory.fits:
            continue
        message = (
            f"{d.scenario.model.name} does not fit: short {gibibytes(memory.shortfall_bytes_per_gpu)} per GPU; weights take "
            f"{gibibytes(memory.weights_bytes_per_gpu)} of the {gibibytes(memory.budget_bytes_per_gpu)} that one {d.gpu.name} gives"
        )
        helps = cheapest(memory.remedies)[:SHOWN_REMEDIES]
        field = helps[0].field if helps else "parallel.tensor_parallel_size"
        found.append(Problem("does_not_fit", "error", field, message, _ways(helps, d.scenario.hardware.gpu) or NOTHING_FITS))
    return found


SHOWN_REMEDIES = 3
NOTHING_FITS = "No one or two changes are enough: a smaller model, larger GPUs, or both more GPUs and fewer bytes a weight."


def _ways(remedies: Sequence[Remedy], gpu: str) -> str:
    """Changes that fit, cheapest first, with the GPUs that a replica then takes."""
    text = "; or ".join(f"{r.message} ({r.gpus} × {gpu} a replica)" for r in remedies)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def memory_notes(deployments: Deployments) -> list[Problem]:
    """What the memory budget had to assume, each once."""
    notes = dict.fromkeys(note for d in deployments for note in d.memory.notes)
    return [Problem("memory_assumed", "info", "engine.version", note, "Compare with the engine's own log line.") for note in notes]


def load_problems(load: Loaded, scenario: Scenario, fleet: Larger | None = None) -> list[Problem]:
    """Overload, instability and runs that were cut short."""
    run, seen = load.metrics.simulation, load.metrics.throughput
    found = []
    if load.overloaded:
        found.append(overload(load, scenario, fleet))
    else:
        found += promise_problems(load, scenario, fleet)
    if not run.stable and not load.overloaded and run.replications > 1:
        message = f"latencies at this load did not settle to ±10 % in {run.replications} runs: read the percentiles as a range"
        found.append(Problem("unstable", "warning", "workload.request_rate", message, "Lower the rate or simulate more requests."))
    if run.stopped and not load.overloaded:
        found.append(Problem("stopped", "warning", "workload.num_prompts", f"The simulation {run.stopped}.", "Ask for fewer requests."))
    found += not_steady(load)
    found += bounded(load, scenario)
    found += failures(load)
    share = simulated_share(scenario)
    if share < 1:
        message = f"{share:.1%} of the fleet was simulated with its share of the traffic and stands for the whole"
        found.append(Problem("fleet_sampled", "info", "fleet.replicas", message, ""))
    if seen.truncated:
        share = seen.truncated / max(1, run.requests)
        found.append(Problem("truncated", "info", "workload.max_output_len", f"{share:.1%} of answers are cut at the length limit.", ""))
    if seen.preemptions > run.requests / 20:
        message = f"the KV cache runs out: {seen.preemptions:,} preemptions over {run.requests:,} requests, each recomputed"
        found.append(Problem("preemptions", "warning", "engine.max_num_seqs", message, "Lower max_num_seqs or give the cache more memory."))
    return found


def not_steady(load: Loaded) -> list[Problem]:
    """Sessions that send less than they should without anything being full: the run is too short for them, or their number is capped."""
    share = sent_share(load.timelines)
    if share is None or share >= SENT or load.overloaded:
        return []
    message = f"the simulated sessions sent only {share:.0%} of what is expected of them, so the load is lighter than the one asked for"
    return [Problem("not_steady", "warning", "workload.num_prompts", message, "Simulate more requests, or fewer turns to a session.")]


def bounded(load: Loaded, scenario: Scenario) -> list[Problem]:
    """What of the traffic lies beyond the bounds of work, and what that means for the figures."""
    found = []
    if missing := left_out(scenario, load.timelines[0]):
        message = (
            f"a run holds {len(load.timelines[0]):,} of these requests within the bounds of work; the other {missing:,} are not simulated"
        )
        severity: Severity = "warning" if scenario.simulation.mode == "benchmark" else "info"
        found.append(
            Problem("shortened", severity, "workload.num_prompts", message, "Ask for fewer requests, or raise the bounds of work.")
        )
    clients, run = scenario.workload.max_concurrency, load.metrics.simulation
    held = run.requests / max(1, run.replications) / simulated_share(scenario)
    rate = load.metrics.throughput.requests_per_s
    if clients and scenario.workload.request_rate is None and scenario.workload.trace is None and clients > held and rate:
        message = (
            f"{clients:,} clients are more than the {held:,.0f} requests of a run, so the percentiles miss most of the wait: "
            f"at {rate:,.3g} requests/s each client waits about {clients / rate:,.0f} s for its answer"
        )
        found.append(Problem("clients_left_out", "warning", "workload.max_concurrency", message, "Fewer clients, or more replicas."))
    return found


THIN = 0.85
"""Observed over promised above which the margin is within the error of step times and of one percentile's sampling."""

LABELS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "the whole answer"}


def promise_problems(load: Loaded, scenario: Scenario, fleet: Larger | None) -> list[Problem]:
    """Promises that this load breaks, refused and abandoned requests counted as misses, with the rate that would keep them."""
    slo, rate, capacity = scenario.slo, load.offered_requests_per_s, load.capacity_requests_per_s
    broken: list[str] = []
    thin: list[str] = []
    for kept in load.kept:
        if kept.strain > THIN:
            (broken if kept.strain > 1 else thin).append(against(kept, slo.percentile))
    if not broken and (not rate or not capacity or rate <= capacity):
        if not thin:
            return []
        message = f"the promise at p{slo.percentile} holds by a margin thinner than the prediction is sure of: {'; '.join(thin)}"
        return [Problem("thin_margin", "warning", "slo", message, "Measure before relying on it, or keep one more replica.")]
    missed = f"is missed: {'; '.join(broken)}" if broken else "is on the edge"
    message = f"the promise at p{slo.percentile} {missed}"
    if any(not isfinite(kept.at_s) for kept in load.kept):
        return [Problem("slo_missed", "warning", "engine.max_model_len", message, "Serve the requests that are refused or given up.")]
    if not rate or capacity is None:
        other = "A faster layout, or more replicas where one request alone keeps the promise." if rate else CLIENTS
        remedy = fleet.remedy if fleet else other
        return [Problem("slo_missed", "warning", "fleet.replicas" if fleet else "slo", message, remedy)]
    if capacity == 0:
        field, remedy = ("fleet.replicas", fleet.remedy) if fleet else ("engine.max_num_batched_tokens", USELESS)
        return [Problem("slo_missed", "warning", field, message, remedy)]
    low, high = load.capacity_interval or (capacity, capacity)
    about = f" ({low:.3g} to {high:.3g} by the spread of the runs)" if high > 1.1 * low else ""
    message += f"; it holds up to {capacity:.3g} requests/s{about}, {rate:.3g} arrive"
    return [Problem("slo_missed", "warning", "fleet.replicas", message, (fleet or larger(scenario, rate / capacity)).remedy)]


def against(kept: Kept, common_percentile: int) -> str:
    """`TTFT of priority 1 at p99 1,210 ms against 1,000 ms`, as little of it as tells the promise from the common one."""
    promise = kept.promise
    whose = f" of {promise.to}" if promise.to else ""
    where = f" at p{promise.percentile}" if promise.percentile != common_percentile else ""
    at = milliseconds(kept.at_s) if isfinite(kept.at_s) else f"never reached by over {100 - promise.percentile} % of requests"
    limit = milliseconds(promise.limit_s)
    if at == limit:  # a miss by less than is shown reads like a promise kept
        at = f"just {'over' if kept.strain > 1 else 'under'} {at}"
    return f"{LABELS[promise.name]}{whose}{where} {at} against {limit}"


CLIENTS = "Fewer clients at once, more replicas, or a faster layout."
USELESS = (
    "It breaks at every useful rate and on much larger fleets: refused requests or long prompts break it. "
    "Smaller max_num_batched_tokens, a longer max_model_len, a faster GPU or another promise."
)


BINDS = {
    "kv_cache": ("the KV cache is full", "precision.kv_cache"),
    "max_num_seqs": ("every seat of max_num_seqs is taken", "engine.max_num_seqs"),
    "max_num_batched_tokens": ("prompts wait for the token budget of the steps", "parallel.tensor_parallel_size"),
}


def overload(load: Loaded, scenario: Scenario, fleet: Larger | None) -> Problem:
    """More arrives than can be served: by how much, and which resource binds."""
    offered, capacity = load.offered_requests_per_s, load.capacity_requests_per_s
    binds, field = BINDS.get(load.metrics.simulation.limited_by, ("the engine cannot keep up", "fleet.replicas"))
    if offered is None:
        message = f"overloaded: the queue grows without end; {binds}"
        return Problem(
            "overloaded", "error", "workload.max_concurrency", message, fleet.remedy if fleet else "Fewer clients or more replicas."
        )
    if capacity == 0 or not load.metrics.throughput.requests_per_s:
        return Problem(
            "overloaded", "error", field, f"overloaded: {offered:.3g} requests/s arrive and {binds}", fleet.remedy if fleet else USELESS
        )
    served = capacity or load.metrics.throughput.requests_per_s
    what = f"the promise holds up to about {served:.3g}" if capacity else f"the engine serves about {served:.3g}"
    message = f"overloaded: {offered:.3g} requests/s arrive, {what} ({offered / served:.2f}×); {binds}"
    return Problem("overloaded", "error", field, message, (fleet or larger(scenario, offered / served, not capacity)).remedy)


def failures(load: Loaded) -> list[Problem]:
    """Requests that were refused or given up, with their share and one of the reasons."""
    run, seen = load.metrics.simulation, load.metrics.throughput
    reasons = [reason for timeline in load.timelines for reason in timeline.reasons]
    if not reasons:
        return []
    message = f"{seen.failed / max(1, run.requests):.1%} of requests are refused or unfinished, for example: {reasons[0]}"
    severity: Severity = "error" if seen.failed >= run.requests else "warning"
    return [Problem("requests_failed", severity, "engine.max_model_len", message, "Shorten them, raise max_model_len or give more cache.")]
