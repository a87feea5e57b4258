"""`measure` against a real streaming server whose delays are known."""

from __future__ import annotations

import json

import pytest
from streaming_server import OVERHEAD_TOKENS, Behaviour, Server

from planner.measure.clients import Endpoint
from planner.measure.experiment import Options, Run, measure
from planner.measure.summary import document, summarize

TTFT_TOLERANCE_S = 0.012
"""Client and server share two cores: what a wake-up and a loopback hop may add."""
TPOT_TOLERANCE = 0.15
"""Relative: sleeps overshoot by a few hundred microseconds an event."""


def run(behaviour: Behaviour, api: str = "openai", **options: object) -> tuple[Run, Server]:
    endpoint = {k: options.pop(k) for k in ("max_tokens", "timeout_s", "retries", "extra_body") if k in options}
    options = {"prompt_lengths": (50,), "repeats": 2, "prefix": False} | options
    with Server(behaviour) as server:
        found = measure(Endpoint(server.url, "test-model", api, **{"max_tokens": 12, "timeout_s": 10} | endpoint), Options(**options))
    return found, server


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("tokens_per_event", [1, 4])
def test_known_delays_come_out(api: str, tokens_per_event: int) -> None:
    behaviour = Behaviour(ttft_base_s=0.04, gap_s=0.01, tokens_per_event=tokens_per_event)
    found, _ = run(behaviour, api, max_tokens=24)
    events = 24 // tokens_per_event
    assert [r.error for r in found.requests] == [None, None]
    for request in found.requests:
        assert request.output_tokens == 24
        assert request.events == events
        assert request.ttft_s == pytest.approx(0.04, abs=TTFT_TOLERANCE_S)
        assert request.ttft_answer_s == request.ttft_s
        assert request.tpot_s == pytest.approx((events - 1) * 0.01 / 23, rel=TPOT_TOLERANCE)
        assert request.e2e_s == pytest.approx(request.ttft_s + 23 * request.tpot_s)
        assert not request.estimated
