"""How a checkpoint is stored, from its `quantization_config` (or ModelOpt's `hf_quant_config.json` under that key).

Quantisers shrink linear layers and list what they leave alone in their own dialects; patterns are brought to the names
of `Tensor` before they are compared.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.architecture import keys
from planner.architecture.config import MAX_LAYERS
from planner.architecture.model import Quantization, Tensor
from planner.architecture.regex import Matcher

SIZES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "mxfp8": 1 + 1 / 32,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
    "int4": 0.5 + 2.5 / 128,
}
"""Bytes of one element with its scales: one byte per 32 (mx), per 16 (nvfp4), 16-bit scale and 4-bit zero per 128 (int4)."""
ALGORITHMS = (
    (r"mxfp8", "mxfp8"),
    (r"nvfp4|fp4_?awq", "nvfp4"),
    (r"mxfp4|w4a8_?mx", "mxfp4"),
    (r"fp8|w8a8_?fp", "fp8"),
    (r"w4|int4|awq|gptq|nf4|autoround|auto-round|intel", "int4"),
    (r"w8|int8|smooth", "int8"),
)
SYNONYMS = (
    (r"\b(block_sparse_moe|feed_forward|ffn|moe)\b", "mlp"),
    (r"\b(attn|attention|self_attention)\b", "self_attn"),
    (r"\b(linear_attn|mamba)\b", "recurrent"),
    (r"\bshared_expert\b", "shared_experts"),
    (r"\bmlp\.router\b", "mlp.gate"),
    (r"\brouter\b", "mlp.gate"),
    (r"\bexperts\.(\d+|\*)\.?.*$", "experts"),
)
ELSEWHERE = re.compile(r"^mtp|vision|visual|audio|projector", re.IGNORECASE)
"""Patterns about layers that are not decoder layers; those stay 16-bit anyway."""
SECTIONS = ("quantization_config", "compression_config", "hf_quant_config", "quantization")
PLAIN_ROLES = ("embedding", "norm", "router", "tower")


ANY_LAYER = -1
"""A layer that no rule names."""
ROOTS = ("model.", "language_model.model.", "model.language_model.")
"""What checkpoints write before `layers`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern of a quantiser: which layers (None for all), which module, stored how ("" for left alone)."""

    layer: int | None
    module: str
    stored: str
    regex: bool = False


@dataclass(frozen=True, slots=True)
class Scheme:
    """A quantisation opened: what applies by default and the exceptions, last match wins."""

    summary: Quantization
    default: str
    rules: tuple[Rule, ...]
    experts: str = ""
    """Precision of routed experts where a key of its own says so."""
    layers_named: frozenset[int] = frozenset()
    """Layers with rules of their own; all others are stored alike."""
    matcher: Matcher = field(default_factory=Matcher)
    known: dict[tuple[str, str, bool, int | None], str] = field(default_factory=dict)
    """Answers already found: a checkpoint has thousands of tensors and few kinds."""

    def mark(self, tensor: Tensor, layer: int | None) -> Tensor:
        """`tensor` with its precision in the checkpoint."""
        own = layer if layer is None or layer in self.layers_named else ANY_LAYER
        key = (tensor.name, tensor.role, tensor.linear, own)
        if key not in self.known:
            self.known[key] = self.stored(tensor, layer)
        return replace(tensor, stored=self.known[key]) if self.known[key] else tensor

    def stored(self, tensor: Tensor, layer: int | None) -> str:
        """Precision of `tensor` in the checkpoint; "" for plain 16-bit."""
        if not tensor.linear or tensor.role in PLAIN_ROLES:
            return ""
        found = "" if tensor.role == "lm_head" else self.experts if self.experts and tensor.role == "expert" else self.default
        for rule in self.rules:
            if (rule.layer is None or rule.layer == layer) and _matches(rule, tensor, layer, self.matcher):
                found = rule.stored
        return found


def of(raw: Mapping[str, Any], remarks: list[str]) -> Scheme | None:
    """The scheme of a configuration, None when it is plain. What is not understood is remarked and counted as 16-bit."""
    found = _config(raw)
    if not found:
        said = next((raw[key] for key in SECTIONS if raw.get(key) and not isinstance(raw[key], Mapping)), None)
        if said is not None:
            remarks.append(f"quantization_config is {repr(said)[:60]}, not an object in braces; with weights auto they count as 16-bit")
        return None
    method = str(found.get("quant_method") or found.get("quant_algo") or (found.get("producer") or {}).get("name") or "unknown")[:40]
    weights, size = _weights(found, method, remarks)
    if weights is None:
        remarks.append(f"quantization_config of kind {method!r} is not understood; with weights auto they count as 16-bit")
        weights, size = "bf16", 2.0
    listed = _listed(found)
    base = "fp8" if method == "fp8" and listed else ""  # a block-FP8 checkpoint with some layers shrunk further
    default = base if listed else "" if weights == "bf16" else weights
    if listed:
        weights = _commonest(listed)
        size = SIZES[weights]
    ignored = (
        () if base else _texts(found, "ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "llm_int8_skip_modules")
    )
    rules = tuple(dict.fromkeys([*(_rule(p, s) for p, s in listed), *(_rule(p, "") for p in ignored)]))
    matcher = Matcher()
    strange = sorted({r.module[:60] for r in rules if r.regex and not matcher.understands(r.module)})
    if strange:
        examples = ", ".join(strange[:3])
        remarks.append(f"quantization_config has patterns not followed here ({examples}); the layers they name count as the others")
        rules = tuple(r for r in rules if not r.regex or matcher.understands(r.module))
    block = found.get("weight_block_size") or _block(found)
    summary = Quantization(
        method,
        weights,
        size,
        block=block[0] if isinstance(block, (list, tuple)) and block and isinstance(block[0], int) else 0,
        kv_cache=_kv(found),
    )
    expert_dtype = str(raw.get("expert_dtype") or found.get("expert_dtype") or "")
    by_regex = any(r.regex and not _blind(r.module) for r in rules)
    named = frozenset(range(MAX_LAYERS)) if by_regex else frozenset(r.layer for r in rules if r.layer is not None)
    return Scheme(summary, default, rules, "mxfp4" if "fp4" in expert_dtype and not listed else "", named, matcher)


def _config(raw: Mapping[str, Any]) -> dict[str, Any]:
    parts = [raw, *(raw[k] for k in keys.TEXT_PARTS if isinstance(raw.get(k), Mapping))]
    for part in parts:
        for key in SECTIONS:
            value = part.get(key)
            if isinstance(value, Mapping) and value:
                inner = value.get("quantization")
                return {**value, **inner} if isinstance(inner, Mapping) else dict(value)
    return {}


def _weights(found: Mapping[str, Any], method: str, remarks: list[str]) -> tuple[str | None, float]:
    """(precision, bytes per element) of converted layers."""
    groups = found.get("config_groups")
    if isinstance(groups, Mapping):
        first = next((g for g in groups.values() if isinstance(g, Mapping)), {})
        return _numeric(first.get("weights"))
    bits, group = found.get("bits") or found.get("w_bit"), found.get("group_size") or found.get("q_group_size")
    if found.get("load_in_4bit") or bits == 4:
        scale = 2.5 / group if isinstance(group, int) and group > 0 else 2.5 / 128
        return "int4", 0.5 + scale
    if found.get("load_in_8bit") or bits == 8:
        return "int8", 1.0
    if bits is not None and str(bits) not in ("4", "8"):
        remarks.append(f"quantization_config has {repr(bits)[:40]} bits, where 4 or 8 are understood; the kind {method!r} decides")
    for text in (str(found.get("quant_algo") or ""), str(found.get("moe_quant_algo") or ""), method):
        name = _algorithm(text)
        if name:
            return name, SIZES[name]
    return ("bf16", 2.0) if "MIXED" in str(found.get("quant_algo")) else (None, 2.0)


def _algorithm(text: str) -> str:
    return next((name for pattern, name in ALGORITHMS if re.search(pattern, text, re.IGNORECASE)), "")


def _numeric(weights: Any) -> tuple[str | None, float]:
    """compressed-tensors and ModelOpt: bits and type of a group's weights."""
    if not isinstance(weights, Mapping):
        return None, 2.0
    bits, kind, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if bits == 8:
        return ("fp8" if kind == "float" else "int8"), 1.0
    if bits == 4 and kind == "float":
        name = "mxfp4" if group == 32 else "nvfp4"
        return name, SIZES[name]
    if bits == 4:
        return "int4", 0.5 + 2 / group if isinstance(group, int) and group > 0 else SIZES["int4"]
    return None, 2.0


