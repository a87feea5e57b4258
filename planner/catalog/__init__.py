"""The catalogue: accelerators, models, kernel constants, rental and list prices, as data files with loaders beside them.

List prices are a module of their own (`catalog.list_prices.hosts(slug)`), imported where they are wanted.
"""

from planner.catalog.gpus import GpuRow, gpu, gpus
from planner.catalog.models import ModelRow, model, model_config, models
from planner.catalog.rental import RentalPrice, RentalRow, rental_price, rental_prices

__all__ = [
    "GpuRow",
    "ModelRow",
    "RentalPrice",
    "RentalRow",
    "gpu",
    "gpus",
    "model",
    "model_config",
    "models",
    "rental_price",
    "rental_prices",
]
