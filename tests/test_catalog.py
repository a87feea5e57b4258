"""Every row of the catalogue is plausible, dated and sourced; prices say what they rest on."""

import csv
import re
import subprocess
import sys
from copy import copy
from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest

from planner import catalog
from planner.catalog import list_prices, rental
from planner.problems import InputError

DATE = re.compile(r"^20\d\d(-\d\d(-\d\d)?)?$")

FP8_OVER_BF16_IS_NOT_TWO = {"gaudi3": 1.0, "trainium3": 3.75, "trainium2": 1.95}
"""Hardware properties, not sparse figures that leaked in."""
FP4_OVER_FP8_IS_NOT_TWO = {"b300-sxm": 3.0, "gb300-nvl72": 3.0, "rtx-5090": 4.0, "trainium3": 1.0}
INT8_OVER_BF16_IS_NOT_TWO = {"rtx-3090": 4.0, "rtx-4090": 4.0, "rtx-5090": 4.0, "b300-sxm": 0.068, "gb300-nvl72": 0.066, "mi250x": 1.0}


def gpu_rows() -> list[catalog.GpuRow]:
    return list(catalog.gpus().values())


def test_all_accelerators_are_there() -> None:
    assert len(gpu_rows()) == 39


@pytest.mark.parametrize("row", gpu_rows(), ids=lambda r: r.slug)
def test_gpu_row_is_sourced_and_plausible(row: catalog.GpuRow) -> None:
    assert len(row.sources) >= 2
    assert DATE.match(row.verified_date)
    assert row.confidence in ("high", "medium", "low")
    assert row.memory_label_unit in ("GB", "GiB")
    assert 10 <= row.memory_gb <= 300
    assert 200 <= row.memory_bandwidth_gb_s <= 25_000
    assert row.scale_up.gb_s_per_direction_per_gpu > 0
    assert row.scale_up.domain_gpus >= 1
    assert row.tdp_w is None or 50 <= row.tdp_w <= 2000
    assert all(rate is None or rate > 0 for rate in row.dense_tflops.values())
    for seen, source in ((row.memory_driver_gib, row.memory_driver_source), (row.memory_engine_gib, row.memory_engine_source)):
        assert (seen is None) == (source is None)
    if row.memory_engine_gib is not None:
        assert re.search(r"20\d\d", row.memory_engine_source), "when was that seen?"
        assert row.memory_driver_gib is None or 0.95 * row.memory_driver_gib < row.memory_engine_gib <= row.memory_driver_gib


@pytest.mark.parametrize("row", [r for r in gpu_rows() if r.vendor in ("NVIDIA", "AMD") and r.status == "shipping"], ids=lambda r: r.slug)
def test_memory_of_shipping_gpus_was_seen_by_somebody(row: catalog.GpuRow) -> None:
    """A label read as decimal GB took 13 GiB from an MI300X: 70B in 16 bit did not fit where it does."""
    seen_gib = row.memory_engine_gib or row.memory_driver_gib
    assert seen_gib is not None
    label_gib = row.memory_gb if row.memory_label_unit == "GiB" else row.memory_gb / 1.073741824
    assert 0.90 * label_gib < seen_gib < 1.04 * label_gib


def ratio(row: catalog.GpuRow, upper: str, lower: str) -> float | None:
    a, b = row.dense_tflops[upper], row.dense_tflops[lower]
    return a / b if a and b else None


@pytest.mark.parametrize("row", gpu_rows(), ids=lambda r: r.slug)
def test_peaks_are_dense(row: catalog.GpuRow) -> None:
    for upper, lower, exceptions in (
        ("fp8", "bf16", FP8_OVER_BF16_IS_NOT_TWO),
        ("fp4", "fp8", FP4_OVER_FP8_IS_NOT_TWO),
        ("int8", "bf16", INT8_OVER_BF16_IS_NOT_TWO),
    ):
        found = ratio(row, upper, lower)
        if found is not None:
            assert found == pytest.approx(exceptions.get(row.slug, 2.0), rel=0.06), f"{upper} is {found:.2f} times {lower}"


def test_rental_rows_are_sourced_dated_and_known() -> None:
    with rental.RENTAL_FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 186
    for row in rows:
        assert row["gpu"] in catalog.gpus(), row
        assert 0 < float(row["usd_per_gpu_hour"]) < 50, row
        assert row["source"], row
        assert DATE.match(row["date"]), row


def test_typical_h100_price_is_the_neocloud_median() -> None:
    price = catalog.rental_price("h100-sxm", "on_demand")
    assert price.usd == pytest.approx(3.945)
    assert (price.low, price.high, price.date, price.kind) == (1.74, 12.29, "2026-10-10", "published")
    assert "median of 8 neoclouds" in price.source
    reserved = catalog.rental_price("h100-sxm", "reserved_1y")
    assert (reserved.usd, reserved.low, reserved.high, reserved.date) == (2.35, 1.70, 2.35, "2026-03")
    assert catalog.rental_price("h100-sxm", "reserved_3y").usd == 1.30


def test_published_medians_of_other_parts() -> None:
    typical = {slug: catalog.rental_price(slug).usd for slug in ("h200-sxm", "b200-sxm", "b300-sxm", "a100-80-sxm", "mi300x", "l40s")}
    assert typical == pytest.approx(
        {"h200-sxm": 4.79, "b200-sxm": 7.34, "b300-sxm": 8.99, "a100-80-sxm": 2.045, "mi300x": 2.12, "l40s": 1.5}
    )


def test_a_basis_without_a_quote_is_marked_assumed_and_a_part_without_any_has_no_price() -> None:
    price = catalog.rental_price("b200-sxm", "reserved_1y")
    assert price.kind == "assumed"
    assert price.usd == pytest.approx(7.34 * 2.35 / 3.945)
    assert "h100-sxm" in price.source
    assert catalog.rental_price("h20") is None
    assert catalog.rental_price("h20", "spot") is None


