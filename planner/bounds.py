"""How much work one question may cause. A self-hoster changes a bound with the environment variable of the same name."""

from __future__ import annotations

import os
import re
import sys


def _bound(name: str, default: int) -> int:
    text = os.environ.get(f"PLANNER_{name}", "")
    if not text:
        return default
    if not re.fullmatch(r"[1-9][0-9]{0,14}", text):
        # Read while modules load, where no door stands that could turn an exception into a sentence.
        print(f"environment variable PLANNER_{name} = {text!r} is not a whole number above 0; {default:,} is used", file=sys.stderr)
        return default
    return int(text)


MAX_STEPS_PER_RUN = _bound("MAX_STEPS_PER_RUN", 400_000)
"""Engine steps of one simulated run, all replicas together; about 3 s."""

MAX_REQUESTS_PER_RUN = _bound("MAX_REQUESTS_PER_RUN", 5_000)
"""Requests that a planning run is stretched to, so that it outlasts its own warm-up."""

MOST_REQUESTS_PER_RUN = _bound("MOST_REQUESTS_PER_RUN", 50_000)
"""Requests of one run, whatever the scenario asks for; 2 to 4 s."""

MAX_KEYED_BLOCKS_PER_RUN = _bound("MAX_KEYED_BLOCKS_PER_RUN", 10_000_000)
"""Prompt blocks of one run that are looked up in the prefix cache; about 2 s."""

MAX_WORK_PER_PLAN = _bound("MAX_WORK_PER_PLAN", 600_000)
"""Work of one plan over all its runs, in engine steps; half for replications, half for the capacity search. About 5 s."""

MAX_WORK_PER_SEARCH = _bound("MAX_WORK_PER_SEARCH", 20_000_000)
"""Work of one search for the cheapest fleet, in engine steps; it ends with what it has found by then. About two minutes."""

MAX_SWEEP_POINTS = _bound("MAX_SWEEP_POINTS", 4096)
"""Plans of one sweep."""

PREFIX_BLOCKS_PER_STEP = 40
"""Cached prompt blocks whose bookkeeping takes about as long as one engine step."""

MAX_REPLICATIONS = _bound("MAX_REPLICATIONS", 40)
"""Independent runs of one plan where the scenario does not say how many."""

WORKERS = _bound("WORKERS", max(1, min(4, (os.cpu_count() or 1) - 1)))
"""Processes beside the dashboard that make full plans; 100 MB each."""

MAX_SIMULATED_REPLICAS = _bound("MAX_SIMULATED_REPLICAS", 4)
"""Replicas that are simulated side by side; a larger fleet is simulated as this many with its share of the traffic."""
