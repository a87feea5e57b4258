"""Scores of predictions: signed errors by row, and mean, median, bias and share within 20 % by group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from planner.validate.predict import Prediction
from planner.validate.rows import METRICS
from planner.validate.scenarios import Case

WITHIN = 0.2


@dataclass(frozen=True, slots=True)
class Scored:
    """One modelled row."""

    id: str
    source: str
    date: str
    tier: str
    gpu: str
    family: str
    model: str
    model_class: str
    engine: str
    regime: str
    precision: str
    gpus: int
    load: str
    predicted: dict[str, float]
    measured: dict[str, float]
    error: dict[str, float]
    """Signed fraction: predicted / measured − 1."""
    low_confidence: str

    @classmethod
    def of(cls, case: Case, prediction: Prediction) -> Scored:
        """Errors over the metrics that both sides have."""
        row = case.row
        both = [m for m in METRICS if m in row.measured and m in prediction.metrics]
        return cls(
            id=row.id,
            source=row.source,
            date=row.date,
            tier=row.tier,
            gpu=case.gpu,
            family=case.family,
            model=case.model,
            model_class=case.model_class,
            engine=case.engine,
            regime=case.regime,
            precision=case.scenario.precision.weights,
            gpus=row.n_gpu,
            load=f"{row.load_kind} {row.load_value:g}" if row.load_value else row.load_kind,
            predicted={m: prediction.metrics[m] for m in both},
            measured={m: row.measured[m] for m in both},
            error={m: prediction.metrics[m] / row.measured[m] - 1 for m in both},
            low_confidence=prediction.low_confidence,
        )


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one metric over one group of rows, as fractions."""

    metric: str
    n: int
    mean_absolute: float
    median_absolute: float
    bias: float
    """Mean signed error."""
    within_20: float
    """Share of rows with an error of at most 20 %."""


GROUPINGS: dict[str, Callable[[Scored], str]] = {
    "all": lambda s: "all rows",
    "tier A and B": lambda s: "tier A and B" if s.tier in ("A", "B") else "",
    "gpu": lambda s: s.gpu,
    "model class": lambda s: s.model_class,
    "engine": lambda s: s.engine,
    "regime": lambda s: s.regime,
    "class": lambda s: f"{s.family}, {s.model_class}, {s.engine}, {s.regime}",
    "model": lambda s: f"{s.model} on {s.gpu}, {s.engine}",
}


@dataclass(frozen=True, slots=True)
class Report:
    """Every row scored, or skipped with a reason."""

    rows: tuple[Scored, ...]
    skipped: tuple[tuple[str, str, str], ...]
    """(id, tier, reason)."""
    fidelity: str

    def groups(self) -> Iterator[tuple[str, str, list[Score]]]:
        """(grouping, value, scores by metric), larger groups first within a grouping."""
        for grouping, key in GROUPINGS.items():
            members: defaultdict[str, list[Scored]] = defaultdict(list)
            for row in self.rows:
                if value := key(row):
                    members[value].append(row)
            for value, rows in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
                if scores := [s for m in METRICS if (s := score(m, rows))]:
                    yield grouping, value, scores

    def reasons(self) -> list[tuple[str, int, tuple[str, ...]]]:
        """(reason, rows, their ids), most frequent first."""
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for row_id, _, reason in self.skipped:
            ids[reason].append(row_id)
        return [(reason, count, tuple(ids[reason])) for reason, count in Counter({r: len(i) for r, i in ids.items()}).most_common()]

    def modelled_share(self, tiers: tuple[str, ...] = ("A", "B")) -> float:
        """Share of the rows of these tiers that were modelled; 1 when there are none."""
        done = sum(row.tier in tiers for row in self.rows)
        total = done + sum(tier in tiers for _, tier, _ in self.skipped)
        return done / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `planner validate --json`."""
        return {
            "fidelity": self.fidelity,
            "rows": [
                {
                    "id": r.id,
                    "predicted": r.predicted,
                    "measured": r.measured,
                    "error": r.error,
                    "gpu": r.gpu,
                    "model": r.model,
                    "model_class": r.model_class,
                    "engine": r.engine,
                    "regime": r.regime,
                    "precision": r.precision,
                    "gpus": r.gpus,
                    "load": r.load,
                    "tier": r.tier,
                    "source": r.source,
                    "date": r.date,
                    "low_confidence": r.low_confidence,
                }
                for r in self.rows
            ],
            "groups": [
                {
                    "grouping": grouping,
                    "group": value,
                    "metric": s.metric,
                    "n": s.n,
                    "mean_absolute_error": s.mean_absolute,
                    "median_absolute_error": s.median_absolute,
                    "bias": s.bias,
                    "within_20_percent": s.within_20,
                }
                for grouping, value, scores in self.groups()
                for s in scores
            ],
            "skipped": [{"reason": reason, "count": count, "ids": list(ids)} for reason, count, ids in self.reasons()],
        }

    def text(self) -> str:
        """The same for a terminal, without the single rows."""
        total = len(self.rows) + len(self.skipped)
        lines = [
            f"{len(self.rows)} of {total} rows modelled, {self.modelled_share():.0%} of tiers A and B, at the {self.fidelity} level",
            "",
        ]
        head = f"{'':44}{'metric':11}{'rows':>5}{'mean':>8}{'median':>8}{'bias':>8}{'≤20 %':>7}"
        shown = ""
        for grouping, value, scores in self.groups():
            if grouping != shown:
                lines += ["", f"by {grouping}", head]
                shown = grouping
            for i, s in enumerate(scores):
                name = value[:43] if i == 0 else ""
                lines.append(f"{name:44}{s.metric:11}{s.n:5}{s.mean_absolute:8.1%}{s.median_absolute:8.1%}{s.bias:+8.1%}{s.within_20:7.0%}")
        if self.skipped:
            lines += ["", "not modelled"]
            lines += [f"{count:5}  {reason}" for reason, count, _ in self.reasons()]
        return "\n".join(lines)


def score(metric: str, rows: list[Scored]) -> Score | None:
    """Errors of one metric over rows; None where no row has it."""
    errors = [r.error[metric] for r in rows if metric in r.error]
    if not errors:
        return None
    sizes = [abs(e) for e in errors]
    return Score(metric, len(errors), fmean(sizes), median(sizes), fmean(errors), sum(s <= WITHIN for s in sizes) / len(sizes))
