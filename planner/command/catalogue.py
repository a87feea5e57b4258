"""presets, fields, gpus, models, prices: what there is to choose from."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from planner import catalog, presets
from planner.catalog.rental import dated
from planner.command.output import print_json, print_table
from planner.scenario import Scenario
from planner.scenario.docs import descriptions
from planner.scenario.errors import section_of


def add_commands(commands: Any) -> None:
    """Add the listings."""
    listings = {
        "presets": (show_presets, "shipped scenarios"),
        "fields": (show_fields, "fields that --set and --axis take, with default and meaning"),
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


def show_fields(arguments: argparse.Namespace) -> int:
    """List every field of a scenario."""
    rows = [{"field": path, "default": default, "meaning": meaning} for path, default, meaning in fields(Scenario)]
    return _show(rows, ["field", "default", "meaning"], arguments)


def fields(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted path, default as JSON, meaning) of every field; a section that may be null or a number has its own row."""
    said = descriptions(section)
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        default = field.get_default(call_default_factory=True)
        if field.annotation is not inner:
            allowed = f" One of {', '.join(map(str, get_args(field.annotation)))}." if get_origin(field.annotation) is Literal else ""
            yield prefix + name, json.dumps(to_jsonable_python(default, exclude_none=True)), said.get(name, "") + allowed
        if inner is not None:
            yield from fields(inner, f"{prefix}{name}.")


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
