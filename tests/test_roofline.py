"""Step time at its three levels: the chapter's digits, bounds between levels, terms that add up, and what each kernel costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import architecture, hardware, roofline, sharding
from planner.catalog import kernels
from planner.catalog.gpus import gpus
from planner.plan import deployment, plan
from planner.roofline import StepShape, StepTime, Textbook
from planner.roofline.attention import pairs
from planner.roofline.constants import interpolated, knee
from planner.scenario import Scenario, parse


def step_time(scale: float = 1.0, **fields: object) -> StepTime | Textbook:
    s = Scenario.model_validate(fields)
    arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
    shard = sharding.shard(arch, s.parallel, s.precision, gpu, s.hardware)
    return roofline.step_time(s, arch, shard, gpu, scale)


def kernel_sum(name: str = "llama-3.1-8b", tp: int = 1, **fields: object) -> StepTime:
    found = step_time(model={"name": name}, parallel={"tensor_parallel_size": tp} | dict(fields.pop("parallel", {})), **fields)  # type: ignore[arg-type]
    assert isinstance(found, StepTime)
    return found


BEACON = {
    "fidelity": "textbook",
    "model": {"name": "llama-3.1-405b", "total_params": 405 * 10**9},
    "hardware": {"gpu": "h100-sxm"},
    "precision": {"weights": "fp8", "kv_cache": "fp8"},
    "parallel": {"tensor_parallel_size": 8},
}


# ---- the chapter


def test_the_beacon_step_is_weights_over_bandwidth_whatever_the_batch() -> None:
    step = step_time(**BEACON)
    assert step.decode(1) == pytest.approx(405e9 / (8 * 3.35e12))
    assert f"{step.decode(1) * 1e3:.1f}" == "15.1"
    assert step.decode(1) == step.decode(64, 64 * 4096) == step(StepShape(256, 10**6, 0, (), 256))


def test_the_beacon_prefill_is_two_operations_a_parameter_at_half_of_a_rounded_peak() -> None:
    step = step_time(**BEACON)
    seconds = step(StepShape(chunks=((1000, 0),), logit_rows=1))
    assert round(1000 / seconds) == 4938
    assert 1000 / seconds == pytest.approx(8 * 1e15 * 0.5 / (2 * 405e9))


def test_the_compute_bound_batch_of_the_chapter_is_295_on_h100_fp8() -> None:
    assert int(step_time(**BEACON).compute_bound_batch()) == 295


def test_textbook_speculation_pays_a_fixed_share_per_draft() -> None:
    plain, drafted = step_time(**BEACON), step_time(**BEACON, speculative={"num_speculative_tokens": 4, "acceptance_rate": 0.8})
    assert drafted.decode(1) == pytest.approx(plain.decode(1) * 1.2)


def test_textbook_mixed_steps_add_up_and_explain_themselves() -> None:
    step = step_time(**BEACON)
    shape = StepShape(3, 9000, 0, ((512, 0), (100, 40)), 4)
    assert sum(t.seconds for t in step.explain(shape)) == pytest.approx(step(shape))
    assert {t.phase for t in step.explain(shape)} == {"decode", "prefill"}


# ---- every level


MODELS = {
    "dense": {"model": {"name": "llama-3.1-8b"}},
    "moe": {"model": {"name": "mixtral-8x7b"}, "parallel": {"tensor_parallel_size": 2}},
    "mla": {"model": {"name": "deepseek-v3"}, "parallel": {"data_parallel_size": 8, "enable_expert_parallel": True}},
    "windows": {"model": {"name": "gpt-oss-20b"}, "precision": {"weights": "auto"}},
    "recurrent": {"model": {"name": "qwen3-next-80b-a3b"}, "parallel": {"tensor_parallel_size": 4}},
    "pipeline": {"model": {"name": "llama-3.1-70b"}, "parallel": {"pipeline_parallel_size": 4}},
    "sparse": {"model": {"name": "deepseek-v3.2"}, "parallel": {"tensor_parallel_size": 8}},
    "drafted": {
        "model": {"name": "llama-3.1-8b"},
        "speculative": {"method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.6},
    },
    "eager": {"model": {"name": "llama-3.1-8b"}, "engine": {"enforce_eager": True}},
    "pcie": {"model": {"name": "llama-3.1-8b"}, "hardware": {"gpu": "l40s"}, "parallel": {"tensor_parallel_size": 4}},
    "two nodes": {"model": {"name": "llama-3.1-405b"}, "parallel": {"tensor_parallel_size": 16}},
    "busy host": {"model": {"name": "qwen3-30b-a3b"}, "hardware": {"gpu": "b200-sxm"}, "engine": {"name": "trtllm", "version": "1.0.0"}},
}
shapes = st.tuples(
    st.integers(0, 600), st.integers(1, 9000), st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 20_000)), max_size=3)
).filter(lambda s: s[0] or s[2])


def shape_of(step: StepTime, drawn: tuple[int, int, list[tuple[int, int]]]) -> StepShape:
    n, context, chunks = drawn
    k = step._parts.drafts
    return StepShape(n, n * context, n * min(context, 128), tuple(chunks), n + len(chunks), n * k)


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=12, deadline=None)
@given(drawn=shapes)
def test_terms_add_up_to_the_call(kind: str, drawn: tuple[int, int, list[tuple[int, int]]]) -> None:
    step = step_time(**MODELS[kind])
    shape = shape_of(step, drawn)
    terms = step.explain(shape)
    assert sum(t.seconds for t in terms) == pytest.approx(step(shape), rel=1e-9)
    assert all(t.seconds > 0 and t.bound in ("memory", "compute", "launch", "link", "host", "draft") for t in terms)
    assert {t.phase for t in terms} <= {"decode", "prefill", "step"}


@pytest.mark.parametrize("kind", MODELS)
def test_the_fast_path_is_the_call(kind: str) -> None:
    step = step_time(**MODELS[kind])
    for n in (1, 7, 64, 513):
        k = step._parts.drafts
        assert step.decode(n, n * 900, n * 100) == step(StepShape(n, n * 900, n * 100, (), n, n * k))


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=8, deadline=None)
@given(drawn=shapes)
def test_the_datasheet_bounds_the_calibrated_level_from_below(kind: str, drawn: tuple[int, int, list[tuple[int, int]]]) -> None:
    measured, ideal = step_time(**MODELS[kind]), step_time(**MODELS[kind], fidelity="datasheet")
    shape = shape_of(measured, drawn)
    assert 0 < ideal(shape) < measured(shape)


@pytest.mark.parametrize("kind", MODELS)
def test_more_work_never_takes_less_time(kind: str) -> None:
    step = step_time(**MODELS[kind])
    k = step._parts.drafts
    small = StepShape(32, 32 * 1000, 32 * 128, ((512, 0),), 33, 32 * k)
    for more in (
        small._replace(context_tokens=32 * 2000),
        small._replace(chunks=((512, 0), (64, 0)), logit_rows=34),
        small._replace(chunks=((512, 4000),)),
        small._replace(chunks=((700, 0),)),
    ):
        assert step(more) >= step(small)
    times = [step.decode(n, n * 1000, n * 128) for n in (1, 2, 8, 64, 256)]
    assert times == sorted(times)


def test_scale_and_calibration_multiply_the_whole_step() -> None:
    shape = StepShape(16, 16_000, 0, ((512, 128),), 17)
    plain, slow = step_time(), step_time(scale=1.3)
    assert slow(shape) == pytest.approx(1.3 * plain(shape))
    calibration = {"engine": "vllm", "gpu": "h100-sxm", "factor": 1.1, "n_points": 4}
    assert step_time(calibration=calibration)(shape) == pytest.approx(1.1 * plain(shape))
    assert step_time(calibration=calibration | {"gpu": "h200-sxm"})(shape) == plain(shape)
    assert step_time(calibration=calibration | {"engine": "sglang"})(shape) == plain(shape)


def test_nothing_takes_no_time() -> None:
    assert step_time().decode(0) == 0
    assert step_time().explain(StepShape()) == ()


# ---- kernels


def seconds(step: StepTime, shape: StepShape, name: str) -> float:
    return sum(t.seconds for t in step.explain(shape) if t.name == name)


def test_experts_touched_set_the_bytes_of_a_step() -> None:
    """E·(1 − (1 − k/E)ᵀ): eight tokens already touch 7.2 of Mixtral's eight experts, two only 3.5."""
    step = kernel_sum("mixtral-8x7b", fidelity="datasheet")
    times = {n: seconds(step, StepShape(n, n * 10, 0, (), n), "experts") for n in (1, 2, 8, 64)}
    assert times[2] / times[1] == pytest.approx(1.75, rel=0.01)
    assert times[8] / times[1] == pytest.approx(7.2 / 2, rel=0.01)
    assert times[64] / times[1] == pytest.approx(4.0, rel=0.01)


