"""A lesson: one idea of serving switched off, beside the same system with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.plan import Effort, Plan, plan
from planner.scenario import Scenario, parse


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of both systems, in the order of `Lesson.labels`."""

    name: str
    unit: str
    broken: float
    sound: float

    @property
    def ratio(self) -> float:
        """Sound over broken; infinite where the broken one is 0."""
        return self.sound / self.broken if self.broken else float("inf")


@dataclass(frozen=True, slots=True)
class Lesson:
    """Two scenarios that differ in one idea."""

    slug: str
    title: str
    idea: str
    """What is switched off, and what that does."""
    base: Mapping[str, Any]
    """What both systems share, as parts of a scenario."""
    broken: Mapping[str, Any]
    """Sections of the system without the idea, merged into the base field by field."""
    sound: Mapping[str, Any]
    figures: Callable[[Plan, Plan], tuple[Figure, ...]]
    """The numbers that show it, from the plans of the broken and the sound system."""
    note: str = ""
    """What the numbers do not say."""

    def scenarios(self) -> tuple[Scenario, Scenario]:
        """The broken and the sound system."""
        return _merged(self.base, self.broken, f"{self.title}: without"), _merged(self.base, self.sound, f"{self.title}: with")

    def run(self, effort: Effort = "quick") -> tuple[Figure, ...]:
        """Plan both systems and compare them."""
        broken, sound = self.scenarios()
        return self.figures(plan(broken, effort), plan(sound, effort))


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], name: str) -> Scenario:
    sections = {section: {**base.get(section, {}), **changes.get(section, {})} for section in {*base, *changes}}
    return parse({**sections, "name": name})
