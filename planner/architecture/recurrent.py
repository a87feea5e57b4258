"""Recurrent mixers: a fixed state per sequence instead of a cache that grows. Shapes as the models' public code has them."""

from __future__ import annotations

from planner.architecture import keys
from planner.architecture.config import Config
from planner.architecture.families import Family
from planner.architecture.model import Recurrent, Tensor
from planner.problems import InputError

STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def of(c: Config, family: Family, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """State and tensors of one recurrent layer of this family; of an unknown family, of the kind its keys speak of.

    Raises InputError when no key of a recurrent layer known here is present.
    """
    kind = family.recurrent or next((k for key, k in SIGNS if c.has(key)), "")
    if not kind:
        words = sorted({str(w)[:40] for w in c.items("layer_types", "layers_block_type") or ()})
        said = f"layers of the types {', '.join(words[:4])}" if words else "recurrent layers"
        raise InputError(
            f"the configuration has {said}, but none of the keys known here that size a fixed state (linear_*, mamba_*, kda_*)"
        )
    return KINDS[kind](c, hidden)


def _linear(name: str, n: int, k: int, split: str = "n") -> Tensor:
    return Tensor(f"mixer.{name}", n, k, "recurrent", split)  # type: ignore[arg-type]


def _small(name: str, n: int, k: int = 1, split: str = "n") -> Tensor:
    return Tensor(f"mixer.{name}", n, k, "recurrent", split, linear=False)  # type: ignore[arg-type]


def _state_bytes(c: Config) -> int:
    return STATE_BYTES.get(c.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="float32"), 4)