def test_windowed_layers_read_no_further_than_their_window() -> None:
    step = kernel_sum("gpt-oss-20b", precision={"weights": "auto"})
    near, far = step.decode(8, 8 * 128, 8 * 128), step.decode(8, 8 * 60_000, 8 * 128)
    everywhere = step.decode(8, 8 * 60_000, 8 * 60_000)
    assert far - near == pytest.approx((everywhere - near) / 2, rel=0.05)


def test_recurrent_layers_do_not_slow_down_with_the_context() -> None:
    step = kernel_sum("qwen3-next-80b-a3b", tp=4)
    full = kernel_sum("qwen3-30b-a3b", tp=4)

    def growth(s: StepTime) -> float:
        return s.decode(8, 8 * 60_000) - s.decode(8, 8 * 1_000)

    assert growth(step) < growth(full) * 0.7
    assert seconds(step, StepShape(8, 8000, 0, (), 8), "recurrent state") > 0


def test_latent_attention_reads_one_latent_for_all_heads() -> None:
    ideal = kernel_sum("deepseek-v3", parallel={"tensor_parallel_size": 8}, fidelity="datasheet")
    more = ideal.decode(1, 101_000) - ideal.decode(1, 1_000)
    assert more == pytest.approx(61 * 100_000 * 576 * 2 / 3.35e12, rel=0.01)


