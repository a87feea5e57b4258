"""Where to measure, what may be asked there, and what must never be told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from planner.measure.records import Experiment
from planner.problems import InputError

Api = Literal["openai", "anthropic"]
KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
NO_KEY = "none"
"""Sent where the environment holds no key: local servers want a header, not a secret."""
SECRET = re.compile(r"(?i)(\b(?:Bearer|Basic)\s+[^\s;,\"']+|\b(sk|key|pk|rk|gsk|hf|xai)[-_][A-Za-z0-9_\-*.]{6,})")
LONGEST_MESSAGE = 240


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to measure and how patiently."""

    base_url: str
    model: str
    api: Api = "openai"
    max_tokens: int = 256
    timeout_s: float = 120.0
    retries: int = 2
    """Further attempts when the server turns a request away."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as `ignore_eos` or `thinking`."""

    @property
    def public_url(self) -> str:
        """The address without user, password and query, fit for a report."""
        parts = urlsplit(self.base_url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path.rstrip("/"), "", ""))


@dataclass(frozen=True, slots=True)
class Aim:
    """Which request of the run this is."""

    experiment: Experiment
    target_prompt_tokens: int
    repeat: int
    warm: bool = False


def check_url(base_url: str) -> None:
    """InputError unless this is an http or https address."""
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise InputError(
            f"--base-url {base_url.split('@')[-1][:80]!r} is not an http or https address; give one like http://localhost:8000/v1"
        )


def addresses(endpoint: Endpoint) -> list[str]:
    """Base addresses to try: the one given, with or without the `/v1` that the two clients want differently."""
    parts = urlsplit(endpoint.base_url)
    path = parts.path.rstrip("/")
    url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    if endpoint.api == "anthropic":
        return [url.removesuffix("/v1")]
    return [url] if path else [f"{url}/v1", url]


def clean(text: str, key: str) -> str:
    """One line, short, and without anything that could be a key, however the server echoed it."""
    if key != NO_KEY:
        text = text.replace(key, "[key]")
    return " ".join(SECRET.sub("[key]", text).split())[:LONGEST_MESSAGE]
