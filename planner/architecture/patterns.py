"""Which layer is what: full, windowed, chunked or recurrent mixers, dense or expert MLPs, from the many ways configs say it."""

from __future__ import annotations

import re
from typing import Any

from planner.architecture import keys
from planner.architecture.config import Config
from planner.architecture.families import Family
from planner.problems import InputError

WORDS = (
    (r"sliding|swa|local|window", "window"),
    (r"chunk", "chunk"),
    (r"hybrid", "both"),
    (r"linear|mamba|recurrent|ssm|kda|gdn|delta|lightning|conv|rwkv|rglru", "recurrent"),
    (r"moe|sparse_mlp|experts", "moe"),
    (r"^mlp$|dense", "mlp"),
    (r"full|global|attention|mla|nope|causal", "full"),
)
"""What the words of a `layer_types` list mean, first match wins."""
WORD_PARTS = frozenset(
    re.findall(
        r"\w+",
        "sliding swa local window windowed chunk chunked hybrid linear mamba mamba2 recurrent ssm kda gdn gated delta deltanet lightning "
        "conv short rglru moe sparse mlp experts dense full global attention attn self mla nope causal layer indexed deepseek qwen minimax "
        "m3",
    )
)
"""Parts of the words that public files use. Another part may change what the layer caches, so the whole word is refused."""
COMPRESSED = frozenset({"compressed", "heavily"})
LIST_KEYS = ("layer_types", "layers_block_type", "block_types", "mixer_types", "attention_types")
PATTERN_KEYS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")


def mixers(c: Config, family: Family, layers: int, notes: list[str]) -> list[str]:
    """One of full, window, chunk, recurrent, both, mlp, moe per layer; `mlp` and `moe` only where a layer is one of them."""
    listed = c.items(*LIST_KEYS)
    repeated = c.items("block_types", "_block_types")
    if repeated and isinstance(repeated[0], str) and len(repeated) < layers:
        listed = [repeated[i % len(repeated)] for i in range(layers)]
    if listed and not isinstance(listed[0], (str, list)):
        raise InputError(f"config key {c.where}layer_types has {str(listed[0])[:40]}; it must be a list of words such as full_attention")
    if listed and isinstance(listed[0], str):
        c.get("full_attention_interval", "attn_type_list", "hybrid_layer_pattern", "layer_group_size", "full_attn_idxs", *PATTERN_KEYS)
        return _from_words(c, family, listed, layers)
    letters = c.text("hybrid_override_pattern")
    if letters:
        return _from_letters(letters, layers)
    found = _recurrent(c, family, layers)
    windowed = _windowed(c, family, layers, notes)
    return [r if r != "full" else w for r, w in zip(found, windowed, strict=True)]


def _from_words(c: Config, family: Family, listed: list[Any], layers: int) -> list[str]:
    drafting = c.whole("num_nextn_predict_layers", default=0, low=0)  # some lists go on over these
    if not layers <= len(listed) <= layers + drafting:
        raise InputError(f"config key {c.where}layer_types has {len(listed)} entries for {layers} layers; it needs one per layer")
    known = WORD_PARTS | (COMPRESSED if family.extra.startswith("deepseek_v4") else set())
    strange = {str(word)[:40] for word in listed[:layers] if not _parts(word) or _parts(word) - known}
    kinds = [next((k for pattern, k in WORDS if re.search(pattern, str(word), re.IGNORECASE)), "") for word in listed[:layers]]
    if strange or not all(kinds):
        strange |= {str(word)[:40] for word, kind in zip(listed, kinds, strict=False) if not kind}
        raise InputError(
            f"config key {c.where}layer_types has {', '.join(sorted(strange)[:4])}: what such a layer holds and caches is not understood"
        )
    return [family.hybrid if kind == "both" else kind for kind in kinds]


def _parts(word: Any) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", word.lower())) if isinstance(word, str) else set()


def _from_letters(letters: str, layers: int) -> list[str]:
    """Nemotron-H's string: M is Mamba, * attention, - MLP, E experts."""
    kinds = {"M": "recurrent", "*": "full", "-": "mlp", "E": "moe"}
    if set(letters) - set(kinds) or len(letters) < layers:
        raise InputError(f"config key hybrid_override_pattern must have one of M * - E for each of {layers} layers")
    return [kinds[x] for x in letters[:layers]]


def _recurrent(c: Config, family: Family, layers: int) -> list[str]:
    """Recurrent against attention layers where no list names them."""
    every = range(layers)
    kinds = c.items("attn_type_list", "linear_attn_layers")
    if kinds is not None and len(kinds) >= layers:
        return ["full" if kinds[i] else "recurrent" for i in every]
    kda, full = c.wholes("kda_layers", high=layers), c.wholes("full_attn_layers", "attn_layer_indices", "attention_layers_idx", high=layers)
    if kda is not None:
        return ["recurrent" if i + 1 in kda else "full" for i in every]
    if full is not None and family.recurrent:
        return ["full" if i in full else "recurrent" for i in every]
    full = c.wholes("full_attn_idxs", high=layers)
    if full is not None and family.recurrent:
        return ["full" if i in full else "recurrent" for i in every]
    if c.has("full_attention_interval") and family.recurrent:
        n = c.whole("full_attention_interval")
        return ["full" if (i + 1) % n == 0 else "recurrent" for i in every]
    if c.has("layer_group_size") and family.recurrent:
        n = c.whole("layer_group_size")
        whole = layers // n * n
        return ["full" if (i + 1) % n == 0 or i >= whole else "recurrent" for i in every]
    if c.has("attn_layer_period"):
        n, at = c.whole("attn_layer_period"), c.whole("attn_layer_offset", default=0, low=0)
        return ["full" if i % n == at else "recurrent" for i in every]
    if family.extra == "falcon_h1":
        return ["both"] * layers
    if family.recurrent.startswith("mamba"):
        return ["recurrent"] * layers
    return ["full"] * layers


