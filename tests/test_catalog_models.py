"""The catalogue of models: complete, sourced, and equal to what its configurations say."""

import csv
from collections import Counter
from datetime import date

import pytest

from planner import architecture
from planner.catalog.models import CONFIGS_DIR, model, model_config, models, search
from planner.problems import InputError
from planner.scenario import Model

ROWS = models()


def test_at_least_seventy_models_each_with_license_date_and_source():
    assert len(ROWS) >= 70
    for row in ROWS.values():
        assert row.slug == row.slug.lower()
        assert "/" in row.name
        for text in (row.family, row.license, row.terms_source, row.config_kind, row.source):
            assert text, row.slug
        assert date(2019, 1, 1) < date.fromisoformat(row.release_date) <= date.fromisoformat(row.checked)


def test_the_names_others_rely_on_are_there():
    assert {
        "llama-3.1-8b",
        "llama-3.1-405b",
        "llama-3.3-70b",
        "mixtral-8x7b",
        "gpt-oss-120b",
        "deepseek-v3",
        "qwen3-30b-a3b",
        "gemma-3-27b",
    } <= set(ROWS)


def test_every_row_has_its_configuration_and_no_file_is_left_over():
    assert {row.config_file for row in ROWS.values()} == {p.name for p in CONFIGS_DIR.glob("*.json")}


@pytest.mark.slow
def test_sizes_in_the_list_are_those_of_the_configurations():
    for slug, row in ROWS.items():
        arch = architecture.of(Model(name=slug))
        assert (row.total_params, row.active_params) == (arch.total_params, arch.active_params), slug


def test_only_deepseek_v4_is_an_estimate():
    estimates = [slug for slug in ROWS if architecture.of(Model(name=slug)).estimate]
    assert estimates == ["deepseek-v4-flash", "deepseek-v4-pro", "deepseek-v4.1-flash"], "caches of V4, prefill of V4.1"


def test_most_configurations_are_verbatim_files():
    kinds = Counter(row.config_kind for row in ROWS.values())
    assert kinds["verbatim"] > 0.55 * len(ROWS)
    assert kinds["recalled"] < 0.1 * len(ROWS)


def test_models_sold_per_token_have_the_slug_of_the_price_list():
    with (CONFIGS_DIR.parent / "list_prices.csv").open(encoding="utf-8", newline="") as file:
        sold = {row["model"] for row in csv.DictReader(file)} - {""}
    assert len(sold & set(ROWS)) > 0.75 * len(sold)


def test_search_by_name_family_and_size():
    assert [r.slug for r in search("llama 405b")] == ["llama-3.1-405b"]
    assert {r.family for r in search(family="kimi")} == {"Kimi"}
    small = search("qwen3", largest_params=2e9)
    assert {r.slug for r in small} == {"qwen3-0.6b", "qwen3-1.7b"}
    assert all(r.total_params >= 5e11 for r in search(smallest_params=5e11))
    dates = [r.release_date for r in search("glm")]
    assert dates == sorted(dates, reverse=True)
    assert search("no such model") == ()


def test_an_unknown_slug_names_the_nearest():
    with pytest.raises(InputError, match=r"llama-3\.1-8b"):
        model("llama-3.1-9b")


def test_a_configuration_is_a_fresh_copy():
    model_config("llama-3.1-8b")["hidden_size"] = 1
    assert model_config("llama-3.1-8b")["hidden_size"] == 4096
