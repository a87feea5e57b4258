"""GPU in SI: peaks by precision, memory an engine sees, overrides."""

import pytest

from planner import catalog, hardware, plan
from planner.problems import InputError
from planner.scenario import Hardware, Overrides, parse
from planner.units import GB, GIB


def test_h100_in_si() -> None:
    gpu = hardware.of(Hardware(gpu="h100-sxm"))
    assert (gpu.label_gb, gpu.family, gpu.confidence) == (80, "hopper", "high")
    assert gpu.memory_engine_bytes == pytest.approx(79.19 * GIB)
    assert gpu.memory_basis == "engine log"
    assert gpu.memory_bandwidth_bytes_s == 3350 * GB
    assert gpu.peak_flops("bf16") == pytest.approx(989.4e12)
    assert gpu.peak_flops("fp8") == pytest.approx(1978.9e12)
    assert (gpu.link_bytes_s, gpu.scale_up_domain_gpus, gpu.nic_bytes_s) == (450 * GB, 8, 50 * GB)


@pytest.mark.parametrize(
    ("slug", "low_gib", "high_gib"),
    [
        ("mi300x", 191.69, 191.98),
        ("mi325x", 255.69, 255.98),
        ("rtx-5090", 31.34, 31.39),
        ("rtx-4090", 23.5, 23.66),
        ("a100-80-sxm", 79.1, 79.35),
        ("b200-sxm", 178.3, 178.4),
    ],
)
def test_memory_is_what_out_of_memory_messages_call_the_total(slug: str, low_gib: float, high_gib: float) -> None:
    gpu = hardware.of(Hardware(gpu=slug))
    assert low_gib <= gpu.memory_engine_bytes / GIB <= high_gib
    assert gpu.memory_basis == "engine log"


def test_70b_in_16_bit_fits_one_mi300x() -> None:
    scenario = parse(
        {
            "model": {"name": "llama-3.1-70b"},
            "hardware": {"gpu": "mi300x"},
            "precision": {"weights": "bf16", "kv_cache": "auto"},
            "parallel": {"tensor_parallel_size": 1},
            "engine": {"max_model_len": 32768},
        }
    )
    memory = plan(scenario, effort="quick").memory
    assert memory is not None
    assert memory.fits
    assert memory.weights_bytes_per_gpu / GIB == pytest.approx(131.4, abs=0.1)
    assert 30 < memory.kv_pool_bytes_per_gpu / GIB < 45


@pytest.mark.parametrize(
    ("slug", "precision", "same_as"),
    [
        ("a100-80-sxm", "fp8", "bf16"),
        ("h100-sxm", "int4", "bf16"),
        ("h100-sxm", "nvfp4", "bf16"),
        ("tpu-v6e", "fp8", "bf16"),
        ("t4", "bf16", "fp16"),
        ("gaudi3", "fp8", "bf16"),
        ("trainium3", "mxfp4", "fp8"),
    ],
)
def test_no_faster_path_runs_at_the_part_s_own_rate(slug: str, precision: str, same_as: str) -> None:
    gpu = hardware.of(Hardware(gpu=slug))
    assert gpu.peak_flops(precision) == gpu.peak_flops(same_as)


def test_native_says_when_only_bytes_are_saved() -> None:
    a100, h100, b200 = (hardware.of(Hardware(gpu=g)) for g in ("a100-80-sxm", "h100-sxm", "b200-sxm"))
    assert not a100.native("fp8")
    assert a100.native("int8")
    assert h100.native("fp8")
    assert not h100.native("nvfp4")
    assert not h100.native("int4")
    assert b200.native("nvfp4")


def test_overrides_replace_and_are_named() -> None:
    user = Overrides(memory_gib=96.0, memory_bandwidth_gb_s=4000.0, fp8_dense_tflops=1500.0, link_gb_s=200.0)
    gpu = hardware.of(Hardware(gpu="h100-sxm", overrides=user))
    assert gpu.memory_engine_bytes == 96 * GIB
    assert gpu.memory_basis == "user"
    assert (gpu.memory_bandwidth_bytes_s, gpu.link_bytes_s, gpu.peak_flops("fp8")) == (4000 * GB, 200 * GB, 1500e12)
    assert gpu.peak_flops("bf16") == pytest.approx(989.4e12)
    assert gpu.overridden == ("memory_gib", "memory_bandwidth_gb_s", "fp8_dense_tflops", "link_gb_s")


def test_every_catalogue_gpu_answers() -> None:
    for slug in catalog.gpus():
        gpu = hardware.of(Hardware(gpu=slug))
        assert gpu.memory_engine_bytes > 10 * GB
        if slug != "rubin-vr200-nvl72":
            assert gpu.peak_flops("bf16") > 0


def test_a_part_without_a_16_bit_rate_says_what_to_do() -> None:
    rubin = Hardware(gpu="rubin-vr200-nvl72")
    with pytest.raises(InputError, match="bf16_dense_tflops"):
        hardware.of(rubin).peak_flops("bf16")
    known = Overrides(bf16_dense_tflops=4000.0)
    assert hardware.of(rubin.model_copy(update={"overrides": known})).peak_flops("bf16") == 4000e12


def test_wrong_names_are_one_helpful_sentence() -> None:
    with pytest.raises(InputError, match=r"h1000.*h100-sxm"):
        hardware.of(Hardware(gpu="h1000"))
    with pytest.raises(InputError, match="fp7"):
        hardware.of(Hardware()).peak_flops("fp7")
