"""Capacity and price of LLM serving: `plan(Scenario())` answers whether it fits, how fast it is and what a token costs."""

from planner.plan import Plan, plan
from planner.scenario import Scenario

__all__ = ["Plan", "Scenario", "plan"]
