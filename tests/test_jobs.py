"""Twelve planning jobs with published or computed answers: each "must" to its tolerance, estimates as wide bands.

Where the planner disagrees with a stated figure the test says by how much and why.
"""

import math

import pytest

from planner import catalog, cost, demand, recommend, traces
from planner.catalog import workloads
from planner.economics import breakeven, burst, decision, levers, mix, offline, operating, week
from planner.fleet.routing import prefix_hits
from planner.plan import Plan, deployment, plan
from planner.plan.steady import decode_shape, prefill_rate
from planner.scenario import Scenario, Workload
from planner.units import GIB

pytestmark = pytest.mark.slow


def traffic(name: str, **changes: object) -> Workload:
    """A shipped shape of traffic."""
    return Workload.model_validate(workloads.workload(name).scenario_part["workload"] | changes)


H100 = 2.50
"""USD per GPU-hour that the jobs are priced at."""


def scenario(**sections: object) -> Scenario:
    """70B FP8 on a pair of H100 unless a job says otherwise."""
    base = {
        "model": {"name": "llama-3.3-70b"},
        "precision": {"weights": "fp8", "kv_cache": "fp8"},
        "parallel": {"tensor_parallel_size": 2},
        "price": {"usd_per_gpu_hour": H100},
    }
    return Scenario.model_validate(base | sections)


def prefill_share(answer: Plan) -> float:
    """Share of all time that steps spend on prompts."""
    runs = answer.load.timelines
    return sum(t.input_busy_s for t in runs) / sum(t.input_busy_s + t.output_busy_s + t.cached_busy_s for t in runs)


# 1. Will it fit, and how many at once?


def memory_of(tp: int, kv: str, utilization: float, version: str = "0.19.0", max_model_len: int = 131_072):
    """70B FP8 with the sampler sized as the engine does on such cards: 1,024 sequences."""
    engine = {"gpu_memory_utilization": utilization, "version": version, "max_model_len": max_model_len, "max_num_seqs": 1024}
    users = {"input_len": max_model_len - 1072, "output_len": 1072, "request_rate": 0.01}
    made = scenario(parallel={"tensor_parallel_size": tp}, precision={"weights": "fp8", "kv_cache": kv}, engine=engine, workload=users)
    return deployment.of(made).memory


def test_job_1_one_card_cannot_hold_one_long_request() -> None:
    memory = memory_of(1, "bf16", 0.9)
    assert not memory.fits
    # One user's 131,072 tokens are 40 GiB of 16-bit cache beside 67.7 GiB of weights.
    assert memory.shortfall_bytes_per_gpu / GIB == pytest.approx(40 - 1.4, abs=1.0)


def test_job_1_pair_of_cards() -> None:
    # The job says "about 33 GiB at utilisation 0.95, 13 x 16k". The engine's own log at 0.95 prints 37.28 GiB, which is
    # 14.9 x 16k; 33 GiB and 13 are what utilisation 0.9 leaves. Both are met.
    logged = memory_of(2, "bf16", 0.95, max_model_len=16_384)
    assert logged.kv_pool_bytes_per_gpu / GIB == pytest.approx(37.28, rel=0.02)
    stated = memory_of(2, "bf16", 0.9, max_model_len=16_384)
    assert stated.kv_pool_bytes_per_gpu / GIB == pytest.approx(33, rel=0.02)
    assert math.floor(stated.max_model_len_concurrency) == 13


@pytest.mark.parametrize(("version", "users_16_bit", "users_fp8"), [("0.19.0", 5, 10), ("0.11.0", 4, 9)])
def test_job_1_four_cards_hold_whole_users_just(version: str, users_16_bit: int, users_fp8: int) -> None:
    wide, narrow = (memory_of(4, kv, 0.9, version) for kv in ("bf16", "fp8"))
    assert (wide.cache_limited_batch, narrow.cache_limited_batch) == (users_16_bit, users_fp8)
    if version == "0.19.0":
        assert wide.max_model_len_concurrency < 5.1
    else:
        assert 4.7 <= wide.activation_bytes_per_gpu / GIB <= 5.6
        assert memory_of(1, "bf16", 0.9, version).kv_pool_bytes_per_gpu < 0


