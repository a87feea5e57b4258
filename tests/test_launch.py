"""Launch and benchmark commands: every flag known to its engine, fractions that give the plan's pool back, valid manifests."""

import shlex
from dataclasses import asdict

import kubernetes_validate
import numpy as np
import pytest
import yaml

from planner import architecture, catalog, hardware, memory, presets, sharding, traces, workload
from planner.export import flags, kubernetes, launch, loadtest
from planner.export.yaml_text import yaml_text
from planner.measure import lengths as measured_lengths
from planner.problems import InputError
from planner.scenario import Scenario

PROGRAMS = {"vllm": "vllm serve", "sglang": "sglang", "trtllm": "trtllm-serve"}
CLIENTS = {"vllm bench serve": "vllm bench serve", "guidellm": "guidellm run", "aiperf": "aiperf profile"}


def plan_of(scenario: Scenario) -> dict:
    """The parts of a plan that a command needs."""
    arch, gpu = architecture.of(scenario.model), hardware.of(scenario.hardware)
    shard = sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware)
    return {"scenario": scenario.model_dump(mode="json"), "memory": asdict(memory.plan(arch, shard, gpu, scenario))}


def scenario_with(**parts: dict) -> Scenario:
    return Scenario.model_validate(parts)


def value_after(command: launch.Command, flag: str) -> str:
    return command.arguments[command.arguments.index(flag) + 1]


def complaints(arguments: tuple[str, ...] | list[str], known: flags.FlagList) -> list[str]:
    """What this program would refuse: unknown flags, values outside a closed choice, values missing or left over."""
    found = []
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--"):
            found.append(f"{flag!r} belongs to no flag")
        elif flag in known.switches:
            continue
        elif flag not in known.values:
            found.append(f"{flag} is not an argument of {known.program} {known.version}")
        elif not rest or rest[0].startswith("--"):
            found.append(f"{flag} needs a value")
        else:
            value, allowed = rest.pop(0), known.values[flag]
            if allowed and value not in allowed:
                found.append(f"{flag} {value} is not one of {', '.join(allowed)}")
            while flag in known.many and rest and not rest[0].startswith("--"):
                rest.pop(0)
    return found


@pytest.mark.parametrize("name", presets.names())
def test_every_flag_of_every_preset_is_in_the_published_list(name):
    for command in launch.commands(plan_of(presets.load(name))):
        for known in flags.flag_lists()[PROGRAMS[command.engine]]:
            assert complaints(command.arguments, known) == []
    for test in loadtest.load_tests(presets.load(name)):
        assert complaints(test.arguments, flags.flag_list(CLIENTS[test.client])) == []


def test_the_check_itself_refuses_what_an_engine_would():
    known = flags.flag_list("vllm serve", "0.19.0")
    wrong = ["--max-num-seq", "4", "--dtype", "int9", "--enforce-eager", "stray", "--port"]
    found = complaints(wrong, known)
    assert [f.split()[0] for f in found] == ["--max-num-seq", "'4'", "--dtype", "'stray'", "--port"]


def test_flag_lists_are_dated_and_the_nearest_older_version_is_taken():
    for lists in flags.flag_lists().values():
        assert all(found.source and found.date >= "2026" for found in lists)
    assert flags.flag_list("vllm serve", "0.20.1").version == "0.19.0"
    assert flags.flag_list("vllm serve", "0.40").version == "0.33.0"
    assert flags.flag_list("vllm serve", "0.1").version == "0.19.0"


def test_fractions_give_the_pool_back_under_each_engines_own_rule():
    scenario = scenario_with(model={"name": "llama-3.3-70b"}, precision={"weights": "fp8"}, parallel={"tensor_parallel_size": 2})
    plan = plan_of(scenario)
    m = plan["memory"]
    total, weights, pool = m["gpu_memory_bytes"], m["weights_bytes_per_gpu"], m["kv_pool_bytes_per_gpu"]
    reserves = m["activation_bytes_per_gpu"] + m["non_torch_bytes_per_gpu"]
    step = total * 10**-launch.FRACTION_DECIMALS
    assert launch.vllm_fraction(m) == scenario.engine.gpu_memory_utilization
    # SGLang: pool = free after loading − free before loading × (1 − fraction).
    before = total - m["non_torch_bytes_per_gpu"]
    sglang = (before - weights) - before * (1 - launch.sglang_fraction(m))
    # TensorRT-LLM: pool = free after weights and buffers × fraction.
    trtllm = (total - weights - reserves) * launch.trtllm_fraction(m)
    for given in (sglang, trtllm):
        assert pool - step <= given <= pool
    fractions = {launch.vllm_fraction(m), launch.sglang_fraction(m), launch.trtllm_fraction(m)}
    assert len(fractions) == 3
    by_engine = {c.engine: c for c in launch.commands(plan)}
    assert value_after(by_engine["vllm"], "--gpu-memory-utilization") == "0.9"
    assert float(value_after(by_engine["sglang"], "--mem-fraction-static")) == launch.sglang_fraction(m)
    assert float(value_after(by_engine["trtllm"], "--kv_cache_free_gpu_memory_fraction")) == launch.trtllm_fraction(m)


