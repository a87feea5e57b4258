"""What one request of a workload is on average: the one set of means that memory, step time, capacity and price share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite

import numpy as np

from planner import traces
from planner.scenario import Workload, length_quantile, mean_length


@dataclass(frozen=True, slots=True)
class Traffic:
    """Means over the requests of a workload, tokens."""

    request_rate: float | None
    """Requests per second of the whole fleet: the scenario's, else the trace's own; None for a closed loop."""
    input_tokens: float
    """Prompt, with the shared prefix and the history of earlier turns."""
    shared_tokens: float
    """Leading prompt tokens that all requests of a prefix group have in common."""
    reusable_tokens: float
    """Leading prompt tokens that an endless prefix cache would hold: the shared prefix and the history."""
    output_tokens: float
    """Output after the cut at max_output_len, thinking included."""

    @property
    def final_tokens(self) -> float:
        """Length of a sequence at its end."""
        return self.input_tokens + self.output_tokens


@lru_cache(maxsize=512)
def of(workload: Workload) -> Traffic:
    """The means of a workload. Raises InputError for a trace that is not there (an upload of another process)."""
    cut = float(workload.max_output_len or inf)
    if workload.trace is not None:
        trace = traces.get(workload.trace)
        own = trace.request_rate if isfinite(trace.request_rate) else None
        outputs = trace.output_tokens.clip(1, cut)
        return Traffic(workload.request_rate or own, float(trace.input_tokens.clip(1).mean()), 0.0, 0.0, float(outputs.mean()))
    output = mean_length(workload.output_len, cut)
    shared = round(workload.shared_prefix_len)
    # A prompt holds its shared prefix and at least one token more: E[max(X, a)] = E[X] + a − E[min(X, a)].
    least = shared + 1 if shared else 1
    new = mean_length(workload.input_len) + least - mean_length(workload.input_len, least)
    # Turn t repeats t − 1 earlier ones: their new tokens, the prefix once, and their answers without the thinking.
    history = (workload.turns - 1) / 2 * (new - shared + output * (1 - workload.thinking_share))
    return Traffic(workload.request_rate, new + history, float(shared), shared + history, output)


@lru_cache(maxsize=512)
def prompt_quantile(workload: Workload, share: float) -> float:
    """Prompt tokens that this share of the requests does not exceed; of a session's first turn where there are several."""
    if workload.trace is not None:
        return float(np.quantile(traces.get(workload.trace).input_tokens, share))
    return max(length_quantile(workload.input_len, share), workload.shared_prefix_len)


ALMOST_ALL = 0.999
"""Share of requests that a limit on the length of a sequence has to let through."""


def longest_tokens(workload: Workload) -> float:
    """Tokens of a sequence at its end that all but a thousandth of the requests stay within, the last turn of a session included."""
    cut = float(workload.max_output_len or inf)
    if workload.trace is not None:
        trace = traces.get(workload.trace)
        return float(np.quantile(trace.input_tokens.clip(1) + trace.output_tokens.clip(1, cut), ALMOST_ALL))
    means = of(workload)
    history = 2 * (means.reusable_tokens - means.shared_tokens)
    return prompt_quantile(workload, ALMOST_ALL) + min(length_quantile(workload.output_len, ALMOST_ALL), cut) + history
