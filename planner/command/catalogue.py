"""presets, gpus, models, prices: what the catalogue holds."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from planner import catalog, presets
from planner.catalog.rental import dated
from planner.command.output import print_json, print_table


def add_commands(commands: Any) -> None:
    """Add the four listings."""
    listings = {
        "presets": (show_presets, "shipped scenarios"),
        "gpus": (show_gpus, "accelerators with memory, bandwidth, peaks and sources"),
        "models": (show_models, "models with license and release date"),
        "prices": (show_prices, "rental and list prices with dates"),
    }
    for name, (run, text) in listings.items():
        command = commands.add_parser(name, help=text, description=f"List {text}.")
        command.add_argument("search", nargs="?", default="", help="only rows that hold this text")
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(run=run)
        if name == "prices":
            command.add_argument(
                "--update", action="store_true", help="fetch newer list prices (asks the network; the old data stays when that fails)"
            )


def _matching(rows: list[dict[str, Any]], search: str) -> list[dict[str, Any]]:
    """Rows in which every word of the search occurs somewhere."""
    words = search.lower().split()
    return [row for row in rows if all(any(word in str(value).lower() for value in row.values()) for word in words)]


def _show(rows: list[dict[str, Any]], columns: list[str], arguments: argparse.Namespace) -> int:
    found = _matching(rows, arguments.search)
    if arguments.json:
        print_json(found)
    else:
        print_table(columns, ([row[c] for c in columns] for row in found))
    return 0


def show_presets(arguments: argparse.Namespace) -> int:
    """List the shipped presets."""
    rows = [{"preset": slug, "name": s.name, "notes": s.notes} for slug, s in presets.all().items()]
    return _show(rows, ["preset", "name"], arguments)


def show_gpus(arguments: argparse.Namespace) -> int:
    """List the accelerators."""
    rows = []
    for row in catalog.gpus().values():
        raw = asdict(row) if not hasattr(row, "model_dump") else row.model_dump()
        raw["bf16_dense_tflops"] = row.dense_tflops.get("bf16")
        raw["fp8_dense_tflops"] = row.dense_tflops.get("fp8")
        raw["dense_tflops"] = dict(row.dense_tflops)
        rows.append(raw)
    return _show(
        rows, ["slug", "name", "memory_gb", "memory_bandwidth_gb_s", "bf16_dense_tflops", "fp8_dense_tflops", "confidence"], arguments
    )


def show_models(arguments: argparse.Namespace) -> int:
    """List the models."""
    rows = [asdict(row) for row in catalog.models().values()]
    columns = [c for c in ("slug", "name", "family", "total_params", "license", "released") if not rows or c in rows[0]]
    return _show(rows, columns, arguments)


def show_prices(arguments: argparse.Namespace) -> int:
    """List rental prices and list prices, or refresh the list prices."""
    from planner.catalog import list_prices

    if arguments.update:
        print(list_prices.update())
        return 0
    rental = [{"kind": "rental"} | asdict(row) for row in catalog.rental_prices()]
    listed = [{"kind": "list"} | asdict(row) for row in list_prices.rows()]
    found = _matching([*rental, *listed], arguments.search)
    if arguments.json:
        print_json(found)
        return 0
    print_table(
        ["rental of", "provider", "basis", "USD/GPU-hour", "date"],
        ([r["gpu"], r["provider"], r["basis"], r["usd_per_gpu_hour"], dated(r["date"])] for r in found if r["kind"] == "rental"),
    )
    print()
    print_table(
        ["list price of", "provider", "USD/M in", "USD/M cached", "USD/M out", "date"],
        ([r["model"], r["provider"], r["input"], r["cached_input"], r["output"], dated(r["date"])] for r in found if r["kind"] == "list"),
    )
    return 0
