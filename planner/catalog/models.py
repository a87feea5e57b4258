"""Models people serve, as data: an index (`models.csv`) and each one's Hugging Face configuration (`configs/`)."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog import lookup

MODELS_FILE = Path(__file__).with_name("models.csv")
CONFIGS_DIR = Path(__file__).with_name("configs")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model of the catalogue."""

    slug: str
    """Released name in lower case."""
    name: str
    """Repository name as published."""
    family: str
    """What the line of models is called: Llama, Qwen, DeepSeek …"""
    config_file: str
    total_params: int
    """Parameters counted from the configuration, for the list; `architecture` counts them anew."""
    active_params: int
    """Those one token touches, both embeddings included."""
    license: str
    """License of the weights."""
    release_date: str
    """When the weights were published, ISO."""
    terms_source: str
    """Where license and release date come from."""
    config_kind: str
    """How the configuration was obtained: verbatim, fields, recalled …"""
    source: str
    """Where the configuration was read."""
    checked: str
    """Date of the last check of this row, ISO."""


@cache
def models() -> dict[str, ModelRow]:
    """Rows by slug, in the order of the file."""
    rows = {}
    with MODELS_FILE.open(encoding="utf-8", newline="") as lines:
        for record in csv.DictReader(lines):
            total, active = int(record.pop("total_params")), int(record.pop("active_params"))
            rows[record["slug"]] = ModelRow(total_params=total, active_params=active, **record)
    return rows


def search(text: str = "", family: str = "", smallest_params: float = 0, largest_params: float = math.inf) -> tuple[ModelRow, ...]:
    """Models whose slug, name or family holds every word of `text`, of this family and size (total parameters), newest first."""
    words = text.lower().split()
    found = [
        row
        for row in models().values()
        if all(word in f"{row.slug} {row.name} {row.family}".lower() for word in words)
        and family.lower() in ("", row.family.lower())
        and smallest_params <= row.total_params <= largest_params
    ]
    return tuple(sorted(found, key=lambda row: row.release_date, reverse=True))


def model(slug: str) -> ModelRow:
    """The row called `slug`. Raises InputError naming the nearest ones."""
    return lookup.row(models(), slug, "model.name", "paste the model's config.json as model.hf_config instead")


@cache
def _config_text(file: str) -> str:
    return (CONFIGS_DIR / file).read_text(encoding="utf-8")


def model_config(slug: str) -> dict[str, Any]:
    """The model's Hugging Face configuration, a fresh copy. Raises InputError for an unknown slug."""
    return json.loads(_config_text(model(slug).config_file))
