"""A run: prompt lengths one request at a time, a repeated prefix, and a bounded closed or open loop."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from planner.measure.clients import Client
from planner.measure.endpoint import Aim, Endpoint
from planner.measure.prompts import CALIBRATION_WORDS, Prompt, Scale, fit, plain, with_system, words
from planner.measure.records import Request
from planner.measure.stream import CHARS_PER_TOKEN
from planner.problems import InputError

LONGEST_PROMPT_TOKENS = 2_000_000
MOST_REQUESTS = 100_000
MOST_IN_FLIGHT = 1_000
"""The clients' own limit of connections; beyond it requests would wait inside the client."""
LONGEST_RUN_S = 24 * 3600.0
CALIBRATION_MAX_TOKENS = 16
PREFIX_PAIRS = 3
"""Cold and warm pairs of the prefix experiment; each pair has a prefix of its own."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run. Without `concurrency` and `rate` there is no load run."""

    prompt_lengths: tuple[int, ...] = (50, 500, 5000)
    repeats: int = 5
    prefix: bool = True
    concurrency: int | None = None
    """Closed loop: this many clients, each sending its next request when the last one ends."""
    rate: float | None = None
    """Open loop: Poisson arrivals, requests per second."""
    duration_s: float = 30.0
    """Time in which load requests are sent; those in flight may finish after it."""
    load_prompt_tokens: int | None = None
    """Prompt length of the load run; None means the middle one of `prompt_lengths`."""
    max_requests: int = 2_000
    """Most requests of the load run."""
    seed: int | None = None
    """Seed of prompts and arrivals; None draws one, so that no earlier run has filled a prefix cache."""

    def __post_init__(self) -> None:
        if not self.prompt_lengths:
            raise InputError("--prompt-lengths names no length; give token counts such as 50,500,5000")
        for length in self.prompt_lengths:
            if not 1 <= length <= LONGEST_PROMPT_TOKENS:
                raise InputError(f"--prompt-lengths has {length}; give token counts from 1 to {LONGEST_PROMPT_TOKENS:,}")
        if self.load_prompt_tokens is not None and not 1 <= self.load_prompt_tokens <= LONGEST_PROMPT_TOKENS:
            raise InputError(f"--load-prompt-length is {self.load_prompt_tokens}; give a token count from 1 to {LONGEST_PROMPT_TOKENS:,}")
        if not 1 <= self.repeats <= 1000:
            raise InputError(f"--repeats is {self.repeats}; give 1 to 1,000")
        if self.concurrency is not None and self.rate is not None:
            raise InputError("--concurrency and --rate exclude each other; give one of them (closed or open loop)")
        if self.concurrency is not None and not 1 <= self.concurrency <= MOST_IN_FLIGHT:
            raise InputError(f"--concurrency is {self.concurrency}; give 1 to {MOST_IN_FLIGHT:,}")
        if self.rate is not None and not 0 < self.rate <= 10_000:
            raise InputError(f"--rate is {self.rate:g}; give requests per second above 0 and up to 10,000")
        if not 0 < self.duration_s <= LONGEST_RUN_S:
            raise InputError(f"--duration is {self.duration_s:g} s; give a time above 0 and up to {LONGEST_RUN_S:,.0f} s")
        if not 1 <= self.max_requests <= MOST_REQUESTS:
            raise InputError(f"--max-requests is {self.max_requests}; give 1 to {MOST_REQUESTS:,}")

    @property
    def load_length(self) -> int:
        """Prompt tokens of the load run."""
        return self.load_prompt_tokens or sorted(self.prompt_lengths)[(len(self.prompt_lengths) - 1) // 2]


@dataclass(slots=True)
class Run:
    """Everything that has been measured so far; it grows while the run goes on."""

    endpoint: Endpoint
    options: Options
    requests: list[Request] = field(default_factory=list)
    calibration: list[Request] = field(default_factory=list)
    """The short first requests that tell words from tokens and open the connection; in no average."""
    scale: Scale = field(default_factory=Scale)
    not_sent: int = 0
    """Open loop: arrivals dropped because too many requests were in flight."""
    stopped: bool = False
    """Ended by the user before everything was sent."""
    finished: bool = False


class Experiment:
    """Drives one run. `stop` may be called at any time: what is in flight is cut off and kept as such."""

    def __init__(self, run: Run, on_result: Callable[[Run], None] = lambda run: None) -> None:
        self._run = run
        self._on_result = on_result
        self._rng = random.Random(run.options.seed)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self._chars_per_token = CHARS_PER_TOKEN
        self._client: Client | None = None

    def stop(self) -> None:
        """Send nothing more and end what is in flight."""
        self._run.stopped = True
        self._stopping.set()
        for task in tuple(self._tasks):
            task.cancel()

    async def drive(self) -> Run:
        """Run every part in turn and return the run."""
        run, options = self._run, self._run.options
        self._client = Client(run.endpoint)
        try:
            await self._calibrate()
            await self._lengths()
            if options.prefix:
                await self._prefix()
            if options.concurrency is not None:
                await self._closed_loop(options.concurrency)
            elif options.rate is not None:
                await self._open_loop(options.rate)
        finally:
            await self._client.close()
        run.finished = not run.stopped
        self._on_result(run)
        return run

    async def _calibrate(self) -> None:
        points = []
        for i, count in enumerate(CALIBRATION_WORDS):
            if self._stopping.is_set():
                return
            prompt = plain(count, self._rng)
            max_tokens = min(CALIBRATION_MAX_TOKENS, self._run.endpoint.max_tokens)
            request = await self._task(self._ask(prompt, Aim("lengths", 0, i), max_tokens))
            self._run.calibration.append(request)
            if request.prompt_tokens and not request.estimated and request.ok:
                points.append((count, request.prompt_tokens))
                self._chars_per_token = prompt.chars / request.prompt_tokens
        self._run.scale = fit(points)
        self._on_result(self._run)

    async def _lengths(self) -> None:
        """Every length once, then every length again: slow drifts of the server spread over all lengths."""
        for repeat in range(self._run.options.repeats):
            for length in self._run.options.prompt_lengths:
                if self._stopping.is_set():
                    return
                await self._task(self._measure(plain(self._run.scale.words(length), self._rng), Aim("lengths", length, repeat)))

    async def _prefix(self) -> None:
        """A long system prompt sent twice with different questions: the second finds it in the prefix cache, if there is one."""
        length = max(self._run.options.prompt_lengths)
        for repeat in range(min(PREFIX_PAIRS, self._run.options.repeats)):
            system = words(max(1, self._run.scale.words(length) - 6), self._rng)
            for warm in (False, True):
                if self._stopping.is_set():
                    return
                await self._task(self._measure(with_system(system, self._rng), Aim("prefix", length, repeat, warm)))

    async def _closed_loop(self, clients: int) -> None:
        end_s = self._elapsed_s() + self._run.options.duration_s
        left = iter(range(self._run.options.max_requests))

        async def one_client() -> None:
            while not self._stopping.is_set() and self._elapsed_s() < end_s:
                number = next(left, None)
                if number is None:
                    return
                await self._measure_load(number)

        await self._join([self._start(one_client()) for _ in range(clients)])

    async def _open_loop(self, rate: float) -> None:
        options = self._run.options
        start_s = arrival_s = self._elapsed_s()
        pending: set[asyncio.Task[Any]] = set()
        for number in range(options.max_requests):
            arrival_s += self._rng.expovariate(rate)
            if arrival_s > start_s + options.duration_s:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), max(0.0, arrival_s - self._elapsed_s()))
            if self._stopping.is_set():
                break
            if len(pending) >= MOST_IN_FLIGHT:
                self._run.not_sent += 1
                continue
            task = self._start(self._measure_load(number))
            pending.add(task)
            task.add_done_callback(pending.discard)
        await self._join(list(pending))

    async def _measure_load(self, number: int) -> None:
        length = self._run.options.load_length
        await self._measure(plain(self._run.scale.words(length), self._rng), Aim("load", length, number))

    async def _measure(self, prompt: Prompt, aim: Aim) -> None:
        self._run.requests.append(await self._ask(prompt, aim))
        self._on_result(self._run)

    async def _ask(self, prompt: Prompt, aim: Aim, max_tokens: int | None = None) -> Request:
        assert self._client is not None
        return await self._client.send(prompt, aim, self._chars_per_token, max_tokens)

    def _elapsed_s(self) -> float:
        assert self._client is not None
        return self._client.elapsed_s

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _task(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one piece of work so that `stop` can cut it off."""
        return await self._start(work)

    async def _join(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Wait for all; pieces that `stop` cut off before they began are no error, anything else is."""
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def measure(endpoint: Endpoint, options: Options, on_result: Callable[[Run], None] = lambda run: None) -> Run:
    """Run everything that `options` asks for and return what was measured.

    `on_result` is called with the run after every request, so that a caller can keep it. Ctrl-C and SIGTERM end the run
    early: requests in flight are kept with what they showed, and the run says `stopped`. Raises InputError for a wrong
    address or a client that is not installed; nothing that a server does raises.
    """
    run = Run(endpoint, options)

    async def main() -> None:
        experiment = Experiment(run, on_result)
        loop = asyncio.get_running_loop()
        watched = []
        # Only the main thread of a Unix process can watch signals; elsewhere Ctrl-C arrives as an exception.
        if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, experiment.stop)
                watched.append(number)
        try:
            await experiment.drive()
        finally:
            for number in watched:
                loop.remove_signal_handler(number)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        run.stopped = True
        on_result(run)
    return run
