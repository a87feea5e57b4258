"""Parts that encoders share, in parameters."""

from __future__ import annotations

from planner.architecture.config import Config


def block(h: int, ff: int, *, gated: bool = False, bias: bool = True, norms: int = 2, norm_params: int = 2) -> int:
    """Parameters of one encoder layer."""
    attention = 4 * h * h + (4 * h if bias else 0)
    mlp = (3 if gated else 2) * h * ff + ((2 * ff if gated else ff) + h if bias else 0)
    return attention + mlp + norms * norm_params * h


def sizes(c: Config) -> tuple[int, int, int]:
    """(width, width of the MLP, layers) of an encoder."""
    h = c.whole("hidden_size", "embed_dim", "vt_hidden_size", "width", "d_model", "dim")
    layers = c.whole("num_hidden_layers", "depth", "vt_num_hidden_layers", "num_layers", "layers", "encoder_layers", high=1000)
    return (
        h,
        c.whole(
            "intermediate_size", "vt_intermediate_size", "mlp_dim", "encoder_ffn_dim", default=int(h * c.number("mlp_ratio", default=4.0))
        ),
        layers,
    )


def patches(c: Config) -> int:
    """Patches of one square image."""
    return (c.side("image_size") // c.side("patch_size")) ** 2


def patch(c: Config, h: int, bias: bool = True) -> int:
    """Parameters of the projection of a patch of pixels, over all its frames, to width `h`."""
    frames = c.whole("temporal_patch_size", default=1)
    return c.whole("num_channels", "in_channels", default=3) * frames * c.side("patch_size", default=14) ** 2 * h + (h if bias else 0)


def generic(c: Config, text: int) -> int:
    """A plain transformer of the given size behind a two-layer projector."""
    h, ff, n = sizes(c)
    return patch(c, h) + n * block(h, ff) + h * text + text * text


def merge(c: Config, h: int, out: int) -> int:
    """Patch merger: four neighbours side by side through two linear layers."""
    wide = h * c.whole("spatial_merge_size", default=2) ** 2
    return wide * wide + wide + wide * out + out