# 2. Chat service to an SLO


def chat(rate: float, ttft_s: float = 1.0, replications: int | None = 5) -> Scenario:
    """100,000 requests a day with a peak of three times the mean is 3.47 a second."""
    load = traffic("chat", request_rate=rate, num_prompts=1000)
    made = scenario(fleet={"spares": 1}, slo={"ttft_s": ttft_s, "tpot_s": 0.05}, simulation={"replications": replications})
    return made.model_copy(update={"workload": load})


def test_job_2_pair_meets_the_promise_and_half_a_second_is_thin() -> None:
    loads = {share: plan(chat(3.47 * share), "quick") for share in (0.5, 1.0, 1.2)}
    ttft = {share: answer.load.metrics.latency.ttft_s.p95 for share, answer in loads.items()}
    tpot = {share: answer.load.metrics.latency.tpot_s.p95 for share, answer in loads.items()}
    assert ttft[0.5] < ttft[1.0] < ttft[1.2] < 1.0
    assert tpot[0.5] < tpot[1.0] < tpot[1.2] < 0.05
    assert 0.2 <= prefill_share(loads[1.0]) <= 0.4
    # Half a second would hold with nothing to spare, and the plan says so.
    assert 0.35 <= ttft[1.0] <= 0.6
    assert ttft[1.2] > 0.5
    codes = [p.code for p in plan(chat(3.47, ttft_s=0.5), "quick").problems]
    assert "thin_margin" in codes or "slo_missed" in codes
    assert "thin_margin" not in [p.code for p in loads[1.0].problems]


def test_job_2_recommendation_bill_and_binding_limit() -> None:
    space = recommend.Space(
        gpus=("h100-sxm", "l40s"),
        usd_per_gpu_hour={"l40s": 0.90},
        speculative=(None,),
        disaggregation=(None,),
        pipeline_parallel_sizes=(1,),
    )
    found = recommend.best(chat(3.47, replications=None), space)
    best = found.best
    assert (best.scenario.hardware.gpu, best.scenario.parallel.tensor_parallel_size) == ("h100-sxm", 2)
    assert (best.replicas, best.gpus, best.usd_per_month) == (1, 4, pytest.approx(7300))
    assert best.worst_promise.startswith("p95 T")
    assert best.usd_per_month / (1e5 * 730 / 24) * 1000 == pytest.approx(2.40, abs=0.01)
    mean = plan(chat(1e5 / 86_400), "quick")
    assert mean.cost.usd_per_request * 1000 == pytest.approx(2.40, rel=0.02)


# 3. Cheaper than the API?

API = {"label": "list", "input": 0.55, "cached_input": 0.14, "output": 2.19}


def test_job_3_break_even_with_steps() -> None:
    priced = {"usd_per_gpu_hour": H100, "compare_to": [API]}
    made = scenario(workload={"input_len": 1155, "output_len": 211, "request_rate": 3.47}, price=priced)
    answer = plan(made, "full")
    (found,) = decision.break_even(answer, peak_to_mean=3)
    assert found.usd_per_request * 1000 == pytest.approx(1.097, abs=5e-4)
    assert found.requests_per_day == pytest.approx(109_400, rel=1e-3)
    assert found.requests_per_day * 30.4 * found.usd_per_request == pytest.approx(3650, rel=2e-3)
    assert 1e5 * 30.4 * found.usd_per_request == pytest.approx(3336, rel=1e-3)
    assert 0 < found.utilization < 1
    bills = {p.replicas: p.own_usd_per_month for p in found.curve}
    assert bills[2] == pytest.approx(2 * bills[1])
    (price,) = cost.listed(made)
    cached = cost.usd_per_request(price, cost.mix_of(made).at_hit_rate(0.563))
    assert cached * 1000 == pytest.approx(0.831, abs=5e-4)
    assert cost.requests_per_day_to_break_even(5.0, cached) == pytest.approx(144_500, rel=1e-3)
    pair = breakeven.step(1, 5.0, cached, 1e9, spares=1)
    assert pair.break_even_requests_per_day == pytest.approx(2 * 144_500, rel=1e-3)


# 4. Code completion, bursty


