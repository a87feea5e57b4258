"""A real streaming HTTP server with known delays: the truth that `measure` is checked against.

It speaks OpenAI chat completions (`/v1/chat/completions`) and Anthropic Messages (`/v1/messages`), counts one token a
word plus a fixed overhead, keeps a prefix cache by system prompt, and can misbehave on request.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OVERHEAD_TOKENS = 12


@dataclass
class Behaviour:
    """What the server does. Times in seconds."""

    ttft_base_s: float = 0.02
    ttft_per_token_s: float = 0.0
    gap_s: float = 0.005
    """Between events."""
    tokens_per_event: int = 1
    output_tokens: int | None = None
    """Fixed answer length; None means max_tokens."""
    thinking_tokens: int = 0
    thinking_field: str = "reasoning_content"
    """`reasoning_content`, `reasoning`, `tags` (inside the content) or `hidden`."""
    usage: bool = True
    finish: bool = True
    done: bool = True
    cut_after_events: int | None = None
    """Close the connection after this many events."""
    stall_after_events: int | None = None
    """Send nothing more after this many events."""
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """(status, headers) to answer the next requests with, oldest first."""
    refuse: Callable[[dict[str, Any]], tuple[int, str] | None] = lambda body: None
    """A status and message for bodies it does not take."""
    keep_alive_comments: bool = False
    error_in_stream_after: int | None = None
    prefix: str = "/v1"
    slots: int | None = None
    """Requests served at once; more wait in a queue."""


@dataclass
class Truth:
    """When this server did what, on the clock that the client uses too."""

    received_s: float
    first_s: float = 0.0
    answer_s: float = 0.0
    last_s: float = 0.0
    tokens: int = 0

    def sent(self, thinking: bool, tokens: int) -> None:
        """Note that an event with tokens leaves now."""
        now_s = time.perf_counter()
        self.first_s = self.first_s or now_s
        self.last_s = now_s
        self.tokens += tokens
        if not thinking:
            self.answer_s = self.answer_s or now_s

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.received_s

    @property
    def ttft_answer_s(self) -> float:
        return self.answer_s - self.received_s

    @property
    def e2e_s(self) -> float:
        return self.last_s - self.received_s

    @property
    def tpot_s(self) -> float:
        return (self.last_s - self.first_s) / (self.tokens - 1)


class Server:
    """A context manager: `with Server(Behaviour()) as server: … server.url`."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.truths: list[Truth] = []
        self.cache: set[str] = set()
        self.lock = threading.Lock()
        self.gate = threading.Semaphore(behaviour.slots) if behaviour.slots else None
        outer = self

        class Handler(_Handler):
            server_state = outer

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}{behaviour.prefix}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: Server
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        state, behaviour = self.server_state, self.server_state.behaviour
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with state.lock:
            state.bodies.append(body)
            state.headers.append({k.lower(): v for k, v in self.headers.items()})
            status = behaviour.statuses.pop(0) if behaviour.statuses else None
            self.truth = Truth(time.perf_counter())
        if self.path.split("?")[0] not in (f"{behaviour.prefix}/chat/completions", "/v1/messages"):
            return self._refuse(404, "no such path", {})
        if status is not None and status[0] != 200:
            key = self.headers.get("authorization") or self.headers.get("x-api-key")
            return self._refuse(status[0], f"told to fail; you sent {key}", status[1])
        if wrong := behaviour.refuse(body):
            return self._refuse(*wrong, {})
        if state.gate is None:
            return self._answer(body)
        with state.gate:
            return self._answer(body)

    def _answer(self, body: dict[str, Any]) -> None:
        with self.server_state.lock:
            self.server_state.truths.append(self.truth)
        try:
            if self.path.split("?")[0].endswith("/messages"):
                self._anthropic(body)
            else:
                self._openai(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _refuse(self, status: int, message: str, headers: dict[str, str]) -> None:
        content = json.dumps({"error": {"message": message, "type": "test"}}).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _start(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _write(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, event: dict[str, Any], name: str | None = None) -> None:
        self._write((f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n")

    def _tokens(self, body: dict[str, Any]) -> tuple[int, int]:
        """Prompt tokens by word, and how many of them the prefix cache holds."""
        system = body.get("system") or ""
        if isinstance(system, list):
            system = " ".join(part["text"] for part in system)
        for message in body["messages"]:
            if message["role"] == "system":
                system += message["content"]
        user = " ".join(m["content"] for m in body["messages"] if m["role"] == "user")
        total = OVERHEAD_TOKENS + len(system.split()) + len(user.split())
        with self.server_state.lock:
            cached = len(system.split()) if system and system in self.server_state.cache else 0
            self.server_state.cache.add(system)
        return total, cached

    def _plan(self, body: dict[str, Any]) -> tuple[int, int, list[tuple[str, str]]]:
        """Prompt tokens, cached tokens, and the answer as (kind, text) events."""
        behaviour = self.server_state.behaviour
        prompt, cached = self._tokens(body)
        asked = body.get("max_tokens") or body.get("max_completion_tokens") or 16
        total = min(behaviour.output_tokens or asked, asked)
        thinking = min(behaviour.thinking_tokens, total)
        events = []
        for kind, count in (("thinking", thinking), ("text", total - thinking)):
            while count > 0:
                size = min(behaviour.tokens_per_event, count)
                events.append((kind, "word " * size))
                count -= size
        time.sleep(behaviour.ttft_base_s + behaviour.ttft_per_token_s * (prompt - cached))
        return prompt, cached, events

    def _misbehaves(self, sent: int) -> bool:
        """True when the stream ends here, wrongly."""
        behaviour = self.server_state.behaviour
        if behaviour.stall_after_events == sent:
            time.sleep(5.0)
            return True
        if behaviour.cut_after_events == sent:
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return True
        return False

    def _openai(self, body: dict[str, Any]) -> None:
        behaviour = self.server_state.behaviour
        self._start()
        self._send({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        if behaviour.keep_alive_comments:
            self._write(": ping\n\n")
        prompt, cached, events = self._plan(body)
        total = sum(len(text.split()) for _, text in events)
        opened = False
        for sent, (kind, text) in enumerate(events):
            if self._misbehaves(sent):
                return
            if behaviour.error_in_stream_after == sent:
                self._send({"error": {"message": "the engine died", "code": 500}})
                return
            if sent:
                time.sleep(behaviour.gap_s)
            if kind == "thinking" and behaviour.thinking_field == "hidden":
                continue
            self.truth.sent(kind == "thinking", len(text.split()))
            if behaviour.thinking_field == "tags":
                if kind == "thinking" and not opened:
                    text, opened = "<think>" + text, True
                elif kind == "text" and opened:
                    # The closing tag comes apart over two events, as real tokenizers cut it.
                    self._send({"choices": [{"index": 0, "delta": {"content": "</thi"}, "finish_reason": None}]})
                    text, opened = "nk>\n\n" + text, False
                delta = {"content": text}
            else:
                delta = {behaviour.thinking_field: text} if kind == "thinking" else {"content": text}
            self._send({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            if behaviour.keep_alive_comments:
                self._write(": keep-alive\n\n")
        if self._misbehaves(len(events)):
            return
        if behaviour.finish:
            self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        if behaviour.usage and (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": prompt, "completion_tokens": total, "total_tokens": prompt + total}
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
            if behaviour.thinking_tokens:
                usage["completion_tokens_details"] = {"reasoning_tokens": min(behaviour.thinking_tokens, total)}
            self._send({"choices": [], "usage": usage})
        if behaviour.done:
            self._write("data: [DONE]\n\n")
        self._write("")

    def _anthropic(self, body: dict[str, Any]) -> None:
        behaviour = self.server_state.behaviour
        self._start()
        prompt, cached, events = self._plan(body)
        usage = {"input_tokens": prompt - cached, "output_tokens": 1, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": body["model"], "usage": usage}
        self._send({"type": "message_start", "message": message}, "message_start")
        self._send({"type": "ping"}, "ping")
        block = None
        for sent, (kind, text) in enumerate(events):
            if self._misbehaves(sent):
                return
            if sent:
                time.sleep(behaviour.gap_s)
            if kind != block:
                block = kind
                start = {"type": "thinking", "thinking": ""} if kind == "thinking" else {"type": "text", "text": ""}
                self._send({"type": "content_block_start", "index": 0, "content_block": start}, "content_block_start")
            self.truth.sent(kind == "thinking", len(text.split()))
            delta = {"type": "thinking_delta", "thinking": text} if kind == "thinking" else {"type": "text_delta", "text": text}
            self._send({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
        if behaviour.error_in_stream_after is not None:
            self._send({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error")
            return
        total = sum(len(text.split()) for _, text in events)
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        self._send({"type": "message_delta", "delta": delta, "usage": {"output_tokens": total}}, "message_delta")
        self._send({"type": "message_stop"}, "message_stop")
        self._write("")
