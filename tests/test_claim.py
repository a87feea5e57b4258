"""Claims from public pages with known flaws, and made ones whose answer is the planner's own."""

import pytest

from planner.economics import operating
from planner.economics.claim import Claim, check
from planner.plan import deployment
from planner.problems import InputError
from planner.scenario import Scenario


def scenario(model: str, gpu: str, tp: int, weights: str = "fp8") -> Scenario:
    return Scenario.model_validate(
        {
            "model": {"name": model},
            "hardware": {"gpu": gpu},
            "parallel": {"tensor_parallel_size": tp},
            "precision": {"weights": weights, "kv_cache": "fp8"},
            "workload": {"input_len": 128, "output_len": 512},
        }
    )


def told(verdict: object) -> str:
    return " | ".join(verdict.findings)


def test_405b_far_below_its_bandwidth() -> None:
    """vllm issue 8244 (2024-09-06): 335 tok/s from 32 prompts of 128/512 on 8 H100; a configuration fault, not physics."""
    verdict = check(scenario("llama-3.1-405b", "h100-sxm", 8), Claim(output_tokens_per_s=335, concurrency=32))
    assert verdict.times_below_floor == pytest.approx(6.3, abs=0.2)
    assert verdict.claimed_over_predicted < 0.5
    assert "6.3× above the bandwidth floor" in told(verdict)
    assert all(word in told(verdict) for word in ("eager mode", "all-reduce", "client"))
    assert verdict.explanations[0].ratio == pytest.approx(1, abs=0.25)


def test_price_that_implies_a_batch_under_two_on_a_card_that_does_not_fit() -> None:
    """gmicloud.ai (2026-05-28): 70B FP8 on one H100 at $2.00 an hour, $6.54 per million."""
    verdict = check(scenario("llama-3.3-70b", "h100-sxm", 1), Claim(usd_per_mtok_output=6.54, usd_per_gpu_hour=2.0))
    assert verdict.output_tokens_per_s == pytest.approx(85, abs=0.1)
    assert verdict.implied_batch == pytest.approx(1.8, abs=0.05)
    assert not verdict.fits
    assert "does not fit" in told(verdict)
    assert "gpu_memory_utilization 0.9" in told(verdict)


@pytest.mark.parametrize(("concurrency", "rate"), [(10, 1090), (50, 4381), (100, 6802)])
def test_capacity_table_with_half_the_weights(concurrency: int, rate: float) -> None:
    """docs.vultr.com (2026-03-17): 405B FP8 on 8 MI325X with "26 GB" of weights a GPU; 405 GB over 8 are 51."""
    claim = Claim(output_tokens_per_s=rate, concurrency=concurrency, weights_gb_per_gpu=26)
    verdict = check(scenario("llama-3.1-405b", "mi325x", 8), claim)
    assert "weights figure inconsistent: 26 GB per GPU claimed, 51 GB" in told(verdict)
    assert verdict.times_below_floor >= 1
    if concurrency == 10:
        assert verdict.step_s == pytest.approx(9.2e-3, abs=0.05e-3)
        # 405e9 bytes would be 8.4 ms; embedding and head stay in 16 bit.
        assert verdict.floor_step_s == pytest.approx(8.4e-3, rel=0.02)
        assert "close to the bandwidth floor" in told(verdict)
        # The planner has no measured kernels for this part; it must say so instead of calling the claim wrong.
        assert "were not all measured" in told(verdict)


def test_own_prediction_is_confirmed_and_its_batch_recovered() -> None:
    s = scenario("llama-3.1-8b", "h100-sxm", 1, "bf16")
    rate = operating.operating(deployment.of(s), 48).output_tokens_per_s
    verdict = check(s, Claim(output_tokens_per_s=rate, concurrency=48))
    assert verdict.claimed_over_predicted == pytest.approx(1.0)
    assert verdict.implied_batch_calibrated == pytest.approx(48, abs=1)


def test_faster_than_physics_is_called_so() -> None:
    verdict = check(scenario("llama-3.1-8b", "h100-sxm", 1, "bf16"), Claim(output_tokens_per_s=1e5, concurrency=64, ttft_s=1e-3))
    assert verdict.times_below_floor < 1
    assert "faster than the bandwidth floor" in told(verdict)
    assert "below the" in told(verdict)


def test_a_single_cause_is_named_when_it_explains_the_number() -> None:
    s = scenario("llama-3.1-8b", "h100-sxm", 1, "fp8")
    heavy = s.model_copy(update={"precision": s.precision.model_copy(update={"weights": "bf16"})})
    rate = operating.operating(deployment.of(heavy), 4).output_tokens_per_s
    causes = {e.cause: e.ratio for e in check(s, Claim(output_tokens_per_s=rate, concurrency=4)).explanations}
    assert causes["the weights are 16-bit after all"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("claim", [Claim(), Claim(usd_per_mtok_output=1.0), Claim(output_tokens_per_s=0)])
def test_a_claim_without_a_rate_is_wrong_input(claim: Claim) -> None:
    with pytest.raises(InputError, match="output_tokens_per_s"):
        check(scenario("llama-3.1-8b", "h100-sxm", 1), claim)


def test_an_illegal_layout_is_wrong_input() -> None:
    with pytest.raises(InputError, match="attention heads"):
        check(scenario("llama-3.1-8b", "h100-sxm", 3), Claim(output_tokens_per_s=100))