def test_job_4_bursts_break_what_poisson_arrivals_promise() -> None:
    load = traffic("code-completion")
    made = scenario(
        model={"name": "llama-3.1-8b"}, parallel={}, slo={"ttft_s": 0.25, "tpot_s": 0.05}, simulation={"replications": 1}
    ).model_copy(update={"workload": load})
    smooth = made.model_copy(update={"workload": load.model_copy(update={"trace": None})})
    replayed, poisson = plan(made, "quick"), plan(smooth, "quick")
    assert poisson.load.metrics.latency.ttft_s.p95 < 0.25 < replayed.load.metrics.latency.ttft_s.p95
    assert "slo_missed" in [p.code for p in replayed.problems]
    trace = traces.shipped("azure-2023-code")
    assert burst.burst_cost(trace.arrival_s, trace.input_tokens, 0.25).ratio == pytest.approx(2.8, abs=0.4)


def test_job_4_is_prefill_bound_and_the_output_price_hardly_matters() -> None:
    load = traffic("code-completion")
    made = scenario(model={"name": "llama-3.1-8b"}, parallel={}).model_copy(update={"workload": load.model_copy(update={"trace": None})})
    full = operating.operating(deployment.of(made), operating.largest_batch(deployment.of(made)))
    assert full.prefill_share > 0.6
    lengths = cost.mix_of(made)
    assert lengths.input_tokens / lengths.output_tokens == pytest.approx(73, rel=0.05)
    price = next(p for p in cost.listed(scenario(price={"compare_to": [API]})))
    output_share = lengths.output_tokens * price.output / (cost.usd_per_request(price, lengths) * 1e6)
    assert output_share < 0.06


# 5. Agents with growing context


@pytest.mark.parametrize(("pool_tokens", "hit_rate"), [(500_000, 0.045), (5_100_000, 0.215), (25_600_000, 0.36)])
def test_job_5_hit_rate_follows_from_the_pool(pool_tokens: int, hit_rate: float) -> None:
    found = prefix_hits(traces.shipped("mooncake-conversation"), 1, pool_tokens, "round_robin")
    assert found.hit_rate == pytest.approx(hit_rate, abs=0.02)


@pytest.mark.parametrize(("routing", "hit_rate"), [("round_robin", 0.062), ("sticky", 0.172), ("longest_prefix", 0.177)])
def test_job_5_routing_matters_as_much(routing: str, hit_rate: float) -> None:
    found = prefix_hits(traces.shipped("mooncake-conversation"), 8, 500_000, routing)
    assert found.hit_rate == pytest.approx(hit_rate, abs=0.02)


def test_job_5_a_cpu_tier_raises_hits_and_lowers_the_bill_of_a_request() -> None:
    def agents(tiers: list) -> Plan:
        sessions = {
            "request_rate": 6.0, "input_len": 900, "output_len": 150, "turns": 20, "think_time_s": 20.0, "num_prompts": 1200,
        }  # fmt: skip
        made = scenario(
            model={"name": "llama-3.1-8b"},
            parallel={},
            hardware={"gpu": "l40s"},
            engine={"kv_offload": tiers, "max_num_seqs": 64},
            workload=sessions,
            simulation={"mode": "benchmark", "replications": 1},
            price={"usd_per_gpu_hour": 0.9},
        )
        return plan(made, "quick")

    without, with_tier = agents([]), agents([{"tier": "cpu", "gib": 256, "gb_s": 25}])
    hits = [a.load.metrics.throughput.prefix_hit_rate for a in (without, with_tier)]
    assert hits[1] > hits[0] + 0.1
    assert with_tier.cost.usd_per_request <= without.cost.usd_per_request
    assert with_tier.load.metrics.latency.ttft_s.p95 < without.load.metrics.latency.ttft_s.p95


# 6. RAG with a shared system prompt


