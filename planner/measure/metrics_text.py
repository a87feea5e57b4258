"""Pasted Prometheus text of a vLLM or SGLang server → facts about its traffic, its queue, its cache and its drafts.

One snapshot tells totals since the server started; a second one from before, with the seconds between them, tells a rate
and leaves out everything older.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from planner.measure.prometheus import Snapshot, Spread, difference, one_rank, parse, spread
from planner.problems import InputError

COUNT = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server's metrics say. Seconds, tokens, shares from 0 to 1; None where the server does not say."""

    engine: Literal["vllm", "sglang"]
    model: str | None
    requests: float | None
    """Finished requests."""
    request_rate: float | None
    """Requests per second, when two snapshots are given."""
    running: float | None
    """In the batch at the moment of the snapshot."""
    waiting: float | None
    """In the queue at that moment."""
    kv_usage: float | None
    """Share of the KV pool in use at that moment."""
    kv_pool_tokens: float | None
    preemptions: float | None
    input_tokens: float | None
    """Mean prompt length."""
    output_tokens: float | None
    """Mean answer length."""
    prefix_hit_rate: float | None
    """Share of prompt tokens found in the prefix cache."""
    ttft_s: Spread | None
    tpot_s: Spread | None
    """Per request, where the engine counts it; see `itl_s` for the gaps between tokens."""
    itl_s: Spread | None
    e2e_s: Spread | None
    queue_s: Spread | None
    prefill_s: Spread | None
    decode_s: Spread | None
    num_speculative_tokens: int | None
    acceptance_rates: tuple[float, ...] | None
    """Unconditional, by position: chance that the first i + 1 drafts are all accepted."""
    acceptance_length: float | None
    """Tokens per target step, its own one included."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON."""
        return asdict(self)

    def workload(self) -> dict[str, Any]:
        """Fields of `scenario.workload` that the metrics tell."""
        found: dict[str, Any] = {}
        if self.request_rate is not None:
            found["request_rate"] = self.request_rate
        if self.input_tokens:
            found["input_len"] = self.input_tokens
            if self.prefix_hit_rate is not None:
                found["shared_prefix_len"] = self.prefix_hit_rate * self.input_tokens
        if self.output_tokens:
            found["output_len"] = self.output_tokens
        return found

    def speculative(self, method: str = "eagle3") -> dict[str, Any] | None:
        """Fields of `scenario.speculative`, or None where the server drafted nothing."""
        if not self.acceptance_rates:
            return None
        return {"method": method, "num_speculative_tokens": len(self.acceptance_rates), "acceptance_rates": list(self.acceptance_rates)}


def facts(text: str, before: str | None = None, seconds: float | None = None) -> Facts:
    """Read a snapshot, or the difference of two taken `seconds` apart.

    Raises InputError when the text holds no vLLM or SGLang metric, when a counter fell between the snapshots (the server
    was restarted), or when `seconds` is missing or not above zero.
    """
    engine, now = parse(text)
    notes: list[str] = []
    if before is not None:
        old_engine, old = parse(before)
        if old_engine != engine:
            raise InputError(f"the two snapshots are of {old_engine} and {engine}; paste two of one server")
        if seconds is None or not (math.isfinite(seconds) and seconds > 0):
            raise InputError("two snapshots need the seconds between them; give a number above 0")
        now = difference(old, now)
    else:
        notes.append("One snapshot holds all traffic since the server started; a second one leaves that out and tells a rate.")
    reader = _Reader(engine, one_rank(now))
    return reader.read(seconds if before is not None else None, notes)


