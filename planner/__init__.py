"""Capacity and price of LLM serving: `plan(Scenario())` answers whether it fits, how fast it is and what a token costs."""

from planner.plan import Plan, plan
from planner.scenario import Scenario

__version__ = "0.1.0"

__all__ = ["Plan", "Scenario", "__version__", "plan"]
