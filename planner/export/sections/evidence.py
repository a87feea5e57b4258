"""Section 9: where every number comes from, how sure it is, and what is left out."""

from __future__ import annotations

from typing import Any

from planner.catalog.rental import dated
from planner.export.blocks import Block, Section, Table, Text, missing, table
from planner.export.figures import ABSENT, cell
from planner.export.subject import Subject

BAND_UNITS = {
    "ttft": ("Time to first token, mean", "s"),
    "tpot": ("Time per output token, mean", "ms"),
    "throughput": ("Output tokens per second", "tokens_s"),
    "usd": ("Dollars per million output tokens", "usd"),
}
LISTED = "list price "
GRADES = {
    "A": "a measured configuration is close",
    "B": "measured on the same family of GPU or model",
    "C": "extrapolated: nothing like it was measured",
}


def evidence(s: Subject) -> Section:
    """Confidence and its bands, nearest measurements, provenance of inputs and constants, exclusions."""
    blocks: list[Block] = [*_confidence(s), _provenance(s), _changed_inputs(s), _exclusions(s)]
    return Section(9, "Assumptions and provenance", tuple(blocks))


def _confidence(s: Subject) -> list[Block]:
    part = s.part("confidence")
    grade = part.get("grade")
    words = (
        f"Grade {grade}: {GRADES.get(grade, '')}." if grade else "This plan is not graded: no measured configuration was held against it."
    )
    if s.scenario.fidelity != "calibrated":
        words += (
            f" Step times are at the {s.scenario.fidelity} level: a "
            f"{'worked example' if s.scenario.fidelity == 'textbook' else 'lower bound'}, not a forecast."
        )
    found: list[Block] = [Text(words, "plain" if grade in ("A", "B") else "warning")]
    bands, bounds = part.get("bands") or {}, part.get("one_sided") or {}
    rows = []
    for name, (words, unit) in BAND_UNITS.items():
        if band := bands.get(name):
            side = f"the point is a bound: {bounds[name]}" if name in bounds else "four of five measurements fall inside"
            rows.append((words, cell(band[0], unit), cell(band[1], unit), side))
    heads = ("Figure", "From", "To", "How to read it")
    found.append(table("bands", "Bands", heads, rows) if rows else missing("Error bands", "none are stated for this class of plan"))
    nearest = part.get("nearest_measured") or ()
    if nearest:
        body = [(*_row(n), cell(n.get("error"), "share"), n.get("source") or ABSENT, n.get("date") or ABSENT) for n in nearest]
        columns = ("Configuration", "Figure", "Measured", "Predicted", "This planner's error", "Source", "Date")
        found.append(table("nearest", "Nearest measured configurations", columns, body, wide=True))
    else:
        found.append(missing("Nearest measured configurations", "none were found for it"))
    return found


def _row(row: Any) -> tuple[Any, ...]:
    """Configuration, figure, measured, predicted."""
    words = f"{row.get('model')} on {row.get('gpus')} × {row.get('gpu')}, {row.get('engine')}, {row.get('load')}"
    name, unit = BAND_UNITS.get(row.get("metric"), (row.get("metric"), "number"))
    return words, name, cell(row.get("measured"), unit), cell(row.get("predicted"), unit)


def _provenance(s: Subject) -> Block:
    rows = []
    for p in s.plan.get("provenance") or ():
        if p["quantity"].startswith(LISTED):
            continue
        value = p.get("value")
        shown = cell(value)
        day = dated(p.get("date"), ABSENT) if (p.get("unit") or "").startswith("USD") else p.get("date") or ABSENT
        rows.append((p["quantity"], shown, p.get("unit") or "", p["kind"], p.get("source") or "", day))
    if not rows:
        return missing("Provenance", "the plan states none")
    return table(
        "provenance",
        "Inputs and constants",
        ("Quantity", "Value", "Unit", "Kind", "Source", "Date"),
        rows,
        "List prices have theirs in section 7.",
        wide=True,
    )


def _changed_inputs(s: Subject) -> Table | Text:
    """Every input that differs from its default, with the same path that the page, the link and the file use."""
    default = type(s.scenario)().model_dump(mode="json")
    changed = [(path, value) for path, value in flat(s.plan["scenario"]) if value != dict(flat(default)).get(path)]
    rows = [(path, text_of(value)) for path, value in changed if path not in ("schema_version", "notes", "name")]
    if not rows:
        return Text("Every input has its default value.")
    return table(
        "inputs-changed",
        "Inputs that differ from their defaults",
        ("Field", "Value"),
        rows,
        "All others have the schema's defaults; the JSON scenario holds every one.",
    )


def flat(data: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """(dotted path, value) of every leaf; lists and pasted configurations count as leaves."""
    if isinstance(data, dict) and data and not prefix.endswith("hf_config."):
        return [leaf for key, value in data.items() for leaf in flat(value, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), data)]


def text_of(value: Any, longest: int = 300) -> str:
    """A value in one line, cut where it would fill a page."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _exclusions(s: Subject) -> Block:
    left_out = s.plan.get("not_modelled") or ()
    if not left_out:
        return missing("Exclusions", "this plan lists none")
    return Text(f"Not modelled: {'; '.join(left_out)}.")
