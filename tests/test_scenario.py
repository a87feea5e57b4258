"""The scenario is strict, frozen, hashable, documented, and says what is wrong in one sentence."""

import json
import re
from typing import ClassVar

import pytest
from hostile import one_sentence
from pydantic import BaseModel

from planner.problems import InputError
from planner.scenario import Lengths, Scenario, mean_length, parse, set_path
from planner.scenario.docs import descriptions
from planner.scenario.errors import known_paths, section_of


def sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [s for f in model.model_fields.values() if (s := section_of(f.annotation))]
    return [model, *(deep for s in inner for deep in sections(s))]


def test_every_field_has_a_default_and_everything_but_sections_a_description() -> None:
    for section in sections(Scenario):
        for name, field in section.model_fields.items():
            assert not field.is_required(), f"{section.__name__}.{name} has no default"
            assert descriptions(section).get(name) or section_of(field.annotation), f"{section.__name__}.{name} has no docstring"


def test_equal_scenarios_hash_alike_and_json_round_trips() -> None:
    data = {
        "model": {"hf_config": {"b": [1, {"c": None}], "a": 1}},
        "workload": {"input_len": {"kind": "uniform", "mean": 10, "half_width": 0.1}},
    }
    one = parse(data)
    two = Scenario.model_validate_json(one.model_dump_json())
    assert one == two
    assert hash(one) == hash(two)
    assert json.loads(one.model_dump_json())["model"]["hf_config"] == {"a": 1, "b": [1, {"c": None}]}


def test_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Scenario().engine.max_num_seqs = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        parse({"model": {"hf_config": {}}}).model.hf_config.text = "x"  # type: ignore[union-attr,misc]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"model": {"nam": "x"}}, ["model.nam", "did you mean model.name"]),
        ({"max_num_seqs": 3}, ["did you mean engine.max_num_seqs"]),
        ({"parallel": {"tensor_parallel_size": 0}}, ["parallel.tensor_parallel_size = 0", "greater than or equal to 1"]),
        ({"engine": {"gpu_memory_utilization": 1.5}}, ["engine.gpu_memory_utilization = 1.5"]),
        ({"precision": {"weights": "fp7"}}, ["precision.weights", "'fp8'"]),
        ({"workload": {"request_rate": float("nan")}}, ["workload.request_rate"]),
        ({"workload": {"request_rate": None}}, ["request_rate", "max_concurrency"]),
        ({"workload": {"input_len": {"kind": "lognormal", "mean": 3}}}, ["workload.input_len", "cv"]),
        ({"speculative": {"num_speculative_tokens": 2, "acceptance_rates": [0.2, 0.4]}}, ["must not increase"]),
        ({"schema_version": 99}, ["schema_version = 99"]),
        ([], ["JSON object"]),
        (None, ["JSON object"]),
    ],
)
def test_wrong_input_is_told_in_one_sentence(data: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse(data)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_set_path_creates_sections_inside_one_that_is_off() -> None:
    split = set_path(Scenario(), "disaggregation.decode.replicas", 3).disaggregation
    assert split is not None
    assert split.decode.replicas == 3
    with pytest.raises(InputError, match="did you mean speculative"):
        set_path(Scenario(), "speculativ.method", "ngram")
    with pytest.raises(InputError, match=r"did you mean disaggregation\.prefill"):
        set_path(Scenario(), "disaggregation.prefil.replicas", 3)


def test_set_path_creates_null_sections_and_validates() -> None:
    changed = set_path(Scenario(), "speculative.num_speculative_tokens", 5)
    assert changed.speculative is not None
    assert changed.speculative.num_speculative_tokens == 5
    for path in ("speculative.method.x", "engine.nothing", "nothing.at.all", ""):
        with pytest.raises(InputError):
            set_path(Scenario(), path, 1)


def test_known_paths_reach_into_optional_sections() -> None:
    paths = known_paths(Scenario)
    assert {"speculative.acceptance_rates", "disaggregation.prefill.parallel.tensor_parallel_size", "hardware.overrides.memory_gib"} <= set(
        paths
    )
    assert len(paths) == len(set(paths))


def test_gpus_counts_replicas_and_both_pools() -> None:
    assert parse({"parallel": {"tensor_parallel_size": 4, "data_parallel_size": 2}, "fleet": {"replicas": 3, "spares": 5}}).gpus == 24
    pools = {"prefill": {"replicas": 2}, "decode": {"replicas": 3, "parallel": {"tensor_parallel_size": 2}}}
    assert parse({"disaggregation": pools}).gpus == 8


@pytest.mark.parametrize(
    ("length", "mean"),
    [
        (7, 7.0),
        (Lengths(kind="uniform", mean=10, half_width=0.5), 10.0),
        (Lengths(kind="percentiles", points=((0.0, 0.0), (0.5, 10.0), (1.0, 30.0))), 12.5),
        (Lengths(kind="empirical", values=(1, 2, 9), max=5), 8 / 3),
        (Lengths(kind="lognormal", mean=100, cv=2), 100.0),
    ],
)
def test_mean_length(length: float | Lengths, mean: float) -> None:
    assert mean_length(length) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("length", "cut"),
    [
        (Lengths(kind="lognormal", mean=1000, cv=2, max=1200), float("inf")),
        (Lengths(kind="lognormal", mean=1000, cv=1.5), 1000),
        (Lengths(kind="uniform", mean=100, half_width=0.8), 60),
        (Lengths(kind="percentiles", points=((0.0, 10.0), (0.5, 100.0), (0.9, 1000.0))), 400),
        (Lengths(kind="empirical", values=(1, 5, 900)), 100),
        (50, 20),
    ],
)
def test_mean_of_a_cut_distribution_is_the_mean_of_its_draws(length: float | Lengths, cut: float) -> None:
    import numpy as np

    from planner.workload.draws import draw_lengths

    drawn = np.minimum(draw_lengths(np.random.default_rng(3), length, 200_000), cut)
    assert mean_length(length, cut) == pytest.approx(drawn.mean(), rel=0.02)