def test_a_plan_of_another_engine_converts_for_vllm_too():
    scenario = scenario_with(engine={"name": "sglang", "gpu_memory_utilization": 0.85})
    plan = plan_of(scenario)
    first, second, _ = launch.commands(plan)
    assert (first.engine, second.engine) == ("sglang", "vllm")
    assert float(value_after(second, "--gpu-memory-utilization")) == launch.vllm_fraction(plan["memory"])


def test_textbook_pools_are_never_turned_into_fractions():
    commands = launch.commands(plan_of(presets.load("beacon-405b-8xh100-fp8")))
    assert not any("fraction" in word for command in commands for word in command.arguments)
    assert all("textbook" in " ".join(command.notes) for command in commands)


def test_speculation_in_each_engines_words():
    scenario = scenario_with(
        model={"name": "llama-3.3-70b"},
        precision={"weights": "fp8"},
        parallel={"tensor_parallel_size": 4},
        speculative={"method": "draft_model", "draft_model": "llama-3.1-8b", "num_speculative_tokens": 3, "acceptance_rate": 0.7},
    )
    by_engine = {c.engine: c for c in launch.commands(plan_of(scenario))}
    config = value_after(by_engine["vllm"], "--speculative-config")
    assert yaml.safe_load(config) == {"method": "draft_model", "num_speculative_tokens": 3, "model": "meta-llama/Llama-3.1-8B-Instruct"}
    assert value_after(by_engine["sglang"], "--speculative-num-draft-tokens") == "4"
    extra = yaml.safe_load(by_engine["trtllm"].file_text)
    assert extra["speculative_config"] == {
        "decoding_type": "Draft_Target",
        "max_draft_len": 3,
        "speculative_model": "meta-llama/Llama-3.1-8B-Instruct",
    }


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "medusa", "ngram"])
def test_every_drafting_method_passes_the_lists(method):
    scenario = scenario_with(
        model={"name": "deepseek-v3"}, parallel={"tensor_parallel_size": 8}, speculative={"method": method, "acceptance_rate": 0.7}
    )
    plan = {"scenario": scenario.model_dump(mode="json"), "memory": None}
    for command in launch.commands(plan):
        assert complaints(command.arguments, flags.flag_list(PROGRAMS[command.engine])) == []


def test_disaggregated_pools_get_a_command_each():
    pool = {"gpu": "h100-sxm", "parallel": {"tensor_parallel_size": 2}}
    scenario = scenario_with(disaggregation={"prefill": pool | {"replicas": 3}, "decode": pool})
    plan = {"scenario": scenario.model_dump(mode="json"), "memory": None}
    commands = launch.commands(plan, "sglang")
    assert [value_after(c, "--disaggregation-mode") for c in commands] == ["prefill", "decode"]
    assert [r.replicas for r in launch.replicas(plan)] == [3, 1]


def test_data_parallel_ranks_share_limits_as_each_engine_counts_them():
    scenario = scenario_with(
        model={"name": "qwen3-30b-a3b"},
        parallel={"data_parallel_size": 4, "tensor_parallel_size": 2, "enable_expert_parallel": True},
        engine={"max_num_seqs": 64, "max_num_batched_tokens": 2048},
    )
    by_engine = {c.engine: c for c in launch.commands(plan_of(scenario))}
    assert value_after(by_engine["vllm"], "--max-num-seqs") == "64"
    sglang = by_engine["sglang"]
    asked = {
        f: value_after(sglang, f) for f in ("--tp-size", "--attn-dp-size", "--ep-size", "--max-running-requests", "--chunked-prefill-size")
    }
    assert asked == {
        "--tp-size": "8",
        "--attn-dp-size": "4",
        "--ep-size": "8",
        "--max-running-requests": "256",
        "--chunked-prefill-size": "8192",
    }
    assert value_after(by_engine["trtllm"], "--max_batch_size") == "64"
    assert yaml.safe_load(by_engine["trtllm"].file_text)["enable_attention_dp"] is True


def test_an_unknown_engine_is_one_sentence():
    with pytest.raises(InputError, match="vllm, sglang, trtllm"):
        launch.commands(plan_of(Scenario()), "tgi")


HOSTILE = "x'; rm -rf / #\n```\n<script>&\u2028"


