"""Audio towers with their projectors, as in `vision`."""

from __future__ import annotations

from planner.architecture.config import Config


def gemma4_audio(c: Config, text: int) -> int:
    """Conformer of Gemma 4: two half-step MLPs, attention with relative positions, a gated convolution."""
    h, n, out = c.whole("hidden_size"), c.whole("num_hidden_layers", high=1000), c.whole("output_proj_dims", default=1536)
    layer = 16 * h * h + 4 * h + 5 * h * h + h // 8 + 3 * h * h + 5 * h + 2 * h + 3 * h
    return 128 * 9 + 128 + 32 * 128 * 9 + 32 + 1024 * h + n * layer + out * h + out + out * text
