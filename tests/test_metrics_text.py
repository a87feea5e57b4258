"""Pasted /metrics text becomes traffic facts and acceptance rates."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hostile import finite
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.measure.metrics_text import facts
from planner.problems import InputError
from planner.scenario import Speculative, Workload
from planner.speculation import acceptance_length

SAMPLES = Path(__file__).parent / "data" / "prometheus"
VLLM = (SAMPLES / "vllm.txt").read_text()
SGLANG = (SAMPLES / "sglang.txt").read_text()
DRAFTS = """
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1000.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 3000.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1660.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 710.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 530.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 420.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="2"} 1.78e+09
"""


def test_vllm_under_load() -> None:
    found = facts(VLLM)
    assert (found.engine, found.model) == ("vllm", "opt-125m-tp2")
    assert (found.running, found.waiting, found.requests, found.preemptions) == (64, 64, 600, 0)
    assert found.kv_usage == pytest.approx(0.1122388)
    assert found.input_tokens == 512
    assert found.output_tokens == 256
    assert found.prefix_hit_rate == pytest.approx(2480 / 339968)
    assert found.ttft_s.count == 664
    assert found.ttft_s.mean == pytest.approx(88.24499 / 664)
    assert found.ttft_s.p50 == pytest.approx(0.1 + 0.15 * (332 - 166) / (593 - 166))
    assert found.ttft_s.p99 == pytest.approx(0.25 + 0.25 * (0.99 * 664 - 593) / (664 - 593))
    assert found.tpot_s.mean == pytest.approx(3.64136 / 600, rel=1e-5)
    assert found.itl_s.mean == pytest.approx(998.12251 / 164629, rel=1e-5)
    assert found.queue_s.mean == pytest.approx(18.5135 / 600, rel=1e-4)
    assert found.acceptance_rates is None
    assert found.request_rate is None
    Workload.model_validate(found.workload())


def test_sglang() -> None:
    found = facts(SGLANG)
    assert (found.engine, found.model) == ("sglang", "meta-llama/Llama-3.1-8B-Instruct")
    assert (found.running, found.waiting) == (162, 2826)
    assert found.kv_usage == 0.28
    assert found.prefix_hit_rate == pytest.approx(0.0075075, rel=1e-4)
    assert found.ttft_s.p50 is None, "beyond the last bound of 30 s nothing is known"
    assert found.ttft_s.mean == pytest.approx(2351897.947 / 11008)
    assert found.itl_s.mean == pytest.approx(866964.579 / 7400757)
    assert found.input_tokens == pytest.approx(8128902 / 11008)


def test_acceptance_by_position_is_unconditional() -> None:
    found = facts(VLLM + DRAFTS)
    assert found.acceptance_rates == (0.71, 0.53, 0.42)
    assert found.num_speculative_tokens == 3
    assert found.acceptance_length == pytest.approx(2.66) == acceptance_length((0.71, 0.53, 0.42))
    speculative = Speculative.model_validate(found.speculative("mtp"))
    assert speculative.acceptance_rates == (0.71, 0.53, 0.42)


def test_two_snapshots_tell_a_rate_and_leave_out_what_is_older() -> None:
    later = VLLM.replace("664.0", "1264.0").replace(
        'finished_reason="length",model_name="opt-125m-tp2"} 600.0', 'finished_reason="length",model_name="opt-125m-tp2"} 900.0'
    )
    later = later.replace("request_prompt_tokens_count", "request_prompt_tokens_count").replace("307200.0", "409600.0")
    later = later.replace(
        'vllm:request_prompt_tokens_count{engine="0",model_name="opt-125m-tp2"} 600.0',
        'vllm:request_prompt_tokens_count{engine="0",model_name="opt-125m-tp2"} 700.0',
    )
    found = facts(later, before=VLLM, seconds=60)
    assert found.request_rate == pytest.approx(10)
    assert found.requests == 300
    assert found.input_tokens == 1024
    assert found.running == 64, "gauges are as they are now"
    assert found.workload()["request_rate"] == pytest.approx(10)


def test_engines_of_one_server_add_up() -> None:
    both = VLLM + VLLM.replace('engine="0"', 'engine="1"')
    found = facts(both)
    assert (found.running, found.requests) == (128, 1200)
    assert found.kv_usage == pytest.approx(0.1122388), "a share is a mean"
    assert found.ttft_s.p50 == pytest.approx(facts(VLLM).ttft_s.p50)


def test_pools_of_engines_add_up_as_their_requests_do() -> None:
    config = 'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="%d"} 1.0'
    both = "\n".join(f'vllm:num_requests_running{{engine="{i}"}} 3\n{config % (i, 1000 + i)}' for i in range(2))
    found = facts(both)
    assert (found.running, found.kv_pool_tokens) == (6, 16_000 + 16_016)


@pytest.mark.parametrize(("tp", "pp", "dp"), [(1, 1, 1), (2, 1, 1), (8, 1, 1), (4, 2, 1), (1, 1, 4), (2, 2, 3)])
def test_ranks_of_one_engine_count_the_same_requests_once(tp: int, pp: int, dp: int) -> None:
    lines = []
    for t, p, d in itertools.product(range(tp), range(pp), range(dp)):
        labels = f'{{dp_rank="{d}",engine_type="unified",model_name="m",moe_ep_rank="{t}",pp_rank="{p}",tp_rank="{t}"}}'
        figures = {
            "num_running_reqs": 4,
            "num_queue_reqs": 11,
            "max_total_num_tokens": 100_000,
            "token_usage": 0.3,
            "num_retracted_reqs": 2,
        }
        # A rank that lags by a step.
        figures["num_running_reqs"] -= t % 2
        lines += [f"sglang:{name}{labels} {value}" for name, value in figures.items()]
    found = facts("\n".join(lines))
    assert (found.running, found.waiting, found.kv_pool_tokens) == (4 * dp, 11 * dp, 100_000 * dp)
    assert found.preemptions == 2 * dp
    assert found.kv_usage == pytest.approx(0.3)


def test_older_and_converted_names() -> None:
    text = """
    vllm_num_requests_running{model_name="m"} 3
    vllm:gpu_cache_usage_perc{model_name="m"} 0.5
    vllm:gpu_prefix_cache_hits_total{model_name="m"} 30
    vllm:gpu_prefix_cache_queries_total{model_name="m"} 40
    vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",gpu_memory_utilization="0.9"} 1.0
    vllm:time_per_output_token_seconds_sum{model_name="m"} 2.0
    vllm:time_per_output_token_seconds_count{model_name="m"} 100
    """
    found = facts(text)
    assert (found.running, found.kv_usage, found.prefix_hit_rate, found.kv_pool_tokens) == (3, 0.5, 0.75, 16000)
    assert found.itl_s.mean == 0.02
    assert found.itl_s.p50 is None


def test_noisy_rates_never_rise() -> None:
    text = DRAFTS.replace("530.0", "720.0").replace("420.0", "1500.0")
    assert facts(text).acceptance_rates == (0.71, 0.71, 0.71)
    Speculative.model_validate(facts(text).speculative())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("hello",), "holds no metric of vLLM or SGLang"),
        (("",), "holds no metric"),
        (("vllm:x{" + "a" * 10**6 + "} 1",), "holds no metric"),
        (('http_requests_total{a="b"} 3',), "holds no metric"),
        (("vllm:num_requests_running NaN",), "holds no metric"),
        ((VLLM, SGLANG, 10.0), "two snapshots are of sglang and vllm"),
        ((VLLM, VLLM), "need the seconds between them"),
        ((VLLM, VLLM, float("nan")), "need the seconds between them"),
        ((VLLM, VLLM.replace("165293.0", "165294.0"), 5.0), "the server was restarted or the two are swapped"),
    ],
)
def test_wrong_text_is_one_sentence(arguments: tuple, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        facts(*arguments)
    assert len(str(caught.value).splitlines()) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VLLM.splitlines() + DRAFTS.splitlines()), st.integers(0, 80), st.text(max_size=4)), max_size=40))
def test_mutilated_text_never_crashes(parts: list[tuple[str, int, str]]) -> None:
    lines = ["vllm:num_requests_running 1", *(line[:cut] + extra + line[cut:] for line, cut, extra in parts)]
    found = facts("\n".join(lines))
    assert found.kv_usage is None or 0 <= found.kv_usage <= 1
    rates = found.acceptance_rates or ()
    assert all(0 <= b <= a <= 1 for a, b in zip((1.0, *rates), rates, strict=False))


HOSTILE_METRICS = {
    "a fraction of a request": "vllm:time_to_first_token_seconds_count 1e-300\nvllm:time_to_first_token_seconds_sum 1e300\n",
    "sums beyond all numbers": 'vllm:prompt_tokens_total{engine="0"} 1e308\nvllm:prompt_tokens_total{engine="1"} 1e308\n',
    "less than nothing": "vllm:prompt_tokens_total -5\nvllm:request_success_total -1\n",
    "digits that are none": 'vllm:cache_config_info{num_gpu_blocks="²",block_size="16"} 1\n'
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="²"} 1\nvllm:spec_decode_num_drafts_total 4\n',
    "buckets out of order": "".join(
        f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {count}\n'
        for bound, count in (("0.1", 5), ("0.01", 9), ("-1", 2), ("-1e308", 0), ("1e308", 10), ("NaN", 4), ("+Inf", 3))
    )
    + "vllm:time_to_first_token_seconds_count 10\nvllm:time_to_first_token_seconds_sum 1\n",
}


@pytest.mark.parametrize("name", HOSTILE_METRICS)
def test_what_no_server_counts_is_no_figure(name: str) -> None:
    found = facts("vllm:num_requests_running 1\n" + HOSTILE_METRICS[name])
    finite(found.to_dict())
    told = [found.requests, found.input_tokens, *([found.ttft_s.p50, found.ttft_s.p95] if found.ttft_s else [])]
    assert all(value is None or value >= 0 for value in told)
