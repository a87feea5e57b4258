"""A plan as Kubernetes objects: what serves, what guards it, what scales it. Thresholds come from the plan's figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner import hardware
from planner.export import support
from planner.export.figures import show
from planner.export.flags import flag_list
from planner.export.launch import PORT, TITLES, Command, Replica, commands, replicas, why_not
from planner.export.yaml_text import yaml_text
from planner.scenario import Engine, Scenario

GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""Resources of the accelerators that a manifest is written for."""
ROCM_IMAGES = {"cdna3": "rocm700-mi30x", "cdna4": "rocm700-mi35x"}
"""Ends of SGLang's tags for AMD GPUs (sgl-project/sglang cookbook, 2026-06)."""
IMAGES = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang", "trtllm": "nvcr.io/nvidia/tensorrt-llm/release"}
METRICS = {
    "vllm": ("vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    "sglang": ("sglang:num_queue_reqs", "sglang:token_usage"),
    "trtllm": ("trtllm_num_requests_waiting", "trtllm_kv_cache_utilization"),
}
"""Prometheus gauges of waiting requests and of the share of the KV pool in use, per engine."""
LEAST_STARTUP_S = 600
PROBE_PERIOD_S = 10
CPUS_PER_GPU, MEMORY_GIB_PER_GPU = 8, 64
"""Host resources asked for per GPU: an assumption, usual for 8-GPU servers."""
RENDEZVOUS_PORT = 20_000
NO_CEILING = 2
"""Times the plan's replicas that an autoscaler may ask for where the plan names no ceiling."""


def manifest(plan: Mapping[str, Any]) -> str:
    """YAML of every object, one document each, separated by `---`; an empty string where `why_none` says why."""
    return "---\n".join(yaml_text(item) for item in objects(plan))


def why_none(plan: Mapping[str, Any]) -> str:
    """Why no manifest is written, in words; empty where one is."""
    found = replicas(plan)
    engine = found[0].scenario.engine.name
    if why := why_not(plan, engine):
        return f"{TITLES[engine]} does not serve this accelerator: {why}"
    for replica in found:
        parts = replica.scenario.hardware
        if (build := support.BUILDS.get(support.platform(parts))) is not None:
            return f"none is written for {parts.gpu}: its image, device plug-in and node labels are its maker's; start from {build}"
        if engine == "trtllm" and replica.scenario.parallel.gpus > parts.gpus_per_node:
            return "this engine over several servers needs MPI, for which there is no recipe here"
    return ""


def objects(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Service, workload, disruption budget and, where the fleet may change its size, autoscaler of each kind of replica, in order."""
    if why_none(plan):
        return []
    found: list[dict[str, Any]] = []
    engine = replicas(plan)[0].scenario.engine.name
    for replica, command in zip(replicas(plan), commands(plan, engine), strict=True):
        name = object_name(replica)
        workload = _workload(name, plan, replica, command)
        if command.file_name:
            found.append(_config_map(name, command))
        found += [_service(name), workload, _budget(name, replica)]
        if scales(replica):
            found.append(_autoscaler(name, plan, replica, workload))
    return found


def object_name(replica: Replica) -> str:
    """A DNS label from the model's name and the pool's role."""
    base = re.sub(r"[^a-z0-9]+", "-", replica.model.rpartition("/")[2].lower()).strip("-")[:40].strip("-") or "model"
    if not base[0].isalpha():
        base = f"m-{base}"
    return f"{base}-{replica.role}" if replica.role else base


def adapter_rules(plan: Mapping[str, Any]) -> str:
    """Rules for the Prometheus adapter that give the autoscaler its two metrics."""
    rules = []
    for metric in METRICS[replicas(plan)[0].scenario.engine.name]:
        rules.append(
            {
                "seriesQuery": metric,
                "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
                "name": {"matches": metric, "as": _metric_name(metric)},
                "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            }
        )
    return yaml_text({"rules": {"custom": rules}})


def startup_budget_s(plan: Mapping[str, Any]) -> int:
    """Longest start that is not a failure: three times the plan's start-up time, ten minutes at least."""
    startup_s = plan["scenario"]["fleet"]["startup_s"]
    return max(LEAST_STARTUP_S, math.ceil(3 * startup_s / 60) * 60)


def queue_threshold(plan: Mapping[str, Any]) -> int:
    """Waiting requests per replica that it clears in half the TTFT promise (half a second where none is made)."""
    scenario, throughput = plan["scenario"], plan.get("throughput") or {}
    capacity = throughput.get("capacity_requests_per_s") or throughput.get("requests_per_s") or 0.0
    patience_s = (scenario["slo"]["ttft_s"] or 1.0) / 2
    return max(1, int(capacity / max(1, scenario["fleet"]["replicas"]) * patience_s))


def cache_threshold(plan: Mapping[str, Any]) -> float:
    """Share of the KV pool in use that calls for a replica: half way from the plan's mean use to full."""
    used = (plan.get("throughput") or {}).get("kv_utilization") or 0.0
    return min(0.95, max(0.5, round((used + 1) / 2, 2)))


def threshold_notes(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Where each number of the manifest comes from, in words."""
    scenario = plan["scenario"]
    used = (plan.get("throughput") or {}).get("kv_utilization")
    return (
        *_size_notes(plan),
        (
            f"Start-up: a replica has {startup_budget_s(plan):,} s, three times the plan's "
            f"{scenario['fleet']['startup_s']:g} s and never under {LEAST_STARTUP_S} s, before it counts as failed."
        ),
        f"Queue: scale up at {queue_threshold(plan)} waiting requests per replica, what one clears in half the TTFT promise.",
        (
            f"Cache: scale up at {show(cache_threshold(plan), 'share')} of the KV pool in use, half way from the "
            f"plan's mean of {show(used, 'share')} to full."
        ),
        (
            f"Host: {CPUS_PER_GPU} CPUs and {MEMORY_GIB_PER_GPU} GiB per GPU are assumed; the image tag, the node "
            "pool and the token secret are yours to check."
        ),
    )


def scales(replica: Replica) -> bool:
    """The fleet may be of more than one size."""
    least, most = _sizes(replica)
    return least < most


def _sizes(replica: Replica) -> tuple[int, int]:
    """Fewest and most replicas, spares included. Kubernetes wants a ceiling: twice the plan's replicas where the plan has none."""
    fleet = replica.scenario.fleet
    most = fleet.max_replicas or max(NO_CEILING * replica.replicas, fleet.min_replicas)
    # Spares are kept at every size, so both ends move up by them.
    return min(most, max(1, fleet.min_replicas)) + fleet.spares, most + fleet.spares


def _size_notes(plan: Mapping[str, Any]) -> list[str]:
    notes = []
    for replica in replicas(plan):
        least, most = _sizes(replica)
        which = f" of the {replica.role} pool" if replica.role else ""
        if least == most:
            notes.append(f"Size{which}: fixed at {most}, floor and ceiling of the plan being the same, so there is no autoscaler.")
        else:
            ends = f"Size{which}: {least} to {most} replicas, spares included"
            why = (
                "the plan's own"
                if replica.scenario.fleet.max_replicas
                else f"the plan has no ceiling and Kubernetes wants one: {NO_CEILING} × its replicas"
            )
            notes.append(f"{ends} ({why}).")
    return notes


def _workload(name: str, plan: Mapping[str, Any], replica: Replica, command: Command) -> dict[str, Any]:
    s = replica.scenario
    nodes = -(-s.parallel.gpus // s.hardware.gpus_per_node)
    least, most = _sizes(replica)
    total = min(most, max(least, replica.replicas + s.fleet.spares))
    if nodes == 1:
        template = _template(name, plan, replica, command, s.parallel.gpus)
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(name),
            "spec": {
                "replicas": total,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": max(1, s.fleet.spares)}},
                "template": template,
            },
        }
    templates = [_template(name, plan, replica, _on_node(command, nodes, leader), s.parallel.gpus // nodes) for leader in (True, False)]
    # Only the leader answers requests, so only it is probed and selected by the service.
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        del templates[1]["spec"]["containers"][0][probe]
    templates[1]["metadata"]["labels"]["app"] = f"{name}-worker"
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata(name),
        "spec": {
            "replicas": total,
            "leaderWorkerTemplate": {
                "size": nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": templates[0],
                "workerTemplate": templates[1],
            },
        },
    }


def _on_node(command: Command, nodes: int, leader: bool) -> Command:
    """The command with its engine's multi-node arguments; the set's controller fills in the variables."""
    address = "$(LWS_LEADER_ADDRESS)"
    if command.engine == "vllm":
        more = ["--nnodes", str(nodes), "--node-rank", "$(LWS_WORKER_INDEX)", "--master-addr", address, *([] if leader else ["--headless"])]
    else:
        more = ["--nnodes", str(nodes), "--node-rank", "$(LWS_WORKER_INDEX)", "--dist-init-addr", f"{address}:{RENDEZVOUS_PORT}"]
    return Command(command.engine, command.program, (*command.arguments, *more), command.notes, role=command.role)


def _template(name: str, plan: Mapping[str, Any], replica: Replica, command: Command, gpus: int) -> dict[str, Any]:
    s = replica.scenario
    e2e_s = ((plan.get("latency") or {}).get("e2e_s") or {}).get("p99") or 30.0
    health = {"httpGet": {"path": "/health", "port": PORT}}
    container: dict[str, Any] = {
        "name": "engine",
        "image": image(s),
        "command": list(command.program),
        "args": _joined(command.arguments),
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}}],
        "resources": _resources(s, gpus),
        "startupProbe": health | {"periodSeconds": PROBE_PERIOD_S, "failureThreshold": math.ceil(startup_budget_s(plan) / PROBE_PERIOD_S)},
        "readinessProbe": health | {"periodSeconds": 5, "failureThreshold": 3, "timeoutSeconds": 3},
        "livenessProbe": health | {"periodSeconds": PROBE_PERIOD_S, "failureThreshold": 6, "timeoutSeconds": 5},
        # Endpoints need a moment to drop the pod before the engine stops taking requests.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "15"]}}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]
    if command.file_name:
        container["workingDir"] = "/etc/engine"
        container["volumeMounts"].append({"name": "config", "mountPath": "/etc/engine"})
        volumes.append({"name": "config", "configMap": {"name": f"{name}-config"}})
    path = "/prometheus/metrics" if command.engine == "trtllm" else "/metrics"
    return {
        "metadata": {
            "labels": {"app": name},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT), "prometheus.io/path": path},
        },
        "spec": {
            "terminationGracePeriodSeconds": max(60, math.ceil(2 * e2e_s) + 15),
            "affinity": {"podAntiAffinity": _anti_affinity(name, s.fleet.spares)},
            "containers": [container],
            "volumes": volumes,
        },
    }


