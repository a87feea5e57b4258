"""What a plan has to say beside its numbers: what does not fit, what is overloaded, which promise nothing can keep."""

from __future__ import annotations

from planner.plan.deployment import Deployment
from planner.plan.load import Loaded
from planner.plan.steady import Steady, input_tokens
from planner.plan.system import Deployments, left_out, simulated_share
from planner.problems import Problem, Severity
from planner.scenario import Scenario
from planner.units import GIB, MS


def memory_problems(deployments: Deployments) -> list[Problem]:
    """The shortfall of each kind of replica that does not fit, with the nearest change that helps."""
    found = []
    for d in deployments:
        memory = d.memory
        if memory.fits:
            continue
        message = (
            f"{d.scenario.model.name} does not fit: short {memory.shortfall_bytes_per_gpu / GIB:.3g} GiB per GPU; weights take "
            f"{memory.weights_bytes_per_gpu / GIB:.3g} of the {memory.budget_bytes_per_gpu / GIB:.3g} GiB that one {d.gpu.name} gives"
        )
        helps = next((r for r in memory.remedies if r.fits), None)
        field, remedy = (helps.field, helps.message) if helps else ("parallel.tensor_parallel_size", "")
        found.append(Problem("does_not_fit", "error", field, message, remedy))
    return found


def latency_problems(deployments: Deployments, steady: Steady, scenario: Scenario) -> list[Problem]:
    """Promises that a request alone on an idle machine already breaks: replicas cannot mend those."""
    slo = scenario.slo
    alone_ttft_s = steady.prefill_s + deployments[0].step_time.api_s
    alone_tpot_s = steady.decode_step_batch1_s / deployments[-1].profile.acceptance_length
    found = []
    for name, alone_s, promise_s, lever in (
        ("TTFT", alone_ttft_s, slo.ttft_s, "a faster GPU, more tensor parallelism, or prompts that are cached"),
        ("TPOT", alone_tpot_s, slo.tpot_s, "fewer bytes of weights, more tensor parallelism, or speculation"),
    ):
        cached = scenario.engine.enable_prefix_caching and (scenario.workload.shared_prefix_len or scenario.workload.turns > 1)
        if promise_s is not None and alone_s > promise_s and not (name == "TTFT" and cached):
            of = f"a prompt of {input_tokens(scenario):,.0f} tokens" if name == "TTFT" else "one sequence"
            message = (
                f"{name} of {of} alone is {alone_s / MS:,.0f} ms, over the promised {promise_s / MS:,.0f} ms: more replicas will not help"
            )
            field = f"slo.{name.lower()}_s"
            found.append(Problem("infeasible_slo", "error", field, message, f"It needs {lever}, or another promise."))
    return found


def load_problems(deployments: Deployments, steady: Steady, load: Loaded, scenario: Scenario) -> list[Problem]:
    """Overload, instability and runs that were cut short."""
    run, seen = load.metrics.simulation, load.metrics.throughput
    found = []
    if load.overloaded:
        found.append(overload(deployments[-1], load, scenario))
    else:
        found += promise_problems(load, scenario)
    if not run.stable and not load.overloaded and run.replications > 1:
        message = f"latencies at this load did not settle to ±10 % in {run.replications} runs: read the percentiles as a range"
        found.append(Problem("unstable", "warning", "workload.request_rate", message, "Lower the rate or simulate more requests."))
    if run.stopped and not load.overloaded:
        found.append(Problem("stopped", "warning", "workload.num_prompts", f"The simulation {run.stopped}.", "Ask for fewer requests."))
    found += bounded(load, scenario)
    for timeline in load.timelines[:1]:
        for reason in timeline.reasons[:3]:
            message = f"some requests failed: {reason}"
            found.append(Problem("requests_failed", "warning", "engine.max_model_len", message, "Shorten them or give more cache."))
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


