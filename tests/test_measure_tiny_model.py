"""`measure` end to end against a real model that computes every token."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import TinyModel, TinyServer

from planner.measure.endpoint import Endpoint
from planner.measure.experiment import Options, measure
from planner.measure.summary import summarize


def test_the_tiny_model_is_a_model() -> None:
    """Decoding from the cache, and prefilling in chunks, give what one pass over everything gives."""
    model, tokens = TinyModel(), [int(t) for t in np.random.default_rng(1).integers(0, 256, 300)]
    whole, _ = model.forward(tokens, model.empty_cache())
    chunked, cache = model.prefill(tokens[:-1], model.empty_cache())
    stepped, _ = model.forward(tokens[-1:], cache)
    np.testing.assert_allclose(stepped, whole, rtol=1e-3, atol=1e-3)
    assert not np.allclose(chunked, whole)


@pytest.mark.slow
def test_measured_against_the_model_s_own_clock() -> None:
    with TinyServer() as server:
        found = measure(
            Endpoint(server.url, "tiny", max_tokens=16, timeout_s=60),
            Options(prompt_lengths=(80, 640), repeats=2, prefix=True, concurrency=2, duration_s=0.2),
        )
    summary = summarize(found)
    assert summary["failed"] == 0
    assert summary["estimated"] == 0
    alone = [r for r in found.requests if r.experiment == "lengths"]
    truths = list(zip(server.prefill_s, server.step_s, strict=True))[2 : 2 + len(alone)]
    for request in alone:
        assert request.prompt_tokens == pytest.approx(request.target_prompt_tokens, rel=0.25), "bytes, told only by usage"
        assert request.output_tokens == 16
    late_ttft_s = [r.ttft_s - prefill_s for r, (prefill_s, _) in zip(alone, truths, strict=True)]
    assert min(late_ttft_s) >= 0
    assert min(late_ttft_s) < 0.02
    late_tpot_s = [r.tpot_s - sum(steps) / len(steps) for r, (_, steps) in zip(alone, truths, strict=True)]
    assert min(map(abs, late_tpot_s)) < 2e-3
    short, long = summary["by_prompt_length"]
    assert long["ttft_s"]["min"] > 2 * short["ttft_s"]["min"], "prefill is work"
    prefix = summary["prefix"]
    assert prefix["cached_tokens"] == pytest.approx(640, rel=0.25)
    pairs = [r for r in found.requests if r.experiment == "prefix"]
    warm_s, cold_s = (min(r.ttft_s for r in pairs if r.warm is side) for side in (True, False))
    assert warm_s < 0.7 * cold_s, "a cached prefix is not computed again"
    assert summary["load"]["n"] >= 2
