"""What drafts tokens in front of a model, as an architecture of its own: memory, cache and step time treat it like any other.

A drafter is one pass that yields one drafted token per sequence (all k at once for Medusa). `resident` are the weights that it
adds to the memory: an EAGLE-1 or MTP head reads the target's output matrix in every pass but does not store it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.architecture.mlps import dense
from planner.architecture.model import Architecture, Layer, Mlp, Tensor
from planner.problems import InputError

EAGLE3_DRAFT_VOCAB = 32_000
"""Rows of an EAGLE-3 head's own output matrix: `draft_vocab_size` of the published heads (yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, 2025-03)."""


@dataclass(frozen=True, slots=True)
class Drafter:
    """The drafting part of a speculative deployment."""

    pass_: Architecture
    """What one drafting pass computes and caches."""
    resident: tuple[Tensor, ...]
    """Weights held beside the target's, one copy."""

    def kv_bytes_per_token(self, kv_precision: str = "bf16") -> int:
        """Bytes that one more token adds to the drafter's own cache, one copy."""
        return self.pass_.kv_bytes_per_token(kv_precision) + self.pass_.kv_windowed_bytes_per_token(kv_precision)


def drafter(method: str, target: Architecture, num_speculative_tokens: int, draft: Architecture | None = None) -> Drafter | None:
    """The drafter of `method` in front of `target`; None for n-grams, which are looked up on the host.

    `draft` is the draft model's architecture (method `draft_model`). Raises InputError when the target has no MTP layers
    for method `mtp`, or `draft` is missing.
    """
    if method == "ngram":
        return None
    if method == "draft_model":
        if draft is None:
            raise InputError("speculative.method draft_model needs speculative.draft_model, a catalogue slug")
        tensors = draft.outer + tuple(t for g in draft.layers for _ in g.indices for t in g.tensors)
        return Drafter(draft, tensors)
    hidden, k = target.hidden_size, num_speculative_tokens
    head = Tensor("lm_head", target.vocab_size, hidden, "lm_head", "n")
    if method == "medusa":
        linear = Tensor("medusa_head.linear", hidden, hidden, "mlp", "n", k)
        own = (linear, Tensor("medusa_head.lm_head", target.vocab_size, hidden, "lm_head", "n", k))
        return Drafter(_pass(f"{k} Medusa heads of {target.name}", target, (), own), own)
    if method == "mtp":
        if not target.mtp:
            raise InputError(f"speculative.method mtp needs a model with MTP layers; {target.name} has none, choose eagle3 or draft_model")
        last = target.layers[-1]
        merge = Tensor("eh_proj", hidden, 2 * hidden, "mlp")
        layer = Layer(last.kind, target.mtp_attention or last.attention, None, last.mlp, last.tensors, (0,))
        return Drafter(_pass(f"MTP layer of {target.name}", target, (layer,), (merge, head)), target.mtp)
    layer = _eagle_layer(target, inputs=2 if method == "eagle3" else 1)
    if method == "eagle3":
        own_head = Tensor("lm_head", min(EAGLE3_DRAFT_VOCAB, target.vocab_size), hidden, "lm_head", "n")
        outer = (Tensor("fc", hidden, 3 * hidden, "mlp"), own_head)
        return Drafter(_pass(f"EAGLE-3 head of {target.name}", target, (layer,), outer), (*outer, *layer.tensors))
    merge = Tensor("fc", hidden, 2 * hidden, "mlp")
    return Drafter(_pass(f"EAGLE head of {target.name}", target, (layer,), (merge, head)), (merge, *layer.tensors))


def _pass(name: str, target: Architecture, layers: tuple[Layer, ...], outer: tuple[Tensor, ...]) -> Architecture:
    return Architecture(
        name,
        f"derived from {target.name}",
        "drafter",
        target.hidden_size,
        target.vocab_size,
        target.max_position_embeddings,
        layers,
        outer,
        rotary_dim=target.rotary_dim,
    )


def _eagle_layer(target: Architecture, inputs: int) -> Layer:
    """One dense decoder layer with the target's attention; its query, key and value read `inputs` hidden vectors side by side.

    In front of a mixture of experts the MLP is as wide as what one token visits (published heads choose 0.7 to 1.5 of that).
    """
    groups = [g for g in target.layers if g.attention is not None and g.attention.stores_kv]
    if not groups:
        raise InputError(f"an EAGLE head needs a model with attention; {target.name} has none")
    model = next((g for g in groups if g.attention and g.attention.window is None), groups[0])
    mixer = tuple(
        replace(t, k=t.k * inputs) if t.linear and t.k == target.hidden_size and t.split in ("n", "kv") else t
        for t in model.tensors
        if t.role in ("attention", "norm")
    )
    mlp = model.mlp or Mlp(4 * target.hidden_size)
    width = mlp.top_k * mlp.intermediate + mlp.shared_intermediate if mlp.experts else mlp.intermediate
    own = Mlp(width, mlp.gated)
    return Layer(model.kind, model.attention, None, own, mixer + tuple(dense(target.hidden_size, own)), (0,))
