"""What each model family adds to the keys of its configuration: traits that its modelling code has and no key says.

A new family is one entry here. Class defaults of absent keys are in `class_defaults.json`; how layers alternate is read
from the configuration by `patterns`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Trait = bool | str
"""A fact, or the key that says so."""


@dataclass(frozen=True, slots=True)
class Family:
    """Traits of one `model_type`; the defaults are a Llama decoder's."""

    qkv_bias: Trait = "attention_bias"
    o_bias: Trait = "attention_bias"
    mlp_bias: Trait = "mlp_bias"
    qk_norm: str = ""
    """Norms of queries and keys: "" none, "head" one weight of head width, "heads" one per head, "full" whole projection."""
    qk_norm_if: str = ""
    """Key that switches them; empty means always."""
    norms: int = 2
    """Norms per layer, of hidden width."""
    norm_params: int = 1
    """Parameters per channel of a norm: 1 scale, 2 scale and bias, 0 none."""
    gated: bool = True
    """MLP of three matrices; False for two."""
    gate: str = ""
    """Gate on the attention output: "" none, "double" beside the query, "full" its own matrix, "head" one number per head."""
    sinks: bool = False
    """A learned sink logit per head."""
    router_bias: bool = False
    correction_bias: bool = False
    """Score correction beside the router (DeepSeek V3 and its kin)."""
    expert_bias: bool = False
    shared_gate: bool = False
    """A gate in front of the shared expert (Qwen MoE)."""
    shared_experts: int = 0
    """Shared experts of the routed width that no key mentions (Llama 4)."""
    experts_beside: bool = False
    """Routed experts run beside a dense MLP of the layer instead of in its place (Gemma 4)."""
    windows: str = ""
    """Windowed layers when no list says so: "all", "even", "pattern" (every n-th is full), "from_max_window_layers", "none"
    (the code ignores the key)."""
    recurrent: str = ""
    """Kind of the layers that the configuration calls linear, mamba or conv."""
    hybrid: str = "both"
    """What a layer called hybrid is: attention and a recurrent mixer, or "full": attention whose convolutions `extras` adds."""
    single: bool = False
    """A layer is a mixer OR an MLP (Nemotron-H)."""
    positions: int = -1
    """Learned position embeddings with this many extra rows; -1 for none."""
    rotary: Trait = True
    """Queries and keys are rotated; False where a relative bias or nothing tells positions."""
    head_bias: Trait = False
    ffn_ratio: int = 0
    """Width of the MLP over the hidden size where no key gives it."""
    doubt: str = ""
    """Why every figure of this family is an estimate."""
    remark: str = ""
    """What was left out knowingly."""
    extra: str = ""
    """Name of the function in `extras` that adds what is the family's alone."""


LLAMA = Family()
QWEN3 = Family(qk_norm="head", windows="from_max_window_layers")
DEEPSEEK = Family(correction_bias=True)
GLM_MOE = Family(o_bias=False, qk_norm="head", qk_norm_if="use_qk_norm", correction_bias=True)
GPT = Family(qkv_bias=True, o_bias=True, mlp_bias=True, norm_params=2, gated=False, ffn_ratio=4)
GEMMA = Family(norms=4)
COHERE = Family(norms=1, qk_norm="heads", qk_norm_if="use_qk_norm")
GRANITE = Family(recurrent="mamba2")

V4_CACHE = (
    "DeepSeek V4 compresses its cache by a ratio per layer; bytes per token follow the ratios, engines hold far more "
    "(vLLM 0.22 asked 6.66 GiB for one sequence of 30,000 tokens, vllm#44376)"
)
V41 = (
    "engines run a prompt through the first half of DeepSeek V4.1 alone; here it passes every layer, so prefill times are up to twice too "
    "long. Parameters (552 B and 196 B of n-grams) and cache (2.5 entries a token, 890 bytes in FP4 with its scales) are those published"
)
KPOOL = "the index of GLM-5-Next is cached pooled, one key for `index_kpool` tokens, as SGLang 0.5 holds it"
M3_INDEX = "the keys of MiniMax M3's block index are not in the cache figures: no published figure has them"

