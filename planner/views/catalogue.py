"""The catalogue as tables: models, GPUs, list prices, quality of quantised weights."""

from __future__ import annotations

from typing import Any

import streamlit as st

from planner import catalog
from planner.catalog.quality import quality_rows
from planner.catalog.rental import dated
from planner.views import components
from planner.views.text import compact, plain, usd

Json = dict[str, Any]


def models(plan: Json) -> None:
    arch = plan["architecture"]
    st.markdown(
        plain(
            f"This plan: {arch['name']}, {compact(arch['total_params'])} parameters of which "
            f"{compact(arch['active_params'])} touch a token, {compact(arch['kv_bytes_per_token'])} bytes "
            f"of 16-bit cache per token. Counted from {arch['source']}."
        )
    )
    for note in arch.get("notes") or []:
        st.caption(plain(note))
    rows = [
        {
            "model": row.slug,
            "family": row.family,
            "license": row.license,
            "released": row.release_date,
            "checked": row.checked,
            "source": row.source,
        }
        for row in catalog.models().values()
    ]
    components.table(rows, "Models of the catalogue")


def gpus(plan: Json) -> None:
    rows = [
        {
            "GPU": slug,
            "name": row.name,
            "memory, GB": row.memory_gb,
            "bandwidth, GB/s": row.memory_bandwidth_gb_s,
            "16-bit dense, TFLOP/s": row.dense_tflops.get("bf16"),
            "fp8 dense, TFLOP/s": row.dense_tflops.get("fp8"),
            "confidence": row.confidence,
            "checked": row.verified_date,
        }
        for slug, row in catalog.gpus().items()
    ]
    components.table(rows, "Accelerators of the catalogue with memory, bandwidth and dense peaks")


def prices(plan: Json) -> None:
    from planner.catalog import list_prices

    st.caption(
        "A fixed snapshot, so that documents and links do not change by the hour. `python -m planner "
        "prices --update` fetches newer ones when you ask for it."
    )
    rows = [
        {
            "price": p.label,
            "$ in": usd(p.input),
            "$ cached": usd(p.cached_input),
            "$ out": usd(p.output),
            "date": dated(p.date),
            "source": p.source,
        }
        for p in list_prices.rows()
    ]
    wanted = st.text_input("Filter", key="assumptions.price", placeholder="llama-3.3-70b")
    components.table([r for r in rows if wanted.lower() in r["price"].lower()][:400] or rows[:1], "List prices, dollars per million tokens")


def quality(plan: Json) -> None:
    st.markdown("What fewer bits cost in answers is not computed here; these are published recoveries of the original's score.")
    components.table(
        [
            {
                "model": r.model,
                "precision": r.precision,
                "method": r.method,
                "benchmark": r.benchmark,
                "recovery, %": r.recovery_percent,
                "kind": r.kind,
                "date": r.date,
                "source": r.source,
            }
            for r in quality_rows()
        ],
        "Published quality recoveries of quantised models",
    )
