"""Vision and audio towers: parameters that sit in memory and play no part in decode. Shapes as the models' public code has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.architecture.config import Config
from planner.architecture.model import Tensor
from planner.problems import InputError

Defaults = Mapping[str, Mapping[str, Any]]


def of(raw: Mapping[str, Any], hidden: int, defaults: Defaults, notes: list[str]) -> list[Tensor]:
    """Towers of a multimodal configuration, projectors included; one tensor a tower. `notes` gets what was guessed."""
    inner = raw.get("thinker_config")
    parts = {**raw, **inner} if isinstance(inner, Mapping) else raw
    model_type = str(raw.get("model_type") or "").removesuffix("_thinker")
    vision = parts.get("vision_config", parts.get("vit_config"))
    towers = []
    if isinstance(vision, Mapping) or _implied(raw, model_type):
        own = vision if isinstance(vision, Mapping) else {}
        known = KNOWN.get(model_type) or KNOWN.get(str(own.get("model_type")))
        c = Config(own, _defaults(own, model_type, "vision", defaults), "vision_config.")
        towers.append(("vision_tower", _count(known or generic, c, hidden, notes, "vision", known is not None)))
    for part in ("audio_config", "audio_encoder_config", "sound_config"):
        audio = parts.get(part)
        if isinstance(audio, Mapping) and model_type != "gemma3n":  # counted with its vision tower
            known = KNOWN_AUDIO.get(model_type)
            c = Config(audio, _defaults(audio, model_type, "audio", defaults), f"{part}.")
            towers.append(("audio_tower", _count(known or generic, c, hidden, notes, "audio", known is not None)))
    if raw.get("talker_config"):
        notes.append("the talker that speaks is left out: engines serve the thinker alone")
    return [Tensor(name, params, 1, "tower", linear=False) for name, params in towers if params > 0]


def _count(count: Callable[[Config, int], int], c: Config, hidden: int, notes: list[str], what: str, known: bool) -> int:
    if not known:
        notes.append(f"the {what} tower is not of a kind known here; its parameters are those of a plain transformer of its size")
    try:
        return count(c, hidden)
    except InputError as error:
        notes.append(f"the {what} tower is left out: {error}")
        return 0


def _implied(raw: Mapping[str, Any], model_type: str) -> bool:
    """Files trimmed of their vision part still describe a model that has one, of the class's default size."""
    if model_type not in KNOWN or "vision_config" in raw:
        return False
    return model_type == "step3p7" or "ConditionalGeneration" in str(raw.get("architectures"))


def _defaults(own: Mapping[str, Any], model_type: str, what: str, defaults: Defaults) -> Mapping[str, Any]:
    names: tuple[str, ...] = (
        str(own.get("model_type")),
        f"{model_type}_{what}",
        f"{model_type}_{what}_model",
        f"{own.get('model_type')}_{what}",
    )
    names += ("siglip_vision_model",) if model_type == "gemma3" else ("step3p5_vision",) if model_type == "step3p7" else ()
    return next((defaults[n] for n in names if n in defaults), {})


def block(h: int, ff: int, *, gated: bool = False, bias: bool = True, norms: int = 2, norm_params: int = 2) -> int:
    """Parameters of one encoder layer."""
    attention = 4 * h * h + (4 * h if bias else 0)
    mlp = (3 if gated else 2) * h * ff + ((2 * ff if gated else ff) + h if bias else 0)
    return attention + mlp + norms * norm_params * h


def _sizes(c: Config) -> tuple[int, int, int]:
    h = c.whole("hidden_size", "embed_dim", "vt_hidden_size", "width", "d_model", "dim")
    layers = c.whole("num_hidden_layers", "depth", "vt_num_hidden_layers", "num_layers", "layers", "encoder_layers", high=1000)
    return (
        h,
        c.whole(
            "intermediate_size", "vt_intermediate_size", "mlp_dim", "encoder_ffn_dim", default=int(h * c.number("mlp_ratio", default=4.0))
        ),
        layers,
    )


