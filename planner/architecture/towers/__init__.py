"""Vision and audio towers: parameters that sit in memory and play no part in decode. Shapes as the models' public code has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.architecture.config import Config
from planner.architecture.model import Tensor
from planner.architecture.towers import audio, newer, vision
from planner.architecture.towers.shapes import generic
from planner.problems import InputError

Defaults = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Guess:
    """What was not known about a tower, and how many parameters may hang on it."""

    note: str
    params: float


MODEL_KEYS = (
    *("projector_hidden_size", "alignment_intermediate_size", "downsample_factor", "adapter_config", "perceiver_config", "text_config"),
    "additional_vocab_size",
)
"""Keys of the whole model that towers known here read, under `model.`."""


def of(raw: Mapping[str, Any], hidden: int, defaults: Defaults, guesses: list[Guess], read: set[str]) -> list[Tensor]:
    """Towers of a multimodal configuration, projectors included; one tensor a tower.

    `guesses` gets what was not known, `read` the keys of the whole model that were understood.
    """
    inner = raw.get("thinker_config")
    parts = {**raw, **inner} if isinstance(inner, Mapping) else raw
    model_type = str(raw.get("model_type") or "").removesuffix("_thinker")
    vision = parts.get("vision_config", parts.get("vit_config"))
    towers = []
    if isinstance(vision, Mapping) or _implied(raw, model_type):
        own = vision if isinstance(vision, Mapping) else {}
        known = KNOWN.get(model_type) or KNOWN.get(str(own.get("model_type")))
        c = Config({**_of_model(parts), **own}, _defaults(own, model_type, "vision", defaults), "vision_config.")
        towers.append(("vision_tower", _count(known, c, hidden, guesses, "vision")))
        if known:
            read.update(k.removeprefix("model.") for k in c.read if k.startswith("model."))
            read.update(READ_TOO.get(model_type, ()))
    for part in ("audio_config", "audio_encoder_config", "sound_config"):
        audio = parts.get(part)
        if isinstance(audio, Mapping) and model_type != "gemma3n":  # counted with its vision tower
            known = KNOWN_AUDIO.get(model_type)
            c = Config(audio, _defaults(audio, model_type, "audio", defaults), f"{part}.")
            towers.append(("audio_tower", _count(known, c, hidden, guesses, "audio")))
    if raw.get("talker_config"):
        guesses.append(Guess("the talker that speaks is left out: engines serve the thinker alone", 0))
    return [Tensor(name, params, 1, "tower", linear=False) for name, params in towers if params > 0]


def _of_model(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"model.{k}": parts[k] for k in MODEL_KEYS if k in parts}


def _count(count: Callable[[Config, int], int] | None, c: Config, hidden: int, guesses: list[Guess], what: str) -> int:
    """Parameters of one tower. Of an unknown kind it is a plain transformer of its size, and as many may be missing; of no size
    it is left out, and a transformer of the text's width may be missing."""
    try:
        found = (count or generic)(c, hidden)
    except InputError as error:
        guesses.append(Guess(f"the {what} tower is left out: {error}", 24 * 12.0 * hidden * hidden))
        return 0
    if count is None:
        text = (
            f"the {what} tower is not of a kind known here; its {found / 1e9:.2f} B parameters are those of a plain transformer of its size"
        )
        guesses.append(Guess(text, float(found)))
    return found


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


KNOWN: dict[str, Callable[[Config, int], int]] = {
    "aria": generic,
    "cohere2_vision": newer.cohere2_vision,
    "cosmos3_edge": newer.cosmos3_edge,
    "cosmos3_omni": vision.qwen3_vl,
    "deepseek_v41": newer.deepseek_v41,
    "dots3_note": newer.dots3,
    "ernie4_5_vl_moe": newer.ernie,
    "exaone4_5": newer.exaone4_5,
    "fast_vlm": newer.fast_vlm,
    "gemma3": vision.gemma3,
    "gemma3n": vision.gemma3n,
    "gemma4": vision.gemma4,
    "glm46v": vision.glm4v,
    "glm4v": vision.glm4v,
    "glm4v_moe": vision.glm4v,
    "glm5_next": newer.glm_ocr,
    "glm_ocr": newer.glm_ocr,
    "glmga": vision.glm4v,
    "granite_docling": newer.granite_docling,
    "hyperclovax_vision_v2": newer.hyperclovax,
    "idefics": newer.idefics,
    "idefics2": newer.idefics2,
    "idefics3": generic,
    "inkling2": newer.inkling2,
    "inkling_mm_model": newer.inkling,
    "inkling2_loop": newer.inkling2,
    "internvl": vision.internvl,
    "internvl_chat": vision.internvl,
    "kimi_k25": vision.kimi,
    "kimi_k3": vision.kimi,
    "kimi_vl": vision.kimi,
    "llama4": vision.llama4,
    "llava": vision.clip,
    "llava_next": vision.clip,
    "llava_onevision": vision.clip,
    "mimo_v2": newer.mimo_v2,
    "minimax_m3_vl": vision.minimax_m3,
    "mistral3": vision.pixtral,
    "mistral_large4": vision.pixtral,
    "mllama": vision.mllama,
    "molmo2": newer.molmo2,
    "muse_glimmer": newer.muse,
    "muse_spark": newer.muse,
    "nemotron_h_omni": newer.nemotron_omni,
    "paddleocr_vl": newer.paddleocr,
    "paligemma": vision.paligemma,
    "phi4_multimodal": newer.phi4,
    "qwen2_5_omni": vision.qwen2_5_vl,
    "qwen2_5_vl": vision.qwen2_5_vl,
    "qwen2_vl": vision.qwen2_vl,
    "qwen3_5": vision.qwen3_vl,
    "qwen3_5_moe": vision.qwen3_vl,
    "qwen3_8_flash_next": vision.qwen3_vl,
    "qwen3_omni_moe": vision.qwen3_vl,
    "qwen3_vl": vision.qwen3_vl,
    "qwen3_vl_moe": vision.qwen3_vl,
    "qwen4_exp": vision.qwen3_vl,
    "shieldgemma2": vision.gemma3,
    "smolvlm": generic,
    "step3p7": vision.step,
    "video_llama_3": generic,
}
"""Towers by the model_type of the whole model: the projector belongs to it."""
KNOWN_AUDIO: dict[str, Callable[[Config, int], int]] = {
    "inkling_mm_model": newer.inkling_audio,
    "dots3_note": newer.dots3_audio,
    "gemma4": audio.gemma4_audio,
    "mimo_v2": newer.mimo_v2_audio,
    "muse_spark": newer.muse_audio,
    "phi4_multimodal": newer.phi4_audio,
    "qwen2_audio": generic,
    "qwen2_5_omni": generic,
    "qwen3_omni_moe": generic,
    "voxtral": generic,
}
READ_TOO: dict[str, tuple[str, ...]] = {"idefics": ("perceiver_config",), "molmo2": ("additional_vocab_size",)}
"""Keys of the whole model that change less than a thousandth of it."""
