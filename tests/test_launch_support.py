"""A launch that runs: KV blocks the kernels take, an engine that knows the model, a build for the accelerator, a fleet that can scale."""

from dataclasses import asdict

import kubernetes_validate
import pytest
import yaml

from planner import architecture, catalog, hardware, memory, sharding
from planner.catalog.engine_memory import version_key
from planner.export import flags, kubernetes, launch, support
from planner.problems import InputError
from planner.scenario import Hardware, Model, Scenario


def plan_of(**parts: dict) -> dict:
    """A plan that says nothing of memory, which no test here needs."""
    return {"scenario": Scenario.model_validate(parts).model_dump(mode="json"), "memory": None}


def command(of: str, **parts: dict) -> launch.Command:
    return launch.commands(plan_of(**parts), of)[0]


def value_after(found: launch.Command, flag: str) -> str | None:
    return found.arguments[found.arguments.index(flag) + 1] if flag in found.arguments else None


@pytest.mark.parametrize(
    ("model", "gpu", "planned", "asked", "takes"),
    [
        ("llama-3.1-8b", "h100-sxm", 16, "16", None),
        ("llama-3.1-8b", "h100-sxm", 32, "32", None),
        ("gpt-oss-120b", "b200-sxm", 16, "16", None),
        ("deepseek-v3", "h200-sxm", 16, "64", "32 or 64"),
        ("deepseek-v3", "b200-sxm", 32, "32", None),
        ("deepseek-v3.2", "h200-sxm", 16, "64", "64"),
        ("deepseek-v3.2", "b200-sxm", 32, "64", "64"),
        ("glm-5.2", "b200-sxm", 16, "64", "64"),
        ("glm-5", "mi355x", 16, "1", "1"),
        ("kimi-k2.6", "b200-sxm", 16, "64", "32 or 64"),
        ("deepseek-v4-pro", "b200-sxm", 16, "256", "256"),
        ("minimax-m3", "h200-sxm", 16, "128", "128"),
        ("qwen3-next-80b-a3b", "h100-sxm", 16, None, "recurrent"),
        ("kimi-k3", "b200-sxm", 16, None, "recurrent"),
    ],
)
def test_kv_blocks_are_those_that_the_kernels_take(model, gpu, planned, asked, takes):
    parts = {"model": {"name": model}, "hardware": {"gpu": gpu}, "engine": {"block_size": planned}}
    found = command("vllm", **parts)
    assert value_after(found, "--block-size") == asked
    notes = " ".join(found.notes)
    assert ("blocks" in notes) is (takes is not None)
    if takes:
        assert takes in notes
        assert f"{planned}" in notes
    kind = support.attention_kind(Model(name=model))
    if gpu != "mi355x":
        sglang, trtllm = command("sglang", **parts), command("trtllm", **parts)
        assert ("--page-size" in sglang.arguments) is (kind == "full")
        assert ("tokens_per_block" in yaml.safe_load(trtllm.file_text)["kv_cache_config"]) is (kind == "full")


def test_every_model_of_the_catalogue_has_a_kind_and_the_facts_are_dated():
    kinds = {slug: support.attention_kind(Model(name=slug)) for slug in ("llama-3.1-8b", "deepseek-v4-flash", "glm-5.1", "jamba-v0.1")}
    assert list(kinds.values()) == ["full", "compressed", "sparse_mla", "hybrid"]
    facts = support._facts()
    for row in [*facts["vllm_versions"]["rows"], *facts["vllm_blocks"]["rows"]]:
        assert row["date"] >= "2026"
    assert {row["model"] for row in facts["vllm_versions"]["rows"]} <= set(catalog.models())


