"""Vision and audio towers: parameters that sit in memory and play no part in decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.architecture.config import Config
from planner.architecture.model import Tensor


def of(raw: Mapping[str, Any], hidden: int) -> list[Tensor]:
    vision = raw.get("vision_config")
    if not isinstance(vision, Mapping):
        return []
    c = Config(vision, where="vision_config.")
    if c.str("model_type") != "siglip_vision_model":
        return []
    return [Tensor("vision_tower", siglip(c), 1, "tower", linear=False), Tensor("multi_modal_projector", c.int("hidden_size") * (hidden + 1), 1, "tower", linear=False)]


def siglip(c: Config) -> int:
    """Parameters of a SigLIP encoder without pooling head."""
    h, ff, n = c.int("hidden_size"), c.int("intermediate_size"), c.int("num_hidden_layers")
    patch, channels = c.int("patch_size"), c.int("num_channels", default=3)
    positions = (c.int("image_size") // patch) ** 2
    layer = 4 * (h * h + h) + 2 * h * ff + ff + h + 4 * h
    return channels * patch**2 * h + h + positions * h + n * layer + 2 * h
