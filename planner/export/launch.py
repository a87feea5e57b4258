"""The commands that make a plan real: every value written out, none left to an engine's default but what its kernels decide.

The three engines' memory fractions mean different things, so each is worked out from the plan's KV pool in bytes:
vLLM's is a share of all GPU memory for everything, SGLang's a share of the memory free before loading for weights and
pool, TensorRT-LLM's a share of what is free once weights and buffers are in place.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from planner import architecture, catalog, hardware, sharding
from planner import memory as memory_of
from planner.export import support
from planner.problems import InputError
from planner.scenario import Model, Scenario

HOST, PORT = "0.0.0.0", 8000
ENGINES = ("vllm", "sglang", "trtllm")
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
FRACTION_DECIMALS = 4
"""Memory fractions are cut, never rounded up: 0.0001 of a 192 GB GPU is 19 MB."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica to start, of the plan or of one pool of a disaggregated plan."""

    scenario: Scenario
    """As this replica sees it: its GPU, layout and engine."""
    memory: Mapping[str, Any] | None
    """The plan's `memory` part where it describes this replica."""
    model: str
    """Repository name of the weights."""
    max_model_len: int
    role: str = ""
    """prefill or decode in a disaggregated plan."""
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Command:
    """One command line, the file it reads if it needs one, and what a person has to know before running it."""

    engine: str
    program: tuple[str, ...]
    """Words before the first flag."""
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()
    file_name: str = ""
    file_text: str = ""
    role: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """Everything, as a process receives it."""
        return (*self.program, *self.arguments)

    @property
    def text(self) -> str:
        """As pasted into a shell: one flag a line, quoted where a shell would need it."""
        return shell_text(self.program, self.arguments)


def shell_text(program: tuple[str, ...], arguments: tuple[str, ...]) -> str:
    """A command as shell lines joined by backslashes, a flag and its value on one line."""
    lines = [shlex.join(program)]
    for word in arguments:
        if word.startswith("--"):
            lines.append("  " + word)
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n".join(lines)


def commands(plan: Mapping[str, Any], engine: str | None = None) -> tuple[Command, ...]:
    """Commands for one engine, or for those that run on the plan's accelerator with its own first; two each for a disaggregated plan.

    Raises InputError for an engine that is none of `ENGINES`, or that is asked for by name and does not serve the accelerator.
    """
    from planner.export import engines

    makers = {"vllm": engines.vllm, "sglang": engines.sglang, "trtllm": engines.trtllm}
    if engine is not None and engine not in makers:
        raise InputError(f"engine {engine!r} is not known; use one of {', '.join(ENGINES)}")
    found = replicas(plan)
    if engine is not None and (why := why_not(plan, engine)):
        gpus = " and ".join(dict.fromkeys(replica.scenario.hardware.gpu for replica in found))
        raise InputError(f"engine {engine!r} does not serve {gpus}: {why}")
    own = found[0].scenario.engine.name
    names = (engine,) if engine else (own, *(name for name in ENGINES if name != own))
    return tuple(makers[name](replica) for name in names if not why_not(plan, name) for replica in found)


def why_not(plan: Mapping[str, Any], engine: str) -> str:
    """Why there is no command of this engine for the plan's accelerator, as the end of a sentence; empty where there is one."""
    return next((why for replica in replicas(plan) if (why := support.why_not(engine, replica.scenario.hardware))), "")


def replicas(plan: Mapping[str, Any]) -> tuple[Replica, ...]:
    """What has to be started: one kind of replica, or a prefill and a decode one."""
    scenario = Scenario.model_validate(plan["scenario"])
    model, memory = repository(scenario.model), plan.get("memory") or None
    split = scenario.disaggregation
    if split is None:
        return (Replica(scenario, memory, model, _max_model_len(scenario, memory), replicas=scenario.fleet.replicas),)
    pools = {"prefill": split.prefill, "decode": split.decode}
    found = []
    for role, pool in pools.items():
        parts = scenario.hardware.model_copy(update={"gpu": pool.gpu})
        seen = scenario.model_copy(update={"hardware": parts, "parallel": pool.parallel, "engine": pool.engine})
        # A plan's file holds the memory of its decode pool only.
        of_pool = memory if role == "decode" or memory is None else _memory(seen)
        found.append(Replica(seen, of_pool, model, _max_model_len(seen, of_pool), role, pool.replicas))
    return tuple(found)


def _memory(scenario: Scenario) -> dict[str, Any] | None:
    """The memory of one replica, as a plan states it; None where it cannot be worked out."""
    try:
        arch, gpu = architecture.of(scenario.model), hardware.of(scenario.hardware)
        shard = sharding.shard(arch, scenario.parallel, scenario.precision, gpu, scenario.hardware)
        return asdict(memory_of.plan(arch, shard, gpu, scenario))
    except InputError:
        return None


def repository(model: Model) -> str:
    """Repository name of a model's weights: the catalogue's, or the label the user gave."""
    row = catalog.models().get(model.name)
    name = row.name if row and model.hf_config is None else model.name.strip() or "MODEL"
    # A label is the user's text: it must stay a word of the command, never become a flag of it.
    return f"./{name}" if name.startswith("-") else name


def _max_model_len(scenario: Scenario, memory: Mapping[str, Any] | None) -> int:
    known = scenario.engine.max_model_len or (memory or {}).get("max_model_len")
    return int(known or architecture.of(scenario.model).max_position_embeddings)


def vllm_fraction(memory: Mapping[str, Any]) -> float | None:
    """`--gpu-memory-utilization` that leaves this pool: (reserves + weights + pool) ÷ all memory of the GPU."""
    return _fraction(_reserves(memory) + memory["weights_bytes_per_gpu"] + memory["kv_pool_bytes_per_gpu"], memory["gpu_memory_bytes"])


def sglang_fraction(memory: Mapping[str, Any]) -> float | None:
    """`--mem-fraction-static` that leaves this pool: (weights + pool) ÷ memory free before the weights are loaded."""
    free_before_loading = memory["gpu_memory_bytes"] - memory["non_torch_bytes_per_gpu"]
    return _fraction(memory["weights_bytes_per_gpu"] + memory["kv_pool_bytes_per_gpu"], free_before_loading)


def trtllm_fraction(memory: Mapping[str, Any]) -> float | None:
    """`--kv_cache_free_gpu_memory_fraction` that leaves this pool: pool ÷ memory free after weights and buffers."""
    free_after_loading = memory["gpu_memory_bytes"] - memory["weights_bytes_per_gpu"] - _reserves(memory)
    return _fraction(memory["kv_pool_bytes_per_gpu"], free_after_loading)


def _reserves(memory: Mapping[str, Any]) -> float:
    # CUDA graphs are captured after the pool is sized, out of what every fraction leaves over.
    return memory["activation_bytes_per_gpu"] + memory["non_torch_bytes_per_gpu"]


def _fraction(part: float, whole: float) -> float | None:
    if whole <= 0 or part <= 0:
        return None
    step = 10**FRACTION_DECIMALS
    # The nudge keeps an exact 0.9 from becoming 0.8999 through binary fractions.
    return min(1.0, math.floor(part / whole * step + 1e-6) / step)
