"""Towers of 2026 and odd ones, as in `vision`. Keys of the whole model that size a projector are read as `model.<key>`."""

from __future__ import annotations

from itertools import pairwise

from planner.architecture.config import Config
from planner.architecture.towers.shapes import block, merge, patch, patches, sizes
from planner.architecture.towers.vision import qwen2_5_vl, siglip
from planner.problems import InputError


def _mlp(inner: int, n: int, out: int) -> int:
    """Two layers with biases."""
    return inner * n + n + n * out + out


def _part(c: Config, name: str) -> Config:
    """An object beside the tower's own, such as an adapter."""
    return Config(c.part(f"model.{name}") or {}, where=f"{name}.")


def glm_ocr(c: Config, text: int) -> int:
    """GLM-OCR, GLM-5-Next: gated layers with biases and normed queries, a gated merger."""
    h, ff, n = sizes(c)
    out, bias = c.whole("out_hidden_size", default=text), c.switch("attention_bias", default=True)
    inner = c.whole("projection_intermediate_size", default=out * c.whole("in_channels", default=3))
    layer = block(h, ff, gated=True, bias=bias, norm_params=1) + 2 * (h // c.whole("num_heads"))
    return patch(c, h) + n * layer + out * out + 2 * out + 3 * out * inner + 4 * out * h + out + h


def exaone4_5(c: Config, text: int) -> int:
    """Qwen2.5-VL's tower with fewer key and value heads."""
    h, _, n = sizes(c)
    heads = c.whole("num_heads")
    spared = h - h // heads * c.whole("num_key_value_heads", default=heads)
    return qwen2_5_vl(c, text) - n * 2 * spared * (h + 1)


def hyperclovax(c: Config, text: int) -> int:
    out = c.whole("out_hidden_size", default=text)
    return qwen2_5_vl(c, text) + out * text + text


def nemotron_omni(c: Config, text: int) -> int:
    """RADIO: patches of stills and of video, one table of positions for the largest image, a projector without biases."""
    h, ff, n = sizes(c)
    side, inner = c.side("max_img_size", "image_size") // c.side("patch_size"), c.whole("model.projector_hidden_size", default=text)
    patches_ = h * (c.whole("patch_dim", default=3 * c.side("patch_size") ** 2) + c.whole("video_patch_dim", default=0, low=0))
    tokens = c.whole("num_cls_tokens", default=0, low=0) + c.whole("num_registers", default=0, low=0)
    return patches_ + (side**2 + tokens) * h + n * (block(h, ff) + 2 * h) + 4 * h + 4 * h * inner + inner * text


FASTVIT_MCI3 = 122_714_208
"""Parameters of the one convolutional tower that FastVLM names (transformers 5.24.0, meta device, 2026-11-30)."""


def fast_vlm(c: Config, text: int) -> int:
    if c.text("architecture") != "fastvit_mci3":
        raise InputError(f"config key vision_config.architecture is {c.text('architecture')[:40]!r}; only fastvit_mci3 is known")
    return FASTVIT_MCI3 + _mlp(c.whole("hidden_size"), text, text)


def paddleocr(c: Config, text: int) -> int:
    h = c.whole("hidden_size")
    return siglip(c) + 2 * h + merge(c, h, text)


def granite_docling(c: Config, text: int) -> int:
    """A coarse and a fine way from the patches to the text, each with mergers of inner layers."""
    h, out, scale = c.whole("hidden_size"), c.whole("out_hidden_size", default=text), c.whole("scale_factor", default=4)
    inner = len(c.items("deepstack_visual_indexes") or ())
    ways = [h * scale**2] + [h * (scale // 2) ** 2] * c.switch("use_fine_route", default=True)
    connector = sum(wide * out + inner * (2 * wide + wide * out + out + out * out + out) for wide in ways)
    return siglip(c) + connector + 2 * h + out * out + 4 * out


def cosmos3_edge(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    wide, inner = h * c.whole("spatial_merge_size", default=2) ** 2, c.whole("model.projector_hidden_size")
    return patch(c, h) + c.whole("num_patches") * h + n * block(h, ff) + 2 * h + 2 * h + _mlp(wide, inner, text)


def molmo2(c: Config, text: int) -> int:
    """Two layers' features are pooled by attention, then gated into the text."""
    h, ff, n = sizes(c)
    adapter = _part(c, "adapter_config")
    inner, features = adapter.whole("intermediate_size"), len(adapter.items("vision_feature_layer") or [0, 0])
    pooling = 3 * (features * h * h + h) + h * h + h
    projector = 2 * h * inner + inner * adapter.whole("text_hidden_size", default=text)
    return patch(c, h) + c.whole("num_position_embeddings") * h + n * block(h, ff) + pooling + projector


def _head(c: Config) -> int:
    """Attention pooling of SigLIP: a probe, one attention, one MLP; loaded though not used."""
    h, ff, _ = sizes(c)
    return h + block(h, ff, norms=1)


def cohere2_vision(c: Config, text: int) -> int:
    h = c.whole("hidden_size")
    wide, inner = h * c.whole("model.downsample_factor", default=2) ** 2, c.whole("model.alignment_intermediate_size", default=36864)
    head = _head(c) if c.switch("vision_use_head", default=True) else 0
    return siglip(c) + head + wide * inner + inner + inner // 2 * text + text


def inkling2(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    inner, grid = c.whole("projection_hidden_dim", default=4096), c.whole("posemb_grid_size", default=32)
    wide = h * c.whole("spatial_merge_size", "adapter_merge_size", default=2) ** 2
    return 2 * h + patch(c, h, bias=False) + grid**2 * h + 2 * h + n * (block(h, ff) + 2 * h) + wide * inner + inner * text


def inkling(c: Config, text: int) -> int:
    """A pyramid of linear maps over the pixels of a patch; the last, into the text, outweighs the others."""
    frames, channels = c.whole("temporal_patch_size", default=1), c.whole("num_channels", "n_channels", default=3)
    c.get("n_layers")
    return channels * frames * c.side("patch_size", default=16) ** 2 * text + text


def inkling_audio(c: Config, text: int) -> int:
    """One embedding per bin and level of the mel spectrum."""
    return c.whole("n_mel_bins", default=80) * c.whole("mel_vocab_size", default=16) * text + text


def muse(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    inner = c.whole("model.projector_hidden_size", default=4096)
    wide = h * c.whole("merge_size", default=2) ** 2
    frames = c.whole("patch_temporal", default=2) * patch(c, h, bias=False)
    return (
        frames
        + c.whole("max_position_embeddings", default=1024) * h
        + n * block(h, ff)
        + 4 * h
        + wide * inner
        + inner * inner
        + inner * text
    )


def muse_audio(c: Config, text: int) -> int:
    """Stages of ConvNeXt blocks, each wider than the last."""
    widths, depths = c.wholes("hidden_sizes") or [], c.wholes("depths") or []
    ratio, kernel = int(c.number("mlp_ratio", default=4.0)), c.whole("conv_kernel_size", default=7)
    stages = sum(d * (2 * ratio * w * w + (kernel + 3 + ratio) * w) for w, d in zip(widths, depths, strict=False))
    between = sum(a * b * 4 for a, b in pairwise(widths))
    return stages + between + (widths[-1] * text if widths else 0)


def dots3(c: Config, text: int) -> int:
    """dots3: a tower whose later layers route to experts, more of them from layer to layer."""
    h, ff, n = sizes(c)
    kinds, out = c.items("mlp_layer_types") or [], c.whole("adapter_out_dim", default=text)
    total = patch(c, h) + h
    for i in range(n):
        own = c.layer(i)
        sparse = i < len(kinds) and kinds[i] == "sparse"
        copies, width = (own.whole("num_local_experts"), own.whole("moe_intermediate_size")) if sparse else (1, ff)
        total += 4 * h * h + 2 * (h // c.whole("num_attention_heads")) + 2 * h + copies * (3 * h * width + h * sparse)
    return total + 2 * h + merge(c, h, out) + h


def dots3_audio(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    stem, out = c.whole("downsample_hidden_size", default=480), c.whole("adapter_out_dim", default=text)
    convolutions = 10 * stem + 2 * (9 * stem * stem + stem) + h * c.whole("conv_output_size", default=7680)
    layer = 4 * h * h + 3 * h + 3 * h * ff + 2 * ff + h + 2 * h
    return convolutions + n * layer + 3 * h + _mlp(h, out, out)


def deepseek_v41(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    layer = 4 * h * h + 4 * h + 3 * h * ff + 2 * h
    return patch(c, h) + n * layer + h + _mlp(h * c.whole("downsample_ratio", default=3) ** 2, text, text) + 3 * text


def ernie(c: Config, text: int) -> int:
    """ERNIE 4.5 VL: neighbours in space, then in time, joined by small networks."""
    h, ff, n = sizes(c)
    wide = h * c.whole("spatial_merge_size", default=2) ** 2
    long = wide * c.whole("temporal_merge_size", default=2)
    resampler = _mlp(wide, wide, wide) + 2 * wide + _mlp(long, wide, wide) + 2 * wide + wide * text + text + text
    return patch(c, h, bias=False) + n * block(h, ff) + 2 * h + resampler


def idefics(c: Config, text: int) -> int:
    h, ff, n = sizes(c)
    return patch(c, h, bias=False) + (patches(c) + 2) * h + 4 * h + n * block(h, ff)


def idefics2(c: Config, text: int) -> int:
    """SigLIP, a gated projection and a perceiver that leaves a fixed number of vectors."""
    h, p, inner = c.whole("hidden_size"), _part(c, "perceiver_config"), _part(c, "text_config").whole("intermediate_size")
    out, width, heads = p.whole("hidden_size", default=text), p.whole("resampler_head_dim"), p.whole("resampler_n_heads")
    attention = 2 * out * width * (heads + p.whole("num_key_value_heads", default=heads))
    layers = p.whole("resampler_depth", high=100) * (attention + 12 * out * out + 3 * out)
    return siglip(c) + 2 * inner * h + inner * text + p.whole("resampler_n_latents") * out + layers + out


def phi4(c: Config, text: int) -> int:
    h = c.whole("hidden_size")
    return siglip(c) + _head(c) + 2 * h + _mlp(h, text, text)


def phi4_audio(c: Config, text: int) -> int:
    """A conformer behind strided convolutions, and two ways into the text."""
    h, ff, n = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("num_blocks", high=1000)
    channels = c.whole("nemo_conv_channels", default=h)
    half_step = 2 * h + 3 * h * ff + 2 * ff + h
    convolution = 2 * h + 2 * h + 2 * h * h + 2 * h + 4 * h + h * h + h + h * h + h
    layer = 2 * half_step + 4 * h * h + 4 * h + convolution + 4 * h
    stem = 3 * 9 * channels + 2 * channels * channels + 5 * channels + 10 * channels * h + h
    return stem + n * layer + 2 * _mlp(h, text, text) + 2000 * c.whole("num_attention_heads", default=16)


def mimo_v2(c: Config, text: int) -> int:
    """MiMo-V2: gated layers with shared key and value heads, and Qwen's merger."""
    h, ff, n = sizes(c)
    heads = c.whole("num_heads")
    spared = h - h // heads * c.whole("num_key_value_heads", default=heads)
    c.get("in_chans")
    layer = block(h, ff, gated=True, norm_params=1) - 2 * spared * (h + 1) + heads
    return patch(c, h, bias=False) + n * layer + h + merge(c, h, c.whole("out_hidden_size", default=text))


def mimo_v2_audio(c: Config, text: int) -> int:
    """Codes of each channel are embedded and joined by a small transformer; the codec that makes them runs elsewhere."""
    h, ff, n = c.whole("input_local_dim"), c.whole("input_local_intermediate_size"), c.whole("input_local_layers", high=1000)
    channels, rows = c.whole("audio_channels", default=20), c.get("speech_vocab_size")
    codes = int(rows) if isinstance(rows, (int, str)) and str(rows).isdecimal() and len(str(rows)) < 8 else 1280
    return channels * codes * h + n * block(h, ff, gated=True, norm_params=1) + c.whole("group_size", default=4) * h * text + text * text
