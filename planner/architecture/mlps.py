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
    hidden: int, mlp: Mlp, *, expert_bias: bool = False, router_bias: bool = False, correction_bias: bool = False, shared_gate: bool = False, prefix: str = "mlp"
) -> list[Tensor]:
    """Router, routed experts and shared experts of one layer."""
    inner = mlp.expert_hidden or hidden
    ff, copies = mlp.intermediate, mlp.experts
    tensors = [Tensor(f"{prefix}.gate", mlp.experts, hidden, "router", linear=False)]
    if router_bias or correction_bias:
        tensors.append(Tensor(f"{prefix}.gate.bias", mlp.experts, router_bias + correction_bias, "router", linear=False))
    up = 2 if mlp.gated else 1
    tensors.append(Tensor(f"{prefix}.experts.gate_up_proj", up * ff, inner, "expert", "n", copies))
    tensors.append(Tensor(f"{prefix}.experts.down_proj", inner, ff, "expert", "k", copies))
    if expert_bias:
        tensors.append(Tensor(f"{prefix}.experts.gate_up_proj.bias", up * ff, 1, "expert", "n", copies, linear=False))
        tensors.append(Tensor(f"{prefix}.experts.down_proj.bias", inner, 1, "expert", "none", copies, linear=False))
    if mlp.shared_intermediate:
        tensors += dense(hidden, mlp, prefix=f"{prefix}.shared_experts", role="shared_expert", width=mlp.shared_intermediate)
        if shared_gate:
            tensors.append(Tensor(f"{prefix}.shared_expert_gate", 1, hidden, "router", linear=False))
    return tensors