@pytest.mark.parametrize(
    ("model", "version", "told", "image"),
    [
        ("deepseek-v4-pro", "0.19.0", "older than known to serve this: the recipe for deepseek-v4-pro asks for 0.20.0", "v0.20.0"),
        ("kimi-k3", "0.19.0", "asks for 0.27.1", "v0.27.1"),
        ("kimi-k3", "0.28.0", "", "v0.28.0"),
        ("kimi-k3", "nightly", "", "nightly"),
        ("llama-3.1-8b", "0.19.0", "", "v0.19.0"),
        # Of the same architecture as a model with a recipe.
        ("gemma-4-26b-a4b", "0.19.0", "the architecture of gemma-4-26b-a4b asks for 0.19.1", "v0.19.1"),
    ],
)
def test_an_engine_too_old_for_the_model_is_said_and_not_launched(model, version, told, image):
    parts = {"model": {"name": model}, "hardware": {"gpu": "b200-sxm"}, "engine": {"version": version}}
    notes = " ".join(command("vllm", **parts).notes)
    assert told in notes
    assert ("older than known" in notes) is bool(told)
    assert kubernetes.image(Scenario.model_validate(parts)) == f"vllm/vllm-openai:{image}"
    if told:
        assert "2026-" in notes
        assert "Plan again" in notes


def test_a_pasted_configuration_is_known_by_its_architecture():
    config = catalog.model_config("deepseek-v4-flash")
    pasted = {"model": {"name": "ours", "hf_config": config}, "hardware": {"gpu": "b200-sxm"}}
    notes = " ".join(command("vllm", **pasted).notes)
    assert "the architecture of ours asks for 0.20.0" in notes
    unknown = {"model": {"name": "ours", "hf_config": catalog.model_config("llama-3.1-8b") | {"model_type": "brand_new"}}}
    assert "No recipe of this architecture is known" in " ".join(command("vllm", **unknown).notes)


def test_flags_of_a_moving_version_are_the_newest():
    assert flags.flag_list("vllm serve", "nightly") == flags.flag_list("vllm serve")


@pytest.mark.parametrize("gpu", ["tpu-v6e", "trainium2", "gaudi3"])
def test_accelerators_without_an_image_here_get_no_manifest_and_a_reason(gpu):
    plan = plan_of(hardware={"gpu": gpu})
    assert [c.engine for c in launch.commands(plan)] == ["vllm"]
    assert kubernetes.objects(plan) == []
    assert gpu in kubernetes.why_none(plan)
    assert "plug-in" in " ".join(launch.commands(plan)[0].notes) or "vllm-tpu" in " ".join(launch.commands(plan)[0].notes)
    assert "no build" in launch.why_not(plan, "trtllm")