class TestAPastedModelHasItsOwnName:
    """Under the default slug its plan would show another model's title, list prices, measured rows and repository."""

    config: ClassVar = {"model_type": "qwen2", "hidden_size": 1024}

    @pytest.mark.parametrize(
        ("more", "name"),
        [
            ({}, "pasted-qwen2"),
            ({"model_type": None}, "pasted-config"),
            ({"_name_or_path": "Qwen/Qwen2.5-72B-Instruct"}, "Qwen2.5-72B-Instruct"),
            ({"_name_or_path": "/data/my runs/step 5/"}, "step-5"),
            ({"_name_or_path": "--x; rm -rf $HOME"}, "x-rm-rf-HOME"),
            ({"_name_or_path": "org/llama-3.1-8b"}, "pasted-qwen2"),
            ({"_name_or_path": 7}, "pasted-qwen2"),
        ],
    )
    def test_from_where_it_came_or_its_kind(self, more, name):
        assert parse({"model": {"hf_config": {**self.config, **more}}}).model.name == name

    def test_a_chosen_name_stays(self):
        assert parse({"model": {"hf_config": self.config, "name": "mine"}}).model.name == "mine"

    def test_written_out_and_read_again(self):
        one = parse({"model": {"hf_config": self.config}})
        assert parse(one.model_dump(mode="json")) == one

    def test_set_on_a_preset_and_taken_away_again(self):
        other = set_path(parse({"model": {"name": "llama-3.3-70b"}}), "model.hf_config", self.config)
        assert other.model.name == "pasted-qwen2"
        assert set_path(other, "model.hf_config", None).model.name == "llama-3.1-8b"
        mine = parse({"model": {"hf_config": self.config, "name": "mine"}})
        assert set_path(mine, "model.hf_config", {"model_type": "llama"}).model.name == "mine"


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"model": {"hf_config": "x"}}, "model.hf_config"),
        ({"model": {"hf_config": [1]}}, "model.hf_config"),
        ({"workload": {"priority_classes": [1]}}, "workload.priority_classes.0"),
        ({"engine": {"kv_offload": [3]}}, "engine.kv_offload.0"),
    ],
)
def test_no_class_of_ours_is_named_to_a_person(data: dict, path: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(data)
    told = str(caught.value)
    assert told.startswith(f"{path} = ")
    assert "an object in braces" in told
    assert not any(word in told for word in ("FrozenJson", "instance of", "PriorityClass", "OffloadTier"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"fleet": {"replicas": True}}, "replicas should be a number, not true"),
        ({"fleet": {"demand_curve": [1] * 200}}, "it should have at most 168 items, not 200"),
        ({"fleet": {"replicas": "1,5"}}, "fleet.replicas = '1,5' cannot be used: it should be a whole number"),
        ({"price": {"as_of": "2026-02-30"}}, "it should be a day such as"),
        ({"price": {"compare_to": "x"}}, "it should be a list"),
        ({"name": 5}, "it should be text"),
    ],
)
def test_types_are_told_in_words(data: dict, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        parse(data)


@pytest.mark.parametrize("config", [{1: 2, "a": 3}, {"a": {1}}, {"a": b"x"}, {"a": 10**5000}, {(1, 2): 3}], ids=range(5))
def test_a_configuration_of_what_json_has_not_is_refused(config: dict) -> None:
    with pytest.raises(InputError, match=r"model\.hf_config = .* no JSON file can hold"):
        parse({"model": {"hf_config": config}})


@pytest.mark.parametrize("data", [None, [], 5, "chat", {"workload": {"seed": 10**5000}}, {1: 2}], ids=range(6))
def test_what_is_no_scenario_is_one_sentence(data: object) -> None:
    with pytest.raises(InputError) as refused:
        parse(data)
    one_sentence(str(refused.value))


def test_a_configuration_of_a_million_characters_is_refused() -> None:
    with pytest.raises(InputError, match=r"model.hf_config .* characters, more than the 1,000,000"):
        parse({"model": {"hf_config": {f"k{i:05}": 123 for i in range(100_000)}}})
