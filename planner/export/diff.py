"""Two plans → what changed: inputs, data behind them, figures, findings. The order is the order in which a reader asks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner.export.blocks import Table, table
from planner.export.figures import ABSENT, Cell, cell, show
from planner.export.sections.evidence import flat, text_of

FIGURES = (
    ("Fits", "memory.fits", "number"),
    ("KV pool per GPU", "memory.kv_pool_bytes_per_gpu", "gib"),
    ("Sequences the cache holds", "memory.cache_limited_batch", "count"),
    ("Decode step", "roofline.decode_step_s", "ms"),
    ("Prefill alone", "roofline.prefill_tokens_per_s", "tokens_s"),
    ("TTFT p50", "latency.ttft_s.p50", "s"),
    ("TTFT p95", "latency.ttft_s.p95", "s"),
    ("TTFT p99", "latency.ttft_s.p99", "s"),
    ("TPOT p50", "latency.tpot_s.p50", "ms"),
    ("TPOT p95", "latency.tpot_s.p95", "ms"),
    ("Answer p95", "latency.e2e_s.p95", "s"),
    ("Served", "throughput.requests_per_s", "requests_s"),
    ("Capacity within the promises", "throughput.capacity_requests_per_s", "requests_s"),
    ("Utilisation of that capacity", "throughput.utilization", "share"),
    ("Prefix hits", "throughput.prefix_hit_rate", "share"),
    ("GPUs paid for", "cost.gpus", "count"),
    ("Cost per hour", "cost.usd_per_hour", "usd"),
    ("Cost per month", "cost.usd_per_month", "usd"),
    ("Cost per request", "cost.usd_per_request", "usd"),
    ("Cost per M input tokens", "cost.usd_per_mtok_input", "usd"),
    ("Cost per M output tokens", "cost.usd_per_mtok_output", "usd"),
    ("Cost per M tokens, blended", "cost.usd_per_mtok_blended", "usd"),
    ("Confidence", "confidence.grade", "number"),
)
FEW = 3
"""Changes named in the sentence; more are counted."""
LABELS = ("name", "notes", "schema_version")
SAME = 1e-9
"""Relative difference below which two figures are the same: sums in another order must not count as news."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs."""

    name: str
    before: str
    """As shown in documents."""
    after: str
    ratio: float | None
    """after ÷ before, for figures."""


@dataclass(frozen=True, slots=True)
class Diff:
    """Everything that differs between two plans."""

    inputs: tuple[Change, ...]
    """Dotted scenario paths."""
    data: tuple[Change, ...]
    """Inputs and constants from the catalogue, prices among them."""
    figures: tuple[Change, ...]
    findings_new: tuple[str, ...]
    findings_gone: tuple[str, ...]
    sentence: str
    """The change that matters most, with its likeliest reason."""

    @property
    def same(self) -> bool:
        """Nothing differs."""
        return not (self.inputs or self.data or self.figures or self.findings_new or self.findings_gone)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def tables(self) -> tuple[Table, ...]:
        """Tables for a page or a document; empty ones are left out."""
        heads = ("", "Before", "After", "Times")
        found = []
        for slug, title, changes in (
            ("diff-figures", "Figures", self.figures),
            ("diff-inputs", "Inputs", self.inputs),
            ("diff-data", "Data", self.data),
        ):
            if changes:
                found.append(table(slug, title, heads, [(c.name, c.before, c.after, cell(c.ratio, "times")) for c in changes]))
        findings = [("new", f) for f in self.findings_new] + [("gone", f) for f in self.findings_gone]
        if findings:
            found.append(table("diff-findings", "Findings", ("", "Finding"), findings))
        return tuple(found)

    def text(self) -> str:
        """For a terminal."""
        lines = [self.sentence]
        for t in self.tables():
            lines += ["", t.title, *("  " + "  ".join(_shown(c) for c in row) for row in t.rows)]
        return "\n".join(lines)


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Diff:
    """What changed from one plan's JSON to another's. Older plans may lack figures: those count as absent."""
    inputs = tuple(_changes(dict(flat(before["scenario"])), dict(flat(after["scenario"]))))
    data = tuple(_changes(_provenance(before), _provenance(after)))
    figures = tuple(_figures(before, after))
    old, new = _findings(before), _findings(after)
    gone, fresh = tuple(f for f in old if f not in new), tuple(f for f in new if f not in old)
    return Diff(inputs, data, figures, fresh, gone, _sentence(inputs, data, figures))


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old != new and not _equal(old, new):
            yield Change(name, text_of(old), text_of(new), _ratio(old, new))


def _figures(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name, path, unit in FIGURES:
        old, new = _at(before, path), _at(after, path)
        if old != new and not _equal(old, new):
            yield Change(name, show(old, unit), show(new, unit), _ratio(old, new))


def _at(plan: Mapping[str, Any], path: str) -> Any:
    found: Any = plan
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _provenance(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {p["quantity"]: p.get("value") for p in plan.get("provenance") or () if p.get("kind") != "user"}


def _findings(plan: Mapping[str, Any]) -> list[str]:
    return [f"{p['severity']}: {p['message']}" for p in plan.get("problems") or ()]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(old: Any, new: Any) -> bool:
    return _number(old) and _number(new) and math.isclose(old, new, rel_tol=SAME, abs_tol=0.0)


def _ratio(old: Any, new: Any) -> float | None:
    return new / old if _number(old) and _number(new) and old else None


def _sentence(inputs: tuple[Change, ...], data: tuple[Change, ...], figures: tuple[Change, ...]) -> str:
    if not (inputs or data or figures):
        return "Nothing changed."
    if not figures:
        return f"{_counted(inputs, data)} changed, and no figure with them."
    telling = next((c for c in figures if c.name == "Fits"), None) or next((c for c in figures if c.name == "Cost per month"), None)
    telling = telling or max(figures, key=lambda c: abs(math.log(c.ratio)) if c.ratio and c.ratio > 0 else 0.0)
    moved = f"{telling.name} went from {telling.before} to {telling.after}"
    if telling.ratio and telling.ratio > 0:
        moved += f" ({telling.ratio - 1:+.0%})"
    if not (inputs or data):
        return f"{moved}; inputs and data are the same, so the planner itself changed."
    return f"{moved} after {_counted(inputs, data)} changed."


def _counted(inputs: tuple[Change, ...], data: tuple[Change, ...]) -> str:
    def named(changes: tuple[Change, ...], one: str, many: str) -> list[str]:
        if len(changes) > FEW:
            return [f"{len(changes)} {many}"]
        each = [f"{c.name} ({c.before} → {c.after})" for c in changes if c.name not in LABELS] or [c.name for c in changes]
        return [f"the {one if len(each) == 1 else many} {', '.join(each)}"] if each else []

    return " and ".join([*named(inputs, "input", "inputs"), *named(data, "datum", "data")])


def _shown(c: Cell) -> str:
    return c.text or ABSENT
