"""What hosts charge per million tokens: the adapter to `genai-prices` and to a dated snapshot of it.

`list_prices.csv` is both the map from our model slugs to hosts (exact provider and model ids, never free text) and the
prices themselves, so a plan reads 100 kB of CSV and not a library that takes a quarter of a second to import. Rows of
hosts that the library lacks come from litellm's table. A test checks every library row against the installed library
at the pinned time; anything outside the snapshot is looked up in the library on demand.
"""

import contextlib
import csv
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from planner.catalog import lookup
from planner.problems import InputError

SNAPSHOT_FILE = Path(__file__).with_name("list_prices.csv")
UPDATED_FILE = Path(__file__).with_name("list_prices.updated.csv")
"""Written by `prices --update`; read instead of the snapshot while it is there. Delete it to go back."""
PRICED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
"""Prices are evaluated at this moment: some change by the hour, and a plan must not change with the clock."""


@dataclass(frozen=True, slots=True)
class ListPrice:
    """One host's price for one model, USD per million tokens."""

    model: str
    """Our slug of the model served, empty for models that are not in the catalogue."""
    provider: str
    model_id: str
    """The provider's own id."""
    input: float
    cached_input: float | None
    """Input read from the provider's prompt cache; None where there is no discount."""
    cache_write: float | None
    """Input written to the prompt cache (five minutes where several lifetimes are sold)."""
    cache_write_1h: float | None
    output: float
    batch_input: float | None
    """Input through the batch interface."""
    batch_output: float | None
    tiers: str
    """Higher prices of long prompts: "above 200000: 2.5 in, 15 out" or empty."""
    outlier: bool
    """Far from what other hosts ask; left out of default comparisons."""
    date: str
    source: str
    pricing_url: str
    note: str

    @property
    def label(self) -> str:
        """`provider:model_id`, the name by which `price.compare_to` asks for it."""
        return f"{self.provider}:{self.model_id}"


NUMBERS = ("input", "cached_input", "cache_write", "cache_write_1h", "output", "batch_input", "batch_output")
COLUMNS = {f.name: f"{f.name}_usd_per_mtok" if f.name in NUMBERS else f.name for f in fields(ListPrice)}