@pytest.mark.parametrize("name", [HOSTILE, "--trust-remote-code", "a: [b", "yes", "=1+1"])
def test_a_label_stays_one_word_of_the_command_and_one_string_of_the_manifest(name):
    plan = plan_of(scenario_with(model={"name": name, "hf_config": catalog.model_config("llama-3.1-8b")}))
    for command in launch.commands(plan):
        words = shlex.split(command.text.replace(" \\\n", " "))
        assert tuple(words) == command.argv
        assert not any(word == name for word in words if name.startswith("--"))
    documents = list(yaml.safe_load_all(kubernetes.manifest(plan)))
    assert documents == kubernetes.objects(plan)


@pytest.mark.parametrize(
    "data", [{"a": [], "b": {}, "c": [{"d": [1, {"e": None}]}]}, {"no": "no", "1": "1", "x y": "\u0085 \u2028 \x7f é 😀 \t"}]
)
def test_yaml_reads_back(data):
    assert yaml.safe_load(yaml_text(data)) == data


@pytest.mark.parametrize("engine", launch.ENGINES)
@pytest.mark.parametrize("name", ["chat-70b-2xh100", "deepseek-v3-8xh200"])
def test_manifests_pass_the_published_schema(name, engine):
    scenario = presets.load(name)
    scenario = scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"name": engine})})
    plan = plan_of(scenario)
    found = list(yaml.safe_load_all(kubernetes.manifest(plan)))
    kinds = [d["kind"] for d in found]
    assert [k for k in kinds if k != "ConfigMap"] == ["Service", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"]
    for document in found:
        kubernetes_validate.validate(document, "1.37", strict=True)
    by_kind = {d["kind"]: d for d in found}
    deployment, scaler = by_kind["Deployment"]["spec"], by_kind["HorizontalPodAutoscaler"]["spec"]
    assert deployment["replicas"] == scenario.fleet.replicas + scenario.fleet.spares
    container = deployment["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(scenario.parallel.gpus)
    assert container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"] >= 3 * scenario.fleet.startup_s
    metrics = [m["pods"]["metric"]["name"] for m in scaler["metrics"]]
    assert metrics == [name.replace(":", "_") for name in kubernetes.METRICS[engine]]
    assert scaler["minReplicas"] > scenario.fleet.spares


def test_the_schema_checker_refuses_a_wrong_manifest():
    service = kubernetes.objects(plan_of(Scenario()))[0]
    service["spec"]["prots"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, "1.37", strict=True)


def test_a_replica_over_several_servers_becomes_a_group_with_one_leader():
    plan = plan_of(presets.load("beacon-405b-16xh100-bf16"))
    group = next(d for d in kubernetes.objects(plan) if d["kind"] == "LeaderWorkerSet")
    set_of = group["spec"]["leaderWorkerTemplate"]
    assert set_of["size"] == 2
    assert "--headless" in set_of["workerTemplate"]["spec"]["containers"][0]["args"]
    for part in ("leaderTemplate", "workerTemplate"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **set_of[part]["metadata"]}, "spec": set_of[part]["spec"]}
        kubernetes_validate.validate(pod, "1.37", strict=True)
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_closed_loop_and_sessions_reach_the_benchmark_commands():
    scenario = scenario_with(workload={"request_rate": None, "max_concurrency": 32, "turns": 5, "shared_prefix_len": 100, "input_len": 500})
    half = loadtest.load(scenario, 0.5)
    assert (half.max_concurrency, half.request_rate) == (16, None)
    bench, guide, perf = loadtest.load_tests(scenario, half)
    assert "--max-concurrency 16" in bench.text
    assert "--random-prefix-len 100" in bench.text
    assert "--random-input-len 400" in bench.text
    assert "kind=concurrent,streams=16" in guide.text
    assert "turns=5" in guide.text
    assert "--concurrency 16" in perf.text
    assert any("single turns" in note for note in bench.notes)


HEAVY = {"kind": "lognormal", "mean": 1130, "cv": 1.9}
SHAPES = [
    {"input_len": HEAVY, "output_len": {"kind": "lognormal", "mean": 28, "cv": 1.5}},
    {"input_len": HEAVY | {"max": 3000}, "output_len": 300, "shared_prefix_len": 400, "prefix_groups": 3},
    {
        "input_len": {"kind": "uniform", "mean": 900, "half_width": 0.4},
        "output_len": HEAVY,
        "max_output_len": 500,
        "shared_prefix_len": 200,
    },
    {
        "input_len": {"kind": "percentiles", "points": [[0, 10], [0.5, 200], [1, 9000]]},
        "output_len": {"kind": "empirical", "values": [5, 5, 900]},
    },
    {"trace": {"name": "azure-2023-code"}, "request_rate": None},
]


def drawn_tokens(scenario: Scenario) -> tuple[float, float, float]:
    """Shared prefix, rest of the prompt and output as the workload itself draws them, means over many requests."""
    many = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"num_prompts": 100_000})})
    recorded = traces.get(many.workload.trace) if many.workload.trace else None
    drawn = workload.requests(many.workload, 0, trace=recorded)
    shared = 0 if scenario.workload.trace else round(scenario.workload.shared_prefix_len)
    return shared, float(drawn.input_tokens.mean()) - shared, float(drawn.output_tokens.mean())