def _listed(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(pattern, precision) of layers a mixed checkpoint names one by one."""
    layers = found.get("quantized_layers")
    if isinstance(layers, Mapping):
        named = [(str(p), _algorithm(str(v.get("quant_algo")))) for p, v in layers.items() if isinstance(v, Mapping)]
        return [(p, s) for p, s in named if s]
    groups = found.get("config_groups")
    if not isinstance(groups, Mapping):
        return []
    result: list[tuple[str, str]] = []
    for group in groups.values():
        targets = group.get("targets") if isinstance(group, Mapping) else None
        stored, _ = _numeric(group.get("weights")) if isinstance(group, Mapping) else (None, 0.0)
        if stored and isinstance(targets, (list, tuple)) and targets and "Linear" not in targets:
            result += [(str(t), stored) for t in targets]
    return result


def _commonest(listed: list[tuple[str, str]]) -> str:
    names = [s for _, s in listed]
    return max(set(names), key=names.count)


def _texts(found: Mapping[str, Any], *names: str) -> Iterable[str]:
    for name in names:
        value = found.get(name)
        if isinstance(value, (list, tuple)):
            yield from (str(v) for v in value if not ELSEWHERE.search(str(v)))


def _block(found: Mapping[str, Any]) -> Any:
    """compressed-tensors says the block of its block-wise groups inside their weights."""
    groups = found.get("config_groups")
    parts = [g.get("weights") for g in groups.values() if isinstance(g, Mapping)] if isinstance(groups, Mapping) else []
    return next((w.get("block_structure") for w in parts if isinstance(w, Mapping) and w.get("block_structure")), None)


def _kv(found: Mapping[str, Any]) -> str:
    text = str(found.get("kv_cache_quant_algo") or found.get("kv_cache_scheme") or "")
    return "fp8" if "FP8" in text.upper() or "'num_bits': 8" in text else ""


def _rule(pattern: str, stored: str) -> Rule:
    """A quantiser's pattern in our words: layer number taken out, module names brought to ours."""
    if pattern.startswith("re:"):
        return Rule(None, pattern[3:], stored, regex=True)
    at = re.search(r"layers\.(\d+)(?=[.*]|$)\.?(.*)$", pattern)
    layer, module = (int(at.group(1)), at.group(2)) if at else (None, re.sub(r"^.*layers\.(\*|\\d\+)\.?", "", pattern))
    for synonym, ours in SYNONYMS:
        module = re.sub(synonym, ours, module)
    return Rule(layer, module or "*", stored)


def _matches(rule: Rule, tensor: Tensor, layer: int | None, matcher: Matcher) -> bool:
    names = [tensor.name]
    if "." in tensor.name:
        alias = "recurrent." if tensor.role == "recurrent" else "mixer."
        names.append(alias + tensor.name.partition(".")[2])
    module = rule.module
    if rule.regex:
        number = 0 if layer in (None, ANY_LAYER) or _blind(module) else layer
        paths = [""] if layer is None else [f"{root}layers.{number}." for root in ROOTS if root == ROOTS[0] or "language" in module]
        return any(matcher.matches(module, path + name) for path in paths for name in _spellings(tensor))
    if "*" in module:
        matcher.spend(200)
        return any(fnmatch.fnmatchcase(n, module) or fnmatch.fnmatchcase(f".{n}.", module) for n in names)
    if module in ("head", "lm_head") or module.endswith(".lm_head"):
        return tensor.role == "lm_head"
    return any(n == module or n.startswith(module + ".") or _same_leaf(n, module) for n in names)


def _blind(pattern: str) -> bool:
    """Whether a regular expression cannot tell one layer's number from another's."""
    return not re.search(r"\d|\\d", re.sub(r"(\\d|\[0-9\])[+*]", "", pattern))


def _spellings(tensor: Tensor) -> list[str]:
    """Names that families give the same module, for regular expressions, which are written against the checkpoint's own."""
    names = [tensor.name]
    if tensor.role == "expert":
        leaf = "down_proj" if "down" in tensor.name else "gate_proj"
        names += [f"mlp.experts.0.{leaf}", f"block_sparse_moe.experts.0.{'w2' if 'down' in leaf else 'w1'}"]
    if tensor.role == "shared_expert":
        names.append(tensor.name.replace("shared_experts", "shared_expert"))
    if tensor.role == "recurrent":
        names += [tensor.name.replace("mixer", module) for module in ("linear_attn", "mamba", "self_attn")]
    modules = ("ffn", "feed_forward", "block_sparse_moe")
    return names + [n.replace("mlp.", f"{module}.") for n in names if n.startswith("mlp.") for module in modules]


def _same_leaf(name: str, module: str) -> bool:
    """Fused weights under the name of one part: in_proj_qkvz for in_proj_qkv."""
    parent, _, leaf = name.rpartition(".")
    other, _, part = module.rpartition(".")
    return bool(parent) and parent == other and len(part) > 5 and leaf.startswith(part)
