"""The search against brute force, and what it says about everything it leaves out."""

import itertools
import math

import pytest

from planner import recommend as rec
from planner import traces
from planner.plan import plan
from planner.problems import InputError
from planner.recommend.bounds import fleet_usd_per_hour
from planner.recommend.search import units
from planner.recommend.space import with_replicas, with_setting
from planner.scenario import Scenario, Speculative
from planner.sweep import strain


def scenario(**changes: object) -> Scenario:
    """A small service whose designs can be tried one by one."""
    base = {
        "model": {"name": "llama-3.1-8b"},
        "workload": {"request_rate": 30.0, "num_prompts": 150, "input_len": 900, "output_len": 120},
        "slo": {"ttft_s": 0.4, "tpot_s": 0.02},
        "simulation": {"replications": 1},
        "price": {"usd_per_gpu_hour": 2.5},
    }
    return Scenario.model_validate(base | changes)


def brute_force(s: Scenario, space: rec.Space) -> float:
    """The cheapest bill over every layout, batching limit and replica count, each of them simulated."""
    cheapest = math.inf
    for layout in rec.layouts(s, space):
        for setting, replicas in itertools.product(layout.settings, range(1, 25)):
            design = with_replicas(with_setting(layout.scenario, setting), replicas)
            usd = fleet_usd_per_hour(layout.scenario, replicas)
            if usd is None or usd >= cheapest:
                continue
            answer = plan(design, "quick")
            if answer.fits and strain(answer) <= 1:
                cheapest = usd
    return cheapest