def _joined(arguments: tuple[str, ...]) -> list[str]:
    """Each flag with its value in one word: half the lines, and no value can be taken for a flag."""
    found: list[str] = []
    for word in arguments:
        if word.startswith("--") or not found:
            found.append(word)
        else:
            found[-1] += f"={word}"
    return found


def _resources(s: Scenario, gpus: int) -> dict[str, Any]:
    resource = GPU_RESOURCES[support.platform(s.hardware)]
    offload_gib = math.ceil(sum(tier.gib for tier in s.engine.kv_offload if tier.tier == "cpu"))
    memory = f"{MEMORY_GIB_PER_GPU * gpus + offload_gib}Gi"
    return {
        "requests": {"cpu": str(CPUS_PER_GPU * gpus), "memory": memory, resource: str(gpus)},
        "limits": {"memory": memory, resource: str(gpus)},
    }


def _anti_affinity(name: str, spares: int) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    # A spare covers the loss of one server only if no server holds two replicas.
    if spares:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _service(name: str) -> dict[str, Any]:
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name), "spec": {"selector": {"app": name}, "ports": ports}}


def _budget(name: str, replica: Replica) -> dict[str, Any]:
    unavailable = max(1, replica.scenario.fleet.spares)
    spec = {"maxUnavailable": unavailable, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(name), "spec": spec}


