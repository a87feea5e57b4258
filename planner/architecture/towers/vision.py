"""Vision towers with their projectors. A function takes the tower's configuration and the text width, and returns parameters."""

from __future__ import annotations

from planner.architecture.config import Config
from planner.architecture.towers.shapes import block, merge, patch, patches, sizes


def siglip(c: Config) -> int:
    h, ff, n = sizes(c)
    return patch(c, h) + patches(c) * h + n * block(h, ff) + 2 * h


def gemma3(c: Config, text: int) -> int:
    h = c.whole("hidden_size")
    return siglip(c) + h * text + h


def paligemma(c: Config, text: int) -> int:
    return siglip(c) + c.whole("hidden_size") * text + text


def gemma3n(c: Config, text: int) -> int:
    """MobileNet-V5 and a conformer of fixed size (983,281,504 with E4B's projections), projections to the text width."""
    return 983_281_504 - 2048 * 3584 + text * 3584


def gemma4(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    positions = 2 * c.whole("position_embedding_size", default=10240) * h
    return (
        positions
        + patch(c, h, bias=False)
        + n * (block(h, ff, gated=True, bias=False, norms=4, norm_params=1) + 2 * c.whole("head_dim"))
        + text * h
    )


def llama4(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    wide, out = c.whole("projector_input_dim", default=4096), c.whole("projector_output_dim", default=4096)
    adapter = ff * wide + wide * out + text * c.whole("vision_output_dim", default=out)
    return patch(c, h, bias=False) + (patches(c) + 2) * h + 4 * h + n * block(h, ff) + adapter


def qwen2_vl(c: Config, text: int) -> int:
    h, n = c.whole("embed_dim"), c.whole("depth")
    ff = int(h * c.number("mlp_ratio", default=4.0))
    return patch(c, h, bias=False) + n * block(h, ff) + 2 * h + merge(c, h, text)


def qwen2_5_vl(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    return patch(c, h, bias=False) + n * block(h, ff, gated=True, norm_params=1) + h + merge(c, h, c.whole("out_hidden_size", default=text))


def qwen3_vl(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    out, wide = c.whole("out_hidden_size", default=text), h * c.whole("spatial_merge_size", default=2) ** 2
    deep = len(c.items("deepstack_visual_indexes") or ()) * (2 * wide + merge(c, h, out))
    return patch(c, h) + c.whole("num_position_embeddings", default=2304) * h + n * block(h, ff) + 2 * h + merge(c, h, out) + deep


def glm4v(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    out = c.whole("out_hidden_size", default=text)
    merger = out * out + 2 * out + 3 * out * ff
    layer = block(h, out, gated=True, bias=False, norm_params=1)
    return patch(c, h) + patches(c) * h + n * layer + merger + 2 * h + 4 * out * h + out


def kimi(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    side = c.whole("init_pos_emb_height", default=64) * c.whole("init_pos_emb_width", default=64)
    wide = h * 4
    return patch(c, h) + side * h + n * block(h, ff) + 2 * h + 2 * h + wide * wide + wide + wide * text + text


def step(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    shrink = 18 * h * h + 2 * h + 72 * h * h + 4 * h
    return patch(c, h, bias=False) + patches(c) * h + 2 * h + n * (block(h, ff) + 2 * h) + shrink + text * 4 * h


def minimax_m3(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    frames = c.whole("temporal_patch_size", default=2)
    patch = 3 * frames * c.side("patch_size") ** 2 * h
    return patch + 2 * h + n * block(h, ff) + text * h + 6 * text * text + 4 * text


def pixtral(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    merge = h * 4 * h
    return patch(c, h, bias=False) + h + n * block(h, ff, gated=True, bias=False, norm_params=1) + h + merge + text * h + text * text


def clip(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    return patch(c, h, bias=False) + (patches(c) + 2) * h + 4 * h + n * block(h, ff) + text * h + text * text + 2 * text


def internvl(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    wide = 4 * h
    return patch(c, h) + (patches(c) + 2) * h + n * (block(h, ff) + 2 * h) + 2 * wide + wide * text + text * text + 2 * text


def mllama(c: Config, text: int) -> int:
    """Llama 3.2 Vision: local and global (gated) layers, tile embeddings, a projector of the concatenated outputs."""
    h, ff, n = sizes(c)
    total = n + c.whole("num_global_layers", default=8)
    out = c.whole("vision_output_dim", default=7680)
    return total * block(h, ff, bias=False) + total * (ff + h) + patch(c, h, bias=False) + 10 * (patches(c) + 1) * h * 4 + out * text + text