SMALL = rec.Space(
    gpus=("h100-sxm", "l40s"),
    tensor_parallel_sizes=(1, 2),
    pipeline_parallel_sizes=(1,),
    weights=("fp8",),
    kv_cache=("bf16",),
    max_num_seqs=(128, 16),
    max_num_batched_tokens=(4096,),
    speculative=(None,),
    disaggregation=(None,),
    usd_per_gpu_hour={"l40s": 0.9},
)
SPACES = {
    "interactive": (scenario(), SMALL),
    "slow prompts": (
        scenario(
            workload={"request_rate": 6.0, "num_prompts": 120, "input_len": 4000, "output_len": 60}, slo={"ttft_s": 1.0, "tpot_s": 0.05}
        ),
        SMALL,
    ),
    "many replicas": (scenario(workload={"request_rate": 220.0, "num_prompts": 120, "input_len": 900, "output_len": 120}), SMALL),
    "closed loop": (
        scenario(
            workload={"request_rate": None, "max_concurrency": 300, "num_prompts": 900, "input_len": 900, "output_len": 120},
            slo={"ttft_s": 1.5, "tpot_s": 0.02},
        ),
        SMALL,
    ),
    "split pools": (
        scenario(
            workload={"request_rate": 14.0, "num_prompts": 120, "input_len": 2000, "output_len": 150}, slo={"ttft_s": 0.6, "tpot_s": 0.012}
        ),
        rec.Space(
            gpus=("h100-sxm",),
            tensor_parallel_sizes=(1,),
            pipeline_parallel_sizes=(1,),
            weights=("bf16", "fp8"),
            kv_cache=("fp8",),
            max_num_seqs=(64,),
            max_num_batched_tokens=(8192, 2048),
            speculative=(None, Speculative(method="ngram", num_speculative_tokens=3)),
            disaggregation=(None, (1, 1)),
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_winner_is_the_one_of_brute_force(name: str) -> None:
    s, space = SPACES[name]
    found = rec.best(s, space)
    truth = brute_force(s, space)
    assert found.best is not None
    assert found.best.usd_per_hour == pytest.approx(truth, rel=0.02)


def test_search_accounts_for_every_candidate_and_gives_a_reason() -> None:
    s = scenario(model={"name": "llama-3.3-70b"}, workload={"request_rate": 1.0, "num_prompts": 60, "input_len": 900, "output_len": 60})
    space = rec.Space(gpus=("h100-sxm", "l40s", "h20"), speculative=(None,), disaggregation=(None,), tensor_parallel_sizes=(1, 2, 3))
    events = list(rec.recommend(s.model_copy(update={"slo": s.slo.model_copy(update={"tpot_s": 0.04, "ttft_s": 1.0})}), space))
    last = events[-1]
    assert isinstance(last, rec.Recommendation)
    considered = sum(e.candidates for e in last.exclusions) + len(last.options)
    assert considered == last.considered == 3 * 3 * 2 * 2 * 2 * 15
    reasons = {e.stage: e.reason for e in last.exclusions}
    assert "does not fit: short" in reasons["memory"]
    assert "64 attention heads" in reasons["illegal"]
    assert any("nobody publishes a price for h20" in e.reason for e in last.exclusions)
    assert all(e.reason for e in last.exclusions)
    assert any(isinstance(e, rec.Progress) for e in events)
    best = last.best
    assert best is not None
    assert best.tie
    assert plan(best.scenario, "quick").fits


def test_promises_that_no_fleet_keeps_end_with_reasons_and_no_option() -> None:
    found = rec.best(scenario(slo={"ttft_s": 0.001, "tpot_s": 0.02}), SMALL)
    assert found.best is None
    assert found.simulated == 0
    assert {e.stage for e in found.exclusions} == {"latency"}
    assert "TTFT infeasible for one request alone" in found.exclusions[0].reason


def test_default_space_is_large_and_only_measured_silicon() -> None:
    s = scenario()
    assert "h100-sxm" in rec.default_gpus(s)
    assert "mi300x" not in rec.default_gpus(s)
    assert sum(len(layout.settings) for layout in rec.layouts(s, rec.Space())) >= 2000


def test_experts_whole_or_cut_and_the_published_precision_are_searched() -> None:
    s = scenario(model={"name": "gpt-oss-120b"}, precision={"weights": "auto"})
    space = rec.Space(
        gpus=("h100-sxm",), tensor_parallel_sizes=(1, 2), pipeline_parallel_sizes=(1,), speculative=(None,), disaggregation=(None,)
    )
    found = [layout.scenario for layout in rec.layouts(s, space)]
    kinds = {(d.parallel.tensor_parallel_size, d.parallel.data_parallel_size, d.parallel.enable_expert_parallel) for d in found}
    assert kinds == {(1, 1, False), (2, 1, False), (2, 1, True), (1, 8, True), (2, 8, True)}
    assert {d.precision.weights for d in found} == {"bf16", "fp8", "mxfp4"}, "what the model was published in costs no quality"
    dense = [layout.scenario for layout in rec.layouts(scenario(), space)]
    assert not any(d.parallel.enable_expert_parallel for d in dense)


def test_the_headline_counts_every_gpu_that_is_paid_for() -> None:
    s = scenario(fleet={"spares": 1}, workload={"request_rate": 2.0, "num_prompts": 100, "input_len": 900, "output_len": 120})
    best = rec.best(s, SMALL).best
    assert best is not None
    assert best.gpus == 2
    assert best.words == f"2 GPUs: 1 × ({best.label}) + 1 spare"
    pools = with_replicas(next(layout.scenario for layout in rec.layouts(s, rec.Space(disaggregation=((1, 2),)))), 3)
    assert units(pools) == 3


def test_an_acceptance_that_was_not_measured_on_the_model_is_said() -> None:
    s = scenario(speculative={"method": "eagle3"}, workload={"request_rate": 2.0, "num_prompts": 60, "input_len": 900, "output_len": 60})
    assert "assumed_acceptance" in {p.code for p in plan(s, "quick").problems}
    own = scenario(speculative={"method": "eagle3", "acceptance_rate": 0.7})
    assert "assumed_acceptance" not in {p.code for p in plan(own, "quick").problems}


def test_search_can_be_stopped() -> None:
    search = rec.recommend(scenario(), SMALL)
    next(e for e in search if isinstance(e, rec.Progress))
    search.close()
    assert next(search, None) is None


def test_ties_within_the_band_are_marked() -> None:
    found = rec.best(scenario(), rec.Space(**{f: getattr(SMALL, f) for f in SMALL.__slots__} | {"kv_cache": ("bf16", "fp8")}))
    assert len([o for o in found.options if o.tie]) >= 2
    assert found.options == tuple(sorted(found.options, key=lambda o: o.usd_per_hour))
    assert all(o.usd_per_hour <= found.best.usd_per_hour * (1 + found.tie_band) for o in found.options if o.tie)


def test_an_empty_space_is_wrong_input() -> None:
    with pytest.raises(InputError, match="space is empty"):
        list(rec.recommend(scenario(), rec.Space(max_gpus_per_replica=0)))


SMALLEST = rec.Space(
    gpus=("h100-sxm",),
    tensor_parallel_sizes=(1,),
    pipeline_parallel_sizes=(1,),
    weights=("bf16",),
    kv_cache=("bf16",),
    max_num_seqs=(256,),
    max_num_batched_tokens=(8192,),
    speculative=(None,),
    disaggregation=(None,),
)


def test_an_option_is_judged_by_the_promise_of_the_class_that_fares_worst() -> None:
    classes = ({"share": 0.7, "priority": 0}, {"share": 0.3, "priority": 5, "slo": {"ttft_s": 0.2, "tpot_s": None}})
    traffic = {"request_rate": 20.0, "num_prompts": 120, "input_len": 900, "output_len": 60, "priority_classes": classes}
    best = rec.best(scenario(workload=traffic), SMALLEST).best
    assert best is not None
    assert best.strain == pytest.approx(strain(plan(best.scenario, "quick")), rel=1e-9)
    assert best.strain <= 1


def test_a_trace_that_comes_all_at_once_has_no_rate_to_size_for_and_is_refused_in_words() -> None:
    burst = traces.upload(b"arrival_s,input_tokens,output_tokens\n" + b"0,100,10\n" * 30, "burst")
    trace = {"name": "burst", "content_hash": burst.content_hash}
    with pytest.raises(InputError, match="no load to find a fleet for"):
        rec.best(scenario(workload={"request_rate": None, "trace": trace}))
