"""Words for people who meet them here first: what the figures are called, and the sidebar's names for an engine's fields."""

from __future__ import annotations

import re
from functools import cache

from planner.views import controls

GLOSSARY = {
    "Prompt and output": "What a user sends and what the model answers, in tokens: about three quarters of an English word each.",
    "TTFT, first token": "From the arrival of a request to its first token: the queue, reading the prompt, one step.",
    "TPOT, next tokens": "From one output token to the next, averaged over a request. 50 ms is 20 tokens a second, faster than reading.",
    "p95": "95 of 100 requests are at least this fast.",
    "Promise": "The longest TTFT and TPOT that so many of 100 requests may see (an SLO).",
    "Step, batch": "The engine gives every running request its next token in one step. The requests in it are the batch.",
    "KV cache": "What the model remembers of each request, kept in GPU memory. It limits how many requests run at once.",
    "Replica": "One copy of the model with the GPUs it is split over.",
    "Prefill, decode": "Reading a prompt, all its tokens at once; then writing, a token a step.",
    "At best (floor)": "The price on a machine that does one thing only, with a full batch, all the time. At load you pay more.",
    "$ per M output": "Dollars for a million output tokens; at this load it includes idle time and spares.",
    "Requests at once": "How many requests share a step on average, of as many as the engine and the KV cache allow.",
    "Fleet per month": "Every GPU paid for over 730 hours, spares included.",
    "KV, planned and spare": "The part of the KV cache that the batch of this plan fills, and the part that no request will use.",
    "Misses, not settled": "A promise is missed at its percentile. Not settled: repeated runs still differ by more than 10 %.",
    "Open and closed loop": "People arrive at a rate, whatever the wait; or so many clients each wait for an answer before they ask again.",
}

TERMS = {
    "budget": "the engine's share",
    "activation": "activations",
    "non_torch": "CUDA context and libraries",
    "cuda_graph": "CUDA graphs",
    "kv_pool": "KV cache",
    "sequence": "one sequence",
}
"""Terms of the memory budget by the names of their parts of a plan."""


@cache
def labels() -> dict[str, str]:
    """Setting → its name in the sidebar."""
    return {control.path: control.label for control in (*controls.MAIN, *controls.DETAIL)}


@cache
def _fields() -> tuple[re.Pattern[str], dict[str, str]]:
    """Fields as messages write them, with their section and without where that is no plain word, and their names."""
    names = {path: label for path, label in labels().items() if "." in path}
    names |= {path.rpartition(".")[2]: label for path, label in names.items() if "_" in path.rpartition(".")[2]}
    longest = sorted(names, key=len, reverse=True)
    return re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, longest)) + r")(?![\w.]*\w)"), names


def spoken(message: str) -> str:
    """A message with the sidebar's names for an engine's fields: max_num_seqs becomes “Most sequences”."""
    pattern, names = _fields()
    return pattern.sub(lambda found: f"“{names[found[1]]}”", message)


def layout(label: str) -> str:
    """A design without its abbreviations: h100-sxm TP4 PP2 becomes h100-sxm × 4, in 2 stages."""
    said = re.sub(r" TP(\d+)\b", r" × \1", label)
    said = re.sub(r" PP(\d+)\b", r" in \1 stages", said)
    said = re.sub(r" (?:DP|EP)(\d+)\b", r" × \1 ranks", said)
    return re.sub(r" (\d+)P(\d+)D\b", r", \1 prefill and \2 decode", said)