FAMILIES: dict[str, Family] = {
    "afmoe": Family(qk_norm="head", norms=4, gate="full", correction_bias=True, windows="pattern"),
    "apertus": Family(qk_norm="head", gated=False),
    "arcee": Family(gated=False),
    "apertus1p5": Family(qk_norm="head", gated=False),
    "aria": LLAMA,
    "axk1": Family(correction_bias=True, norms=3),
    "axk2": Family(correction_bias=True, extra="axk2"),
    "baichuan": LLAMA,
    "bailing_hybrid": Family(correction_bias=True, recurrent="kda", gate="head", qkv_bias="use_qkv_bias", o_bias=False),
    "bailing_moe": Family(qkv_bias="use_qkv_bias", o_bias="use_bias", qk_norm="head", qk_norm_if="use_qk_norm", correction_bias=True),
    "bamba": Family(recurrent="mamba2"),
    "beam": Family(qk_norm="head", norms=4, gate="full", correction_bias=True, windows="pattern"),
    "bitnet": Family(extra="bitnet"),
    "bloom": replace(GPT, extra="embedding_norm"),
    "chatglm": Family(qkv_bias="add_qkv_bias", o_bias="add_bias_linear", mlp_bias="add_bias_linear"),
    "codegen": replace(GPT, qkv_bias=False, o_bias=False, norms=1, head_bias=True),
    "cohere": COHERE,
    "cohere2": replace(COHERE, qk_norm="", windows="pattern"),
    "cohere2_moe": replace(COHERE, qk_norm="", windows="pattern"),
    "cosmos3_edge": Family(gated=False),
    "cwm": Family(windows="pattern"),
    "dbrx": Family(qkv_bias=False, o_bias=False),
    "deepseek": LLAMA,
    "deepseek_v2": LLAMA,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK,
    "deepseek_v4": Family(
        correction_bias=True,
        sinks=True,
        doubt=V4_CACHE,
        extra="deepseek_v4",
    ),
    "deepseek_v41": Family(correction_bias=True, router_bias=True, doubt=V41, extra="deepseek_v41"),
    "diffllama": LLAMA,
    "dots1": Family(qk_norm="head", correction_bias=True, windows="from_max_window_layers"),
    "doge": Family(qk_norm="head", extra="doge"),
    "dory": Family(norms=0, gate="full", extra="dory"),
    "dots3_note": Family(correction_bias=True, gate="head", extra="dots3_note"),
    "ernie4_5": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", correction_bias=True),
    "ernie4_5_vl_moe": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", correction_bias=True, extra="image_experts"),
    "exaone": LLAMA,
    "exaone4": Family(qk_norm="head", windows="pattern"),
    "exaone_moe": Family(qk_norm="head", windows="pattern", correction_bias=True),
    "falcon": Family(qkv_bias="bias", o_bias="bias", mlp_bias="bias", norm_params=2, gated=False, ffn_ratio=4, extra="falcon"),
    "falcon_h1": Family(recurrent="mamba2", extra="falcon_h1"),
    "falcon_mamba": Family(norms=1, recurrent="mamba1", single=True),
    "flex_olmo": Family(qk_norm="full"),
    "flint": Family(qk_norm="head", sinks=True, shared_experts=0),
    "gemma": LLAMA,
    "gemma2": replace(GEMMA, windows="even"),
    "gemma3": replace(GEMMA, qk_norm="head", windows="pattern"),
    "gemma3n": replace(GEMMA, qk_norm="head", windows="pattern", extra="gemma3n"),
    "gemma4": replace(GEMMA, qk_norm="head", windows="pattern", experts_beside=True, extra="gemma4"),
    "glm": Family(o_bias=False),
    "glm4": Family(norms=4, o_bias=False),
    "glm4_moe": GLM_MOE,
    "glm4_moe_lite": replace(GLM_MOE, qk_norm=""),
    "glm_moe_dsa": replace(GLM_MOE, qk_norm=""),
    "gpt2": replace(GPT, positions=0),
    "gpt_bigcode": replace(GPT, positions=0),
    "gpt_neo": replace(GPT, qkv_bias=False, positions=0),
    "gpt_neox": replace(GPT, qkv_bias="attention_bias", o_bias="attention_bias"),
    "gpt_oss": Family(sinks=True, router_bias=True, expert_bias=True, windows="even"),
    "gptj": replace(GPT, qkv_bias=False, o_bias=False, norms=1, head_bias=True),
    "granite": LLAMA,
    "granite_docling": LLAMA,
    "granite_swa": Family(sinks=True, windows="pattern"),
    "granitemoe": LLAMA,
    "granitemoe_swa": Family(sinks=True, windows="pattern"),
    "granitemoehybrid": GRANITE,
    "granitemoeshared": LLAMA,
    "glm5_next": Family(correction_bias=True, recurrent="kda", remark=KPOOL, extra="hyper_connections"),
    "helium": LLAMA,
    "hrm_text": Family(norms=0, gate="full", extra="hrm_text"),
    "hunyuan_v1_dense": Family(qk_norm="head", qk_norm_if="use_qk_norm"),
    "hunyuan_v1_moe": Family(qk_norm="head", qk_norm_if="use_qk_norm"),
    "hy_v4": Family(correction_bias=True, sinks=True, gate="full", extra="hyper_light"),
    "hy_v3": Family(qk_norm="head", correction_bias=True),
    "hyperclovax": Family(extra="post_norms"),
    "idefics": Family(extra="idefics"),
    "inkling": Family(qk_norm="head", correction_bias=True, windows="pattern", hybrid="full", rotary=False, extra="inkling"),
    "inkling2": Family(gate="full", correction_bias=True, windows="pattern", hybrid="full", rotary=False, extra="inkling2"),
    "internlm": Family(qkv_bias="bias", o_bias="bias"),
    "internlm2": Family(qkv_bias="bias", o_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
    "iquestcoder": LLAMA,
    "jais2": Family(gated=False, norm_params=2),
    "jamba": Family(recurrent="mamba1"),
    "jetmoe": Family(extra="jetmoe"),
    "kimi_linear": Family(correction_bias=True, recurrent="kda"),
    "kolibri1": Family(qk_norm="head", correction_bias=True, windows="pattern"),
    "laguna": Family(qk_norm="head", gate="head", correction_bias=True, windows="pattern"),
    "lara_mini": LLAMA,
    "lfm2": Family(qk_norm="head", recurrent="short_conv", mlp_bias=False, extra="lfm2"),
    "lfm2_moe": Family(qk_norm="head", recurrent="short_conv", correction_bias=True),
    "lfm3": Family(qk_norm="head", norms=4, recurrent="short_conv", gate="head"),
    "llama": LLAMA,
    "llama4": Family(shared_experts=1, qk_norm_if="use_qk_norm"),
    "longcat_flash": Family(correction_bias=True, extra="longcat"),
    "mamba": Family(norms=1, recurrent="mamba1", single=True),
    "mamba2": Family(norms=1, recurrent="mamba2", single=True),
    "mellum": Family(qk_norm="head", windows="pattern"),
    "mimo": replace(QWEN3, qk_norm="", qkv_bias="attention_bias", o_bias=False),
    "mimo_v2_flash": Family(correction_bias=True, sinks=True, o_bias=False),
    "minicpm3": LLAMA,
    "minimax": Family(recurrent="lightning"),
    "minimax_m2": Family(qk_norm="full", qk_norm_if="use_qk_norm", correction_bias=True),
    "minimax_m3": Family(qk_norm="head", qk_norm_if="use_qk_norm", correction_bias=True, remark=M3_INDEX, extra="minimax_m3"),
    "ministral": Family(windows="all"),
    "ministral3": Family(windows="all"),
    "mistral": Family(windows="all"),
    "mistral4": LLAMA,
    "mistral_large4": Family(correction_bias=False, extra="mistral_large4"),
    "mixtral": Family(windows="all"),
    "mllama": Family(extra="mllama"),
    "mpt": Family(qkv_bias=False, o_bias=False, mlp_bias=False, gated=False, ffn_ratio=4),
    "molmo2": QWEN3,
    "muse_glimmer": Family(gate="full", norms=4),
    "muse_spark": Family(gate="full", norms=4, correction_bias=True),
    "nanochat": Family(norms=0, gated=False),
    "nemotron": Family(gated=False, norm_params=2),
    "nemotron-nas": Family(extra="nemotron_nas"),
    "nemotron_h": Family(norms=1, gated=False, single=True, recurrent="mamba2", correction_bias=True, extra="nemotron_h"),
    "olmo": Family(norms=0),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full", windows="pattern"),
    "olmo_hybrid": Family(qk_norm="full", recurrent="gated_deltanet"),
    "olmoe": Family(qk_norm="full"),
    "opt": replace(GPT, positions=2),
    "persimmon": Family(qkv_bias=True, o_bias=True, mlp_bias=True, qk_norm="head", qk_norm_if="qk_layernorm", norm_params=2, gated=False),
    "phi": Family(qkv_bias=True, o_bias=True, mlp_bias=True, norms=1, norm_params=2, gated=False, ffn_ratio=4, head_bias=True),
    "orion": Family(norm_params=2),
    "paddleocr_vl": LLAMA,
    "phi3": Family(windows="all"),
    "phimoe": Family(norm_params=2, windows="none", head_bias="lm_head_bias"),
    "qwen2": Family(qkv_bias=True, o_bias=False, windows="from_max_window_layers"),
    "qwen2_moe": Family(qkv_bias="qkv_bias", o_bias=False, shared_gate=True, windows="from_max_window_layers"),
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_next": replace(QWEN3, gate="double", shared_gate=True, recurrent="gated_deltanet"),
    "qwen3_5": replace(QWEN3, gate="double", recurrent="gated_deltanet"),
    "qwen3_5_moe": replace(QWEN3, gate="double", shared_gate=True, recurrent="gated_deltanet"),
    "qwen4_exp": replace(QWEN3, norms=0, gate="double", shared_gate=True, recurrent="gated_deltanet", extra="qwen4_exp"),
    "recurrent_gemma": Family(
        qkv_bias="attention_bias", o_bias=True, mlp_bias=True, recurrent="rg_lru", windows="all", extra="recurrent_gemma"
    ),
    "sarvam_mla": DEEPSEEK,
    "sarvam_moe": GLM_MOE,
    "seed_oss": Family(o_bias="attention_out_bias"),
    "smollm3": Family(windows="from_max_window_layers"),
    "solar_open": replace(GLM_MOE, o_bias="attention_bias"),
    "stablelm": Family(qkv_bias="use_qkv_bias", o_bias=False, norm_params=2, qk_norm="heads", qk_norm_if="qk_layernorm"),
    "starcoder2": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", norm_params=2, gated=False, windows="all"),
    "step3p5": Family(qk_norm="head", gate="head", correction_bias=True, windows="pattern"),
    "vaultgemma": Family(windows="even"),
    "xglm": replace(GPT, positions=2),
    "youtu": LLAMA,
    "zamba": Family(norms=1, recurrent="mamba1", single=True, rotary=False, extra="zamba"),
    "zamba2": Family(norms=1, recurrent="mamba2", single=True, rotary="use_mem_rope", extra="zamba"),
    "zaya": Family(windows="all", hybrid="full", correction_bias=True, head_bias="lm_head_bias", extra="zaya"),
}

SAME_AS = {
    "hy_v4_vl": "hy_v4",
    "inkling_mm_model": "inkling",
    "inkling_model": "inkling",
    "inkling2_loop": "inkling2",
    "mimo_v2": "mimo_v2_flash",
    "mllama_text_model": "mllama",
    "qwen3_8_flash_next": "qwen4_exp",
    "qwen2_5_omni": "qwen2",
    "deepseek_ref": "deepseek_v4",
    "gemma4_unified": "gemma4",
    "glm46v": "glm4",
    "glm_ocr": "glm4",
    "glmga": "glm4",
    "phi4_multimodal": "phi3",
    "emu3_text_model": "llama",
    "hrm": "hrm_text",
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "internvl": "qwen2",
    "kimi_k2": "deepseek_v3",
    "kimi_k25": "deepseek_v3",
    "minimax_m1": "minimax",
    "minimax_text_01": "minimax",
    "minimax_m3_vl": "minimax_m3",
    "mistral3": "mistral",
    "pixtral": "mistral",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_audio": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_omni_moe": "qwen3_moe",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "step3p7": "step3p5",
    "deci": "nemotron-nas",
    "Yi": "llama",
    "aquila": "llama",
    "bailing_moe_v3": "bailing_hybrid",
    "bailing_moe_v3_vl": "bailing_hybrid",
    "code_llama": "llama",
    "xverse": "llama",
}
"""Model types that are decoders of another family (multimodal wrappers, renamed copies)."""


def find(model_type: str) -> tuple[str, Family] | None:
    """The family of a `model_type` and its canonical name; None when it is not known here."""
    name = model_type.removesuffix("_text")
    name = SAME_AS.get(name, name)
    family = FAMILIES.get(name)
    return (name, family) if family else None
