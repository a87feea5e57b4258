"""One request on its way through a replica."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way through a replica: what the client sent, then what the scheduler wrote beside it."""

    number: int
    arrival_s: float
    input_tokens: int
    """The whole prompt, history and shared prefix included."""
    output_tokens: int
    """Tokens it will emit, thinking included, after every cut."""
    decode_steps: int
    """Decode steps after the first token; without speculation output_tokens - 1."""
    thinking_tokens: int = 0
    priority: int = 0
    priority_class: int = 0
    keys: Sequence[int] = ()
    """Content keys of its full KV blocks, prompt first, then the part of the output that a next turn will send again."""
    session: int = 0
    row: int = 0
    """Where it stands in `Requests`; a retry shares its original's row."""
    deadline_s: float = math.inf
    """Moment at which the client gives up."""
    truncated: bool = False
    """The output was cut by max_output_len or max_model_len."""
    has_kv: bool = False
    """Its prompt was computed elsewhere and the KV comes with it (disaggregated decode)."""
    keeps_kv: bool = False
    """Its KV stays when it finishes, until `Replica.free` (disaggregated prefill)."""

    cached_tokens: int = 0
    """Prompt tokens whose KV needed no computing at the last admission: prefix hits, or all of them when it came along."""
    scheduled_s: float = math.nan
    first_token_s: float = math.nan
    answer_s: float = math.nan
    """First token after thinking."""
    finish_s: float = math.nan
    preemptions: int = 0
    status: str = "waiting"
    """waiting, running, then one of finished, cancelled, failed."""
    reason: str = ""

    ticket: int = 0
    """Order of arrival at its replica."""
    prompt_tokens: int = 0
    """Tokens to have in KV before it decodes: the prompt, and after a preemption what it had emitted too."""
    computed_tokens: float = 0
    """Tokens in KV, brought up to date when a chunk is scheduled and when it stops decoding."""
    reused_tokens: int = 0
    """Those of them that this admission found in the prefix cache."""
    emitted_tokens: float = 0
    """Tokens emitted before the present decode run, its first one included."""
    steps_left: int = 0
    """Decode steps after the next first token."""
    tokens_per_step: float = 1
    blocks: int = 0
    """KV blocks taken at admission, shared ones included."""
    published: int = 0
    """Leading keys it holds in the prefix cache."""
    start_clock: int = -1
    """Decode clock at which the present decode run began; -1 outside one."""
    run_start_s: float = 0.0
    finish_clock: int = 0
    """Decode clock at which it ends; likewise the next two, 0 when there is no such moment ahead."""
    answer_clock: int = 0
    window_clock: int = 0
