"""Weights, reserves and cache of one GPU: what fits, how many tokens and sequences, or how much is missing and what helps."""

from planner.memory.budget import budget, plan
from planner.memory.layers import layers
from planner.memory.model import LayerRow, MemoryPlan, OffloadTier, Remedy, Term
from planner.memory.remedies import cheapest

__all__ = ["LayerRow", "MemoryPlan", "OffloadTier", "Remedy", "Term", "budget", "cheapest", "layers", "plan"]
