"""What sources call GPUs, models, engines and precisions, in the catalogue's words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from planner.catalog.gpus import gpus
from planner.catalog.models import models
from planner.files import from_json, read_text, shown_name
from planner.problems import InputError
from planner.scenario import Model, parse

GPU_ALIASES = {
    "a100sxm": "a100-80-sxm",
    "a100sxm4": "a100-80-sxm",
    "a100": "a100-80-sxm",
    "a100pcie": "a100-80-pcie",
    "h100": "h100-sxm",
    "h100hbm3": "h100-sxm",
    "h200": "h200-sxm",
    "h200nvl": "h200-sxm",
    "h800": "h800-sxm",
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb200nvl": "gb200-nvl72",
    "gb200nvl72": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "gb300nvl72": "gb300-nvl72",
    "gh200": "gh200-96",
    "rtxpro6000": "rtx-pro-6000",
    "rtxpro6000blackwell": "rtx-pro-6000",
    "rtxpro6000blackwellse": "rtx-pro-6000",
    "rtxpro6000blackwellserveredition": "rtx-pro-6000",
    "rtx6000ada": "rtx-6000-ada",
    "tpuv7": "tpu7x-ironwood",
    "tpu7x": "tpu7x-ironwood",
    "gaudi3": "gaudi3",
}
"""Labels without memory size, lower case, letters and digits only."""

NVL_OVERRIDES = {"bf16_dense_tflops": 835.5, "fp8_dense_tflops": 1671.0, "int8_dense_tops": 1671.0}
"""H200 NVL: the SXM part's memory, the NVL board's power and so its peaks (NVIDIA H200 datasheet, 2024)."""

DROPPED = re.compile(
    r"(-instruct|-chat|-hf|-it|-fp8|-fp4|-nvfp4|-mxfp4|-bf16|-fp16|-int4|-int8|-w8a8|-w4a16|-awq|-gptq|-kv|-dynamic|-v2|-quantized)$"
)
MODEL_ALIASES = {
    "deepseek-r1": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-v3",
    "deepseek-v3-0324": "deepseek-v3",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "mixtral-8x22b-instruct-v0.1": "mixtral-8x22b",
    "mistral-7b-v0.1": "mistral-7b",
    "mistral-7b-instruct-v0.3": "mistral-7b",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "qwen3-30b-a3b-instruct-2507": "qwen3-30b-a3b",
    "meta-llama-3.1-8b": "llama-3.1-8b",
    "meta-llama-3.1-70b": "llama-3.1-70b",
    "meta-llama-3.1-405b": "llama-3.1-405b",
}


def gpu_slug(label: str) -> str | None:
    """Catalogue slug of a source's label; None when the catalogue has no such part."""
    text = re.sub(r"[-_ ]*\(?\d+ ?gi?b\)?", "", label.lower().removeprefix("nvidia ").removeprefix("amd ").removeprefix("instinct "))
    squeezed = re.sub(r"[^a-z0-9]", "", text)
    if squeezed in GPU_ALIASES:
        return GPU_ALIASES[squeezed]
    by_letters = {re.sub(r"[^a-z0-9]", "", slug): slug for slug in gpus()}
    if squeezed in by_letters:
        return by_letters[squeezed]
    return next((slug for letters, slug in by_letters.items() if letters.startswith(squeezed) or squeezed.startswith(letters)), None)


def model_of(name: str, configs: Path | None) -> Model | None:
    """The model a row names: catalogue first, then `<org>__<name>.json` in `configs`; None when neither knows it."""
    known = models()
    for plain in plain_names(name):
        if plain in known:
            return Model(name=plain)
    if configs is None:
        return None
    files = _config_files(configs)
    for candidate in (name.lower().replace("/", "__"), *plain_names(name)):
        if candidate in files:
            return _from_file(files[candidate])
    return None


def plain_names(name: str) -> list[str]:
    """Names to try, from the whole one to the one without endings of precision and tuning."""
    plain = name.split("/")[-1].lower()
    names = [plain]
    while (shorter := DROPPED.sub("", plain)) != plain:
        plain = shorter
        names.append(plain)
    return [alias for n in names for alias in (n, MODEL_ALIASES.get(n, n))]


@cache
def _config_files(folder: Path) -> dict[str, Path]:
    """By `org__name`, by name, and by name without endings; side files of quantisers are left out."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give --configs a folder of <org>__<name>.json files")
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.json")):
        if ".hf_quant_config" in path.name:
            continue
        whole = path.stem.lower()
        for key in (whole, *plain_names(whole.split("__")[-1])):
            files.setdefault(key, path)
    return files


@cache
def _from_file(path: Path) -> Model:
    config = read_text(path, 1_000_000, "put a config.json there")
    try:
        return parse({"model": {"name": path.stem.split("__")[-1].lower()[:120], "hf_config": from_json(config)}}).model
    except ValueError as error:
        raise InputError(f"{shown_name(path)} is no config.json: {error}") from error


def engine_name(label: str) -> str | None:
    """vllm, sglang or trtllm; AMD's ATOM is built like vLLM and runs as such. None for an engine that is not modelled."""
    text = label.lower()
    if "tpu" in text:
        return "vllm"
    for needle, name in (("trt", "trtllm"), ("tensorrt", "trtllm"), ("sglang", "sglang"), ("vllm", "vllm"), ("atom", "vllm")):
        if needle in text:
            return name
    return None


WEIGHTS = {
    "": "auto", "fp32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "half": "bf16", "fp8": "fp8", "int8": "int8",
    "w8a8": "int8", "int4": "int4", "uint4": "int4", "w4a16": "int4", "awq": "int4", "gptq": "int4", "fp4": "nvfp4",
    "nvfp4": "nvfp4", "mxfp4": "mxfp4", "auto": "auto",
}  # fmt: skip
KV = {
    "": "",
    "bf16": "bf16",
    "fp16": "bf16",
    "bfloat16": "bf16",
    "auto": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "int8": "int8",
    "nvfp4": "int4",
}
