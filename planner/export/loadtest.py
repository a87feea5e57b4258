"""Benchmark commands whose results should land inside the plan's bands: one load, three clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner import traffic
from planner.export.launch import PORT, repository, shell_text
from planner.measure.lengths import SLICES, Drawn, clamped_stdev, lengths, normal_for
from planner.scenario import Lengths, Scenario
from planner.units import MS

BASE_URL = f"http://localhost:{PORT}"
LEAST_PROMPTS = 200
"""Fewer requests than this say little about a p95."""
MOST_PROMPTS = 20_000
LEVEL = 0.05
"""A spread that differs by less than this share of the plan's is the plan's."""


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
    own = w.request_rate
    if own is None and w.trace is not None:
        own = traffic.of(w).request_rate
    rate = None if own is None else float(f"{own * share:.6g}")
    return Load(rate, clients, min(MOST_PROMPTS, max(LEAST_PROMPTS, w.num_prompts)))


def load_tests(scenario: Scenario, sent: Load | None = None, tag: str = "plan") -> tuple[LoadTest, ...]:
    """`vllm bench serve`, guidellm and aiperf for one load; `tag` names the result files."""
    sent = sent or load(scenario)
    return (vllm_bench(scenario, sent, tag), guidellm(scenario, sent, tag), aiperf(scenario, sent, tag))


def vllm_bench(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`vllm bench serve` on random prompts of the plan's mean lengths."""
    w = scenario.workload
    shared = shared_tokens(scenario)
    inputs, outputs = lengths(scenario)
    # The client wants a ratio below one.
    half_width = min(0.999, max(_half_width(w.input_len), _half_width(w.output_len)))
    arguments = ["--backend", "openai", "--base-url", BASE_URL, "--endpoint", "/v1/completions", "--model", repository(scenario.model)]
    arguments += ["--dataset-name", "random", "--random-prefix-len", str(shared), "--random-input-len", str(round(inputs.mean))]
    arguments += ["--random-output-len", str(round(outputs.mean)), "--random-range-ratio", f"{half_width:g}"]
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
    notes = []
    drawn = [length for length, found in ((w.input_len, inputs), (w.output_len, outputs)) if found.stdev]
    if not all(half_width and abs(_half_width(length) - half_width) < 0.01 for length in drawn):
        shape = "even draws around the means" if half_width else "one length each"
        sends = f"Lengths sent: {shape}, prompts of {_tokens(shared + inputs.mean)} and answers of {_tokens(outputs.mean)} tokens"
        notes = [f"{sends}; the plan's spread is {_spreads(inputs, outputs)}, so for tail percentiles use the aiperf command."]
    return LoadTest("vllm bench serve", ("vllm", "bench", "serve"), tuple(arguments), tuple(notes + _notes(scenario)))


