"""How a checkpoint is stored, from its `quantization_config` (or ModelOpt's `hf_quant_config.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.architecture.model import Quantization


def of(raw: Mapping[str, Any]) -> Quantization | None:
    return None
