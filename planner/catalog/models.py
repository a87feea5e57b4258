"""Models people serve, as data: an index (`models.csv`) and each one's Hugging Face configuration (`configs/`)."""

from __future__ import annotations

import csv
import json
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
    """Who trains it and what it is called: Llama, Qwen, DeepSeek …"""
    config_file: str
    license: str
    """License of the weights."""
    release_date: str
    """When the weights were published, ISO; a month where the day is not known."""
    config_kind: str
    """How the configuration was obtained: verbatim, fields, recalled …"""
    source: str
    """Where the configuration was read."""
    checked: str
    """Date of the last check of this row, ISO."""


@cache
def models() -> dict[str, ModelRow]:
    """Rows by slug, in the order of the file."""
    with MODELS_FILE.open(encoding="utf-8", newline="") as lines:
        rows = [ModelRow(**record) for record in csv.DictReader(lines)]
    return {r.slug: r for r in rows}


def model(slug: str) -> ModelRow:
    """The row called `slug`. Raises InputError naming the nearest ones."""
    return lookup.row(models(), slug, "model.name", "paste the model's config.json as model.hf_config instead")


@cache
def _config_text(file: str) -> str:
    return (CONFIGS_DIR / file).read_text(encoding="utf-8")


def model_config(slug: str) -> dict[str, Any]:
    """The model's Hugging Face configuration, a fresh copy. Raises InputError for an unknown slug."""
    return json.loads(_config_text(model(slug).config_file))
