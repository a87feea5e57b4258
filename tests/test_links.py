"""Links: every scenario survives the trip, every hostile value costs one note and nothing else."""

import base64
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import links, migrate, presets
from planner.links import packing
from planner.links.fields import leaves
from planner.problems import InputError
from planner.scenario import FrozenJson, Lengths, Scenario, parse

RICH = parse(
    {
        "name": "a & b = c? #1, <b>",
        "model": {"name": "mine", "hf_config": {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "a.b": {"c": [1, 2.5, None]}}},
        "engine": {"kv_offload": [{"tier": "ssd", "gib": 500, "gb_s": 6.5}, {}], "enforce_eager": True, "max_model_len": 8192},
        "speculative": {"num_speculative_tokens": 2, "acceptance_rates": [0.6, 0.35]},
        "disaggregation": {"prefill": {"replicas": 3, "engine": {"max_num_seqs": 4}}, "decode": {"parallel": {"tensor_parallel_size": 2}}},
        "fleet": {"demand_curve": [float(h % 24) for h in range(168)], "commitments": [{"share": 0.5}, {"basis": "spot", "gpus": 8}]},
        "workload": {
            "request_rate": None,
            "max_concurrency": 7,
            "input_len": {"kind": "percentiles", "points": [[0, 10], [0.5, 100], [1, 4000]]},
            "trace": {"name": "mine", "content_hash": "ab" * 32},
            "priority_classes": [{"share": 0.2, "priority": -1, "slo": {"ttft_s": None}}],
        },
        "slo": {"ttft_s": None, "percentile": 99},
        "price": {"owned": {"years": 4}, "compare_to": ["openai:gpt-5, large", {"label": "ours", "output": 1.5}], "as_of": "2026-11-29"},
        "quality": {"allowed_weight_precisions": []},
        "calibration": {"factor": 1.2},
    }
)


@pytest.mark.parametrize("scenario", [Scenario(), RICH, *map(presets.load, presets.names())], ids=lambda s: s.name or "defaults")
def test_a_scenario_survives_the_trip_through_its_link(scenario):
    assert links.decode(links.encode(scenario)) == (scenario, ())
    assert links.decode(links.url("http://127.0.0.1:8501/compare?old=1", links.share(scenario))) == (scenario, ())


def test_the_default_scenario_needs_no_query_and_a_shared_link_states_version_and_price_date():
    assert links.encode(Scenario()) == {}
    assert links.share(Scenario(), "2026-11-29") == {"schema_version": "1", "price.as_of": "2026-11-29"}


def test_keys_are_dotted_paths_and_values_are_readable():
    query = links.encode(RICH)
    assert query["engine.max_model_len"] == "8192"
    assert "speculative" not in query
    assert links.encode(parse({"speculative": {}})) == {"speculative": "true"}
    assert query["speculative.acceptance_rates"] == "0.6,0.35"
    assert "workload.request_rate" not in query
    assert query["workload.max_concurrency"] == "7"
    assert query["slo.ttft_s"] == "0"
    assert query["disaggregation.prefill.engine.max_num_seqs"] == "4"


BAD = {
    "engine.max_num_seqs=7.5": "it should be a whole number",
    "engine.max_num_seqs=": "256 is used instead",
    "engine.max_num_seqs=9&engine.max_num_seqs=10": "given 2 times",
    "engine.max_num_seqs=0": "greater than or equal to 1",
    "engine.name=vlm": "did you mean vllm?",
    "hardware.gpu=h1000": "nearest is h100-sxm",
    "hardware.gpu=![a](//host/x)": "catalogue does not hold it",
    "model.name=llama-3.1-9b": "nearest is llama-3.1-8b",
    "workload.request_rate=nan": "finite",
    "workload.request_rate=1e999": "finite",
    "workload.request_rate=-1": "greater than or equal to 0",
    "tensor_parallel_size=4": "did you mean parallel.tensor_parallel_size?",
    "engine.max_num_seq=4": "did you mean engine.max_num_seqs?",
    "model=x": "did you mean model.name?",
    "zz=1": "is not a setting",
    "speculative=perhaps": "true or false",
    "speculative.acceptance_rates=0.5,0.6,0.7": "must not increase",
    "workload.request_rate=": "give request_rate",
    'workload.input_len={"kind":"lognormal"}': "cannot be used",
    "workload.input_len={": "not an object in JSON",
    "workload.input_len={" + '"a":{' * 5000: "not an object in JSON",
    "model.hf_config=eJx": "cut short",
    "model.hf_config=%25%25": "not a packed config.json",
    "model.hf_config=[]": "not a packed config.json",
    "model.hf_config=sha256:00": "paste the file itself",
    "quality.allowed_weight_precisions=bf16,x": "it should be",
    "price.as_of=tomorrow": "a day such as",
    "preset=../../etc/passwd": "no preset",
    "preset=beacon-405b": "did you mean beacon-405b-",
    "schema_version=99": "newer than this planner",
    "schema_version=-1": "not a version",
    "a" * 40_000 + "=1": "at most 32,000",
    "&".join(f"x{i}=1" for i in range(500)): "more than 400 settings",
}


