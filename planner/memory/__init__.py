"""Weights, reserves and cache of one GPU: what fits, how many tokens and sequences, or how much is missing and what helps."""

from planner.memory.budget import plan
from planner.memory.layers import layers
from planner.memory.model import LayerRow, MemoryPlan, OffloadTier, Remedy, Term

__all__ = ["LayerRow", "MemoryPlan", "OffloadTier", "Remedy", "Term", "layers", "plan"]