def read(path: Path) -> tuple[ListPrice, ...]:
    """The rows of a snapshot file."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_from_csv(raw) for raw in csv.DictReader(file))


def _from_csv(raw: Mapping[str, str]) -> ListPrice:
    values: dict[str, Any] = {name: raw[column] for name, column in COLUMNS.items()}
    values |= {name: float(values[name]) if values[name] else None for name in NUMBERS}
    return ListPrice(**(values | {"outlier": values["outlier"] == "yes"}))


def write(path: Path, prices: Iterable[ListPrice]) -> None:
    """Replace a snapshot file in one step, so that a reader never sees half of it."""
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".csv")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS.values())
            for row in prices:
                cells = asdict(row) | {"outlier": "yes" if row.outlier else ""}
                writer.writerow("" if cells[name] is None else cells[name] for name in COLUMNS)
        Path(part).replace(path)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


@cache
def rows() -> tuple[ListPrice, ...]:
    """All known rows: the last update where there was one that can be read, else the committed snapshot."""
    if UPDATED_FILE.exists():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, csv.Error):
            return read(UPDATED_FILE)
    return read(SNAPSHOT_FILE)


@lru_cache(maxsize=512)
def hosts(model: str, per_provider: bool = True) -> tuple[ListPrice, ...]:
    """Hosts of this model, cheapest first; one row per provider unless asked for all. Outliers are left out.

    Empty where nobody lists the model. A router's copy of a host that is listed itself is left out too.
    """
    found = [r for r in rows() if r.model == model and not r.outlier]
    found.sort(key=lambda r: (3 * r.input + r.output, r.label))
    if not per_provider:
        return tuple(found)
    direct = {r.provider for r in found if not r.provider.startswith("huggingface_")}
    kept: dict[str, ListPrice] = {}
    for r in found:
        host = r.provider.removeprefix("huggingface_")
        if host == r.provider or host not in direct:
            kept.setdefault(host, r)
    return tuple(kept.values())


@cache
def find(label: str) -> ListPrice:
    """The row named `provider:model_id`, from the snapshot or from the library. Raises InputError naming near labels."""
    known = {r.label: r for r in rows()}
    if label in known:
        return known[label]
    provider, _, model_id = label.partition(":")
    found = from_library(_library_snapshot(), [(provider, model_id)], PRICED_AT, _library_name())
    if found:
        return found[0]
    way_out = "Run `python -m planner prices` for the list, or give a price of your own as {label, input, output}."
    return lookup.row(known, label, "price.compare_to", way_out)


def from_library(library: Any, ids: Iterable[tuple[str, str]], at: datetime, source: str) -> list[ListPrice]:
    """Prices of exact (provider, model) ids out of a `genai_prices` snapshot at a fixed moment.

    Ids that are unknown or have no plain input and output price (audio, free trials) are left out.
    """
    models = {(p.id, m.id): (p, m) for p in library.providers for m in p.models}
    prices = []
    for key in ids:
        provider, model = models.get(key, (None, None))
        if provider is None or model is None:
            continue
        price, batch = (model.get_prices(at, context) for context in ({}, {"processing": "batch"}))
        if price.input_mtok is None or price.output_mtok is None:
            continue
        discounted = str(batch) != str(price)
        prices.append(
            ListPrice(
                model="",
                provider=provider.id,
                model_id=model.id,
                input=_base(price.input_mtok),
                cached_input=_base_or_none(price.cache_read_mtok),
                cache_write=_base_or_none(price.cache_write_mtok),
                cache_write_1h=_base_or_none(price.cache_write_1h_mtok),
                output=_base(price.output_mtok),
                batch_input=_base_or_none(batch.input_mtok) if discounted else None,
                batch_output=_base_or_none(batch.output_mtok) if discounted else None,
                tiers=_tiers(price.input_mtok, price.output_mtok),
                outlier=False,
                date=at.date().isoformat(),
                source=source,
                pricing_url=(provider.pricing_urls or [""])[0],
                note="",
            )
        )
    return prices


def _base(price: Any) -> float:
    return float(getattr(price, "base", price))


def _base_or_none(price: Any) -> float | None:
    return None if price is None else _base(price)


def _tiers(input_price: Any, output_price: Any) -> str:
    outputs = {t.start: t.price for t in getattr(output_price, "tiers", ())}
    parts = [f"above {t.start}: {t.price} in, {outputs.get(t.start, _base(output_price))} out" for t in getattr(input_price, "tiers", ())]
    return "; ".join(parts)


def _library_snapshot() -> Any:
    try:
        from genai_prices import data_snapshot
    except ImportError:
        raise InputError(
            "price.compare_to names a price outside the shipped snapshot, which needs the package genai-prices; install it, "
            "or give a price of your own as {label, input, output}"
        ) from None
    return data_snapshot.get_snapshot()


def _library_name() -> str:
    return f"genai-prices {version('genai-prices')}"


def update() -> str:
    """What `prices --update` does: fetch, store, and say in a sentence or two what moved."""
    moved = refresh(datetime.now(UTC))
    changes = "; ".join(f"{r.label} now {r.input:g} in, {r.output:g} out" for r in moved[:20])
    more = f" and {len(moved) - 20} more" if len(moved) > 20 else ""
    return f"{len(moved)} list prices changed{': ' if moved else '.'}{changes}{more}"


def refresh(now: datetime, fetch: Callable[[], Any] | None = None, path: Path = UPDATED_FILE) -> tuple[ListPrice, ...]:
    """Fetch today's library data over the network and store it; returns the rows whose price changed.

    `fetch` returns a library snapshot (tests pass their own). When anything fails the old data stay as they are and an
    InputError says why.
    """
    old = rows()
    ids = [(r.provider, r.model_id) for r in old]
    try:
        if fetch is None:
            from genai_prices import UpdatePrices

            fetch = UpdatePrices().fetch
        # Routing, proxies, TLS, status codes and malformed payloads all mean the same here: no newer prices.
        fresh = {r.label: r for r in from_library(fetch(), ids, now, f"genai-prices data of {now:%Y-%m-%d}")}
        if not fresh:
            raise ValueError("the answer holds none of the known models")
    except Exception as error:
        raise InputError(f"prices --update: could not fetch newer prices ({type(error).__name__}: {error}); the old ones stay") from error
    new = [_keep_map(r, fresh.get(r.label)) for r in old]
    try:
        write(path, new)
    except OSError as error:
        raise InputError(
            f"prices --update: newer prices cannot be stored in {path.parent} ({error.strerror}); the old ones stay"
        ) from error
    for cached in (rows, hosts, find):
        cached.cache_clear()
    return tuple(after for before, after in zip(old, new, strict=True) if (before.input, before.output) != (after.input, after.output))


def _keep_map(old: ListPrice, fresh: ListPrice | None) -> ListPrice:
    """The fresh price under the old slug and flags; rows that the library lacks stay as dated."""
    if fresh is None or not old.source.startswith("genai-prices"):
        return old
    return replace(fresh, model=old.model, outlier=old.outlier, note=old.note)
