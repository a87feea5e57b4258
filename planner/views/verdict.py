"""What a plan's numbers say, in words: the state, what binds, the nearest change that helps. Pure functions of the Plan JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from planner.scenario import Scenario
from planner.views.text import compact, gibibytes, percent, seconds, usd

Colour = Literal["green", "orange", "red", "gray", "blue"]


@dataclass(frozen=True, slots=True)
class Badge:
    """A word for a state; its text says what its colour says."""

    text: str
    colour: Colour
    icon: str


GRADES = {"A": "Model and GPU measured", "B": "GPU family measured", "C": "Extrapolated"}
"""What stands behind a plan's step times. That runs differ from each other is another matter, and has a badge of its own."""


def runs(plan: dict[str, Any]) -> bool:
    """Whether the plan can run at all, so that its figures may be shown."""
    return plan["memory"]["fits"] is True


def codes(plan: dict[str, Any]) -> set[str]:
    """Codes of the plan's problems."""
    return {problem["code"] for problem in plan["problems"]}


def badges(plan: dict[str, Any]) -> list[Badge]:
    """Fits, promise, load, confidence: the plan at a glance."""
    found = codes(plan)
    if plan["memory"]["fits"] is None:
        return [Badge("Layout not possible", "red", ":material/block:")]
    if not plan["memory"]["fits"]:
        return [Badge("Does not fit", "red", ":material/close:")]
    shown = [Badge("Fits", "green", ":material/check:")]
    if "overloaded" in found:
        shown.append(Badge("Overloaded", "red", ":material/trending_up:"))
    elif kept := promise_kept(plan):
        shown.append(kept)
    if "unstable" in found and "overloaded" not in found:
        shown.append(Badge(f"p{plan['scenario']['slo']['percentile']} not settled", "orange", ":material/warning:"))
    grade = (plan["confidence"] or {}).get("grade")
    if plan["scenario"]["fidelity"] == "textbook":
        shown.append(Badge("Textbook arithmetic", "gray", ":material/school:"))
    elif grade:
        shown.append(
            Badge(GRADES[grade], "orange" if grade == "C" else "gray", ":material/verified:" if grade == "A" else ":material/help:")
        )
    return shown


def promise_kept(plan: dict[str, Any]) -> Badge | None:
    """Whether the SLO holds at its percentile; None when nothing was promised or nothing simulated."""
    names, made = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "answer"}, plan.get("promises") or []
    missed = list(dict.fromkeys(names[promise["name"]] for promise in made if not promise["kept"]))
    if not made:
        return None
    if not missed and "slo_missed" in codes(plan):
        return Badge("On the edge of the promise", "orange", ":material/warning:")
    if missed:
        return Badge(f"Misses {' and '.join(missed)}", "red", ":material/close:")
    return Badge("Keeps the promise", "green", ":material/check:")


def as_verb(kept: Badge) -> str:
    """The badge as what follows a subject."""
    return ("is " if kept.text.startswith("On ") else "") + kept.text[:1].lower() + kept.text[1:]


