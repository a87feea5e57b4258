"""Reading one streamed answer: which event was the first token, which the first of the answer, which the last."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from planner.measure.records import tpot

CHARS_PER_TOKEN = 4.0
"""English prose in common tokenizers; used only when a server sends no usage, and said so."""
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


class StreamError(Exception):
    """The stream said that it failed, or ended before it was complete."""


class Answer:
    """What has been seen of one streamed answer. Feed it events with their arrival times; then read its figures.

    Times are seconds on the caller's clock. Events without text (roles, empty deltas, pings, usage) mark no token.
    """

    __slots__ = (
        "_closed",
        "_head",
        "_inside",
        "_tail",
        "answer_s",
        "cached_tokens",
        "chars",
        "done",
        "events",
        "finish",
        "first_s",
        "last_s",
        "output_tokens",
        "prompt_tokens",
        "sent_s",
        "streamed_thinking",
        "thinking_tokens",
    )

    def __init__(self) -> None:
        self.sent_s = 0.0
        self.first_s: float | None = None
        self.answer_s: float | None = None
        self.last_s: float | None = None
        self.events = 0
        self.chars = 0
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.thinking_tokens: int | None = None
        self.streamed_thinking = False
        self.finish: str | None = None
        self.done = False
        self._head = ""
        self._tail = ""
        self._inside = False
        self._closed = False

    def openai(self, event: dict[str, Any], now_s: float) -> None:
        """Take one chat-completions chunk."""
        if event.get("error") or event.get("object") == "error":
            raise StreamError(_message(event.get("error") or event))
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or choice.get("message") or {}
            thinking = delta.get("reasoning_content") or delta.get("reasoning") or ""
            text = delta.get("content") or choice.get("text") or delta.get("refusal") or ""
            calls = delta.get("tool_calls") or ([delta["function_call"]] if delta.get("function_call") else [])
            if thinking:
                self._token(_text(thinking), now_s, thinking=True)
            if text:
                self._content(_text(text), now_s)
            for call in calls:
                function = call.get("function") or call
                arguments = f"{function.get('name') or ''}{function.get('arguments') or ''}"
                if arguments:
                    self._token(arguments, now_s)
            self.finish = choice.get("finish_reason") or self.finish
        if usage := event.get("usage"):
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.output_tokens = _count(usage.get("completion_tokens"), self.output_tokens)
            details = usage.get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens", usage.get("cached_tokens")))
            self.cached_tokens = _count(cached, self.cached_tokens)
            details = usage.get("completion_tokens_details") or {}
            self.thinking_tokens = _count(details.get("reasoning_tokens", usage.get("reasoning_tokens")), self.thinking_tokens)
            # Some servers send running usage with every chunk; only the one without choices closes the answer.
            self.done = self.done or not event.get("choices")

    def anthropic(self, event: dict[str, Any], now_s: float) -> None:
        """Take one event of a Messages stream."""
        kind = event.get("type")
        if kind == "error":
            raise StreamError(_message(event.get("error")))
        if kind == "message_start":
            self._anthropic_usage((event.get("message") or {}).get("usage") or {})
        elif kind == "content_block_start":
            block = event.get("content_block") or {}
            if block.get("type") == "tool_use" and block.get("name"):
                self._token(block["name"], now_s)
            elif block.get("text"):
                self._content(block["text"], now_s)
            elif block.get("thinking"):
                self._token(block["thinking"], now_s, thinking=True)
        elif kind == "content_block_delta":
            delta = event.get("delta") or {}
            if delta.get("thinking"):
                self._token(delta["thinking"], now_s, thinking=True)
            elif delta.get("text"):
                self._content(delta["text"], now_s)
            elif delta.get("partial_json"):
                self._token(delta["partial_json"], now_s)
        elif kind == "message_delta":
            self.finish = (event.get("delta") or {}).get("stop_reason") or self.finish
            self._anthropic_usage(event.get("usage") or {}, final=True)
        elif kind == "message_stop":
            self.done = True

    def _anthropic_usage(self, usage: dict[str, Any], final: bool = False) -> None:
        read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        fresh = _count(usage.get("input_tokens"), None)
        if fresh is not None:
            # input_tokens counts only what was neither read from the cache nor written to it.
            self.prompt_tokens = fresh + (_count(read, 0) or 0) + (_count(written, 0) or 0)
        self.cached_tokens = _count(read, self.cached_tokens)
        if final:
            self.output_tokens = _count(usage.get("output_tokens"), self.output_tokens)
            details = usage.get("output_tokens_details") or {}
            self.thinking_tokens = _count(details.get("thinking_tokens", details.get("reasoning_tokens")), self.thinking_tokens)

    def _token(self, text: str, now_s: float, thinking: bool = False) -> None:
        if self.first_s is None:
            self.first_s = now_s
        self.last_s = now_s
        self.events += 1
        self.chars += len(text)
        if thinking:
            self.streamed_thinking = True
        elif self.answer_s is None:
            self.answer_s = now_s

    def _content(self, text: str, now_s: float) -> None:
        """Text of the answer, in which servers without a reasoning parser leave the thinking between its tags."""
        head = (self._head + text).lstrip()
        window, self._tail = self._tail + text, (self._tail + text)[-len(THINK_CLOSE) :]
        if len(self._head) < len(THINK_OPEN):
            self._head = head[: len(THINK_OPEN)]
        if THINK_CLOSE in window and not self._closed:
            # Without an opening tag (it may sit in the prompt template) only the closing one tells that all before was thinking.
            self._closed, self._inside = True, False
            self._token(text, now_s, thinking=True)
            self.answer_s = now_s if window.split(THINK_CLOSE, 1)[1].strip() else None
            return
        if self._head == THINK_OPEN and not self._closed:
            self._inside, self.answer_s = True, None
        blank_after_thinking = self.streamed_thinking and self.answer_s is None and not text.strip()
        self._token(text, now_s, thinking=self._inside or blank_after_thinking)

    @property
    def complete(self) -> bool:
        """The server said in one way or another that the answer was whole."""
        return self.done or self.finish is not None

    def check_complete(self) -> None:
        """Raise StreamError when the stream ended before the answer did."""
        if not self.complete:
            raise StreamError(f"the stream ended after {self.events} events without an end mark, a finish reason or usage")
        if self.first_s is None:
            raise StreamError("the answer held no token")

    def counted_tokens(self, chars_per_token: float = CHARS_PER_TOKEN) -> tuple[int | None, bool]:
        """Output tokens, and whether they are an estimate.

        Without usage: one token an event where events are short, otherwise characters over the usual length of a token.
        """
        if self.output_tokens is not None:
            return self.output_tokens, False
        if not self.events:
            return None, True
        one_each = self.chars / self.events <= 2 * chars_per_token
        return (self.events if one_each else max(self.events, round(self.chars / chars_per_token))), True

    def tpot_s(self, output_tokens: int | None) -> float | None:
        """Time per output token. Thinking that was billed but never streamed took place before the first token, so it is left out."""
        hidden = 0 if self.streamed_thinking else (self.thinking_tokens or 0)
        visible = output_tokens - hidden if output_tokens is not None and 0 < hidden < output_tokens - 1 else output_tokens
        return tpot(self.first_s, self.last_s, visible)


async def events(lines: AsyncIterator[str], answer: Answer) -> AsyncIterator[dict[str, Any]]:
    """JSON objects of a server-sent event stream; comments and keep-alives are skipped, `[DONE]` marks the answer done."""
    data: list[str] = []
    async for line in lines:
        line = line.rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
            # Servers write one line of data an event; waiting for the blank line would cost a read when it comes apart.
            text = "\n".join(data)
            if text == "[DONE]":
                answer.done = True
                data = []
            elif (event := _json(text)) is not None:
                data = []
                yield event
        elif not line:
            if data:
                raise StreamError("an event of the stream is not JSON")
            data = []
    if data:
        raise StreamError("the stream broke off inside an event")


def _json(text: str) -> dict[str, Any] | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else {}


def _text(value: Any) -> str:
    """Text of a delta; some servers send a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text", "")) if isinstance(part, dict) else str(part) for part in value)
    return str(value)


def _count(value: Any, otherwise: int | None) -> int | None:
    """A token count as sent, or what was known before."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        return otherwise
    return int(value)


def _message(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or error
    return f"the server reported an error in the stream: {error}"
