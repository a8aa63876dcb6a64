"""Ids drawn at random, as Kafka draws them (its class Uuid)."""

from __future__ import annotations

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