@pytest.mark.parametrize("shape", SHAPES)
def test_every_client_sends_the_mean_lengths_that_the_plan_draws(shape):
    scenario = scenario_with(workload=shape)
    shared, prompt, output = drawn_tokens(scenario)
    bench, guide, perf = loadtest.load_tests(scenario)
    assert float(value_after(bench, "--random-input-len")) == pytest.approx(prompt, rel=0.02)
    assert float(value_after(bench, "--random-output-len")) == pytest.approx(output, rel=0.02)
    data = dict(word.split("=") for word in value_after(guide, "--data").split(","))
    assert int(data.get("prefix_tokens", 0)) == shared
    assert guidellm_mean(data, "prompt_tokens") == pytest.approx(prompt, rel=0.03)
    assert guidellm_mean(data, "output_tokens") == pytest.approx(output, rel=0.03)
    pairs = [p.split(":")[0].split(",") for p in value_after(perf, "--sequence-distribution").split(";")]
    assert sum(float(p.split(":")[1]) for p in value_after(perf, "--sequence-distribution").split(";")) == 100
    assert sum(int(a) for a, _ in pairs) / len(pairs) == pytest.approx(prompt, rel=0.02)
    assert sum(int(b) for _, b in pairs) / len(pairs) == pytest.approx(output, rel=0.02)
    assert value_after(perf, "--num-dataset-entries") == value_after(perf, "--request-count")
    assert any("Lengths" in note for note in guide.notes)


def guidellm_mean(data: dict[str, str], name: str) -> float:
    """Mean of what guidellm draws: even between the ends without a spread, else normal and moved to the ends (its utils/random.py)."""
    mean, low, high = float(data[name]), data.get(f"{name}_min"), data.get(f"{name}_max")
    rng = np.random.default_rng(1)
    if f"{name}_stdev" in data:
        return float(np.clip(rng.normal(mean, float(data[f"{name}_stdev"]), 200_000), float(low), float(high)).mean())
    return (float(low) + float(high)) / 2 if low else mean


def test_the_spread_that_is_sent_is_said():
    scenario = scenario_with(workload={"input_len": HEAVY, "output_len": 100})
    bench, guide, perf = loadtest.load_tests(scenario)
    assert "plan has 2,14" in guide.notes[0]
    assert "standard deviation" in guide.notes[0]
    assert "one length each" in bench.notes[0]
    assert "20 pairs" in perf.notes[0]
    narrow = scenario_with(workload={"input_len": {"kind": "lognormal", "mean": 1000, "cv": 0.1}, "output_len": 100})
    assert "the plan's mean and standard deviation" in loadtest.load_tests(narrow)[1].notes[0]
    fixed = loadtest.load_tests(scenario_with(workload={"input_len": 1000, "output_len": 100}))
    assert [test.notes for test in fixed] == [(), (), ()]
    assert "--isl 1000" in fixed[2].text


@pytest.mark.parametrize(("mean", "stdev", "low", "high"), [(1130, 2148, 1, 12000), (200, 199, 26, 800), (50, 500, 10, 60)])
def test_a_clamped_normal_has_the_mean_and_spread_that_are_stated(mean, stdev, low, high):
    wanted = min(mean, (low + high) / 2)
    start = measured_lengths.normal_for(wanted, stdev, low, high)
    draws = np.clip(np.random.default_rng(0).normal(start, stdev, 400_000), low, high)
    assert draws.mean() == pytest.approx(wanted, rel=0.01)
    assert draws.std() == pytest.approx(measured_lengths.clamped_stdev(start, stdev, low, high), rel=0.01)


def test_even_lengths_need_no_excuse_and_a_ratio_below_one():
    whole = {"kind": "uniform", "mean": 300, "half_width": 1.0}
    bench, *_ = loadtest.load_tests(scenario_with(workload={"input_len": whole, "output_len": whole}))
    assert value_after(bench, "--random-range-ratio") == "0.999"
    assert bench.notes == ()
    mixed, *_ = loadtest.load_tests(scenario_with(workload={"input_len": whole, "output_len": HEAVY}))
    assert "even draws around the means" in mixed.notes[0]
