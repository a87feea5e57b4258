"""Benchmark commands whose results should land inside the plan's bands: one load, three clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.export.launch import PORT, repository, shell_text
from planner.scenario import Lengths, Scenario, mean_length
from planner.units import MS

BASE_URL = f"http://localhost:{PORT}"
LEAST_PROMPTS = 200
"""Fewer requests than this say little about a p95."""
MOST_PROMPTS = 20_000
LENGTHS_NOTE = (
    "This client draws lengths evenly around the mean only. Means match the plan, tails do not: for the tail percentiles use the "
    "guidellm or aiperf command, which draws with the plan's spread, or replay recorded lengths."
)


@dataclass(frozen=True, slots=True)
class LoadTest:
    """One benchmark client's command line."""

    client: str
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return shell_text(self.program, self.arguments)


@dataclass(frozen=True, slots=True)
class Load:
    """The traffic to send: the plan's, or a share of it."""

    request_rate: float | None
    max_concurrency: int | None
    num_prompts: int

    @property
    def text(self) -> str:
        """In words, for tables."""
        if self.request_rate is None:
            return f"{self.max_concurrency:,} clients at once"
        return f"{self.request_rate:.4g} requests/s"


def load(scenario: Scenario, share: float = 1.0) -> Load:
    """The scenario's load times `share`; a closed loop keeps a whole number of clients."""
    w = scenario.workload
    clients = None if w.max_concurrency is None else max(1, round(w.max_concurrency * share))
    rate = None if w.request_rate is None else float(f"{w.request_rate * share:.6g}")
    return Load(rate, clients, min(MOST_PROMPTS, max(LEAST_PROMPTS, w.num_prompts)))


def load_tests(scenario: Scenario, sent: Load | None = None, tag: str = "plan") -> tuple[LoadTest, ...]:
    """`vllm bench serve`, guidellm and aiperf for one load; `tag` names the result files."""
    sent = sent or load(scenario)
    return (vllm_bench(scenario, sent, tag), guidellm(scenario, sent, tag), aiperf(scenario, sent, tag))