def _patches(c: Config) -> int:
    return (c.side("image_size") // c.side("patch_size")) ** 2


def _patch(c: Config, h: int, bias: bool = True) -> int:
    frames = c.whole("temporal_patch_size", default=1)
    return c.whole("num_channels", "in_channels", default=3) * frames * c.side("patch_size", default=14) ** 2 * h + (h if bias else 0)


def siglip(c: Config) -> int:
    h, ff, n = _sizes(c)
    return _patch(c, h) + _patches(c) * h + n * block(h, ff) + 2 * h


def gemma3(c: Config, text: int) -> int:
    h = c.whole("hidden_size")
    return siglip(c) + h * text + h


def paligemma(c: Config, text: int) -> int:
    return siglip(c) + c.whole("hidden_size") * text + text


def gemma3n(c: Config, text: int) -> int:
    """MobileNet-V5 and a conformer of fixed size (983,281,504 with E4B's projections), projections to the text width."""
    return 983_281_504 - 2048 * 3584 + text * 3584


def gemma4(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    positions = 2 * c.whole("position_embedding_size", default=10240) * h
    return (
        positions
        + _patch(c, h, bias=False)
        + n * (block(h, ff, gated=True, bias=False, norms=4, norm_params=1) + 2 * c.whole("head_dim"))
        + text * h
    )


def llama4(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    wide, out = c.whole("projector_input_dim", default=4096), c.whole("projector_output_dim", default=4096)
    adapter = ff * wide + wide * out + text * c.whole("vision_output_dim", default=out)
    return _patch(c, h, bias=False) + (_patches(c) + 2) * h + 4 * h + n * block(h, ff) + adapter


def qwen2_vl(c: Config, text: int) -> int:
    h, n = c.whole("embed_dim"), c.whole("depth")
    ff = int(h * c.number("mlp_ratio", default=4.0))
    return _patch(c, h, bias=False) + n * block(h, ff) + 2 * h + _merge(c, h, text)


def qwen2_5_vl(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    return (
        _patch(c, h, bias=False) + n * block(h, ff, gated=True, norm_params=1) + h + _merge(c, h, c.whole("out_hidden_size", default=text))
    )


def _merge(c: Config, h: int, out: int) -> int:
    """Patch merger: four neighbours side by side through two linear layers."""
    wide = h * c.whole("spatial_merge_size", default=2) ** 2
    return wide * wide + wide + wide * out + out


def qwen3_vl(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    out, wide = c.whole("out_hidden_size", default=text), h * c.whole("spatial_merge_size", default=2) ** 2
    deep = len(c.items("deepstack_visual_indexes") or ()) * (2 * wide + _merge(c, h, out))
    return _patch(c, h) + c.whole("num_position_embeddings", default=2304) * h + n * block(h, ff) + 2 * h + _merge(c, h, out) + deep


def glm4v(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    out = c.whole("out_hidden_size", default=text)
    merger = out * out + 2 * out + 3 * out * ff
    layer = block(h, out, gated=True, bias=False, norm_params=1)
    return _patch(c, h) + _patches(c) * h + n * layer + merger + 2 * h + 4 * out * h + out


def kimi(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    side = c.whole("init_pos_emb_height", default=64) * c.whole("init_pos_emb_width", default=64)
    wide = h * 4
    return _patch(c, h) + side * h + n * block(h, ff) + 2 * h + 2 * h + wide * wide + wide + wide * text + text


def step(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    shrink = 18 * h * h + 2 * h + 72 * h * h + 4 * h
    return _patch(c, h, bias=False) + _patches(c) * h + 2 * h + n * (block(h, ff) + 2 * h) + shrink + text * 4 * h


def minimax_m3(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    frames = c.whole("temporal_patch_size", default=2)
    patch = 3 * frames * c.side("patch_size") ** 2 * h
    return patch + 2 * h + n * block(h, ff) + text * h + 6 * text * text + 4 * text


def pixtral(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    merge = h * 4 * h
    return _patch(c, h, bias=False) + h + n * block(h, ff, gated=True, bias=False, norm_params=1) + h + merge + text * h + text * text


def clip(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    return _patch(c, h, bias=False) + (_patches(c) + 2) * h + 4 * h + n * block(h, ff) + text * h + text * text + 2 * text


def internvl(c: Config, text: int) -> int:
    h, ff, n = _sizes(c)
    wide = 4 * h
    return _patch(c, h) + (_patches(c) + 2) * h + n * (block(h, ff) + 2 * h) + 2 * wide + wide * text + text * text + 2 * text


def mllama(c: Config, text: int) -> int:
    """Llama 3.2 Vision: local and global (gated) layers, tile embeddings, a projector of the concatenated outputs."""
    h, ff, n = _sizes(c)
    total = n + c.whole("num_global_layers", default=8)
    out = c.whole("vision_output_dim", default=7680)
    return (
        total * block(h, ff, bias=False) + total * (ff + h) + _patch(c, h, bias=False) + 10 * (_patches(c) + 1) * h * 4 + out * text + text
    )


def gemma4_audio(c: Config, text: int) -> int:
    """Conformer of Gemma 4: two half-step MLPs, attention with relative positions, a gated convolution."""
    h, n, out = c.whole("hidden_size"), c.whole("num_hidden_layers", high=1000), c.whole("output_proj_dims", default=1536)
    layer = 16 * h * h + 4 * h + 5 * h * h + h // 8 + 3 * h * h + 5 * h + 2 * h + 3 * h
    return 128 * 9 + 128 + 32 * 128 * 9 + 32 + 1024 * h + n * layer + out * h + out + out * text


def generic(c: Config, text: int) -> int:
    """A plain transformer of the given size behind a two-layer projector."""
    h, ff, n = _sizes(c)
    return _patch(c, h) + n * block(h, ff) + h * text + text * text


KNOWN: dict[str, Callable[[Config, int], int]] = {
    "aria": generic,
    "gemma3": gemma3,
    "shieldgemma2": gemma3,
    "idefics3": generic,
    "smolvlm": generic,
    "llava_onevision": clip,
    "qwen2_5_omni": qwen2_5_vl,
    "qwen3_omni_moe": qwen3_vl,
    "video_llama_3": generic,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "glm4v": glm4v,
    "glm46v": glm4v,
    "glm4v_moe": glm4v,
    "internvl": internvl,
    "internvl_chat": internvl,
    "kimi_k25": kimi,
    "kimi_k3": kimi,
    "kimi_vl": kimi,
    "llama4": llama4,
    "llava": clip,
    "llava_next": clip,
    "minimax_m3_vl": minimax_m3,
    "mistral3": pixtral,
    "mllama": mllama,
    "paligemma": paligemma,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen2_vl": qwen2_vl,
    "qwen3_5": qwen3_vl,
    "qwen3_5_moe": qwen3_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "step3p7": step,
}
"""Towers by the model_type of the whole model: the projector belongs to it."""
KNOWN_AUDIO: dict[str, Callable[[Config, int], int]] = {
    "gemma4": gemma4_audio,
    "qwen2_audio": generic,
    "qwen2_5_omni": generic,
    "qwen3_omni_moe": generic,
    "voxtral": generic,
}