@pytest.mark.parametrize(
    ("gpu", "engine", "image"),
    [
        ("mi300x", "vllm", "vllm/vllm-openai-rocm:v0.19.0"),
        ("mi325x", "sglang", "lmsysorg/sglang:v0.5.23-rocm700-mi30x"),
        ("mi355x", "sglang", "lmsysorg/sglang:v0.5.23-rocm700-mi35x"),
        ("h100-sxm", "sglang", "lmsysorg/sglang:v0.5.23"),
        ("l4", "trtllm", "nvcr.io/nvidia/tensorrt-llm/release:latest"),
    ],
)
def test_images_are_built_for_the_accelerator(gpu, engine, image):
    plan = plan_of(hardware={"gpu": gpu}, engine={"name": engine})
    deployment = next(d for d in kubernetes.objects(plan) if d["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == image
    assert ("amd.com/gpu" in container["resources"]["limits"]) is gpu.startswith("mi")


@pytest.mark.parametrize(("gpu", "engine"), [("mi300x", "trtllm"), ("t4", "trtllm"), ("mi250x", "sglang"), ("tpu-v5e", "sglang")])
def test_an_engine_that_does_not_serve_the_accelerator_has_no_command(gpu, engine):
    plan = plan_of(hardware={"gpu": gpu}, engine={"name": engine})
    assert engine not in [c.engine for c in launch.commands(plan)]
    assert kubernetes.manifest(plan) == ""
    with pytest.raises(InputError, match=f"engine {engine!r} does not serve {gpu}"):
        launch.commands(plan, engine)
    assert "does not serve this accelerator" in kubernetes.why_none(plan)


@pytest.mark.parametrize(("weights", "dtype"), [("bf16", "float16"), ("auto", "float16"), ("int8", "float16"), ("fp32", "float32")])
def test_turing_computes_in_float16(weights, dtype):
    for engine in ("vllm", "sglang"):
        found = command(engine, hardware={"gpu": "t4"}, precision={"weights": weights})
        assert value_after(found, "--dtype") == dtype
        assert ("no bfloat16" in " ".join(found.notes)) is (dtype == "float16")
    assert value_after(command("vllm", hardware={"gpu": "l4"}), "--dtype") == "bfloat16"


def test_each_pool_of_a_disaggregated_plan_converts_its_own_memory():
    pool = {"gpu": "h100-sxm", "parallel": {"tensor_parallel_size": 2}}
    parts = {"model": {"name": "llama-3.3-70b"}, "precision": {"weights": "fp8"}, "engine": {"name": "sglang"}}
    split = {"prefill": pool | {"parallel": {"tensor_parallel_size": 4}, "engine": {"name": "sglang"}}, "decode": pool}
    s = Scenario.model_validate(parts | {"disaggregation": split})
    arch, gpu = architecture.of(s.model), hardware.of(s.hardware)
    seen = s.model_copy(update={"parallel": s.disaggregation.decode.parallel, "engine": s.disaggregation.decode.engine})
    decode = memory.plan(arch, sharding.shard(arch, seen.parallel, s.precision, gpu, s.hardware), gpu, seen)
    plan = {"scenario": s.model_dump(mode="json"), "memory": asdict(decode)}
    first, second = launch.commands(plan, "sglang")
    assert first.role == "prefill"
    fractions = [float(value_after(c, "--mem-fraction-static")) for c in (first, second)]
    assert all(0.5 < f < 1 for f in fractions)
    assert not any("left to the engine: the KV pool" in " ".join(c.notes) for c in (first, second))
    prefill = launch.replicas(plan)[0].memory
    assert prefill["weights_bytes_per_gpu"] < decode.weights_bytes_per_gpu


@pytest.mark.parametrize(
    ("fleet", "sizes"),
    [
        ({"replicas": 2}, (1, 4)),
        ({"replicas": 1, "spares": 1}, (2, 3)),
        ({"replicas": 3, "spares": 1, "min_replicas": 2, "max_replicas": 9}, (3, 10)),
        ({"replicas": 2, "min_replicas": 12}, None),
        ({"replicas": 2, "min_replicas": 2, "max_replicas": 2}, None),
        ({"replicas": 1, "min_replicas": 0, "max_replicas": 1}, None),
    ],
)
def test_an_autoscaler_can_scale_or_is_not_there(fleet, sizes):
    plan = plan_of(fleet=fleet)
    found = [d["spec"] for d in kubernetes.objects(plan) if d["kind"] == "HorizontalPodAutoscaler"]
    assert [(f["minReplicas"], f["maxReplicas"]) for f in found] == ([sizes] if sizes else [])
    (deployment,) = [d["spec"] for d in kubernetes.objects(plan) if d["kind"] == "Deployment"]
    fixed = max(fleet["replicas"], fleet["min_replicas"]) if sizes is None else 0
    assert deployment["replicas"] == fixed if sizes is None else sizes[0] <= deployment["replicas"] <= sizes[1]
    told = kubernetes.threshold_notes(plan)[0]
    assert f"{sizes[0]} to {sizes[1]} replicas" in told if sizes else "no autoscaler" in told
    for document in kubernetes.objects(plan):
        kubernetes_validate.validate(document, "1.37", strict=True)


def test_versions_that_are_none_are_refused_with_the_known_ones():
    scenario = Scenario.model_validate({"engine": {"version": "banana"}})
    arch, gpu = architecture.of(scenario.model), hardware.of(Hardware())
    shard = sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware)
    with pytest.raises(InputError, match=r"engine.version 'banana' is no version; .*0\.8, 0\.17, 0\.21"):
        memory.plan(arch, shard, gpu, scenario)
    assert version_key("banana") == ()
