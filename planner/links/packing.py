"""A pasted `config.json` inside a link: zlib and base64url up to a stated size, beyond it only its hash."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from typing import Any

from planner.files import from_json
from planner.scenario.base import FrozenJson

MAX_CONFIG_BYTES = 200_000
"""Largest config that is unpacked or read."""
MAX_PACKED_CHARACTERS = 8_000
"""Largest config that travels; browsers and proxies cut longer addresses."""
HASH = "sha256:"


def pack(config: FrozenJson) -> str:
    """The config as link text, or `sha256:` and its hash when it is too large to travel."""
    packed = base64.urlsafe_b64encode(zlib.compress(config.text.encode(), 9)).rstrip(b"=").decode()
    return packed if len(packed) <= MAX_PACKED_CHARACTERS else HASH + hashlib.sha256(config.text.encode()).hexdigest()


def unpack(text: str) -> dict[str, Any]:
    """Link text → config; plain JSON is taken too. Raises ValueError with a clause that says what is wrong."""
    if text.startswith(HASH):
        raise ValueError("it is only the hash of a config.json too large to travel in a link, paste the file itself to see the same plan")
    return parse_object(text if text.lstrip().startswith("{") else _inflate(text), "a config.json")


def _inflate(text: str) -> str:
    if len(text) > MAX_PACKED_CHARACTERS:
        raise ValueError(f"it is longer than the {MAX_PACKED_CHARACTERS:,} characters a packed config may have")
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), MAX_CONFIG_BYTES)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError(f"it unpacks to more than {MAX_CONFIG_BYTES:,} bytes or was cut short")
        return raw.decode()
    except (binascii.Error, zlib.error, UnicodeError) as error:
        raise ValueError("it is not a packed config.json") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """JSON text → object, with a size limit. Raises ValueError with a clause that says what is wrong."""
    value = parse_json(text, what)
    if not isinstance(value, dict):
        raise ValueError(f"it is not {what}, which is a JSON object")
    return value


def parse_json(text: str, what: str) -> Any:
    """JSON text → its value, with a size limit and without NaN. Raises ValueError with a clause that says what is wrong."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ValueError(f"it is longer than the {MAX_CONFIG_BYTES:,} characters {what} may have")
    try:
        return from_json(text, numbers_only=True)
    except ValueError as error:
        raise ValueError(f"it is not {what} in JSON") from error