@pytest.mark.parametrize("query", BAD, ids=[q[:40] for q in BAD])
def test_a_bad_value_costs_one_note_and_falls_back_to_the_default(query):
    scenario, notes = links.decode(query)
    assert scenario == Scenario()
    assert len(notes) == 1
    assert BAD[query] in notes[0]
    assert len(notes[0]) < 400


def test_good_values_beside_bad_ones_are_kept():
    scenario, notes = links.decode("engine.max_num_seqs=64&hardware.gpu=nope&parallel.tensor_parallel_size=2")
    assert (scenario.engine.max_num_seqs, scenario.parallel.tensor_parallel_size, scenario.hardware.gpu) == (64, 2, "h100-sxm")
    assert len(notes) == 1


def test_only_the_clashing_setting_is_dropped():
    scenario, notes = links.decode("speculative.acceptance_rate=0.7&speculative.acceptance_rates=0.5,0.4,0.3")
    assert scenario.speculative is not None
    assert scenario.speculative.acceptance_rate == 0.7
    assert len(notes) == 1


def test_clients_without_a_rate_are_a_closed_loop_and_with_one_a_capped_open_loop():
    assert links.decode("workload.max_concurrency=64")[0].workload.request_rate is None
    capped = parse({"workload": {"request_rate": 4.0, "max_concurrency": 64}})
    assert links.decode(links.encode(capped)) == (capped, ())


def test_a_lognormal_length_travels_as_mean_spread_and_longest():
    scenario, notes = links.decode(
        "workload.input_len=1155&workload.input_len.cv=1.86&workload.input_len.max=16000&workload.output_len.cv=1"
    )
    assert notes == ()
    assert scenario.workload.input_len == Lengths(kind="lognormal", mean=1155, cv=1.86, max=16000)
    assert scenario.workload.output_len == Lengths(kind="lognormal", mean=256, cv=1)
    assert links.decode(links.encode(scenario)) == (scenario, ())
    assert links.decode("preset=chat-70b-2xh100&workload.input_len=500")[0].workload.input_len == Lengths(
        kind="lognormal", mean=500, cv=1.86, max=16000
    )


def test_a_section_is_on_when_one_of_its_settings_is_given_unless_switched_off():
    assert links.decode("speculative.num_speculative_tokens=5")[0].speculative is not None
    assert links.decode("speculative=yes")[0].speculative is not None
    assert links.decode("speculative=false&speculative.num_speculative_tokens=5") == (Scenario(), ())


def test_a_preset_link_is_expanded_and_overlaid():
    scenario, notes = links.decode("?preset=beacon-405b-8xh100-fp8&engine.max_num_seqs=32")
    assert notes == ()
    assert scenario.model.total_params == 405_000_000_000
    assert scenario.engine.max_num_seqs == 32
    assert links.decode("preset=beacon-405b-8xh100-fp8&parallel.tensor_parallel_size=x")[0].parallel.tensor_parallel_size == 8


def test_many_notes_are_counted_not_listed():
    notes = links.decode({f"bad{i}": "1" for i in range(50)})[1]
    assert len(notes) == links.MAX_NOTES
    assert "43 more" in notes[-1]


def test_a_pasted_config_travels_up_to_the_stated_size_and_beyond_it_as_its_hash():
    small = FrozenJson({"hidden_size": 4096, "layer_types": ["full_attention"] * 500})
    assert packing.unpack(packing.pack(small)) == small.value
    noise = FrozenJson({str(i): i * 7919 % 100_003 for i in range(5000)})
    assert packing.pack(noise).startswith("sha256:")
    bomb = base64.urlsafe_b64encode(zlib.compress(b"{" + b" " * 10_000_000 + b"}")).decode()[: packing.MAX_PACKED_CHARACTERS]
    with pytest.raises(ValueError, match="200,000 bytes"):
        packing.unpack(bomb)
    with pytest.raises(ValueError, match="not a config"):
        packing.unpack('{"a": NaN}')


