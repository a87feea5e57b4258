"""The eleven sections of a plan document, one function each, in their order."""

from planner.export.sections.decision import decision, head
from planner.export.sections.demand import demand, promises
from planner.export.sections.evidence import evidence
from planner.export.sections.golive import acceptance_test, launching
from planner.export.sections.money import against_list_prices, costs
from planner.export.sections.resilience import resilience
from planner.export.sections.sensitivity import sensitivity
from planner.export.sections.sizing import sizing

SECTIONS = (decision, demand, promises, sizing, resilience, costs, against_list_prices, sensitivity, evidence, launching, acceptance_test)

__all__ = ["SECTIONS", "head"]