def test_job_6_sharing_turns_several_replicas_into_one() -> None:
    def rag(sharing: bool) -> Plan:
        # The job's 34.5k tokens are what vLLM up to 0.16 leaves: its sampler took 5.5 GiB of this vocabulary at 1,024
        # sequences, where 0.19 takes 2.2 and leaves 48k.
        engine = {"gpu_memory_utilization": 0.95, "enable_prefix_caching": sharing, "max_model_len": 8192}
        engine |= {"version": "0.16.0", "max_num_seqs": 1024}
        return plan(
            scenario(
                model={"name": "qwen3-32b"},
                precision={"weights": "bf16", "kv_cache": "bf16"},
                parallel={},
                engine=engine,
                workload={"input_len": 4256, "shared_prefix_len": 4000, "output_len": 256, "request_rate": 4.0},
                slo={"ttft_s": 1.0, "tpot_s": 0.06},
            ),
            "full",
        )

    shared, alone = rag(True), rag(False)
    assert shared.memory.kv_pool_tokens == pytest.approx(34_500, rel=0.03)
    assert shared.memory.kv_pool_bytes_per_gpu / GIB == pytest.approx(8.4, rel=0.03)
    assert alone.memory.cache_limited_batch == 7
    assert shared.memory.cache_limited_batch == pytest.approx(59, abs=2)
    flops = 2 * shared.architecture.active_params
    assert flops * 4256 * 4 / 1e15 == pytest.approx(1.1, abs=0.05)
    assert flops * 256 * 4 / 1e15 == pytest.approx(0.07, abs=0.005)
    assert shared.load.capacity_requests_per_s >= 4.0
    assert "overloaded" in [p.code for p in alone.problems]
    assert 4.0 / alone.load.capacity_requests_per_s > 2


# 7. Reasoning model


def reasoning(**changes: object) -> Scenario:
    """ServeGen R1 lengths: 1,598 in, 1,692 out of which 72 % are thinking."""
    load = traffic("reasoning", **changes)
    made = scenario(
        model={"name": "deepseek-v3"}, hardware={"gpu": "h200-sxm"}, parallel={"tensor_parallel_size": 8},
        precision={"weights": "fp8", "kv_cache": "bf16"}, slo={"ttft_s": 2.0, "tpot_s": 0.06}, simulation={"replications": 5},
        price={"usd_per_gpu_hour": 3.20},
    )  # fmt: skip
    return made.model_copy(update={"workload": load})


def test_job_7_thinking_delays_the_answer_by_its_tokens() -> None:
    answer = plan(reasoning(request_rate=1.5, num_prompts=2000), "quick")
    latency = answer.load.metrics.latency
    thinking = 0.722 * cost.mix_of(reasoning()).output_tokens
    assert thinking == pytest.approx(1221, rel=0.03)
    delay_s = latency.ttft_answer_s.mean - latency.ttft_s.mean
    assert delay_s == pytest.approx(thinking * latency.tpot_s.mean, rel=0.15)
    # The job's 58 s are those tokens at 21 tokens/s.
    assert delay_s / latency.tpot_s.mean / 21 == pytest.approx(58, rel=0.15)
    assert latency.ttft_answer_s.p50 > 20 * latency.ttft_s.p50
    assert answer.cost.usd_per_request > 0


def test_job_7_admission_by_prompt_length_preempts() -> None:
    def served(seats: int) -> int:
        load = {"request_rate": None, "max_concurrency": 400, "num_prompts": 800}
        made = reasoning(**load)
        small = made.model_copy(
            update={
                "model": scenario().model,
                "hardware": scenario().hardware,
                "parallel": scenario().parallel,
                "precision": made.precision,
                "engine": made.engine.model_copy(update={"max_num_seqs": seats}),
                "simulation": made.simulation.model_copy(update={"mode": "benchmark", "replications": 1}),
            }
        )
        return plan(small, "quick").load.metrics.throughput.preemptions

    # Prompts are half of what a sequence grows to, so a cache filled by admission overflows in decode.
    assert served(400) > 50
    assert served(24) == 0


# 8. Offline batch


