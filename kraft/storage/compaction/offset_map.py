"""The offset map of compaction: each key in the dirty part of a log, with its last offset.

Its memory is bounded: when `is_full`, mapping stops and the next round continues from there. Short keys are kept
unchanged. A long key is kept as a digest of 64 bytes, which no short key can equal, because a collision would lose a
record. Kafka keeps 16 bytes of MD5 per key. Source: Kafka's SkimpyOffsetMap, docs/deviations.md.
"""

from __future__ import annotations

from hashlib import blake2b

WHOLE_KEY_BYTES_MAX = 63
"""Maximum size of a key that is kept unchanged. Longer keys are kept as a digest, which is one byte longer than this.
"""
ENTRY_BYTES = 176
"""Memory of an entry in addition to its key: two objects, and its share of the table, even just after the table has
grown."""


class OffsetMap:
    """Map from each key to its last offset. `bytes_max` bounds the memory of all entries."""

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
        """Used share of the memory, 0 to 1 (or slightly more)."""
        return self.bytes_used / self.bytes_max

    def put(self, key: bytes, offset: int) -> None:
        """Record that the key occurs at `offset`, which must be above all earlier offsets."""
        if len(key) > WHOLE_KEY_BYTES_MAX:
            key = blake2b(key).digest()
        if key not in self._offsets:
            self.bytes_used += ENTRY_BYTES + len(key)
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """Return the last offset of the key in the mapped part; -1 if it does not occur."""
        if len(key) > WHOLE_KEY_BYTES_MAX:
            key = blake2b(key).digest()
        return self._offsets.get(key, -1)
