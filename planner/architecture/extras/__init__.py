"""What single families have alone, a function per family.

`SPELLING` puts a file into the usual words, `LAYER` changes a layer draft, `OUTER` adds weights outside the layers, `ORDER`
says in which order layers run and what they share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from planner.architecture.config import Config
from planner.architecture.extras import convolved, deepseek, parts, repeated, spelling, streams
from planner.architecture.model import Tensor

if TYPE_CHECKING:
    from planner.architecture.build import Draft

LAYER: dict[str, Callable[[Config, int, Draft], None]] = {
    "axk2": parts.axk2,
    "bitnet": parts.bitnet,
    "deepseek_v4": deepseek.deepseek_v4,
    "deepseek_v41": deepseek.deepseek_v41,
    "doge": parts.doge,
    "dory": repeated.dory,
    "dots3_note": parts.dots3_note,
    "falcon": parts.falcon,
    "falcon_h1": parts.falcon_h1,
    "gemma3n": parts.gemma3n,
    "gemma4": parts.gemma4,
    "hyper_connections": parts.hyper_connections,
    "hyper_light": parts.hyper_light,
    "idefics": parts.idefics,
    "image_experts": parts.image_experts,
    "inkling": convolved.inkling,
    "inkling2": convolved.inkling2,
    "jetmoe": repeated.jetmoe,
    "lfm2": parts.lfm2,
    "longcat": parts.longcat,
    "minimax_m3": parts.minimax_m3,
    "mistral_large4": parts.mistral_large4,
    "mllama": parts.mllama,
    "nemotron_h": parts.nemotron_h,
    "nemotron_nas": parts.nemotron_nas,
    "post_norms": parts.post_norms,
    "qwen4_exp": streams.qwen4_exp,
    "recurrent_gemma": parts.recurrent_gemma,
    "zamba": repeated.zamba,
    "zaya": convolved.zaya,
}
OUTER: dict[str, Callable[[Config, int], list[Tensor]]] = {
    "deepseek_v4": deepseek.deepseek_v4_outer,
    "deepseek_v41": deepseek.deepseek_v41_outer,
    "dory": repeated.dory_outer,
    "embedding_norm": parts.embedding_norm,
    "gemma3n": parts.gemma3n_outer,
    "gemma4": parts.gemma4_outer,
    "hrm_text": repeated.hrm_outer,
    "hyper_light": deepseek.deepseek_v4_outer,
    "inkling": convolved.inkling_outer,
    "inkling2": convolved.inkling2_outer,
    "mllama": parts.mllama_outer,
    "qwen4_exp": streams.qwen4_exp_outer,
    "zaya": convolved.zaya_outer,
}
ORDER: dict[str, Callable[[Config, list[Draft]], list[Draft]]] = {
    "dory": repeated.dory_order,
    "hrm_text": repeated.hrm_order,
    "inkling2": lambda c, drafts: repeated.run(drafts, convolved.inkling2_loops(c, len(drafts))),
    "zamba": repeated.zamba_order,
}
SPELLING: dict[str, Callable[[spelling.Raw], spelling.Raw]] = {
    "deepseek_v41": spelling.without_drafter,
    "dory": spelling.dory,
    "hrm_text": spelling.hrm_text,
    "image_experts": spelling.by_modality,
    "jetmoe": spelling.jetmoe,
    "zamba": spelling.zamba,
    "zaya": spelling.zaya,
}
BY_PLACE = ("axk2", "idefics", "inkling2", "zaya")
"""Layers of one kind differ by where they stand."""
SUBLAYERS = {"longcat": 2}
"""Layers of ours that one published layer holds."""
