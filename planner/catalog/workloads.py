"""Shapes of traffic people have, as parts of a scenario: lengths, arrivals and promises, each with where it comes from."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog import lookup


@dataclass(frozen=True, slots=True)
class WorkloadPreset:
    """One shape of traffic."""

    slug: str
    title: str
    part: str
    """JSON of the scenario's `workload` and `slo`, fields left out keep their defaults."""
    trace: str | None
    """Shipped trace with the same traffic as recorded, or None."""
    kind: str
    """measured, published, derived or assumed."""
    source: str
    date: str
    note: str

    @property
    def scenario_part(self) -> dict[str, Any]:
        """`{"workload": {…}, "slo": {…}}`, a fresh copy to merge into a scenario."""
        return json.loads(self.part)


@cache
def workloads() -> dict[str, WorkloadPreset]:
    """Presets by slug, in the order of the file."""
    rows = json.loads(Path(__file__).with_name("workloads.json").read_text(encoding="utf-8"))
    return {
        slug: WorkloadPreset(
            slug,
            row["title"],
            json.dumps({"workload": row["workload"], "slo": row["slo"]}),
            row["trace"],
            row["kind"],
            row["source"],
            row["date"],
            row["note"],
        )
        for slug, row in rows.items()
    }


def workload(slug: str) -> WorkloadPreset:
    """The preset called `slug`. Raises InputError naming the nearest ones."""
    return lookup.row(workloads(), slug, "workload preset", "describe the traffic under workload instead")
