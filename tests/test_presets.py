"""Presets: validated by the same model, named by slugs, saved whole or not at all."""

import json

import pytest

from planner import presets
from planner.problems import InputError
from planner.scenario import Scenario, parse


@pytest.mark.parametrize("name", presets.names())
def test_every_shipped_preset_loads_and_says_what_it_is_for(name):
    scenario = presets.load(name)
    assert 10 < len(scenario.name) < 80
    assert 40 < len(scenario.notes) < 300
    assert presets.from_text(presets.to_text(scenario)) == (scenario, ())


def test_the_worked_example_ships():
    for layout, gpus in (("8xh100-fp8", 8), ("16xh100-bf16", 16), ("8xh100-int4", 8)):
        scenario = presets.load(f"beacon-405b-{layout}")
        assert scenario.fidelity == "textbook"
        assert scenario.model.total_params == 405_000_000_000
        assert scenario.gpus == gpus
        assert (scenario.workload.input_len, scenario.workload.output_len, scenario.price.usd_per_gpu_hour) == (4000, 4192, 3)
        assert scenario.precision.kv_cache == "fp8"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "a\\b", "", ".hidden", "A", "a" * 81, "a b", "nul\x00"])
def test_a_name_is_never_a_path(tmp_path, name):
    with pytest.raises(InputError, match="not usable"):
        presets.save(name, Scenario(), tmp_path)
    with pytest.raises(InputError, match="no preset"):
        presets.load(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_saving_and_loading(tmp_path):
    mine = Scenario(name="Mine")
    assert presets.save("mine", mine, tmp_path).name == "mine.json"
    assert presets.names(tmp_path) == ["mine"]
    assert presets.load("mine", tmp_path) == mine
    with pytest.raises(InputError, match="already"):
        presets.save("mine", mine, tmp_path)
    presets.save("mine", Scenario(name="Other"), tmp_path, replace=True)
    assert presets.load("mine", tmp_path).name == "Other"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be saved in file/"):
        presets.save("mine", Scenario(), tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a scenario"),
        ('{"model": {"nam": "x"}}', "did you mean model.name?"),
        ('{"schema_version": 99}', "newer"),
        ('{"model": {"hf_config": ' + '{"a":' * 50 + "1" + "}" * 52, "levels inside each other"),
        (b"\xff\xfe", "not JSON"),
        (" " * 1_000_001, "larger"),
    ],
)
def test_a_wrong_file_is_said_in_one_sentence(text, reason):
    with pytest.raises(InputError, match=reason) as caught:
        presets.from_text(text)
    assert "\n" not in str(caught.value)


def test_an_exported_plan_opens_as_its_scenario():
    assert presets.from_text(json.dumps({"scenario": {"name": "x"}, "cost": None}))[0] == parse({"name": "x"})


def test_a_missing_or_binary_file_is_said_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        presets.read(tmp_path / "none.json")
    (tmp_path / "x.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        presets.read(tmp_path / "x.json")
