"""Ids drawn at random, as Kafka draws them (its class Uuid)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from uuid import UUID


def draw_uuid(bits: Callable[[int], int]) -> UUID:
    """A version-4 UUID from `bits(128)`, a source of so many random bits. Its base64 text does not begin with a dash:
    command lines would take it for an option. None of Kafka's reserved ids, which are below 100, is of version 4."""
    while True:
        drawn = UUID(int=bits(128), version=4)
        if drawn.bytes[0] >> 2 != _DASH:
            return drawn


_DASH = 0b111110
"""The six bits that URL-safe base64 writes as a dash."""


def encode_uuid(value: UUID) -> str:
    """Kafka's text of an id: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID | None:
    """The id, or None if the text is not one."""
    try:
        data = urlsafe_b64decode(text + "==")
    except (Error, ValueError):
        return None
    return UUID(bytes=data) if len(data) == 16 else None