@pytest.mark.parametrize("slug", list(catalog.gpus()))
def test_every_typical_price_lies_in_its_spread(slug: str) -> None:
    for basis in rental.BASES:
        price = catalog.rental_price(slug, basis)
        if price is not None:
            assert 0 < price.low <= price.usd <= price.high


def test_wrong_names_in_prices() -> None:
    with pytest.raises(InputError, match="h100-sxm"):
        catalog.rental_prices("h100")
    with pytest.raises(InputError, match="owned"):
        catalog.rental_price("h100-sxm", "owned")


def test_age_counts_from_the_start_of_what_is_known() -> None:
    today = date(2026, 11, 29)
    assert rental.age_days("2026-10-10", today) == 50
    assert rental.age_days("2026-03", today) == 273
    assert rental.age_days("2026", today) == 332


def test_list_price_rows_are_sourced_and_plausible() -> None:
    rows = list_prices.read(list_prices.SNAPSHOT_FILE)
    assert len({r.label for r in rows}) == len(rows) > 600
    for r in rows:
        assert 0 < r.input <= 100, r
        assert 0 < r.output <= 300, r
        assert r.cached_input is None or 0 < r.cached_input <= r.input or r.outlier, r
        assert r.batch_output is None or 0 < r.batch_output < r.output, r
        assert r.source, r
        assert DATE.match(r.date), r


@pytest.mark.slow
def test_snapshot_agrees_with_the_installed_library() -> None:
    from genai_prices import data_snapshot

    committed = [r for r in list_prices.read(list_prices.SNAPSHOT_FILE) if r.source.startswith("genai-prices")]
    library = data_snapshot.get_snapshot()
    ids = [(r.provider, r.model_id) for r in committed]
    fresh = list_prices.from_library(library, ids, list_prices.PRICED_AT, "genai-prices 0.2.3")
    ours = [replace(r, model="", note="", outlier=False) for r in committed]
    assert len(committed) > 450
    assert fresh == ours


def test_model_maps_to_its_hosts_and_not_to_wrong_ids() -> None:
    labels = {p.label: (p.input, p.output) for p in list_prices.hosts("llama-3.1-405b")}
    assert labels == {
        "nebius:meta-llama/Meta-Llama-3.1-405B-Instruct": (1.0, 3.0),
        "aws:meta.llama3-1-405b-instruct-v1:0": (2.4, 2.4),
        "fireworks:llama-v3p1-405b-instruct": (3.0, 3.0),
        "together:meta-llama/Meta-Llama-3.1-405B-Instruct-Turbo": (3.5, 3.5),
    }
    groq = next(p for p in list_prices.hosts("gpt-oss-120b") if p.provider == "groq")
    assert (groq.input, groq.cached_input, groq.output) == (0.15, 0.075, 0.6)
    assert len({p.provider for p in list_prices.hosts("llama-3.3-70b")}) == len(list_prices.hosts("llama-3.3-70b"))


def test_batch_rates_tiers_and_cache_writes_are_carried() -> None:
    opus = list_prices.find("anthropic:claude-opus-5")
    assert (opus.input, opus.output, opus.batch_input, opus.batch_output) == (5.0, 25.0, 2.5, 12.5)
    assert (opus.cached_input, opus.cache_write, opus.cache_write_1h) == (0.5, 6.25, 10.0)
    assert list_prices.find("google:gemini-2.5-pro").tiers == "above 200000: 2.5 in, 15 out"


def test_a_label_outside_the_snapshot_comes_from_the_library() -> None:
    label = "openrouter:mistralai/mistral-nemo"
    assert label not in {r.label for r in list_prices.rows()}
    assert list_prices.find(label).output == 0.15


def test_an_unknown_label_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"openai:gpt-5\.4"):
        list_prices.find("openai:gpt-5.44")


def test_looking_prices_up_imports_neither_the_library_nor_pandas() -> None:
    code = (
        "import sys; from planner.catalog import list_prices; assert list_prices.hosts('llama-3.3-70b');"
        "print([m for m in ('genai_prices', 'httpx2', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_update_writes_new_prices_and_names_what_moved(tmp_path) -> None:
    from genai_prices import data_snapshot

    path = tmp_path / "updated.csv"
    provider = next(p for p in data_snapshot.get_snapshot().providers if p.id == "groq")
    model = next(m for m in provider.models if m.id == "openai/gpt-oss-120b")

    def at_nine_dollars(at: datetime, context: dict) -> object:
        price = copy(model.get_prices(at, context))
        price.output_mtok = 9
        return price

    dearer = SimpleNamespace(id=model.id, get_prices=at_nine_dollars)
    groq = SimpleNamespace(id="groq", models=[dearer], pricing_urls=provider.pricing_urls)
    moved = list_prices.refresh(datetime(2027, 1, 2, 12, tzinfo=UTC), fetch=lambda: SimpleNamespace(providers=[groq]), path=path)
    assert [(r.label, r.output, r.date, r.model) for r in moved] == [("groq:openai/gpt-oss-120b", 9.0, "2027-01-02", "gpt-oss-120b")]
    written = list_prices.read(path)
    assert len(written) == len(list_prices.rows())


def test_a_failed_update_keeps_the_old_prices(tmp_path) -> None:
    def offline() -> None:
        raise OSError("no route to host")

    with pytest.raises(InputError, match=r"no route to host.*old ones stay"):
        list_prices.refresh(datetime(2027, 1, 2, tzinfo=UTC), fetch=offline, path=tmp_path / "updated.csv")
    assert not (tmp_path / "updated.csv").exists()