def mamba1(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Selective scan of Mamba 1 (Jamba, Falcon-Mamba)."""
    n, kernel = c.whole("mamba_d_state", "state_size", default=16), c.whole("mamba_d_conv", "conv_kernel", default=4)
    inner = c.optional_whole("intermediate_size") if c.has("state_size") else None
    inner = inner or hidden * c.whole("mamba_expand", "expand", default=2)
    rank = c.get("mamba_dt_rank", "time_step_rank")
    rank = -(-hidden // 16) if rank in (None, "auto") else c.whole("mamba_dt_rank", "time_step_rank")
    bias = c.switch("mamba_proj_bias", "use_bias")
    tensors = [
        _linear("in_proj", 2 * inner, hidden),
        _linear("x_proj", rank + 2 * n, inner, "k"),
        _linear("dt_proj", inner, rank),
        _linear("out_proj", hidden, inner, "k"),
        _small("conv1d", inner, kernel + c.switch("mamba_conv_bias", "use_conv_bias", default=True)),
        _small("A_log", inner, n),
        _small("D", inner, 2),  # and the bias of dt_proj
    ]
    if c.has("mamba_d_state") and not c.has("n_mamba_heads"):  # Zamba has heads and no such norms
        tensors.append(_small("dt_b_c_norms", rank + 2 * n, 1, "none"))
    if bias:
        tensors.append(_small("bias", 2 * inner + hidden))
    state = Recurrent("mamba1", inner, inner * n, inner * (kernel - 1), _state_bytes(c))
    return state, tensors


def mamba2(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """State space duality of Mamba 2 (Granite 4, Nemotron-H, Bamba, Falcon-H1)."""
    n, kernel = c.whole("mamba_d_state", "ssm_state_size", "state_size"), c.whole("mamba_d_conv", "conv_kernel", default=4)
    inner = c.optional_whole("mamba_d_ssm") or hidden * c.whole("mamba_expand", "expand", default=2)
    head_dim = c.get("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    heads = c.whole(
        "mamba_n_heads",
        "mamba_num_heads",
        "n_mamba_heads",
        *(() if c.has("mamba_d_state") else ("num_heads",)),
        default=max(1, inner // 64),
    )
    width = inner // heads if head_dim in (None, "auto") else c.whole("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if c.has("mamba_head_dim") or (c.has("num_heads") and not c.has("mamba_d_state")):
        width = c.whole("mamba_head_dim", "head_dim", default=width)
    inner = heads * width
    c.get("time_step_rank", "mamba_dt_rank", "mamba_expand", "expand")
    groups = c.whole("mamba_n_groups", "mamba_ngroups", "n_groups", default=1)
    conv = inner + 2 * groups * n
    tensors = [
        _linear("in_proj", inner + conv + heads, hidden),
        _linear("out_proj", hidden, inner, "k"),
        _small("conv1d", conv, kernel + c.switch("mamba_conv_bias", "use_conv_bias", default=True)),
        _small("A_log_D_dt_bias", heads, 3),
    ]
    if c.get("mamba_rms_norm") is not False:
        tensors.append(_small("norm", inner))
    if c.switch("mamba_proj_bias", "use_bias"):
        tensors.append(_small("bias", inner + conv + heads + hidden))
    state = Recurrent("mamba2", heads, inner * n, conv * (kernel - 1), _state_bytes(c))
    return state, tensors


def gated_deltanet(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Gated delta rule (Qwen3-Next, Qwen3.5, OLMo hybrid)."""
    k_heads, v_heads = c.whole("linear_num_key_heads"), c.whole("linear_num_value_heads")
    k_dim, v_dim = c.whole("linear_key_head_dim"), c.whole("linear_value_head_dim")
    kernel = c.whole("linear_conv_kernel_dim", default=4)
    keys_out, values_out = k_heads * k_dim, v_heads * v_dim
    conv = 2 * keys_out + values_out
    tensors = [
        _linear("in_proj_qkvz", conv + values_out, hidden),
        _linear("in_proj_ba", 2 * v_heads, hidden),
        _linear("out_proj", hidden, values_out, "k"),
        _small("conv1d", conv, kernel),
        _small("A_log_dt_bias", v_heads, 2),
        _small("norm", v_dim, 1, "none"),
    ]
    elements = v_heads * k_dim * v_dim
    return Recurrent("gated_deltanet", v_heads, elements, conv * (kernel - 1), _state_bytes(c)), tensors


def kda(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Kimi delta attention: the gated delta rule with a decay per channel."""
    heads, dim = c.whole("linear_num_heads", "num_heads", *keys.HEADS), c.whole("linear_head_dim", *keys.HEAD_DIM)
    kernel = c.whole("short_conv_kernel_size", "linear_conv_kernel_dim", default=4)
    out, rank = heads * dim, dim
    tensors = [
        _linear("qkv_proj", 3 * out, hidden),
        _linear("b_proj", heads, hidden),
        _linear("o_proj", hidden, out, "k"),
        _small("conv1d", 3 * out, kernel),
        _small("dt_bias", out),
        _small("A_log", heads),
        _small("o_norm", dim, 1, "none"),
    ]
    whole = c.switch("no_kda_lora")
    if c.get("kda_lower_bound") is not None or whole:
        tensors += [_linear("f_proj", out, hidden), _linear("g_proj", out, hidden)]
    elif c.switch("use_full_rank_gate"):
        tensors += [_linear("f_a_proj", rank, hidden, "none"), _linear("f_b_proj", out, rank), _linear("g_proj", out, hidden)]
    else:
        tensors += [_linear("f_a_g_a_proj", 2 * rank, hidden, "none"), _linear("f_b_g_b_proj", 2 * out, rank)]
    elements = heads * dim * dim
    return Recurrent("kda", heads, elements, 3 * out * (kernel - 1), _state_bytes(c)), tensors


def lightning(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Lightning attention (MiniMax-01 and M1): linear attention with a decay per head."""
    heads = c.whole(*keys.HEADS)
    dim = c.whole(*keys.HEAD_DIM, default=hidden // heads)
    out = heads * dim
    tensors = [
        _linear("qkv_proj", 3 * out, hidden),
        _linear("output_gate", out, hidden),
        _linear("out_proj", hidden, out, "k"),
        _small("norm", out),
    ]
    elements = heads * dim * dim
    return Recurrent("lightning", heads, elements, 0, 4), tensors


def short_conv(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Gated short convolution (LFM2): only the last tokens are kept."""
    kernel = c.whole("conv_L_cache", "conv_kernel_size", default=3)
    width = c.whole("conv_dim", default=hidden)
    bias = c.switch("conv_bias")
    tensors = [_linear("in_proj", 3 * width, hidden), _linear("out_proj", hidden, width, "k"), _small("conv", width, kernel + bias)]
    if bias:
        tensors.append(_small("bias", 3 * width + hidden))
    return Recurrent("short_conv", width, 0, width * kernel), tensors


def rg_lru(c: Config, hidden: int) -> tuple[Recurrent, list[Tensor]]:
    """Real-gated linear recurrent unit (RecurrentGemma)."""
    width = c.whole("lru_width", default=hidden)
    heads, kernel = c.whole(*keys.HEADS), c.whole("conv1d_width", default=4)
    gates = 2 * heads * (width // heads) ** 2
    tensors = [
        _linear("linear_xy", 2 * width, hidden),
        _linear("linear_out", hidden, width, "k"),
        _small("biases", 3 * width + hidden - width),
        _small("conv_1d", width, kernel + 1),
        _small("rg_lru", gates + 3 * width),
    ]
    return Recurrent("rg_lru", heads, width, width * (kernel - 1), 4), tensors


SIGNS = (
    ("linear_num_value_heads", "gated_deltanet"),
    ("kda_layers", "kda"),
    ("short_conv_kernel_size", "kda"),
    ("mamba_n_heads", "mamba2"),
    ("mamba_num_heads", "mamba2"),
    ("mamba_d_state", "mamba1"),
    ("conv_L_cache", "short_conv"),
)
"""Keys that tell the kind of recurrent layer of a family that is not known here."""
KINDS = {
    "mamba1": mamba1,
    "mamba2": mamba2,
    "gated_deltanet": gated_deltanet,
    "kda": kda,
    "lightning": lightning,
    "short_conv": short_conv,
    "rg_lru": rg_lru,
}
