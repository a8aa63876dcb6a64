"""Seeded randomness in named streams: a value depends on the world's seed, the stream's name and how many values the
stream has drawn before.

So removing one fault, node or client does not change the draws of other streams.
"""

from __future__ import annotations

import hashlib
import random
from uuid import UUID

from kraft.seam import draw_uuid


class NamedRandom:
    """Implements kraft.seam.Random; all values follow from (seed, name)."""

    __slots__ = ("_bits", "_name", "_seed", "_streams")

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._name = name
        digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
        self._bits = random.Random(int.from_bytes(digest, "big")).getrandbits
        self._streams: dict[str, NamedRandom] = {}

    def below(self, bound: int) -> int:
        if bound <= 0:
            raise ValueError(f"a draw below {bound}")
        if bound < 1 << 32:
            return (self._bits(64) * bound) >> 64
        width = bound.bit_length() + 64
        return (self._bits(width) * bound) >> width

    def one_in(self, odds: int) -> bool:
        """Return True on average once in `odds` draws; never if `odds` is 0."""
        if odds < 1 << 32:
            return odds > 0 and not (self._bits(64) * odds) >> 64  # `below`, inlined: most draws come through here
        return self.below(odds) == 0

    def uuid(self) -> UUID:
        return draw_uuid(self._bits)

    def stream(self, name: str) -> NamedRandom:
        source = self._streams.get(name)
        if source is None:
            source = self._streams[name] = NamedRandom(self._seed, f"{self._name}/{name}")
        return source


def between(chance: NamedRandom, least: int, most: int) -> int:
    """Draw a number from `least` to `most`, both included."""
    return least + chance.below(most - least + 1)
