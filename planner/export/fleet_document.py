"""Several plans added up to one document: one bill, one purchase list, each plan's verdict, and where to read on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from planner import cost
from planner.economics.power import Power, power
from planner.export.blocks import Block, Document, Section, Text, missing, table
from planner.export.document import FORMAT_VERSION, SCHEMA_VERSION
from planner.export.figures import cell, show
from planner.export.sections.decision import head
from planner.export.subject import Cover, Subject
from planner.problems import InputError
from planner.units import HOURS_PER_MONTH

FLEET_FORMAT = "planner.fleet"


def fleet_document(plans: Sequence[Mapping[str, Any]], title: str = "", cover: Cover | None = None) -> Document:
    """The sum of several plans' JSON. Each runs on GPUs of its own: sharing GPUs between models is not modelled.

    Raises InputError when there is nothing to add up.
    """
    if not plans:
        raise InputError("a fleet document needs at least one plan")
    subjects = [Subject(plan, cover=cover or Cover()) for plan in plans]
    newest = max(subjects, key=lambda s: s.dated)
    name = title or f"{len(subjects)} services on {sum(s.gpus_paid for s in subjects)} GPUs"
    return Document(
        title=name,
        subtitle="Several plans added up",
        head=head(newest),
        sections=(_sum(subjects), _services(subjects), _purchase(subjects), _bill(subjects), _left_out(subjects)),
        link="",
        payload={
            "format": FLEET_FORMAT,
            "format_version": FORMAT_VERSION,
            "schema_version": SCHEMA_VERSION,
            "title": name,
            "plans": [dict(s.plan) for s in subjects],
            "links": [s.link for s in subjects],
        },
    )


def _sum(subjects: list[Subject]) -> Section:
    months = [s.part("cost").get("usd_per_month") for s in subjects]
    unpriced = [s.title for s, month in zip(subjects, months, strict=True) if month is None]
    total = sum(month for month in months if month is not None)
    low, high = (sum(s.monthly_range[i] or 0.0 for s in subjects) for i in (0, 2))
    not_ready = [s.title for s in subjects if not s.to_buy]
    verdict = (
        f"All {len(subjects)} plans keep their promises."
        if not not_ready
        else f"{len(not_ready)} of {len(subjects)} plans are not ready: {'; '.join(not_ready)}."
    )
    expiries = sorted(s.expires for s in subjects if s.expires)
    rows = [
        ("Services", cell(len(subjects), "count"), ""),
        ("GPUs paid for", cell(sum(s.gpus_paid for s in subjects), "count"), "spares included"),
        ("Cost per month, low", cell(low, "usd"), "cheapest published prices"),
        ("Cost per month, planned", cell(total, "usd"), f"without {', '.join(unpriced)}: no price" if unpriced else f"{HOURS_PER_MONTH} h"),
        ("Cost per month, high", cell(high, "usd"), "dearest published prices"),
        ("Valid until", expiries[0] if expiries else None, "when the first price in it is 90 days old"),
    ]
    blocks: tuple[Block, ...] = (
        Text(verdict, "bad" if not_ready else "good"),
        table("fleet-sum", "All services", ("Quantity", "Value", "Note"), rows),
    )
    return Section(1, "Decision", blocks)


def _services(subjects: list[Subject]) -> Section:
    rows = []
    for number, s in enumerate(subjects, 1):
        part = s.part("cost")
        worst = s.problems[0]["message"] if s.problems else ""
        rows.append(
            (
                number,
                s.title,
                s.purchase,
                cell(s.requests_per_s, "requests_s"),
                s.fits,
                s.meets_slo,
                cell(part.get("usd_per_month"), "usd"),
                cell(None if part.get("usd_per_request") is None else part["usd_per_request"] * 1000, "usd"),
                s.part("confidence").get("grade"),
                worst,
            )
        )
    heads = ("No.", "Service", "GPUs", "Served", "Fits", "Promises kept", "Month", "1,000 requests", "Grade", "First finding")
    links = [Text(f"{number}. {s.title}: {s.link}") for number, s in enumerate(subjects, 1)]
    return Section(2, "Services", (table("services", "Services", heads, rows, wide=True), *links))


def _purchase(subjects: list[Subject]) -> Section:
    counts: Counter[str] = Counter()
    spares: Counter[str] = Counter()
    for s in subjects:
        for slug, gpus, replicas in cost.pools(s.scenario):
            counts[slug] += gpus * replicas
            spares[slug] += gpus * s.scenario.fleet.spares
    rows = [(slug, cell(counts[slug], "count"), cell(spares[slug], "count"), cell(counts[slug] + spares[slug], "count")) for slug in counts]
    return Section(3, "What to buy", (table("purchase", "GPUs by kind", ("GPU", "Serving", "Spare", "Together"), rows),))


def _bill(subjects: list[Subject]) -> Section:
    total = sum(s.part("cost").get("usd_per_month") or 0.0 for s in subjects)
    rows: list[tuple[Any, ...]] = []
    for s in subjects:
        month = s.part("cost").get("usd_per_month")
        rows.append(
            (
                s.title,
                cell(month, "usd"),
                cell(month / total if month and total else None, "share"),
                cell(s.part("throughput").get("busy"), "share"),
            )
        )
    rows.append(("Together", cell(total, "usd"), cell(1.0 if total else None, "share"), None))
    blocks: list[Block] = [table("fleet-bill", "Bill by service", ("Service", "Month", "Share", "Time with a step running"), rows)]
    drawn = [d for d in (_power(s) for s in subjects) if d is not None]
    if len(drawn) == len(subjects):
        kw, carbon = sum(d.kw for d in drawn), sum(d.kg_co2e_per_month for d in drawn)
        blocks.append(Text(f"Mean power with cooling {show(kw, 'kw')}, {show(carbon, 'kg')} a month."))
    else:
        blocks.append(missing("Power", "the power of one of these GPUs is unknown"))
    return Section(4, "Cost", tuple(blocks))


def _power(s: Subject) -> Power | None:
    throughput = s.part("throughput")
    return power(s.scenario, throughput.get("busy") or 1.0, throughput.get("requests_per_s"))


def _left_out(subjects: list[Subject]) -> Section:
    lines = dict.fromkeys(line for s in subjects for line in s.plan.get("not_modelled") or ())
    text = (
        "Each service has GPUs of its own: what they could share (idle spares, off-peak capacity) is not counted, so "
        "this sum is an upper bound."
    )
    return Section(
        5,
        "Not modelled",
        (Text(text), Text(f"In each plan: {'; '.join(lines)}.") if lines else missing("More exclusions", "the plans list none")),
    )
