"""Random ids, drawn as Kafka draws them (class Uuid)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from uuid import UUID


def draw_uuid(bits: Callable[[int], int]) -> UUID:
    """Return a version-4 UUID from `bits(128)`, a source of that many random bits.

    Its base64 text never begins with a dash, as command lines would take it for an option. Kafka's reserved ids are
    below 100 and so never of version 4."""
    while True:
        drawn = UUID(int=bits(128), version=4)
        if drawn.bytes[0] >> 2 != _DASH:
            return drawn


_DASH = 0b111110
"""The six bits that URL-safe base64 encodes as a dash."""


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text of an id: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID | None:
    """Return the id, or None if the text is not an id."""
    try:
        data = urlsafe_b64decode(text + "==")
    except (Error, ValueError):
        return None
    return UUID(bytes=data) if len(data) == 16 else None