def test_job_8_cards_for_ten_million_documents_in_a_night() -> None:
    job = offline.Job(documents=10e6, input_tokens=3000, output_tokens=300, window_s=8 * 3600)
    assert job.input_tokens_per_s == pytest.approx(1.04e6, rel=0.005)
    assert job.output_tokens_per_s == pytest.approx(104e3, rel=0.005)
    made = scenario(
        model={"name": "llama-3.1-8b"}, parallel={}, slo={"ttft_s": None, "tpot_s": None}, simulation={"mode": "benchmark"},
        engine={"max_num_seqs": 512},
        workload={"input_len": 3000, "output_len": 300, "request_rate": None, "max_concurrency": 400, "num_prompts": 2400},
    )  # fmt: skip
    documents_per_s = plan(made, "quick").load.metrics.throughput.requests_per_s
    rough = {"interruption_per_hour": 0.05, "restart_s": 300.0, "lost_work_s": 15.0}
    spot = offline.fewest_replicas(job, documents_per_s, H100 * 0.4, **rough)
    assert 24 <= spot.replicas <= 40
    steady = offline.fewest_replicas(job, documents_per_s, H100)
    assert steady.replicas <= spot.replicas
    assert spot.usd < steady.usd
    curve = offline.curve(job, [spot.replicas, 2 * spot.replicas], documents_per_s, H100 * 0.4, **rough)
    assert curve[1].mean_s < curve[0].mean_s
    cheapest = catalog_price("llama-3.1-8b")
    half_price_api = offline.api_usd(job, cheapest.input / 2, cheapest.output / 2)
    assert half_price_api > 0
    assert spot.usd < half_price_api * 2


def catalog_price(model: str):
    """The cheapest listed host of a model."""
    from planner.catalog import list_prices

    assert model in catalog.models()
    return list_prices.hosts(model)[0]


# 9. Topology


