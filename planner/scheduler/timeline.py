"""What a simulation leaves behind: one row a request, sums over the steps, and the steps themselves when asked for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from planner.workload import Request

STATUSES = ("finished", "failed", "cancelled", "unfinished")
FINISHED, FAILED, CANCELLED, UNFINISHED = range(4)
STATUS_NUMBER = {status: number for number, status in enumerate(STATUSES)}


@dataclass(frozen=True, slots=True)
class StepRecords:
    """One entry a step, and one a decode run: memory grows with steps and requests, never with tokens."""

    end_s: np.ndarray
    seconds: np.ndarray
    """How long each took, single precision."""
    decode_sequences: np.ndarray
    chunk_tokens: np.ndarray
    kv_used_blocks: np.ndarray
    waiting: np.ndarray
    run_number: np.ndarray
    """Request whose decode run this is; a preempted request has several."""
    run_first: np.ndarray
    """Decode steps run_first to run_last - 1 each emitted tokens of the run, counting only steps that decode."""
    run_last: np.ndarray
    run_start_s: np.ndarray
    """When the token before the run's first decode step was emitted, s."""

    def between(self, start_s: float, end_s: float) -> dict[str, np.ndarray]:
        """The steps that end in a stretch of time, as columns ready for a chart (runs left out)."""
        first, last = np.searchsorted(self.end_s, (start_s, end_s), side="right")
        names = ("end_s", "seconds", "decode_sequences", "chunk_tokens", "kv_used_blocks", "waiting")
        return {name: getattr(self, name)[first:last] for name in names}

    @property
    def decode_end_s(self) -> np.ndarray:
        """End times of the steps that decode, s."""
        return self.end_s[self.decode_sequences > 0]


@dataclass(frozen=True, slots=True)
class EngineLog:
    """Sums over all steps of one replica."""

    steps: int
    decode_steps: int
    decode_rows: int
    """Σ over steps of sequences decoding, padding rows of a static batch included."""
    padding_rows: int
    output_busy_s: float
    """What the steps would have taken without their prefill chunks; the next two are the rest."""
    input_busy_s: float
    cached_busy_s: float
    """Time spent re-reading prefixes found in the cache."""
    kv_block_s: float
    """∫ blocks in use dt over busy time."""
    kv_token_s: float
    """∫ tokens in KV dt over busy time, a shared one counted once per sequence."""
    seats: int
    """Sequences that may run at once."""
    total_blocks: int
    block_size: int
    end_s: float
    records: StepRecords | None = None

    @property
    def busy_s(self) -> float:
        return self.output_busy_s + self.input_busy_s + self.cached_busy_s


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns over requests in order of arrival (NaN where something never happened), and one log per replica."""

    number: np.ndarray
    arrival_s: np.ndarray
    scheduled_s: np.ndarray
    first_token_s: np.ndarray
    answer_s: np.ndarray
    finish_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    decode_steps: np.ndarray
    cached_tokens: np.ndarray
    preemptions: np.ndarray
    priority_class: np.ndarray
    truncated: np.ndarray
    status: np.ndarray
    """Index into STATUSES."""
    engines: tuple[EngineLog, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why requests failed, each reason once."""
    stopped: str = ""
    """Why the simulation gave up before the work was done; empty when it drained."""
    out_of_steps: bool = False
    """Whether that was the bound of steps."""
    session_turns: int = 1
    """Requests of one session: a session that waits holds back its later ones, so its queue shows only one of them."""
    expected_requests: float | None = None
    """What the sessions of a steady open loop would have sent at the pace assumed; fewer rows mean that they were held up."""

    def __len__(self) -> int:
        return len(self.number)

    def only(self, which: np.ndarray) -> Timeline:
        """The rows of some requests, say of one priority class, beside the same engines."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    @property
    def finished(self) -> np.ndarray:
        return self.status == FINISHED

    @property
    def steps(self) -> int:
        return sum(engine.steps for engine in self.engines)

    @property
    def output_busy_s(self) -> float:
        return sum(engine.output_busy_s for engine in self.engines)

    @property
    def input_busy_s(self) -> float:
        return sum(engine.input_busy_s for engine in self.engines)

    @property
    def cached_busy_s(self) -> float:
        return sum(engine.cached_busy_s for engine in self.engines)

    @property
    def end_s(self) -> float:
        """When the last step ended, s."""
        return max((engine.end_s for engine in self.engines), default=0.0)


COLUMNS = tuple(f.name for f in fields(Timeline) if f.type == "np.ndarray")
"""The fields that hold a value a request; `status` is the last."""
WHOLE = {"number", "input_tokens", "output_tokens", "decode_steps", "cached_tokens", "preemptions", "priority_class", "status"}
"""Columns of whole numbers; the ledger keeps all as doubles, which hold them exactly."""

_figures = attrgetter(*COLUMNS[:-1])
"""What a request says of itself by the names of the columns; its status is a word there."""


class Ledger:
    """Collects requests as they end, as rows of numbers, so that a request object lives no longer than its request."""

    def __init__(self) -> None:
        self._rows = array("d")
        self._reasons: dict[str, None] = {}

    def add(self, request: Request) -> None:
        """Write down a request that has ended, or that never will."""
        self._rows.extend(_figures(request))
        self._rows.append(STATUS_NUMBER.get(request.status, UNFINISHED))
        if request.reason:
            self._reasons[request.reason] = None

    def timeline(self, engines: Iterable[EngineLog], stopped: str = "", max_steps: int | None = None) -> Timeline:
        """Everything added so far, in order of arrival. `max_steps` is the bound of steps where that ended the run."""
        table = np.array(self._rows).reshape(-1, len(COLUMNS))
        table = table[np.argsort(table[:, 0], kind="stable")]
        if max_steps is not None:
            left = int((table[:, COLUMNS.index("status")] == UNFINISHED).sum())
            stopped = f"stopped after {max_steps:,} steps with {left:,} requests unfinished"
        columns: dict[str, Any] = {
            name: table[:, i].astype(np.int64 if name in WHOLE else bool if name == "truncated" else float)
            for i, name in enumerate(COLUMNS)
        }
        short = max_steps is not None
        return Timeline(**columns, engines=tuple(engines), reasons=tuple(self._reasons), stopped=stopped, out_of_steps=short)