def test_every_leaf_is_reachable_under_its_path():
    assert {"model.name", "hardware.overrides.memory_gib", "workload.trace.content_hash", "price.owned.years", "speculative"} <= set(
        leaves()
    )
    assert "schema_version" not in leaves()


LIKELY = ["1", "0", "true", "false", "none", "[1]", "{}", "1e308", "-1", "0.5,0.4", '[""]', '{"kind":"lognormal","mean":5,"cv":1}']
VALUES = st.one_of(st.text(max_size=30), st.sampled_from(LIKELY))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([*leaves(), "preset", "x"]), st.lists(VALUES, min_size=1, max_size=2), max_size=6))
def test_no_link_raises_and_what_it_yields_is_canonical(query):
    scenario, notes = links.decode(query)
    assert all(isinstance(note, str) and note for note in notes)
    assert links.decode(links.url("x", links.share(scenario))) == (scenario, ())


class TestMigration:
    @pytest.fixture(autouse=True)
    def _version_two(self, monkeypatch):
        monkeypatch.setattr(migrate, "SCHEMA_VERSION", 2)
        monkeypatch.setattr(migrate, "RENAMED", {1: {"engine.max_running": "engine.max_num_seqs", "net": "fleet"}})
        monkeypatch.setattr(migrate, "OLD_DEFAULTS", {1: {"engine.block_size": 32}})

    def test_an_old_file_opens_with_its_names_and_defaults(self):
        data, notes = migrate.document(
            {"schema_version": 1, "engine": {"max_running": 9}, "net": {"replicas": 3}, "model": {"hf_config": {"a.b": {"c": 1}}}}
        )
        assert data == {
            "schema_version": 2,
            "engine": {"max_num_seqs": 9, "block_size": 32},
            "fleet": {"replicas": 3},
            "model": {"hf_config": {"a.b": {"c": 1}}},
        }
        assert any("engine.max_running is called engine.max_num_seqs" in note for note in notes)
        assert any("32" in note for note in notes)

    def test_an_old_link_opens_likewise(self):
        scenario, notes = links.decode("schema_version=1&engine.max_running=9&net.replicas=3")
        assert (scenario.engine.max_num_seqs, scenario.engine.block_size, scenario.fleet.replicas) == (9, 32, 3)
        assert len(notes) == 3

    def test_a_current_file_is_left_alone(self):
        assert migrate.document({"engine": {"block_size": 16}}) == ({"engine": {"block_size": 16}}, ())

    def test_a_newer_file_is_refused(self):
        with pytest.raises(InputError, match="update the planner"):
            migrate.document({"schema_version": 3})


def test_links_of_every_version_open_to_the_same_scenario_for_ever(request):
    corpus = json.loads((request.path.parent / "data" / "links.json").read_text())
    for entry in corpus:
        scenario, _ = links.decode(entry["query"])
        assert scenario == parse({**entry["scenario"], "schema_version": migrate.SCHEMA_VERSION}), entry["made"]


def test_a_pasted_model_behind_a_preset_does_not_take_its_name():
    link = links.encode(parse({"model": {"hf_config": {"model_type": "qwen2", "hidden_size": 64}}}))
    assert links.decode(link)[0].model.name == "pasted-qwen2"
    old = {key: text for key, text in link.items() if key != "model.name"}
    assert links.decode(old)[0].model.name == "pasted-qwen2"
    assert links.decode({**old, "preset": "chat-70b-2xh100"})[0].model.name == "pasted-qwen2"


@pytest.mark.parametrize(
    ("config", "said"), [('{"a":' * 100 + "1" + "}" * 100, "more than 40 levels"), ('{"a": "\\ud800"}', "half a character")]
)
def test_a_configuration_that_cannot_be_kept_is_told_without_our_names(config, said):
    _, notes = links.decode({"model.hf_config": config})
    assert said in notes[0]
    assert "FrozenJson" not in notes[0]


def test_a_list_that_is_too_long_is_no_word():
    assert "at most 168 items" in links.decode({"fleet.demand_curve": ",".join(["1"] * 500)})[1][0]


@pytest.mark.parametrize("link", [None, 5, b"?fleet.replicas=2", ["fleet.replicas=2"]])
def test_what_is_no_link_costs_one_note(link):
    scenario, notes = links.decode(link)
    assert scenario == Scenario()
    assert len(notes) == 1


def test_values_of_a_mapping_may_be_numbers():
    scenario, notes = links.decode({"fleet.replicas": 2, "workload.seed": None})
    assert scenario.fleet.replicas == 2
    assert len(notes) == 1
