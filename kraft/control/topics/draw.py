"""Randomness in a decision: a stream of numbers that depends only on the seed in the context."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

from kraft.seam import draw_uuid


class Draw:
    """Numbers and ids drawn from a seed of up to 128 bits. The same seed gives the same numbers in every process."""

    def __init__(self, seed: int) -> None:
        self._blocks = self._stream(seed)

    @staticmethod
    def _stream(seed: int) -> Iterator[int]:
        key = seed.to_bytes(16, "big")
        counter = 0
        while True:
            block = hashlib.blake2b(counter.to_bytes(8, "big"), key=key, digest_size=16).digest()
            yield int.from_bytes(block, "big")
            counter += 1

    def below(self, bound: int) -> int:
        """Return a number in [0, bound); the bias is below bound / 2**128."""
        return next(self._blocks) % bound

    def uuid(self) -> UUID:
        """Same as kraft.seam.draw_uuid."""
        return draw_uuid(lambda _128: next(self._blocks))