def _windowed(c: Config, family: Family, layers: int, notes: list[str]) -> list[str]:
    """Windowed against full layers where no list names them."""
    every = range(layers)
    pattern = c.items("hybrid_layer_pattern")
    if pattern is not None and len(pattern) >= layers:
        return ["window" if pattern[i] else "full" for i in every]
    if c.has("attention_chunk_size"):
        no_rope = c.items("no_rope_layers")
        if no_rope and len(no_rope) >= layers:
            return ["chunk" if no_rope[i] else "full" for i in every]
        n = c.whole("no_rope_layer_interval", default=4)
        return ["full" if (i + 1) % n == 0 else "chunk" for i in every]
    window = c.optional_whole(*keys.WINDOW)
    local = c.wholes("local_layer_ids", high=layers)
    if local is not None and window:
        return ["window" if i in local else "full" for i in every]
    if not window or c.get("use_sliding_window") is False or family.windows == "none" or family.extra.startswith("deepseek_v4"):
        c.get(*PATTERN_KEYS)
        return ["full"] * layers
    if family.windows == "all":
        return ["window"] * layers
    if family.windows == "even":
        return ["window" if i % 2 == 0 else "full" for i in every]
    if family.windows == "from_max_window_layers":
        first = c.whole("max_window_layers", default=layers, low=0) if c.get("use_sliding_window") else layers
        return ["window" if i >= first else "full" for i in every]
    text = c.get(*PATTERN_KEYS)
    if isinstance(text, str) and text:
        return ["window" if text[i % len(text)] in "Ll" else "full" for i in every]
    if text is not None or family.windows == "pattern":
        n = c.whole(*PATTERN_KEYS, default=4)
        return ["full" if (i + 1) % n == 0 else "window" for i in every]
    notes.append(f"sliding_window {window} is set but nothing says which layers have it; all are counted as full attention, an upper bound")
    return ["full"] * layers


MOE_SWITCHES = ("enable_moe_block", "is_moe", "use_moe", "moe_enabled")


def expert_layers(c: Config, layers: int) -> list[bool]:
    """Whether each layer routes to experts."""
    every = range(layers)
    experts = c.get(*keys.EXPERTS)
    if not experts or experts == 1 or any(c.get(name) is False for name in MOE_SWITCHES):
        return [False] * layers
    c.get("mlp_only_layers", "decoder_sparse_step", "first_k_dense_replace")  # read below, unless a list says it layer by layer
    types = c.items("mlp_layer_types")
    if types is not None and len(types) >= layers:
        strange = sorted({str(t)[:40] for t in types[:layers] if not re.search(r"sparse|moe|dense|mlp", str(t))})
        if strange:
            raise InputError(f"config key {c.where}mlp_layer_types has {', '.join(strange[:4])}; known are dense, sparse and moe")
        return ["sparse" in str(types[i]) or "moe" in str(types[i]) for i in every]
    frequency = c.get("moe_layer_freq")
    if isinstance(frequency, (list, tuple)):
        return [c.at(i, "moe_layer_freq", low=0) > 0 for i in every]
    listed = c.get("moe_layers", "moe_layers_enum", "moe_layer_indices")
    if isinstance(listed, str) and listed:
        listed = [int(x) for x in re.findall(r"\d+", listed)[:layers]]
    if isinstance(listed, (list, tuple)) and listed:
        return [i in listed for i in every]
    first = c.whole(
        "first_k_dense_replace", "num_dense_layers", "n_dense_layers", "moe_layer_num_skipped", "dense_mlp_idx", default=0, low=0
    )
    dense: list[int] = c.wholes("mlp_only_layers") or []
    if c.has("expert_layer_period"):
        n, at = c.whole("expert_layer_period"), c.whole("expert_layer_offset", default=0, low=0)
        return [i % n == at for i in every]
    if c.has("interleave_moe_layer_step"):
        n = c.whole("interleave_moe_layer_step", low=0)
        return [n > 0 and (i + 1) % n == 0 for i in every]
    if c.has("moe_layer_interval") or c.has("moe_layer_start_index"):
        n, start = c.whole("moe_layer_interval", default=1), c.whole("moe_layer_start_index", default=0, low=0)
        end = c.whole("moe_layer_end_index", default=-1, low=-1)
        return [(i + 1) % n == 0 and start <= i <= (layers - 1 if end < 0 else end) for i in every]
    n = c.whole("moe_layer_freq", default=1)
    step = c.whole("decoder_sparse_step", default=1)
    return [i >= first and i not in dense and (i + 1) % step == 0 and i % n == 0 for i in every]
