"""Eight short lessons on the scenario at hand: one control, one chart, one sentence of takeaway, all from the live planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner import cost
from planner.plan import Steady, steady
from planner.scenario import Scenario, set_path
from planner.views import components, plans
from planner.views.charts import Ink, Spec, simple, steps
from planner.views.text import digits, percent, seconds, usd

Answer = tuple[Spec, str]
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Stop:
    """One lesson."""

    title: str
    text: str
    """The idea in two or three sentences."""
    draw: Callable[[Scenario, Ink], Answer]
    """Draws the control; returns the chart and the takeaway."""


def fitting(scenario: Scenario) -> Scenario:
    """The scenario with drawn traffic on one kind of replica, or the default one where it cannot run: lessons need a system that works."""
    drawn = {"trace": None} | ({} if scenario.workload.request_rate or scenario.workload.max_concurrency else {"request_rate": 1.0})
    bare = scenario.model_copy(update={"disaggregation": None, "workload": scenario.workload.model_copy(update=drawn)})
    return bare if plans.replica(bare) else Scenario()


def closed(scenario: Scenario, **settings: Any) -> Steady | None:
    """Closed forms of the scenario with settings replaced (dots written as double underscores); None where it cannot run."""
    for path, value in settings.items():
        scenario = set_path(scenario, path.replace("__", "."), value)
    here = plans.replica(scenario)
    prices = cost.fleet_hour(scenario)
    return steady((here,), scenario.fleet.replicas, prices.replica_usd if prices else None) if here else None


def at_batch(scenario: Scenario, batch: int, **settings: Any) -> Steady | None:
    """The same with exactly `batch` sequences in a step."""
    return closed(scenario, engine__max_num_seqs=batch, workload__request_rate=1.0, workload__max_concurrency=None, **settings)


def _decode_step(s: Scenario, ink: Ink) -> Answer:
    tp = st.select_slider("GPUs per replica", [1, 2, 4, 8], value=8, key="lesson.tp", bind="query-params")
    found = {n: answer for n in (1, 2, 4, 8) if (answer := at_batch(s, 1, parallel__tensor_parallel_size=n))}
    if tp not in found:
        return simple.bars(
            [{"name": f"{tp} GPUs", "value": 0, "text": "does not fit"}], "ms", ink
        ), f"{s.model.name} does not fit on {tp} GPUs."
    rows = [
        {"name": f"{n} GPU{'s' if n > 1 else ''}", "part": part, "value": total * 1e3, "text": seconds(total)}
        for n, answer in found.items()
        for part in steps.BOUNDS
        if (total := sum(t.seconds for t in answer.terms if t.phase in ("decode", "step") and t.bound == part))
    ]
    here = found[tp]
    reading = sum(t.seconds for t in here.terms if t.phase in ("decode", "step") and t.bound == "memory")
    takeaway = (
        f"With one sequence on {tp} GPUs a step takes {seconds(here.decode_step_s)}, "
        f"{percent(reading / here.decode_step_s)} of it reading memory: "
        f"{digits(1 / here.decode_step_s)} tokens a second is the most that one user can get."
    )
    parts = [part for part in steps.BOUNDS if any(row["part"] == part for row in rows)]
    colours = [steps.BOUND_COLOURS[steps.BOUNDS.index(part)] for part in parts]
    return simple.stacked(rows, "milliseconds of one step at batch 1", parts, ink, colours), takeaway


def _batching(s: Scenario, ink: Ink) -> Answer:
    batch = st.select_slider("Sequences in the batch", list(BATCHES), value=64, key="lesson.batch", bind="query-params")
    found = {n: a for n in BATCHES if (a := at_batch(s, n)) and a.batch == n}
    rows = [{"x": n, "y": n / a.decode_step_s, "series": "all users together"} for n, a in found.items()]
    rows += [{"x": n, "y": 1 / a.decode_step_s, "series": "each user"} for n, a in found.items()]
    most = max(found)
    batch = min(batch, most)
    gain = batch / found[batch].decode_step_s * found[1].decode_step_s
    slow = found[batch].decode_step_s / found[1].decode_step_s
    takeaway = (
        f"{batch} sequences share one reading of the weights: {digits(gain)} times the tokens of one, "
        f"while each step takes {digits(slow)} times as long."
    )
    takeaway += f" The cache holds {most if most == BATCHES[-1] else replica_batch(s)} at most." if batch == most else ""
    return simple.lines(rows, "sequences in the batch", "tokens per second", ink, at=batch, log_x=True, log_y=True), takeaway


def replica_batch(s: Scenario) -> str:
    """The cache-limited batch as text."""
    here = plans.replica(s)
    return f"{here.memory.cache_limited_batch:,}" if here else "none"


def _paging(s: Scenario, ink: Ink) -> Answer:
    longest = st.select_slider(
        "Longest answer reserved for, tokens in all",
        [2048, 4096, 8192, 16384, 32768, 65536],
        value=8192,
        key="lesson.longest",
        bind="query-params",
    )
    here = plans.replica(set_path(s, "engine.max_model_len", longest))
    if here is None:
        return simple.bars([], "sequences at once", ink), f"One sequence of {longest:,} tokens does not fit at all."
    paged, reserved = here.memory.cache_limited_batch, int(here.memory.max_model_len_concurrency)
    pairs = (("blocks on demand", paged), ("longest reserved up front", reserved))
    rows = [{"name": name, "value": held, "text": f"{held:,} sequences"} for name, held in pairs]
    takeaway = (
        f"Reserving {longest:,} tokens for everyone holds {reserved:,} sequences; handing out blocks as they are needed holds {paged:,}"
    )
    return simple.bars(rows, "sequences at once", ink, chosen="blocks on demand"), takeaway + (
        f", {digits(paged / reserved)} times as many." if reserved else "."
    )


def _prefix(s: Scenario, ink: Ink) -> Answer:
    share = st.select_slider(
        "Share of the prompt that all requests have in common, %", [0, 25, 50, 75, 90], value=75, key="lesson.shared", bind="query-params"
    )
    prompt = max(plans_mean(s), 64.0)
    rows, seen = [], {}
    for caching in (False, True):
        changed = set_path(set_path(s, "workload.input_len", prompt), "workload.shared_prefix_len", prompt * share / 100)
        changed = set_path(set_path(changed, "engine.enable_prefix_caching", caching), "workload.num_prompts", 200)
        plan = plans.quick(changed)
        ttft, busy = (plan["latency"]["ttft_s"] or {}).get("p95") or 0.0, plan["throughput"]["prefix_hit_rate"] or 0.0
        seen[caching] = (ttft, busy)
        rows.append(
            {
                "name": "with prefix cache" if caching else "without",
                "value": ttft * 1e3,
                "text": f"{seconds(ttft)}, {percent(busy)} of prompt tokens found",
            }
        )
    takeaway = (
        f"With {share} % in common, p95 TTFT is {seconds(seen[True][0])} with the cache and "
        f"{seconds(seen[False][0])} without; {percent(seen[True][1])} of prompt tokens are not "
        "computed again."
    )
    return simple.bars(rows, "TTFT p95, milliseconds", ink, chosen="with prefix cache"), takeaway


def plans_mean(s: Scenario) -> float:
    """Mean prompt of the scenario, tokens."""
    from planner.scenario import mean_length

    return mean_length(s.workload.input_len)


def _speculation(s: Scenario, ink: Ink) -> Answer:
    rate = st.slider("Chance that a drafted token is accepted", 0.4, 0.95, 0.8, 0.05, key="lesson.acceptance", bind="query-params")
    rows: list[dict[str, Any]] = []
    for batch in (1, 32, 128):
        base = at_batch(s, batch, speculative=None)
        for k in range(1, 9):
            drafted = {"method": "eagle3", "num_speculative_tokens": k, "acceptance_rate": rate}
            spec = at_batch(s, batch, speculative=drafted)
            if base and spec and base.batch == batch == spec.batch:
                tokens = sum(rate**i for i in range(k + 1))
                rows.append({"x": k, "y": tokens * base.decode_step_s / spec.decode_step_s, "series": f"batch {batch}"})
    if not rows:
        return simple.bars([], "", ink), "This system leaves no room for drafts."
    best = max((r for r in rows if r["series"] == "batch 1"), key=lambda r: r["y"])
    full = [r["y"] for r in rows if r["series"] != "batch 1" and r["x"] == best["x"]]
    takeaway = f"Alone, {best['x']} drafts a step are best: {digits(best['y'])} times as fast."
    takeaway += f" In a full batch the same drafts give {digits(full[-1])} times: verifying is no longer free." if full else ""
    return simple.lines(rows, "tokens drafted per step", "times as fast", ink, format_y="~g"), takeaway


def _quantisation(s: Scenario, ink: Ink) -> Answer:
    chosen = (
        st.segmented_control("Weights", ["bf16", "fp8", "int4"], default="fp8", required=True, key="lesson.weights", bind="query-params")
        or "fp8"
    )
    found = {p: closed(s, precision__weights=p) for p in ("bf16", "fp8", "int4")}
    rows, lines = [], {}
    for precision, answer in found.items():
        here = plans.replica(set_path(s, "precision.weights", precision))
        if answer and here:
            lines[precision] = (answer.decode_step_batch1_s, here.memory.cache_limited_batch)
            rows.append(
                {
                    "name": precision,
                    "value": answer.decode_step_batch1_s * 1e3,
                    "text": f"{seconds(answer.decode_step_batch1_s)}, room for {here.memory.cache_limited_batch:,}",
                }
            )
        else:
            rows.append({"name": precision, "value": 0.0, "text": "does not fit"})
    if chosen not in lines or "bf16" not in lines:
        return simple.bars(
            rows, "step at batch 1, milliseconds", ink, chosen=chosen
        ), f"In bf16 the model {'fits' if 'bf16' in lines else 'does not fit'}; in {chosen} it {'fits' if chosen in lines else 'does not'}."
    (base_s, base_n), (step_s, held) = lines["bf16"], lines[chosen]
    return (
        simple.bars(rows, "step at batch 1, milliseconds", ink, chosen=chosen),
        (
            f"In {chosen} a lone step takes {percent(step_s / base_s)} of the time in bf16 and the cache "
            f"holds {held:,} sequences instead of {base_n:,}."
        ),
    )


def _prefill(s: Scenario, ink: Ink) -> Answer:
    prompt = st.select_slider("Prompt, tokens", [128, 512, 2048, 8192, 32768], value=2048, key="lesson.prompt", bind="query-params")
    rows, found = [], {}
    for n in (128, 512, 2048, 8192, 32768):
        answer = closed(s, workload__input_len=float(n), engine__max_model_len=None)
        if answer:
            found[n] = answer
            rows += [
                {"x": n, "y": answer.prefill_s * 1e3, "series": "reading the prompt"},
                {"x": n, "y": answer.decode_step_batch1_s * 1e3, "series": "one more token"},
            ]
    if prompt not in found:
        return simple.bars([], "", ink), f"A prompt of {prompt:,} tokens does not fit."
    here = found[prompt]
    steps = here.prefill_s / here.decode_step_batch1_s
    takeaway = (
        f"A prompt of {prompt:,} tokens takes {seconds(here.prefill_s)} of arithmetic, as long as "
        f"{digits(steps)} decode steps; each token after it waits for memory instead, "
        f"{seconds(here.decode_step_batch1_s)}."
    )
    return simple.lines(rows, "prompt tokens", "milliseconds", ink, at=prompt, log_x=True, log_y=True), takeaway


def _price(s: Scenario, ink: Ink) -> Answer:
    busy = st.slider("Share of the paid time that is busy, %", 5, 100, 50, 5, key="lesson.busy", bind="query-params")
    rows, found = [], {}
    for n in BATCHES:
        answer = at_batch(s, n)
        price = next((r.usd_per_mtok_output for r in answer.batch_table if r.batch == n), None) if answer and answer.batch == n else None
        # The prices of the batch table are those of a replica that is never idle.
        for name, share in {"always busy": 1.0, f"{busy} % busy": busy / 100}.items():
            if price:
                found[n, name] = price / share
                rows.append({"x": n, "y": price / share, "series": name})
    if not rows:
        return simple.bars([], "", ink), "This GPU has no known price: type one in the sidebar."
    most = max(n for n, _ in found)
    first = found.get((1, "always busy"), 0.0)
    takeaway = (
        f"A token costs {usd(first)} per million alone and {usd(found[most, 'always busy'])} in a "
        f"batch of {most}; at {busy} % busy that is {usd(found.get((most, f'{busy} % busy')))}. Price "
        "is a matter of full batches and busy hours."
    )
    return simple.lines(rows, "sequences in the batch", "$ per M output tokens", ink, log_x=True, log_y=True, format_y="$~g"), takeaway


STOPS = {
    "decode": Stop(
        "1. A decode step",
        (
            "To write one token the GPUs read every weight once. The arithmetic is small; the reading "
            "sets the pace. More GPUs read in parallel, until the fixed costs of a step remain."
        ),
        _decode_step,
    ),
    "batching": Stop(
        "2. Batching",
        (
            "The weights are read once a step, however many sequences ride along. So a fuller batch is "
            "nearly free, until reading each one's cache, or the arithmetic, takes as long as the "
            "weights."
        ),
        _batching,
    ),
    "paging": Stop(
        "3. Paging",
        (
            "Each sequence keeps a cache that grows by a piece per token. Whoever reserves the longest "
            "case for everyone keeps most of the memory empty; handing out small blocks on demand keeps "
            "it full."
        ),
        _paging,
    ),
    "prefix": Stop(
        "4. Prefix cache",
        (
            "Prompts often begin alike: a system prompt, a document, the conversation so far. Blocks of "
            "the same beginning can be shared, so that part is neither computed nor stored again."
        ),
        _prefix,
    ),
    "speculation": Stop(
        "5. Speculation",
        (
            "A small drafter guesses a few tokens and the model checks them in one step, at the price of "
            "one. It pays while the arithmetic of a step is idle, and stops paying when a full batch "
            "needs it."
        ),
        _speculation,
    ),
    "quantisation": Stop(
        "6. Quantisation",
        (
            "Fewer bits per weight are fewer bytes to read and more room for the cache. Both shorten the "
            "step or widen the batch; what the answers lose is measured elsewhere."
        ),
        _quantisation,
    ),
    "prefill": Stop(
        "7. Prefill against decode",
        (
            "A prompt is read in parallel and keeps the arithmetic busy; an answer is written token by "
            "token and waits for memory. They want different machines, and disturb each other on one."
        ),
        _prefill,
    ),
    "price": Stop(
        "8. The price of a token",
        (
            "A GPU-hour costs the same whether full or idle. What a token costs is how many others "
            "shared its step, and how much of the day had a step to share."
        ),
        _price,
    ),
}


def draw(stop: Stop, scenario: Scenario) -> None:
    """One lesson."""
    st.subheader(stop.title, anchor=False)
    st.markdown(stop.text)
    spec, takeaway = stop.draw(fitting(scenario), components.ink())
    components.chart(spec, takeaway)
