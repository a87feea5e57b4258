"""The means that everything shares are the means of what the workload really draws."""

import pytest

from planner import traffic
from planner.scenario import Lengths, TraceRef, Workload
from planner.workload import requests

CASES = {
    "plain": Workload(input_len=700, output_len=90),
    "cut": Workload(input_len=Lengths(kind="lognormal", mean=900, cv=1.5, max=4000), output_len=300, max_output_len=200),
    "shared prefix": Workload(input_len=Lengths(kind="lognormal", mean=1000, cv=1.0), shared_prefix_len=900),
    "sessions": Workload(input_len=500, output_len=100, turns=9, shared_prefix_len=200, thinking_share=0.25),
}


@pytest.mark.parametrize("name", CASES)
def test_means_of_drawn_requests(name: str) -> None:
    w = CASES[name].model_copy(update={"num_prompts": 45_000})
    means, drawn = traffic.of(w), requests(w)
    assert means.input_tokens == pytest.approx(drawn.input_tokens.mean(), rel=0.02)
    assert means.output_tokens == pytest.approx(drawn.output_tokens.mean(), rel=0.02)


def test_a_trace_brings_its_own_lengths_and_pace() -> None:
    conversation = TraceRef(name="azure-2023-conv")
    own = traffic.of(Workload(request_rate=None, trace=conversation))
    assert own.request_rate == pytest.approx(5.5, rel=0.02)
    assert own.input_tokens == pytest.approx(1155, rel=0.01)
    assert own.output_tokens == pytest.approx(211, rel=0.01)
    assert traffic.of(Workload(request_rate=4.0, trace=conversation)).request_rate == 4.0


def test_history_and_prefix_are_reusable() -> None:
    means = traffic.of(CASES["sessions"])
    assert means.shared_tokens == 200
    assert means.input_tokens - means.reusable_tokens == pytest.approx(300)
    assert traffic.of(CASES["plain"]).reusable_tokens == 0