def test_sparse_attention_stops_reading_at_its_top_k() -> None:
    dense, sparse = kernel_sum("deepseek-v3", tp=8), kernel_sum("deepseek-v3.2", tp=8)
    slope = [s.decode(4, 4 * 120_000) - s.decode(4, 4 * 20_000) for s in (dense, sparse)]
    assert 0 < slope[1] < slope[0]


def test_the_pairs_of_a_windowed_chunk() -> None:
    def counted(new: int, cached: int, window: int) -> float:
        return sum(min(cached + i + 0.5, window) for i in range(new))

    for new, cached, window in ((10, 0, 100), (50, 80, 100), (5, 200, 100), (300, 20, 128)):
        assert pairs(new, cached, window) == pytest.approx(counted(new, cached, window), rel=0.01)


def test_chunks_behind_a_cached_prefix_attend_to_it() -> None:
    step = kernel_sum()
    fresh, behind = (step(StepShape(chunks=((256, cached),), logit_rows=1)) for cached in (0, 30_000))
    whole = step(StepShape(chunks=((30_256, 0),), logit_rows=1))
    assert fresh < behind < whole / 4


def test_verifying_adds_arithmetic_to_the_memory_time() -> None:
    """A verify step of k + 1 tokens costs more than a plain step long before the max of both would say so."""
    plain = kernel_sum()
    verify = kernel_sum(speculative={"num_speculative_tokens": 3, "acceptance_rate": 0.6, "draft_cost": 0.0})
    shape, drafted = StepShape(32, 32_000, 0, (), 32), StepShape(32, 32_000, 0, (), 32, 96)
    assert plain.decode(32, 32_000) < verify(drafted)
    assert verify(drafted) - plain(shape) > 96 * 2 * 8e9 / 989e12 * 0.9


def test_a_stated_draft_cost_is_a_share_of_the_plain_step() -> None:
    base = {"num_speculative_tokens": 4, "acceptance_rate": 0.7}
    free, paid = (kernel_sum(speculative=base | {"draft_cost": cost}) for cost in (0.0, 0.1))
    assert paid.decode(8, 8000) - free.decode(8, 8000) == pytest.approx(0.4 * kernel_sum().decode(8, 8000), rel=0.01)


def test_drafting_costs_what_the_drafter_reads() -> None:
    eagle, ngram, small = (
        kernel_sum("llama-3.1-70b", tp=4, speculative={"num_speculative_tokens": 3, "acceptance_rate": 0.6, **how})
        for how in ({"method": "eagle3"}, {"method": "ngram"}, {"method": "draft_model", "draft_model": "llama-3.2-1b"})
    )
    shape = StepShape(8, 8000, 0, (), 8, 24)
    assert seconds(ngram, shape, "drafting") == 0
    assert 0 < seconds(eagle, shape, "drafting") < seconds(small, shape, "drafting") < small(shape) / 2