def batch_limit(plan: dict[str, Any], scenario: Scenario) -> str:
    """What the batch is limited by, and the nearest change that would raise it."""
    memory, batch = plan["memory"], plan["roofline"]["batch"]
    replicas = scenario.fleet.replicas
    clients = scenario.workload.max_concurrency if scenario.workload.request_rate is None else None
    if batch == memory["cache_limited_batch"]:
        fp8 = "" if scenario.precision.kv_cache == "fp8" else "an fp8 cache, "
        return f"More than {batch:,} at once do not fit into the KV cache; {fp8}more GPUs per replica or shorter contexts make room."
    if clients and batch == -(-clients // replicas):
        return f"There are only {clients:,} clients; more of them would fill it."
    return (
        f"The engine is set to run at most {scenario.engine.max_num_seqs:,} requests at once (“Most sequences”); "
        f"the KV cache would hold {memory['cache_limited_batch']:,}."
    )


def binding(plan: dict[str, Any], scenario: Scenario) -> str:
    """What limits this plan, and the nearest change that helps."""
    memory, slo = plan["memory"], plan["scenario"]["slo"]
    if memory["fits"] is False:
        return f"{gibibytes(memory['shortfall_bytes_per_gpu'])} per GPU are missing."
    bound = {
        "memory": "reading memory",
        "compute": "arithmetic",
        "link": "the links between GPUs",
        "launch": "kernel launches",
        "host": "the engine's host code",
        "draft": "drafting",
    }
    roof = plan["roofline"]
    step = (
        f"When it is full, one step gives {roof['batch']:,} requests their next token in {seconds(roof['decode_step_s'])}, "
        f"most of it spent on {bound.get(roof['decode_bound'], roof['decode_bound'])}."
    )
    if "overloaded" in codes(plan):
        return f"More requests arrive than are served. {step}"
    ttft, queue = at_promise(plan, "ttft_s"), at_promise(plan, "queue_s")
    if slo["ttft_s"] and ttft and queue is not None and ttft > slo["ttft_s"]:
        cause = "waiting in the queue" if queue > ttft / 2 else "the prompt itself, which more replicas do not shorten"
        return f"{percent(max(queue, ttft - queue) / ttft)} of the time to the first token is {cause}. {step}"
    used = useful_share(plan)
    room = f"The load is {percent(used)} of what the promise allows. " if used else ""
    return f"{room}{step} {batch_limit(plan, scenario)}"


MEANINGLESS = 20.0
"""Load over capacity beyond which no number of replicas is the answer: the promise breaks at every useful rate."""


def at_promise(plan: dict[str, Any], name: str) -> float | None:
    """A latency at the promised percentile, s."""
    found: float | None = (plan["latency"].get(name) or {}).get(f"p{plan['scenario']['slo']['percentile']}")
    return found


def useful_share(plan: dict[str, Any]) -> float | None:
    """Offered load over what the promise allows; None where that was not searched or means nothing."""
    used: float | None = plan["throughput"].get("utilization")
    return used if used is not None and used <= MEANINGLESS else None


def replicas_needed(plan: dict[str, Any], scenario: Scenario) -> int | None:
    """Replicas for the stated rate within the promise; None in a closed loop or where nothing is known."""
    rate, capacity = scenario.workload.request_rate, plan["throughput"].get("capacity_requests_per_s")
    if not rate or not capacity or useful_share(plan) is None:
        return None
    return max(1, -int(-rate * scenario.fleet.replicas // capacity))


def title(plan: dict[str, Any], scenario: Scenario) -> str:
    """The plan as a headline."""
    split = scenario.disaggregation
    if split is None:
        on = f"{scenario.gpus} × {scenario.hardware.gpu}"
    else:
        pools = ((split.prefill, "prefill"), (split.decode, "decode"))
        on = " + ".join(f"{pool.replicas * pool.parallel.gpus} × {pool.gpu} for {name}" for pool, name in pools)
    spare = f" + {spare_gpus(scenario)} spare" if scenario.fleet.spares else ""
    return f"{scenario.model.name} in {scenario.precision.weights} on {on}{spare}"


def spare_gpus(scenario: Scenario) -> int:
    """GPUs that stand by: a disaggregated plan keeps the spares in both pools."""
    split = scenario.disaggregation
    layouts = (scenario.parallel,) if split is None else (split.prefill.parallel, split.decode.parallel)
    return scenario.fleet.spares * sum(layout.gpus for layout in layouts)


BAND_FIGURES = {"usd": ("$ per M output", usd), "ttft": ("TTFT", seconds), "tpot": ("TPOT", seconds), "throughput": ("tokens/s", compact)}
"""Figures with an error band: their names, and how they are shown."""


@dataclass(frozen=True, slots=True)
class Band:
    """A mean figure of the plan with its error band, as text."""

    figure: str
    mean: str
    low: str
    high: str
    side: str
    """ "at most" or "at least" where the figure is only a bound."""


def bands(plan: dict[str, Any]) -> list[Band]:
    """The plan's mean figures with their bands."""
    found = plan["confidence"] or {}
    one_sided, rows, latency = found.get("one_sided") or {}, found.get("bands") or {}, plan["latency"]
    means = {
        "usd": plan["cost"]["usd_per_mtok_output"],
        "ttft": (latency.get("ttft_s") or {}).get("mean"),
        "tpot": (latency.get("tpot_s") or {}).get("mean"),
        "throughput": plan["throughput"].get("output_tokens_per_s"),
    }
    return [
        Band(name, show(means[key]), show(rows[key][0]), show(rows[key][1]), one_sided.get(key, ""))
        for key, (name, show) in BAND_FIGURES.items()
        if rows.get(key)
    ]


def how_wrong(plan: dict[str, Any]) -> str:
    """The bands in one sentence, or an empty string."""
    told = ", ".join(f"{b.figure} {b.mean} ({b.low} to {b.high})" for b in bands(plan) if b.low != b.high)
    if not told:
        return ""
    point = f"p{plan['scenario']['slo']['percentile']}"
    return (
        f"How wrong this may be, for means: {told}. Four of five measured systems like this one fall inside. "
        f"The {point} above has no band of its own."
    )