def topology(tp: int, clients: int, input_len: int = 1024, output_len: int = 256, kv: str = "fp8") -> Plan:
    """Eight H100 as 8 / tp replicas under a closed loop."""
    load = {"input_len": input_len, "output_len": output_len, "request_rate": None, "max_concurrency": clients, "num_prompts": clients * 4}
    made = scenario(
        parallel={"tensor_parallel_size": tp}, fleet={"replicas": 8 // tp}, workload=load, engine={"max_num_seqs": 512},
        precision={"weights": "fp8", "kv_cache": kv}, simulation={"mode": "benchmark"},
    )  # fmt: skip
    return plan(made, "quick")


def test_job_9_smaller_groups_carry_more_and_the_large_one_is_fastest() -> None:
    full = {tp: topology(tp, 512).load.metrics.throughput.requests_per_s for tp in (8, 4, 2)}
    assert full[2] > full[4] >= full[8]
    alone = {tp: topology(tp, 8).load.metrics.latency.tpot_s.p50 for tp in (8, 4, 2)}
    assert alone[8] < alone[4] < alone[2]


def test_job_9_split_pools_lose_on_short_answers_and_say_what_link_they_need() -> None:
    pool = {"gpu": "h100-sxm", "parallel": {"tensor_parallel_size": 4}, "engine": {"max_num_seqs": 512}}

    def split(link_gb_s: float) -> Plan:
        return plan(
            scenario(
                precision={"weights": "fp8", "kv_cache": "bf16"},
                disaggregation={"prefill": pool, "decode": pool, "link_gb_s": link_gb_s},
                workload={"input_len": 1024, "output_len": 50, "request_rate": None, "max_concurrency": 64, "num_prompts": 384},
                simulation={"mode": "benchmark"},
            ),
            "quick",
        )

    together = topology(4, 64, 1024, 50, kv="bf16").load.metrics.throughput.requests_per_s
    slow, fast = split(1.0), split(50.0)
    assert slow.load.metrics.throughput.requests_per_s < fast.load.metrics.throughput.requests_per_s < together


# 10. Which lever first?


def speed_up(batch: int, **speculative: object) -> float:
    """Decode speed with speculation over without, 70B bf16 on four H100."""
    sections = {"precision": {"weights": "bf16", "kv_cache": "bf16"}, "parallel": {"tensor_parallel_size": 4}}
    plain = deployment.of(scenario(**sections))
    drafting = deployment.of(scenario(**sections, speculative=speculative))
    verified = drafting.step_time(decode_shape(drafting, batch)) / drafting.profile.acceptance_length
    return plain.step_time(decode_shape(plain, batch)) / verified


def test_job_10_speculation_falls_with_batch_and_turns_negative() -> None:
    draft = {"method": "draft_model", "draft_model": "llama-3.1-8b", "num_speculative_tokens": 5, "acceptance_rate": 0.7}
    gains = [speed_up(batch, **draft) for batch in (1, 4, 16, 32, 64, 128, 256)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.2
    # The report behind "around 32" (70B target, 1B draft, vLLM of early 2025, longer chains worse) states no acceptance.
    # With the 8B draft of the catalogue and a chain of five the planner turns negative between 16 and 128.
    crossing = next(batch for batch, gain in zip((1, 4, 16, 32, 64, 128, 256), gains, strict=True) if gain < 1)
    assert 16 <= crossing <= 128
    shorter = draft | {"num_speculative_tokens": 3}
    assert speed_up(128, **draft) < speed_up(128, **shorter)


def test_job_10_fp8_cache_doubles_the_pool_and_costs_a_little_prefill() -> None:
    wide, narrow = (
        deployment.of(scenario(parallel={"tensor_parallel_size": 4}, precision={"weights": "fp8", "kv_cache": kv}))
        for kv in ("bf16", "fp8")
    )
    assert narrow.memory.kv_pool_tokens / wide.memory.kv_pool_tokens == pytest.approx(2.00, abs=0.01)
    # The job expects prefill 2 to 5 % slower. The kernel tables that the planner is built on show 0.5 to 1.5 %: attention is
    # the only kernel that slows, and it is a small part of a prompt of chat length.
    for prompt in (1155, 16_000):
        slower = 1 - prefill_rate(narrow, prompt) / prefill_rate(wide, prompt)
        assert 0.0 < slower < 0.05


def test_job_10_levers_in_one_table_with_interactions() -> None:
    made = chat(3.47, replications=1)
    base = made.model_copy(update={"precision": made.precision.model_copy(update={"kv_cache": "bf16"})})
    chosen = {name: change for name, change in levers.levers(base).items() if name in ("fp8 KV", "eagle3 k=3", "bf16 weights")}
    found = {e.levers: e for e in levers.effects(base, chosen, pairs=True)}
    assert set(found) == {(), ("fp8 KV",), ("eagle3 k=3",), ("bf16 weights",), ("fp8 KV", "eagle3 k=3"), ("bf16 weights", "eagle3 k=3")}
    assert not found[("bf16 weights",)].fits
    assert found[("fp8 KV",)].kv_pool_tokens == pytest.approx(2 * found[()].kv_pool_tokens, rel=0.01)
    assert found[("eagle3 k=3",)].tpot_s < found[()].tpot_s
    assert found[("fp8 KV", "eagle3 k=3")].interaction == pytest.approx(1.0, abs=0.3)


# 11. Fleet over the week


def test_job_11_week_of_code_traffic() -> None:
    rates = week.rates_by_minute(demand.curve("azure-2024-code").tolist(), 50.0)
    assert rates.max() / rates.mean() == pytest.approx(3.5, abs=0.1)
    capacity, usd = 2.0, 2 * H100
    static = week.static_week(rates, capacity, 0.7, 1, usd)
    scaled = week.autoscaled_week(rates, capacity, 0.7, 1, usd, startup_s=120)
    # At a target of 100 % the peak fleet would be busy for mean over peak, 28 %; at 70 % it is busy for less.
    full = week.static_week(rates, capacity, 1.0, 0, usd)
    assert full.busy <= 0.285
    assert static.busy < 0.28
    assert scaled.usd < 0.55 * static.usd
    offers = (mix.Offer("reserved_1y", 0.6 * usd, committed=True), mix.Offer("on_demand", usd))
    paid = mix.cheapest_mix(rates, 0.7 * capacity, offers, api_usd_per_request=0.0011, startup_s=120)
    assert set(paid.replicas()) <= {"reserved_1y", "on_demand", "api"}
    assert paid.replicas()["reserved_1y"] >= 1
    assert paid.usd < min(paid.usd_all.values())
    bursty = week.rates_by_minute(demand.curve("azure-2024-code").tolist(), 50.0, burst_cv=0.4)
    lag = [week.autoscaled_week(bursty, capacity, 0.7, 1, usd, startup_s=s).missed_share for s in (0, 120, 600)]
    assert lag[0] < lag[1] < lag[2]
