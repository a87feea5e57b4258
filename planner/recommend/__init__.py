"""From traffic, a promise and candidate GPUs to the cheapest fleets that keep it: closed forms prune, the simulation decides."""

from planner.recommend.bounds import Exclusion
from planner.recommend.search import TIE_BAND, Event, Option, Progress, Recommendation, best, recommend
from planner.recommend.space import Layout, Space, default_gpus, label, layouts

__all__ = [
    "TIE_BAND",
    "Event",
    "Exclusion",
    "Layout",
    "Option",
    "Progress",
    "Recommendation",
    "Space",
    "best",
    "default_gpus",
    "label",
    "layouts",
    "recommend",
]
