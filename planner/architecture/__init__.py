"""Parameters, cache and state of a model, layer by layer, from the keys of its Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from planner.architecture.build import build
from planner.architecture.model import KV_BYTES, Architecture, Attention, Layer, Mlp, Quantization, Recurrent, Tensor, active
from planner.catalog.models import model as catalog_row
from planner.catalog.models import model_config
from planner.scenario import Model

__all__ = ["KV_BYTES", "Architecture", "Attention", "Layer", "Mlp", "Quantization", "Recurrent", "Tensor", "active", "from_hf_config", "of"]


def from_hf_config(config: Mapping[str, Any], name: str = "", source: str = "", params_given: bool = False) -> Architecture:
    """The architecture that a `config.json` describes.

    Raises `InputError` when a key is missing, has the wrong type or is out of range, and when keys that are not understood
    may change the cache or more than a tenth of the parameters (`params_given`: their number is known from elsewhere).
    What is read but not fully understood comes back with `estimate` set and `notes` naming the keys and the error.
    """
    return build(config, name, source, params_given)


@lru_cache(maxsize=256)
def of(model: Model) -> Architecture:
    """The architecture of a scenario's model: its pasted configuration, else the catalogue's.

    Raises `InputError` for an unknown slug or a configuration that is not understood.
    """
    if model.hf_config is not None:
        arch = from_hf_config(model.hf_config.value, model.name, "pasted config.json", model.total_params is not None)
    else:
        row = catalog_row(model.name)
        arch = from_hf_config(model_config(model.name), model.name, row.source)
    if model.total_params is not None:
        arch = dataclasses.replace(arch, total_params_override=model.total_params)
    return arch
