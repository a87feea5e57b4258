"""The two charts that place a plan: its price and speed among the alternatives, its steps under the roofline."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner.catalog import kernels
from planner.economics import frontier as economics
from planner.economics.frontier import Point
from planner.scenario import Scenario
from planner.units import HOUR_S, MTOK
from planner.views import components, state
from planner.views.charts import prices, steps
from planner.views.text import digits, usd

Json = dict[str, Any]
GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "mi300x")
BATCHES = (1, 4, 16, 64, 256)
IRRELEVANT = ("name", "notes", "slo", "simulation", "fleet")
ARRIVALS = ("request_rate", "max_concurrency", "burstiness", "num_prompts", "seed", "think_time_s", "retry_rate", "deadline_s")
"""Sections and fields of the workload that do not move the points: moving their sliders computes nothing again."""


@st.cache_resource(max_entries=64, show_spinner=False)
def _points(scenario: Scenario, gpus: tuple[str, ...]) -> tuple[Point, ...]:
    return economics.points(scenario, gpus, weights=(scenario.precision.weights,), batches=BATCHES)


def points(scenario: Scenario) -> tuple[Point, ...]:
    """Common GPUs and the plan's own, at every layout and batch that fits, with the plan's precision."""
    steady = scenario.workload.model_copy(update={name: getattr(Scenario().workload, name) for name in ARRIVALS})
    bare = scenario.model_copy(update={name: getattr(Scenario(), name) for name in IRRELEVANT} | {"workload": steady})
    same_price = scenario.price.usd_per_gpu_hour is not None
    # A price typed in by hand belongs to the plan's own GPU; for the others it would be wrong.
    gpus = (scenario.hardware.gpu,) if same_price else tuple(dict.fromkeys((scenario.hardware.gpu, *GPUS)))
    others = tuple(g for g in GPUS if g != scenario.hardware.gpu) if same_price else ()
    found = _points(bare, gpus)
    if others:
        listed = bare.model_copy(update={"price": bare.price.model_copy(update={"usd_per_gpu_hour": None})})
        found += _points(listed, others)
    return found


def render(plan: Json, scenario: Scenario) -> None:
    """Price against speed; a click adopts the point."""
    found = [p for p in points(scenario) if p.usd_per_mtok_output]
    if not found:
        st.info("No GPU of this comparison holds the model at this precision, or none has a known price.")
        return
    best = {id(p) for p in economics.pareto(found, lambda p: p.tokens_per_s_per_user, lambda p: p.usd_per_mtok_output or 0)}
    rows = [
        {
            "gpu": p.gpu,
            "tp": p.tensor_parallel_size,
            "batch": p.batch,
            "speed": p.tokens_per_s_per_user,
            "usd": p.usd_per_mtok_output,
            "edge": id(p) in best,
        }
        for p in found
    ]
    here = own_point(plan)
    cheapest = min(found, key=lambda p: p.usd_per_mtok_output or 0)
    unmeasured = "" if measured(cheapest.gpu, scenario.engine.name) else " (its own kernels were never measured: extrapolated)"
    takeaway = (
        f"Cheapest: {cheapest.gpu}{unmeasured}, {cheapest.tensor_parallel_size} per replica, batch "
        f"{cheapest.batch}, {usd(cheapest.usd_per_mtok_output)} per M output "
        f"at {digits(cheapest.tokens_per_s_per_user)} tokens/s for each user, always full. Click a point to adopt it."
    )
    components.chart(prices.frontier(rows, here, components.ink()), takeaway, key="frontier", on_select=_adopt)
    edge = sorted((p for p in found if id(p) in best), key=lambda p: -p.tokens_per_s_per_user)
    names = {named(p): p for p in edge}
    st.selectbox(
        "Or adopt a point of the edge by name", list(names), index=None, key="frontier_name", on_change=_adopt_named, args=(names,)
    )


def measured(gpu: str, engine: str) -> bool:
    """Whether the GPU's own kernels were measured; the Recommend page offers no others by itself."""
    found = kernels.find("gemm", gpu, engine, "bf16")
    return found is not None and found.same_gpu


def own_point(plan: Json) -> Json | None:
    """Where this plan stands: all its dollars over its output tokens, at its median TPOT."""
    tpot, tokens, dollars = (
        (plan["latency"]["tpot_s"] or {}).get("p50"),
        plan["throughput"]["output_tokens_per_s"],
        plan["cost"]["usd_per_hour"],
    )
    if not tpot or not tokens or not dollars:
        return None
    return {"speed": 1 / tpot, "usd": dollars / HOUR_S / tokens * MTOK}


def named(point: Point) -> str:
    """A point in words, for those who do not click charts."""
    price = f"{usd(point.usd_per_mtok_output)} per M at {digits(point.tokens_per_s_per_user)} tokens/s"
    return f"{point.tensor_parallel_size} × {point.gpu}, batch {point.batch}: {price}"


def _adopt_named(names: dict[str, Point]) -> None:
    if st.session_state["frontier_name"]:
        _take(names[st.session_state["frontier_name"]])
        st.session_state["frontier_name"] = None


def _adopt() -> None:
    picked = (st.session_state["frontier"] or {}).get("selection", {}).get("pick") or []
    for point in points(state.scenario()) if picked else ():
        if (point.gpu, point.tensor_parallel_size, point.batch) == (picked[0]["gpu"], picked[0]["tp"], picked[0]["batch"]):
            _take(point)
            return


def _take(point: Point) -> None:
    """Make the point's GPU, layout and batch the scenario's."""
    here = state.scenario()
    hardware = here.hardware.model_copy(update={"gpu": point.gpu})
    state.adopt(here.model_copy(update={"hardware": hardware, "parallel": point.scenario.parallel, "engine": point.scenario.engine}))


def roofline(plan: Json, scenario: Scenario) -> None:
    """One GPU's roof, with a decode step and a prefill under it."""
    from planner import hardware

    gpu, roof, memory = hardware.of(scenario.hardware), plan["roofline"], plan["memory"]
    peak, bandwidth = gpu.peak_flops(scenario.precision.weights), gpu.memory_bandwidth_bytes_s
    share = 2 * plan["architecture"]["active_params"] / scenario.parallel.gpus
    rows = []
    if roof["batch"]:
        moved = memory["weights_bytes_per_gpu"] + roof["batch"] * roof["context_tokens"] * memory["kv_bytes_per_token_per_gpu"]
        work = share * roof["batch"]
        rows.append(
            {
                "name": f"decode, batch {roof['batch']:,}",
                "phase": "decode",
                "intensity": work / moved,
                "flops": work / roof["decode_step_s"],
            }
        )
    tokens = min(scenario.engine.max_num_batched_tokens, 8192)
    work = share * tokens
    rows.append(
        {
            "name": "prefill",
            "phase": "prefill",
            "intensity": work / memory["weights_bytes_per_gpu"],
            "flops": share * roof["prefill_tokens_per_s"],
        }
    )
    reached = rows[0]["flops"] / min(rows[0]["intensity"] * bandwidth, peak)
    components.chart(
        steps.roofline(rows, peak, bandwidth, components.ink()),
        (
            f"Decoding reaches {digits(100 * reached)} % of what this GPU could do at its intensity; the "
            f"ridge is at {digits(peak / bandwidth)} FLOP per byte."
        ),
    )