def test_tensor_parallel_steps_pay_two_all_reduces_a_layer() -> None:
    shape = StepShape(16, 16_000, 0, (), 16)
    alone, four = kernel_sum("llama-3.1-70b", tp=1), kernel_sum("llama-3.1-70b", tp=4)
    assert seconds(alone, shape, "all-reduce") == 0
    assert 160 * 4e-6 < seconds(four, shape, "all-reduce") < 160 * 20e-6
    assert four(shape) > alone(shape) / 4


def test_pcie_and_network_are_slower_than_nvlink() -> None:
    shape = StepShape(64, 64_000, 0, (), 64)

    def reduce(**fields: object) -> float:
        return seconds(kernel_sum("llama-3.1-70b", **fields), shape, "all-reduce")  # type: ignore[arg-type]

    nvlink = reduce(tp=8)
    assert reduce(tp=8, hardware={"gpu": "l40s"}) > 8 * nvlink
    assert reduce(tp=16) > 3 * nvlink
    assert reduce(tp=8, engine={"enforce_eager": True}) > 1.5 * nvlink


def test_a_pipeline_of_one_sequence_is_no_faster_than_one_gpu() -> None:
    one, four = kernel_sum("llama-3.1-8b"), kernel_sum("llama-3.1-8b", parallel={"pipeline_parallel_size": 4})
    assert four.decode(1, 1000) >= one.decode(1, 1000)
    assert four.decode(256, 256_000) < one.decode(256, 256_000)


def test_data_parallel_ranks_share_the_sequences() -> None:
    one, eight = (
        kernel_sum("deepseek-v3", tp=8),
        kernel_sum("deepseek-v3", parallel={"data_parallel_size": 8, "enable_expert_parallel": True}),
    )
    shape = StepShape(1024, 1024 * 4000, 0, (), 1024)
    assert seconds(eight, shape, "attention") < seconds(one, shape, "attention")
    assert seconds(eight, shape, "all-to-all") > 0
    assert seconds(one, shape, "all-to-all") == 0


def test_host_time_by_engine_version_and_scheduling() -> None:
    fast, slow = kernel_sum(), kernel_sum(engine={"async_scheduling": False, "version": "0.10.1"})
    assert slow.decode(8, 8000) - fast.decode(8, 8000) == pytest.approx(1.2e-3, rel=1e-6)
    old = kernel_sum(engine={"async_scheduling": False, "version": "0.6.2"})
    assert old.decode(256, 256_000) - fast.decode(256, 256_000) == pytest.approx(2e-3 + 256 * 14e-6, rel=1e-6)


def test_a_small_model_on_a_fast_gpu_waits_for_the_host() -> None:
    step = step_time(**MODELS["busy host"])
    assert step.decode(1024, 1024 * 200) == pytest.approx(1024 * 25e-6)
    assert step.explain(StepShape(1024, 1024 * 200, 0, (), 1024))[-1].bound == "host"


def test_eager_steps_cannot_outrun_their_launches() -> None:
    step = kernel_sum("llama-3.2-1b", engine={"enforce_eager": True})
    assert step.decode(1, 100) == pytest.approx(16 * 250e-6)
    assert step.decode(1, 100) > 2 * kernel_sum("llama-3.2-1b").decode(1, 100)


# ---- constants


def test_knee_lies_between_max_and_sum() -> None:
    for p in (1, 1.5, 4, math.inf):
        assert max(3.0, 2.0) <= knee(3.0, 2.0, p) <= 5.0
    assert knee(3.0, 2.0, 1) == 5.0
    assert knee(3.0, 2.0, math.inf) == 3.0
    assert knee(0.0, 2.0, 2) == 2.0


def test_all_reduce_times_are_interpolated_and_extrapolated() -> None:
    time = interpolated([1024, 4096, 16384], [4e-6, 4e-6, 8e-6], 1.0)
    assert time(10) == pytest.approx(4e-6)
    assert time(8192) == pytest.approx(math.sqrt(4e-6 * 8e-6))
    assert time(32768) == pytest.approx(16e-6)
    assert interpolated([1024, 4096], [4e-6, 8e-6], 2.0)(4096) == pytest.approx(12e-6)


