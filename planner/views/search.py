"""What a search for the cheapest fleet has found, and why the rest is out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from planner.recommend import Exclusion, Option, Recommendation
from planner.scenario import Scenario
from planner.views import components, state
from planner.views.text import compact, percent, plain, seconds, usd
from planner.views.words import layout

STAGES = {
    "illegal": "layout not possible",
    "memory": "does not fit",
    "latency": "too slow even alone",
    "price": "no known price",
    "cost": "dearer than the best",
    "simulation": "misses the promise under load",
    "not simulated": "not reached by the search",
}


@dataclass
class Search:
    """What a search has found so far, kept for the session."""

    scenario: Scenario
    gpus: tuple[str, ...]
    options: list[Option] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    result: Recommendation | None = None


def show(search: Search) -> None:
    options = list(search.result.options) if search.result else sorted(search.options, key=lambda o: o.usd_per_month)
    if not options:
        st.error("Nothing in this space keeps the promise. The reasons are below; loosen the promise, allow other precisions or add GPUs.")
    else:
        best = options[0]
        ties = sum(o.tie for o in options) - 1
        same = "1 other design costs" if ties == 1 else f"{ties} other designs cost"
        more = f" {same} the same within what is known: choose among them by other reasons." if ties > 0 else ""
        st.success(
            plain(f"{layout(best.words)}, for {usd(best.usd_per_month)} a month; what limits it: {best.worst_promise}.{more}"),
            icon=":material/check_circle:",
        )
        with st.container(horizontal=True):
            for i, option in enumerate(options[:3]):
                st.button(
                    plain(f"Adopt {option.replicas} × ({layout(option.label)})"),
                    key=f"recommend.adopt.{i}",
                    on_click=state.adopt,
                    args=(option.scenario,),
                )
        point = f"p{search.scenario.slo.percentile}"
        components.table([_row(o, point, len(options) > 1) for o in options], "Fleets that keep the promise, cheapest first")
        for note in dict.fromkeys(note for option in options for note in option.notes):
            st.caption(plain(f"* {note[:1].upper()}{note[1:]}."))
    counts: dict[str, int] = {}
    for out in search.exclusions:
        counts[out.stage] = counts.get(out.stage, 0) + out.candidates
    st.subheader("Why the others are out", anchor=False)
    st.markdown(
        plain(
            ", ".join(f"{count:,} {STAGES.get(stage, stage)}" for stage, count in sorted(counts.items(), key=lambda c: -c[1]))
            + " (batching limits counted one by one)."
        )
    )
    wanted = st.text_input("Look up a design", key="recommend.find", placeholder="h200-sxm × 4")
    rows = [
        {"design": layout(o.label), "stage": STAGES.get(o.stage, o.stage), "reason": o.reason}
        for o in search.exclusions
        if wanted.lower() in layout(o.label).lower()
    ]
    components.table(
        rows[:500] or [{"design": "none matches", "stage": "", "reason": ""}], "Designs that are out, with the stage and the reason"
    )


def _row(option: Option, point: str, several: bool) -> dict[str, Any]:
    return {
        "fleet": f"{option.replicas} × ({layout(option.label)}){' *' if option.notes else ''}",
        "GPUs": option.gpus,
        "$ per month": f"{usd(option.usd_per_month)}{' (tie)' if option.tie and several else ''}",
        "$ per M tokens": usd(option.usd_per_mtok_blended),
        f"TTFT {point}": seconds(option.ttft_s),
        f"TPOT {point}": seconds(option.tpot_s),
        "tightest promise": option.worst_promise.removeprefix(f"{point} "),
        "room left": percent(1 - option.strain),
        "most at once": compact(option.scenario.engine.max_num_seqs),
    }
