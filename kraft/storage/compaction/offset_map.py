"""The map of compaction: each key of the dirty part of a log, and the last offset at which it is stored.

Its memory is bounded: `is_full` says when to stop, and the next round continues from there. Keys are kept as they are,
long ones as a digest of 64 bytes, which no short key can equal: a collision would lose a record. Kafka keeps 16 bytes
of MD5 per key. Source: Kafka's SkimpyOffsetMap, docs/deviations.md.
"""

from __future__ import annotations

from hashlib import blake2b

WHOLE_KEY_BYTES_MAX = 63
"""Longer keys are kept as a digest, which has one byte more than this."""
ENTRY_BYTES = 176
"""What an entry costs besides its key: two objects, and its share of the table, also just after it has grown."""


class OffsetMap:
    """`bytes_max` bounds the memory of all entries."""

    __slots__ = ("_offsets", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self.bytes_max = bytes_max
        self.bytes_used = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self.bytes_used >= self.bytes_max

    @property
    def utilization(self) -> float:
        """How much of its memory is used, 0 to 1 (and a little above)."""
        return self.bytes_used / self.bytes_max

    def put(self, key: bytes, offset: int) -> None:
        """The key stands at `offset`, which is above all that were put before."""
        if len(key) > WHOLE_KEY_BYTES_MAX:
            key = blake2b(key).digest()
        if key not in self._offsets:
            self.bytes_used += ENTRY_BYTES + len(key)
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """The last offset of the key in the mapped part; -1 if it is not there."""
        if len(key) > WHOLE_KEY_BYTES_MAX:
            key = blake2b(key).digest()
        return self._offsets.get(key, -1)