@pytest.mark.parametrize("slug", sorted(gpus()))
def test_every_gpu_gets_a_step_time_and_says_what_it_borrowed(slug: str) -> None:
    overrides = {"bf16_dense_tflops": 400.0} if not (gpus()[slug].dense_tflops.get("bf16") or gpus()[slug].dense_tflops.get("fp16")) else {}
    step = kernel_sum("llama-3.2-1b", hardware={"gpu": slug, "overrides": overrides})
    assert 0 < step.decode(1, 100) < 1
    measured = {row["gpu"] for row in kernels._rows("gemm")}
    borrowed = [n for n in step.notes if n.code == "low_confidence" and n.severity == "warning"]
    assert bool(borrowed) == (slug not in measured)


@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("gpu", ["a100-80-sxm", "h100-sxm", "b200-sxm"])
def test_fewer_bytes_make_decode_faster_on_every_generation(weights: str, gpu: str) -> None:
    step, plain = (kernel_sum("llama-3.1-70b", tp=4, hardware={"gpu": gpu}, precision={"weights": w}) for w in (weights, "bf16"))
    assert step.decode(1, 100) <= plain.decode(1, 100)


def test_constants_carry_source_and_residual() -> None:
    document = kernels.document()
    assert "aiconfigurator" in document["source"]
    assert document["date"]
    for table in document["kernels"].values():
        for row in table:
            assert row["gpu"] in gpus()
            assert row["n"] >= 4
            assert row["version"]
            assert "bytes" in row or 0 <= row["error"] < 0.8
    fitted = [row for table in document["kernels"].values() for row in table if "datasheet_error" in row and "error" in row]
    assert sum(row["error"] < row["datasheet_error"] for row in fitted) > 0.98 * len(fitted)
    assert all(row["source"] and row["date"] for row in document["host"])


def test_rows_of_the_gpu_itself_win_over_borrowed_ones() -> None:
    own = kernels.find("gemm", "h100-sxm", "vllm", "bf16")
    assert own is not None
    assert own.same_gpu
    assert own.same_engine
    assert own.same_dtype
    other = kernels.find("gemm", "mi300x", "vllm", "fp8")
    assert other is not None
    assert other.row["gpu"] == "h200-sxm"
    assert not other.same_gpu
    assert kernels.find("decode_attention", "h100-sxm", "vllm", "bf16", head_dim=96).row["head_dim"] in (64, 128)  # type: ignore[union-attr]


