"""The catalogue: accelerators, models, kernel constants, rental and list prices, as data files with loaders beside them."""

from importlib import import_module
from typing import Any

from planner.catalog.gpus import GpuRow, gpu, gpus

# Loaded on first use, so that a plan reads only the files it needs.
_LAZY = {
    "models": "planner.catalog.models",
    "model": "planner.catalog.models",
    "model_config": "planner.catalog.models",
    "ModelRow": "planner.catalog.models",
    "rental_prices": "planner.catalog.rental",
    "rental_price": "planner.catalog.rental",
    "RentalRow": "planner.catalog.rental",
    "RentalPrice": "planner.catalog.rental",
    "list_prices": "planner.catalog.list_prices",
    "kernels": "planner.catalog.kernels",
}

__all__ = ["GpuRow", "gpu", "gpus", *_LAZY]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