USELESS_SHARE = 0.01
"""Capacity below this share of what the replica could serve without a promise: no number of replicas is the answer."""


THIN = 0.85
"""Observed over promised above which the margin is within the error of step times and of one percentile's sampling."""


def promise_problems(load: Loaded, scenario: Scenario) -> list[Problem]:
    """Promises that this load breaks, with the rate that would keep them."""
    slo, rate, capacity = scenario.slo, scenario.workload.request_rate, load.capacity_requests_per_s
    seen = load.metrics.latency
    broken, thin = [], []
    for name, label in (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "the whole answer")):
        promise_s, latency = getattr(slo, name), getattr(seen, name)
        if promise_s is not None and latency is not None and (at := latency.percentile(slo.percentile)) > THIN * promise_s:
            against = f"{label} {at / MS:,.0f} ms against {promise_s / MS:,.0f} ms"
            (broken if at > promise_s else thin).append(against)
    if not broken and (not rate or capacity is None or rate <= capacity):
        message = f"the promise at p{slo.percentile} holds by a margin thinner than the prediction is sure of: {'; '.join(thin)}"
        remedy = "Measure before relying on it, or keep one more replica."
        return [Problem("thin_margin", "warning", "slo", message, remedy)] if thin else []
    message = (
        f"the promise at p{slo.percentile} is missed: {'; '.join(broken)}" if broken else f"the promise at p{slo.percentile} is on the edge"
    )
    if not rate or capacity is None:
        return [Problem("slo_missed", "warning", "slo", message, "Fewer clients at once, more replicas, or a faster layout.")]
    highest = max((probe.rate for probe in load.probes), default=0.0)
    if capacity <= USELESS_SHARE * highest:
        remedy = (
            "It breaks at every useful rate: bursts or long prompts fall on everyone else's tokens. "
            "Smaller max_num_batched_tokens, a faster GPU or another promise."
        )
        return [Problem("slo_missed", "warning", "engine.max_num_batched_tokens", message, remedy)]
    needed = -(-rate * scenario.fleet.replicas // capacity)
    message += f"; it holds up to {capacity:.3g} requests/s, {rate:.3g} arrive"
    remedy = f"{needed:.0f} replicas would hold it." if needed > scenario.fleet.replicas else "A little less load, or one more replica."
    return [Problem("slo_missed", "warning", "fleet.replicas", message, remedy)]


def overload(deployment: Deployment, load: Loaded, scenario: Scenario) -> Problem:
    """More arrives than can be served: by how much, and which resource binds."""
    seen = load.metrics.throughput
    offered = scenario.workload.request_rate
    cache, seats = deployment.memory.cache_limited_batch, deployment.scenario.engine.max_num_seqs
    prefill_share = sum(t.input_busy_s for t in load.timelines) / max(1e-9, sum(t.input_busy_s + t.output_busy_s for t in load.timelines))
    if prefill_share > 0.5:
        binds, field = f"prefill takes {prefill_share:.0%} of the busy time", "parallel.tensor_parallel_size"
    elif cache <= seats:
        binds, field = f"the KV cache holds {cache} sequences", "precision.kv_cache"
    else:
        binds, field = f"max_num_seqs admits {seats} sequences", "engine.max_num_seqs"
    if offered is None:
        return Problem(
            "overloaded", "error", "workload.max_concurrency", f"the queue grows without end; {binds}", "Fewer clients or more replicas."
        )
    served = max(load.capacity_requests_per_s or seen.requests_per_s, 1e-9)
    replicas = max(scenario.fleet.replicas + 1, -(-offered * scenario.fleet.replicas // served))
    what = "the promise holds" if load.capacity_requests_per_s else "the engine keeps up"
    message = f"overloaded: {offered:.3g} requests/s arrive, {what} up to about {served:.3g} ({offered / served:.2f}×); {binds}"
    return Problem("overloaded", "error", field, message, f"About {replicas:.0f} replicas are needed.")
