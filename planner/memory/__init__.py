"""Weights, reserves and cache of one GPU: what fits, how many tokens and sequences, or how much is missing."""

from planner.memory.budget import plan
from planner.memory.model import MemoryPlan, Remedy, Term

__all__ = ["MemoryPlan", "Remedy", "Term", "plan"]
