"""Many replicas on one clock: routing, losses, autoscaling, and prefill apart from decode."""

from planner.fleet.routing import PrefixHits, Router, prefix_hits
from planner.fleet.run import Autoscaling, FleetRun, Span, interruptions, simulate

__all__ = ["Autoscaling", "FleetRun", "PrefixHits", "Router", "Span", "interruptions", "prefix_hits", "simulate"]