def _autoscaler(name: str, plan: Mapping[str, Any], replica: Replica, workload: Mapping[str, Any]) -> dict[str, Any]:
    fleet = replica.scenario.fleet
    least, most = _sizes(replica)
    waiting, cache = METRICS[replica.scenario.engine.name]
    # Once a replica has been asked for, nothing can be seen of it until it has started.
    pause_s = min(3600, max(60, math.ceil(fleet.startup_s)))
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(name),
        "spec": {
            "scaleTargetRef": {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [_pods_metric(waiting, str(queue_threshold(plan))), _pods_metric(cache, f"{round(cache_threshold(plan) * 1000)}m")],
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": max(1, fleet.spares), "periodSeconds": min(1800, pause_s)}],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": min(3600, 5 * pause_s),
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": min(1800, pause_s)}],
                },
            },
        },
    }


def _pods_metric(metric: str, average: str) -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": _metric_name(metric)}, "target": {"type": "AverageValue", "averageValue": average}}}


def _metric_name(metric: str) -> str:
    return metric.replace(":", "_")


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {"app": name}}


def image(s: Scenario) -> str:
    """Container image of the plan's engine and version, for its accelerator; of a newer vLLM where the plan's does not know the model."""
    engine, where = s.engine.name, support.platform(s.hardware)
    if engine == "vllm":
        return f"vllm/vllm-openai{'-rocm' if where == 'amd' else ''}:{_tag(support.served_version(s))}"
    version = s.engine.version
    if version == Engine().version:
        # The schema's default version is vLLM's.
        version = flag_list("sglang").version if engine == "sglang" else "latest"
    if engine == "trtllm":
        return f"{IMAGES[engine]}:{version}"
    end = f"-{ROCM_IMAGES[hardware.of(s.hardware).family]}" if where == "amd" else ""
    return f"{IMAGES[engine]}:{_tag(version)}{end}"


def _tag(version: str) -> str:
    """v0.19.0 of a number; a moving name stays as it is."""
    return f"v{version}" if version[:1].isdecimal() else version


def _config_map(name: str, command: Command) -> dict[str, Any]:
    """The file that the engine's command reads."""
    data = {command.file_name: command.file_text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(f"{name}-config"), "data": data}
