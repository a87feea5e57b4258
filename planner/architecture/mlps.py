"""Feed-forward parts: dense, and mixtures of experts with routers and shared experts."""

from __future__ import annotations

from planner.architecture.model import Mlp, Role, Tensor


def dense(hidden: int, mlp: Mlp, bias: bool = False, prefix: str = "mlp", role: Role = "mlp", width: int = 0) -> list[Tensor]:
    """Matrices of one dense MLP of `width` (default: the MLP's own)."""
    ff = width or mlp.intermediate
    up = ["gate_proj", "up_proj"] if mlp.gated else ["up_proj"]
    tensors = [Tensor(f"{prefix}.{name}", ff, hidden, role, "n") for name in up]
    tensors.append(Tensor(f"{prefix}.down_proj", hidden, ff, role, "k"))
    if bias:
        tensors += [Tensor(f"{prefix}.{name}.bias", ff, 1, role, "n", linear=False) for name in up]
        tensors.append(Tensor(f"{prefix}.down_proj.bias", hidden, 1, role, linear=False))
    return tensors


def moe(
    hidden: int,
    mlp: Mlp,
    *,
    expert_bias: bool = False,
    router_bias: bool = False,
    correction_bias: bool = False,
    shared_gate: bool = False,
    beside: bool = False,
) -> list[Tensor]:
    """Router, routed experts and shared experts of one layer; `beside` names the shared part as the layer's own dense MLP."""
    experts, shared = ("experts", "mlp") if beside else ("mlp.experts", "mlp.shared_experts")
    inner = mlp.expert_hidden or hidden
    ff, copies = mlp.intermediate, mlp.experts
    up = 2 if mlp.gated else 1
    tensors = [
        Tensor("mlp.gate", copies, hidden, "router", linear=False),
        Tensor(f"{experts}.gate_up_proj", up * ff, inner, "expert", "n", copies),
        Tensor(f"{experts}.down_proj", inner, ff, "expert", "k", copies),
    ]
    biases = router_bias + correction_bias
    if biases:
        tensors.append(Tensor("mlp.gate.bias", copies, biases, "router", linear=False))
    if expert_bias:
        tensors.append(Tensor(f"{experts}.gate_up_proj.bias", up * ff, 1, "expert", "n", copies, linear=False))
        tensors.append(Tensor(f"{experts}.down_proj.bias", inner, 1, "expert", "none", copies, linear=False))
    if mlp.expert_hidden:
        tensors.append(Tensor("mlp.latent_down_proj", inner, hidden, "mlp"))
        tensors.append(Tensor("mlp.latent_up_proj", hidden, inner, "mlp"))
    if mlp.shared_intermediate:
        tensors += dense(hidden, mlp, prefix=shared, role="shared_expert", width=mlp.shared_intermediate)
        if shared_gate:
            tensors.append(Tensor("mlp.shared_expert_gate", 1, hidden, "router", linear=False))
    return tensors
