"""A real, tiny language model behind a real OpenAI-compatible server: no delay is injected, every token is computed.

A byte-level transformer of the Llama shape (RMSNorm, rotary positions, grouped-query attention, SwiGLU) in NumPy with
random weights. It prefills in chunks, decodes one token a step from a KV cache, and keeps the KV cache of the last system
prompts, so that a repeated prefix is really not computed again.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 48, 2, 4, 2, 12, 96, 256
CHUNK = 128


class TinyModel:
    """Weights and the forward pass."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)

        def weight(*shape: int) -> np.ndarray:
            return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

        self.embedding = weight(VOCAB, HIDDEN)
        self.layers = [
            {
                "q": weight(HIDDEN, HEADS * HEAD_DIM),
                "k": weight(HIDDEN, KV_HEADS * HEAD_DIM),
                "v": weight(HIDDEN, KV_HEADS * HEAD_DIM),
                "o": weight(HEADS * HEAD_DIM, HIDDEN),
                "gate": weight(HIDDEN, INNER),
                "up": weight(HIDDEN, INNER),
                "down": weight(INNER, HIDDEN),
            }
            for _ in range(LAYERS)
        ]
        self.frequencies = (10_000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)).astype(np.float32)

    def empty_cache(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Keys and values per layer, no token yet."""
        nothing = np.zeros((0, KV_HEADS, HEAD_DIM), np.float32)
        return [(nothing, nothing) for _ in range(LAYERS)]

    def forward(
        self, tokens: list[int], cache: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Logits after the last of `tokens`, and the cache with them in it."""
        start, count = len(cache[0][0]), len(tokens)
        angles = np.outer(np.arange(start, start + count, dtype=np.float32), self.frequencies)
        turn = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
        mask = np.where(np.arange(start + count)[None, :] > np.arange(start, start + count)[:, None], -np.inf, 0.0).astype(np.float32)
        x, grown = self.embedding[tokens], []
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            normed = _norm(x)
            q = _rotate((normed @ layer["q"]).reshape(count, HEADS, HEAD_DIM), turn)
            k = _rotate((normed @ layer["k"]).reshape(count, KV_HEADS, HEAD_DIM), turn)
            keys = np.concatenate([keys, k])
            values = np.concatenate([values, (normed @ layer["v"]).reshape(count, KV_HEADS, HEAD_DIM)])
            grown.append((keys, values))
            grouped = q.reshape(count, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM).transpose(1, 2, 0, 3)
            scores = grouped @ keys.transpose(1, 2, 0)[:, None] * np.float32(HEAD_DIM**-0.5) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = (scores @ values.transpose(1, 0, 2)[:, None]) / scores.sum(-1, keepdims=True)
            x = x + mixed.transpose(2, 0, 1, 3).reshape(count, -1) @ layer["o"]
            normed = _norm(x)
            gate = normed @ layer["gate"]
            x = x + (gate / (1 + np.exp(-gate)) * (normed @ layer["up"])) @ layer["down"]
        return _norm(x[-1]) @ self.embedding.T, grown

    def prefill(
        self, tokens: list[int], cache: list[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
        """Logits after a whole prompt, computed in chunks."""
        logits = np.zeros(VOCAB, np.float32)
        for i in range(0, len(tokens), CHUNK):
            logits, cache = self.forward(tokens[i : i + CHUNK], cache)
        return logits, cache


def _norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def _rotate(x: np.ndarray, turn: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    cos, sin = turn
    even, odd = x[..., ::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape).astype(np.float32)


class TinyServer:
    """A context manager that serves the model on a free port of this machine, one request at a time."""

    def __init__(self) -> None:
        self.model = TinyModel()
        self.prefixes: dict[bytes, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.step_s: list[list[float]] = []
        """Time of each decode step, by request."""
        self.prefill_s: list[float] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                with outer.lock:
                    for event in outer.answer(body):
                        data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
                        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                        self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> TinyServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, body: dict[str, Any]) -> Any:
        """Chunks of one chat completion."""
        system = "".join(m["content"] for m in body["messages"] if m["role"] == "system").encode()
        user = "".join(m["content"] for m in body["messages"] if m["role"] == "user").encode()
        started_s = time.perf_counter()
        cached = len(system) if system in self.prefixes else 0
        cache = self.prefixes.get(system) or self.model.empty_cache()
        if system and not cached:
            _, cache = self.model.prefill(list(system), cache)
            self.prefixes[system] = cache
        logits, cache = self.model.prefill(list(user), cache)
        self.prefill_s.append(time.perf_counter() - started_s)
        steps: list[float] = []
        self.step_s.append(steps)
        yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        count = body.get("max_tokens") or body["max_completion_tokens"]
        for i in range(count):
            token = int(logits.argmax())
            yield {"choices": [{"index": 0, "delta": {"content": chr(0x100 + token)}, "finish_reason": None}]}
            if i < count - 1:
                started_s = time.perf_counter()
                logits, cache = self.model.forward([token], cache)
                steps.append(time.perf_counter() - started_s)
        prompt = len(system) + len(user)
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        usage = {"prompt_tokens": prompt, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": cached}}
        yield {"choices": [], "usage": usage}
        yield "[DONE]"