def guidellm(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`guidellm run` on synthetic prompts with the plan's mean lengths and as much of its spread as a clamped normal can carry."""
    w = scenario.workload
    shared = shared_tokens(scenario)
    inputs, outputs = lengths(scenario)
    prompts, answers = _guidellm_lengths("prompt_tokens", w.input_len, inputs), _guidellm_lengths("output_tokens", w.output_len, outputs)
    data: dict[str, Any] = {"kind": "synthetic_text", **prompts.settings, **answers.settings}
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
    notes = []
    if sent.request_rate is not None and w.burstiness < 1:
        notes.append("guidellm sends Poisson arrivals; the plan's are burstier, so its waits will be longer.")
    if sent.request_rate is not None and w.burstiness > 1:
        notes.append("guidellm sends Poisson arrivals; the plan's are more even, so its waits will be shorter.")
    notes += [note for note in (prompts.note("prompts", inputs), answers.note("answers", outputs)) if note]
    return LoadTest("guidellm", ("guidellm", "run"), tuple(arguments), tuple(notes + _notes(scenario, sessions=True)))


def aiperf(scenario: Scenario, sent: Load, tag: str = "plan") -> LoadTest:
    """`aiperf profile` on synthetic prompts of the plan's own lengths, in slices, and with its burstiness."""
    w = scenario.workload
    shared = shared_tokens(scenario)
    inputs, outputs = lengths(scenario)
    arguments = ["--model", repository(scenario.model), "--url", BASE_URL, "--endpoint-type", "completions", "--streaming"]
    notes = []
    if inputs.stdev > 0 or outputs.stdev > 0:
        pairs = _pairs(_whole(inputs), _whole(outputs))
        share = f"{100 / SLICES:g}"
        arguments += ["--sequence-distribution", ";".join(f"{a},{b}:{share}" for a, b in pairs)]
        notes.append(
            f"Lengths sent: {SLICES} pairs, the means of each twentieth of the plan's own lengths"
            f"{' beyond the shared prefix' if shared else ''}; "
            f"standard deviation {_tokens(_stdev([a for a, _ in pairs]))} and {_tokens(_stdev([b for _, b in pairs]))} tokens "
            f"(plan: {_spreads(inputs, outputs)})."
        )
    else:
        arguments += ["--isl", str(round(inputs.mean)), "--isl-stddev", "0", "--osl", str(round(outputs.mean)), "--osl-stddev", "0"]
    if shared:
        arguments += ["--prefix-prompt-length", str(shared), "--num-prefix-prompts", str(w.prefix_groups)]
    if sent.request_rate is not None:
        arguments += ["--request-rate", f"{sent.request_rate:g}", "--arrival-pattern", "gamma", "--arrival-smoothness", f"{w.burstiness:g}"]
    if sent.max_concurrency is not None:
        arguments += ["--concurrency", str(sent.max_concurrency)]
    # As many prompts as requests: one sent twice would be found in the prefix cache.
    arguments += ["--request-count", str(sent.num_prompts), "--num-dataset-entries", str(sent.num_prompts)]
    arguments += ["--extra-inputs", "ignore_eos:true", "--random-seed", str(w.seed)]
    promises = {
        "time_to_first_token": scenario.slo.ttft_s,
        "inter_token_latency": scenario.slo.tpot_s,
        "request_latency": scenario.slo.e2e_s,
    }
    goodput = " ".join(f"{name}:{seconds / MS:g}" for name, seconds in promises.items() if seconds is not None)
    if goodput:
        arguments += ["--goodput", goodput]
    arguments += ["--output-artifact-dir", f"{tag}-aiperf"]
    return LoadTest("aiperf", ("aiperf", "profile"), tuple(arguments), tuple(notes + _notes(scenario)))


def shared_tokens(scenario: Scenario) -> int:
    """Tokens of the shared prefix; a recorded trace says nothing of one."""
    w = scenario.workload
    return 0 if w.trace is not None else round(w.shared_prefix_len)


def _half_width(length: float | Lengths) -> float:
    return (length.half_width or 0.0) if isinstance(length, Lengths) and length.kind == "uniform" else 0.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """The settings of one length, and what comes out of them."""

    settings: dict[str, Any]
    stdev: float
    low: float = 0.0
    high: float = 0.0

    def note(self, words: str, planned: Drawn) -> str:
        """What spread is sent; empty where the length is fixed."""
        if not planned.stdev:
            return ""
        cut = f"drawn between {_tokens(self.low)} and {_tokens(self.high)} tokens"
        if abs(self.stdev - planned.stdev) <= LEVEL * planned.stdev:
            return f"Lengths of {words} sent: {cut}, with the plan's mean and standard deviation."
        return (
            f"Lengths of {words} sent: {cut}, mean {_tokens(planned.mean)} as planned, standard deviation {_tokens(self.stdev)} where the "
            f"plan has {_tokens(planned.stdev)}: for tail percentiles use the aiperf command."
        )


def _guidellm_lengths(name: str, length: float | Lengths, planned: Drawn) -> _Sent:
    """guidellm draws normally and moves what lies beyond the ends to them, which shifts the mean: start from one that lands on the plan's.

    The spread is capped at the mean, where a fifth of the draws lies at the lower end; more would make most requests alike.
    """
    if not planned.stdev:
        return _Sent({name: max(1, round(planned.mean))}, 0.0)
    low = max(1, round(planned.slices[0]))
    if _half_width(length):
        low, high = max(1, round(planned.mean - 3**0.5 * planned.stdev)), round(planned.mean + 3**0.5 * planned.stdev)
        return _Sent({name: max(1, round(planned.mean)), f"{name}_min": low, f"{name}_max": high}, planned.stdev, low, high)
    stdev = max(1, round(min(planned.stdev, planned.mean)))
    high = round(min(planned.longest, planned.mean + 5 * stdev))
    if not low < planned.mean < high:
        return _Sent({name: max(1, round(planned.mean))}, 0.0, round(planned.mean), round(planned.mean))
    mean = max(1, round(normal_for(planned.mean, stdev, low, high)))
    settings = {name: mean, f"{name}_stdev": stdev, f"{name}_min": low, f"{name}_max": high}
    return _Sent(settings, clamped_stdev(mean, stdev, low, high), low, high)


def _whole(planned: Drawn) -> list[int]:
    """The slices in whole tokens with the same sum: what rounding leaves over is carried to the next."""
    found, owed = [], 0.0
    for value in planned.slices:
        owed += value
        found.append(max(1, round(owed)))
        owed -= found[-1]
    return found


def _pairs(inputs: list[int], outputs: list[int]) -> list[tuple[int, int]]:
    """Each input slice with an output slice, in the order in which long prompts go least with long (or short) answers."""

    def together(order: Sequence[int]) -> float:
        return abs(sum(a * outputs[j] for a, j in zip(inputs, order, strict=True)) - sum(inputs) * sum(outputs) / SLICES)

    steps = (3, 7, 9, 11, 13, 17)
    orders: list[list[int]] = [[(step * i + start) % SLICES for i in range(SLICES)] for step in steps for start in range(SLICES)]
    best = min(orders, key=together)
    return [(a, outputs[j]) for a, j in zip(inputs, best, strict=True)]


def _stdev(values: list[int]) -> float:
    mean = sum(values) / len(values)
    return float((sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5)


def _spreads(inputs: Drawn, outputs: Drawn) -> str:
    return f"{_tokens(inputs.stdev)} and {_tokens(outputs.stdev)} tokens"


def _tokens(value: float) -> str:
    return f"{round(value):,}"


def _words(settings: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())


def _notes(scenario: Scenario, sessions: bool = False) -> list[str]:
    """What this client cannot send; `sessions` where it sends them."""
    w, notes = scenario.workload, []
    if w.turns > 1 and not sessions:
        notes.append(f"The plan's sessions have {w.turns} turns; this client sends single turns, so its prefix hits will be fewer.")
    if w.trace is not None:
        notes.append("The plan replays a trace; this command sends its rate, and lengths like its own in no order.")
    return notes