@pytest.mark.parametrize("gpu", ["a100-80-sxm", "l40s", "h100-sxm", "h200-sxm", "b200-sxm"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_of_fewer_bytes_make_a_small_batch_faster(gpu: str, engine: str) -> None:
    """Decode of one sequence reads the weights; kernels of other engines or precisions never turn that round."""
    wide, half, quarter = (
        kernel_sum(hardware={"gpu": gpu}, engine={"name": engine}, precision={"weights": w}).decode(1, 600) for w in ("bf16", "fp8", "int4")
    )
    assert quarter < half < wide


def test_int4_that_was_not_measured_says_so_and_slows_down_as_the_batch_grows() -> None:
    int4, fp8, bf16 = (kernel_sum("qwen3-32b", precision={"weights": w}) for w in ("int4", "fp8", "bf16"))
    assert bf16.decode(1, 600) / int4.decode(1, 600) == pytest.approx(2.7, rel=0.08)  # AIMultiple 2026-03, H100, one sequence
    assert int4.decode(256, 256 * 600) > fp8.decode(256, 256 * 600), "unpacked to 16 bit it computes at the 16-bit rate"
    assert int4.spread > 0
    assert fp8.spread == bf16.spread == 0
    (note,) = int4.notes
    assert note.severity == "warning"
    assert "bf16 efficiencies for unpacked weights" in note.message


def test_an_engine_keeps_its_own_weight_only_kernels_where_they_were_measured() -> None:
    for gpu, source in (("h200-sxm", "h200-sxm"), ("h100-sxm", "h200-sxm"), ("a100-80-sxm", "a100-80-sxm")):
        found = kernels.find("gemm", gpu, "trtllm", "int4")
        assert found is not None
        assert (found.row["gpu"], found.row["engine"], found.row["dtype"]) == (source, "trtllm", "int4")
    borrowed = kernels.find("gemm", "h100-sxm", "vllm", "int4")
    assert borrowed is not None
    assert (borrowed.row["gpu"], borrowed.row["engine"], borrowed.row["dtype"]) == ("h100-sxm", "vllm", "bf16")


def test_the_compute_bound_batch_is_of_the_whole_replica() -> None:
    """Ranks that split the batch, and stages that work on micro-batches of it, each meet their own share."""
    one = kernel_sum("llama-3.1-8b").compute_bound_batch()
    assert kernel_sum("llama-3.1-8b", parallel={"data_parallel_size": 4}).compute_bound_batch() == pytest.approx(4 * one)
    staged = kernel_sum("llama-3.1-8b", parallel={"pipeline_parallel_size": 2}).compute_bound_batch()
    assert staged == pytest.approx(2 * one, rel=0.01)
    split = kernel_sum("llama-3.1-8b", tp=2).compute_bound_batch()
    assert split == pytest.approx(one, rel=0.15), "tensor parallelism splits weights and arithmetic alike"
    experts = {"data_parallel_size": 8, "enable_expert_parallel": True}
    ranks = kernel_sum("deepseek-v3", parallel=experts, precision={"weights": "fp8"}).compute_bound_batch()
    shared = kernel_sum("deepseek-v3", tp=8, precision={"weights": "fp8"}).compute_bound_batch()
    assert 1.2 * shared < ranks < 8 * shared, "experts see the batch of all ranks, attention that of its own"


def test_captured_graphs_are_counted_per_data_parallel_rank() -> None:
    ranks = kernel_sum("llama-3.1-8b", parallel={"data_parallel_size": 4})
    assert ranks.decode(1024, 1024 * 300) < 1.2 * kernel_sum("llama-3.1-8b").decode(256, 256 * 300)


def test_kernels_that_were_measured_far_below_their_kind_are_doubted() -> None:
    found = plan(
        parse(
            {
                "model": {"name": "gpt-oss-120b"},
                "precision": {"weights": "mxfp4"},
                "parallel": {"tensor_parallel_size": 2},
                "engine": {"name": "sglang"},
                "workload": {"num_prompts": 20},
            }
        ),
        "quick",
    )
    (doubt,) = (p for p in found.problems if p.code == "low_confidence")
    assert doubt.severity == "warning"
    assert "moe: efficiencies of 21% of the memory bandwidth" in doubt.message


def test_a_step_of_one_sequence_does_not_pay_for_one_hiccup_of_the_link_s_benchmark() -> None:
    """SGLang's shortest all-reduce over 8 H100 was measured at 38 us, the next size at 3.5 us."""
    engines = {}
    for engine in ("vllm", "sglang"):
        scenario = parse(
            {
                "model": {"name": "llama-3.1-70b"},
                "precision": {"weights": "fp8"},
                "parallel": {"tensor_parallel_size": 8},
                "engine": {"name": engine},
                "workload": {"num_prompts": 1},
            }
        )
        engines[engine] = deployment.of(scenario).step_time.decode(1, 1000, 1000)
    assert engines["sglang"] == pytest.approx(engines["vllm"], rel=0.15)


@pytest.mark.parametrize("parallel", [{"tensor_parallel_size": 8}, {"tensor_parallel_size": 8, "pipeline_parallel_size": 4}])
def test_a_drafter_with_sparse_attention_pays_for_it_in_steps_of_every_kind(parallel: dict[str, int]) -> None:
    speculative = {"method": "mtp", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
    model, gpu = {"name": "deepseek-v3.2"}, {"gpu": "h200-sxm"}
    scenario = parse({"model": model, "precision": {"weights": "auto"}, "hardware": gpu, "parallel": parallel, "speculative": speculative})
    step = deployment.of(scenario).step_time
    shape = StepShape(256, 256 * 4000.0, 0, (), 256, 256 * 3)
    assert step(shape) == pytest.approx(sum(term.seconds for term in step.explain(shape)), rel=1e-9)
    with_chunk = StepShape(2, 2 * 4000.0, 0, ((512, 0), (512, 0)), 4, 6)
    assert step(with_chunk) == pytest.approx(sum(term.seconds for term in step.explain(with_chunk)), rel=1e-9)