def vllm_bench(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`vllm bench serve` on random prompts of the plan's mean lengths."""
    w = scenario.workload
    shared, unique, output = _lengths(scenario)
    spread = _half_width(w.input_len), _half_width(w.output_len)
    arguments = ["--backend", "openai", "--base-url", BASE_URL, "--endpoint", "/v1/completions", "--model", repository(scenario.model)]
    arguments += ["--dataset-name", "random", "--random-prefix-len", str(shared), "--random-input-len", str(unique)]
    arguments += ["--random-output-len", str(output), "--random-range-ratio", f"{max(spread):g}"]
    arguments += ["--num-prompts", str(sent.num_prompts)]
    arguments += ["--request-rate", "inf" if sent.request_rate is None else f"{sent.request_rate:g}", "--burstiness", f"{w.burstiness:g}"]
    if sent.max_concurrency is not None:
        arguments += ["--max-concurrency", str(sent.max_concurrency)]
    arguments += ["--seed", str(w.seed), "--ignore-eos"]
    arguments += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"]
    promises = {"ttft": scenario.slo.ttft_s, "tpot": scenario.slo.tpot_s, "e2el": scenario.slo.e2e_s}
    goodput = [f"{name}:{seconds / MS:g}" for name, seconds in promises.items() if seconds is not None]
    if goodput:
        arguments += ["--goodput", *goodput]
    arguments += ["--save-result", "--result-filename", f"{tag}-vllm-bench.json"]
    notes = [LENGTHS_NOTE] if _spread(w.input_len) or _spread(w.output_len) else []
    return LoadTest("vllm bench serve", ("vllm", "bench", "serve"), tuple(arguments), tuple(notes + _notes(scenario)))


def guidellm(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`guidellm run` on synthetic prompts with the plan's mean and spread."""
    w = scenario.workload
    shared, unique, output = _lengths(scenario)
    data: dict[str, Any] = {"kind": "synthetic_text", "prompt_tokens": unique, "output_tokens": output}
    data |= _guidellm_spread("prompt_tokens", w.input_len) | _guidellm_spread("output_tokens", w.output_len)
    if shared:
        data |= {"prefix_tokens": shared, "prefix_count": w.prefix_groups}
    if w.turns > 1:
        data |= {"turns": w.turns}
    if sent.request_rate is None:
        profile: dict[str, Any] = {"kind": "concurrent", "streams": sent.max_concurrency}
    else:
        profile = {"kind": "poisson", "rate": f"{sent.request_rate:g}"}
    backend = {"kind": "openai_http", "target": BASE_URL, "model": repository(scenario.model), "request_format": "/v1/completions"}
    arguments = ["--backend", _words(backend), "--profile", _words(profile), "--data", _words(data)]
    arguments += [
        "--constraint",
        _words({"kind": "max_requests", "count": sent.num_prompts}),
        "--seed",
        _words({"kind": "static", "value": w.seed}),
    ]
    arguments += ["--output", _words({"kind": "json", "path": f"{tag}-guidellm.json"})]
    notes = [] if w.burstiness == 1 else ["guidellm sends Poisson arrivals; the plan's are burstier, so its waits will be longer."]
    return LoadTest("guidellm", ("guidellm", "run"), tuple(arguments), tuple(notes))


def aiperf(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`aiperf profile` on synthetic prompts with the plan's mean, spread and burstiness."""
    w = scenario.workload
    shared, unique, output = _lengths(scenario)
    arguments = ["--model", repository(scenario.model), "--url", BASE_URL, "--endpoint-type", "completions", "--streaming"]
    arguments += [
        "--isl",
        str(unique),
        "--isl-stddev",
        f"{_spread(w.input_len):g}",
        "--osl",
        str(output),
        "--osl-stddev",
        f"{_spread(w.output_len):g}",
    ]
    if shared:
        arguments += ["--prefix-prompt-length", str(shared), "--num-prefix-prompts", str(w.prefix_groups)]
    if sent.request_rate is not None:
        arguments += ["--request-rate", f"{sent.request_rate:g}", "--arrival-pattern", "gamma", "--arrival-smoothness", f"{w.burstiness:g}"]
    if sent.max_concurrency is not None:
        arguments += ["--concurrency", str(sent.max_concurrency)]
    arguments += ["--request-count", str(sent.num_prompts), "--extra-inputs", "ignore_eos:true", "--random-seed", str(w.seed)]
    promises = {
        "time_to_first_token": scenario.slo.ttft_s,
        "inter_token_latency": scenario.slo.tpot_s,
        "request_latency": scenario.slo.e2e_s,
    }
    goodput = " ".join(f"{name}:{seconds / MS:g}" for name, seconds in promises.items() if seconds is not None)
    if goodput:
        arguments += ["--goodput", goodput]
    arguments += ["--output-artifact-dir", f"{tag}-aiperf"]
    return LoadTest("aiperf", ("aiperf", "profile"), tuple(arguments))


def _lengths(scenario: Scenario) -> tuple[int, int, int]:
    """Shared prefix, the rest of the prompt, output: whole tokens, at least one each but for the prefix."""
    w = scenario.workload
    shared = round(w.shared_prefix_len)
    unique = max(1, round(mean_length(w.input_len)) - shared)
    output = mean_length(w.output_len)
    return shared, unique, max(1, round(min(output, w.max_output_len or output)))


def _half_width(length: float | Lengths) -> float:
    return (length.half_width or 0.0) if isinstance(length, Lengths) and length.kind == "uniform" else 0.0


def _spread(length: float | Lengths) -> float:
    """Standard deviation of a length, whole tokens; 0 for a fixed or uniform one (uniform has its own flag)."""
    if not isinstance(length, Lengths) or length.kind in ("fixed", "uniform"):
        return 0.0
    if length.kind == "lognormal":
        return float(round((length.mean or 0.0) * (length.cv or 0.0)))
    values = length.values or () if length.kind == "empirical" else tuple(v for _, v in length.points or ())
    mean = sum(values) / len(values)
    return float(round(math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))))


def _guidellm_spread(name: str, length: float | Lengths) -> dict[str, Any]:
    if half := _half_width(length):
        mean = mean_length(length)
        return {f"{name}_min": max(1, round(mean * (1 - half))), f"{name}_max": round(mean * (1 + half))}
    spread = _spread(length)
    longest = length.max if isinstance(length, Lengths) else None
    found: dict[str, Any] = {f"{name}_stdev": int(spread)} if spread else {}
    return found | ({f"{name}_max": round(longest)} if spread and longest else {})


def _words(settings: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())


def _notes(scenario: Scenario) -> list[str]:
    w, notes = scenario.workload, []
    if w.turns > 1:
        notes.append(f"The plan's sessions have {w.turns} turns; this client sends single turns, so its prefix hits will be fewer.")
    if w.trace is not None:
        notes.append("The plan replays a trace; this command sends its rate and mean lengths only.")
    return notes