class _Reader:
    """Looks names up as the two engines, and their versions, spell them."""

    def __init__(self, engine: Literal["vllm", "sglang"], samples: Snapshot) -> None:
        self._engine = engine
        self._samples = samples

    def total(self, *names: str) -> float | None:
        """Sum over labels (engines, data-parallel ranks, outcomes) of the first name that is there."""
        for name in names:
            if self._samples.get(name):
                return math.fsum(self._samples[name].values())
        return None

    def mean(self, *names: str) -> float | None:
        """Mean over labels of the first name that is there."""
        for name in names:
            if samples := self._samples.get(name):
                return math.fsum(samples.values()) / len(samples)
        return None

    def spread(self, *names: str) -> Spread | None:
        """The first histogram that is there and holds something, its label sets added up."""
        for name in names:
            count = self.total(f"{name}_count")
            if count is not None and count > 0.5:
                return spread(self._samples.get(f"{name}_bucket", {}), count, self.total(f"{name}_sum"))
        return None

    def label(self, key: str, *names: str) -> str | None:
        """The value of a label on the first sample that has it."""
        for name in names or tuple(self._samples):
            for labels in self._samples.get(name, {}):
                value = dict(labels).get(key)
                if value:
                    return value
        return None

    def read(self, seconds: float | None, notes: list[str]) -> Facts:
        """Every fact of this engine."""
        inputs, outputs = self.spread("request_prompt_tokens"), self.spread("request_generation_tokens")
        ttft = self.spread("time_to_first_token_seconds")
        requests = self.total("request_success", "num_requests") or (ttft.count if ttft else None)
        arrived = ttft.count if ttft else requests
        input_tokens = inputs.mean if inputs else _over(self.total("prompt_tokens"), arrived)
        output_tokens = outputs.mean if outputs else _over(self.total("generation_tokens"), requests)
        rates, drafts = self._acceptance(notes)
        length = 1 + math.fsum(rates) if rates else self.mean("spec_accept_length")
        hit = _over(
            self.total("prefix_cache_hits", "gpu_prefix_cache_hits"), self.total("prefix_cache_queries", "gpu_prefix_cache_queries")
        )
        if hit is None:
            cached = _over(self.total("cached_tokens", "prompt_tokens_cached"), self.total("prompt_tokens"))
            hit = cached if cached is not None else self.mean("cache_hit_rate")
        pool = self._blocks() or self.total("max_total_num_tokens")
        return Facts(
            engine=self._engine,
            model=self.label("model_name"),
            requests=requests,
            request_rate=arrived / seconds if arrived is not None and seconds else None,
            running=self.total("num_requests_running", "num_running_reqs"),
            waiting=self.total("num_requests_waiting", "num_queue_reqs"),
            kv_usage=_share(self.mean("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage")),
            kv_pool_tokens=pool,
            preemptions=self.total("num_preemptions", "num_retracted_reqs"),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            prefix_hit_rate=_share(hit),
            ttft_s=ttft,
            tpot_s=self.spread("request_time_per_output_token_seconds"),
            itl_s=self.spread("inter_token_latency_seconds", "time_per_output_token_seconds"),
            e2e_s=self.spread("e2e_request_latency_seconds"),
            queue_s=self.spread("request_queue_time_seconds", "queue_time_seconds"),
            prefill_s=self.spread("request_prefill_time_seconds"),
            decode_s=self.spread("request_decode_time_seconds"),
            num_speculative_tokens=drafts,
            acceptance_rates=rates,
            acceptance_length=length,
            notes=tuple(notes),
        )

    def _blocks(self) -> float | None:
        """Tokens in the blocks of every engine; vLLM writes them as labels of one sample per engine."""
        by_engine: dict[str | None, float] = {}
        for labels in self._samples.get("cache_config_info", {}):
            known = dict(labels)
            blocks, size = known.get("num_gpu_blocks", ""), known.get("block_size", "")
            if COUNT.fullmatch(blocks) and COUNT.fullmatch(size):
                engine = known.get("engine") or known.get("dp_rank")
                by_engine[engine] = max(by_engine.get(engine, 0.0), float(blocks) * float(size))
        return math.fsum(by_engine.values()) or None

    def _acceptance(self, notes: list[str]) -> tuple[tuple[float, ...] | None, int | None]:
        """Accepted drafts by position over the number of drafts: unconditional rates, made to fall where noise made them rise."""
        steps = self.total("spec_decode_num_drafts")
        per_position: dict[int, float] = {}
        for labels, value in self._samples.get("spec_decode_num_accepted_tokens_per_pos", {}).items():
            position = dict(labels).get("position") or dict(labels).get("pos")
            if position is not None and COUNT.fullmatch(position) and int(position) < 64:
                per_position[int(position)] = per_position.get(int(position), 0.0) + value
        if not per_position:
            return None, None
        count = max(per_position) + 1
        if not steps:
            drafted = self.total("spec_decode_num_draft_tokens")
            steps = drafted / count if drafted else None
        if not steps:
            notes.append("The server has accepted drafts by position but no number of drafts, so no acceptance rate can be told.")
            return None, count
        rates: list[float] = []
        for i in range(count):
            rate = min(1.0, max(0.0, per_position.get(i, 0.0) / steps))
            rates.append(min(rate, rates[-1]) if rates else rate)
        return tuple(rates), count


def _over(top: float | None, bottom: float | None) -> float | None:
    """A mean over things counted: none where less than one was, which only rounding or nonsense leaves."""
    return top / bottom if top is not None and bottom is not None and bottom > 0.5 else None


def _share(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))
