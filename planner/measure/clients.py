"""One streaming request through the official clients, timed event by event.

The clients are an optional extra: they are imported when a run starts, and a missing one is one clear sentence.
Keys come from the environment alone. They never reach a record, a message or a file.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from planner.measure.endpoint import KEY_VARIABLES, LONGEST_MESSAGE, NO_KEY, Aim, Endpoint, addresses, check_url, clean
from planner.measure.prompts import Prompt
from planner.measure.records import Request
from planner.measure.stream import Answer, StreamError, events
from planner.problems import InputError

TURNED_AWAY = (429, 529)
"""Statuses by which a server asks to come again; with 503 only when it names a time. Every other error is a result."""
LONGEST_WAIT_S = 60.0


_SENDING: ContextVar[Answer | None] = ContextVar("planner_measure_sending", default=None)
"""The answer whose request this task is about to send."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended: the error if any, how long to wait where another attempt makes sense, or `again` at once."""

    error: str | None
    wait_s: float | None = None
    again: bool = False


class Client:
    """An open client of one endpoint. `send` never raises for what a server does: errors are part of the record."""

    def __init__(self, endpoint: Endpoint, clock: Callable[[], float] = time.perf_counter) -> None:
        check_url(endpoint.base_url)
        self.endpoint = endpoint
        self._clock = clock
        self._start_s = clock()
        self._key = os.environ.get(KEY_VARIABLES[endpoint.api], "").strip() or NO_KEY
        self._errors: Any = None
        self._limit_field = "max_tokens"
        self._stream_options = endpoint.api == "openai"
        self._paths = addresses(endpoint)
        self._client: Any = self._open(self._paths.pop(0))

    def _open(self, base_url: str) -> Any:
        name = self.endpoint.api
        try:
            self._errors = importlib.import_module(name)
        except ImportError:
            raise InputError(f"measuring needs the {name} client, which is not installed; run `pip install {name}`") from None
        kind = self._errors.AsyncOpenAI if name == "openai" else self._errors.AsyncAnthropic
        # Retries are counted here, so the client must not hide any.
        query = dict(parse_qsl(urlsplit(self.endpoint.base_url).query))
        transport = self._errors.DefaultAsyncHttpxClient(timeout=self.endpoint.timeout_s, event_hooks={"request": [self._note_sending]})
        return kind(api_key=self._key, base_url=base_url, default_query=query or None, max_retries=0, http_client=transport)

    async def _note_sending(self, request: Any) -> None:
        """Start the clock when the request goes out on an open connection: building it and connecting are not the server's time."""
        answer = _SENDING.get()
        if answer is None:
            return
        answer.sent_s = self._clock()

        async def note(event: str, info: object) -> None:
            if event.endswith("send_request_headers.started"):
                answer.sent_s = self._clock()

        request.extensions["trace"] = note

    @property
    def elapsed_s(self) -> float:
        """Seconds since the client was opened: the zero of every `started_s`."""
        return self._clock() - self._start_s

    async def close(self) -> None:
        """Give the connections back."""
        with suppress(Exception):
            await self._client.close()

    async def send(self, prompt: Prompt, aim: Aim, chars_per_token: float, max_tokens: int | None = None) -> Request:
        """Send one prompt and time its answer. Turned-away attempts are repeated and counted; other failures are recorded."""
        retries, waited_s, outcome = 0, 0.0, Outcome("not sent")
        answer = Answer()
        try:
            while True:
                answer = Answer()
                answer.sent_s = self._clock()
                _SENDING.set(answer)
                outcome = await self._attempt(prompt, answer, max_tokens or self.endpoint.max_tokens)
                if outcome.again:
                    continue
                if outcome.wait_s is None or outcome.wait_s > LONGEST_WAIT_S or retries >= self.endpoint.retries:
                    break
                retries += 1
                waited_s += outcome.wait_s
                await asyncio.sleep(outcome.wait_s)
        except asyncio.CancelledError:
            # The run is being stopped; what this request showed so far is kept.
            if task := asyncio.current_task():
                task.uncancel()
            outcome = Outcome(f"stopped before the answer was complete{self._so_far(answer)}")
        error = outcome.error
        if error and outcome.wait_s is not None and outcome.wait_s > LONGEST_WAIT_S:
            error += f"; it asked to wait {outcome.wait_s:.0f} s, more than the {LONGEST_WAIT_S:.0f} s allowed"
        return self._record(prompt, aim, answer, error, retries, waited_s, chars_per_token)

    async def _attempt(self, prompt: Prompt, answer: Answer, max_tokens: int) -> Outcome:
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                await self._stream(prompt, answer, max_tokens)
            answer.check_complete()
            return Outcome(None)
        except TimeoutError:
            return Outcome(f"timed out after {self.endpoint.timeout_s:g} s{self._so_far(answer)}")
        except StreamError as error:
            return Outcome(self._clean(str(error)))
        except self._errors.APITimeoutError:
            return Outcome(f"timed out after {self._clock() - answer.sent_s:.3g} s{self._so_far(answer)}")
        except self._errors.APIStatusError as error:
            if await self._adapt(error):
                return Outcome("adapted", again=True)
            wait_s = _retry_after(error) if error.status_code in (*TURNED_AWAY, 503) else None
            if wait_s is None and error.status_code in TURNED_AWAY:
                wait_s = 1.0
            return Outcome(self._clean(f"HTTP {error.status_code}: {_reason(error)}{self._advice(error.status_code)}"), wait_s)
        except self._errors.APIConnectionError as error:
            return Outcome(self._clean(f"connection failed: {error.__cause__ or error}"))
        except Exception as error:
            if answer.complete and answer.first_s is not None:
                return Outcome(None)
            told = f"the connection broke off after {answer.events} events" if answer.events else "the request failed"
            return Outcome(self._clean(f"{told}: {type(error).__name__} {error}"))

    async def _stream(self, prompt: Prompt, answer: Answer, max_tokens: int) -> None:
        take = answer.openai if self.endpoint.api == "openai" else answer.anthropic
        create = self._client.chat.completions if self.endpoint.api == "openai" else self._client.messages
        async with create.with_streaming_response.create(**self._body(prompt, max_tokens)) as response:
            async for event in events(response.iter_lines(), answer):
                take(event, self._clock())

    def _body(self, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        user = {"role": "user", "content": prompt.user}
        body: dict[str, Any] = {"model": self.endpoint.model, "stream": True}
        if self.endpoint.api == "anthropic":
            body |= {"messages": [user], "max_tokens": max_tokens}
            if prompt.system is not None:
                # Without the mark the Messages API caches nothing.
                body["system"] = [{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}]
        else:
            system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
            body |= {"messages": [*system, user], self._limit_field: max_tokens}
            if self._stream_options:
                body["stream_options"] = {"include_usage": True}
        return body | ({"extra_body": self.endpoint.extra_body} if self.endpoint.extra_body else {})

    async def _adapt(self, error: Any) -> bool:
        """Change what this server does not take (a field's name, the path); True when it is worth another try at once."""
        if error.status_code == 404 and self._paths:
            await self.close()
            self._client = self._open(self._paths.pop(0))
            return True
        if error.status_code not in (400, 422):
            return False
        text = _reason(error)
        if "max_completion_tokens" in text and self._limit_field == "max_tokens" and self.endpoint.api == "openai":
            self._limit_field = "max_completion_tokens"
            return True
        if "stream_options" in text and self._stream_options:
            self._stream_options = False
            return True
        return False

    def _record(
        self,
        prompt: Prompt,
        aim: Aim,
        answer: Answer,
        error: str | None,
        retries: int,
        waited_s: float,
        chars_per_token: float,
    ) -> Request:
        output_tokens, estimated = answer.counted_tokens(chars_per_token)
        prompt_tokens = answer.prompt_tokens
        if prompt_tokens is None and error is None:
            prompt_tokens, estimated = round(prompt.chars / chars_per_token), True

        def since(moment_s: float | None) -> float | None:
            return None if moment_s is None else moment_s - answer.sent_s

        return Request(
            experiment=aim.experiment,
            target_prompt_tokens=aim.target_prompt_tokens,
            repeat=aim.repeat,
            started_s=answer.sent_s - self._start_s,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=answer.cached_tokens,
            thinking_tokens=answer.thinking_tokens,
            ttft_s=since(answer.first_s),
            ttft_answer_s=since(answer.answer_s),
            tpot_s=answer.tpot_s(output_tokens),
            e2e_s=since(answer.last_s),
            error=error,
            events=answer.events,
            retries=retries,
            retry_wait_s=waited_s,
            estimated=estimated,
            warm=aim.warm,
            finish=answer.finish,
        )

    def _so_far(self, answer: Answer) -> str:
        if answer.first_s is None:
            return " without a token"
        return f" with {answer.events} events, the first after {answer.first_s - answer.sent_s:.3f} s"

    def _advice(self, status: int) -> str:
        variable = KEY_VARIABLES[self.endpoint.api]
        return f"; set {variable} in the environment to a key of this server" if status in (401, 403) else ""

    def _clean(self, text: str) -> str:
        return clean(text, self._key)


def _retry_after(error: Any) -> float | None:
    """Seconds that the server asked to wait, or None when it named none."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(KeyError, TypeError, ValueError):
            wait_s = float(headers[name]) * scale
            if 0 <= wait_s < 1e6:
                return wait_s
    return None


def _reason(error: Any) -> str:
    """What the server said, from the body's error message where there is one."""
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        text = inner.get("message") if isinstance(inner, dict) else inner
        if text:
            return str(text)
    text = str(getattr(error, "message", error))
    return text if len(text) < LONGEST_MESSAGE else text[:LONGEST_MESSAGE]
