"""Which partition a record goes to: Kafka's default partitioner.

A record with a key goes to murmur2(key) mod partitions, as every Kafka client does it, so that clients of different
languages agree. A record without one sticks to a partition until that partition's batch is full (KIP-480).
"""

from __future__ import annotations

from collections.abc import Callable

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of `data` with Kafka's seed, as an unsigned integer."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        value = ((value * _M) & _MASK) ^ k
    tail = data[whole:]
    if tail:
        value ^= int.from_bytes(tail, "little")
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    value ^= value >> 15
    return value


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Kafka's partition of a key: the hash without its sign bit, modulo the number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Partitions of records without a key: one at a time, a new one whenever a batch was closed.

    `draw(bound)` gives a uniform integer in [0, bound); it is the only source of chance here.
    """

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw
        self._current: dict[str, int] = {}

    def partition(self, topic: str, available: list[int]) -> int:
        """The sticky partition of this topic among those that have a leader (`available`, not empty)."""
        current = self._current.get(topic)
        if current is None or current not in available:
            current = available[self._draw(len(available))]
            self._current[topic] = current
        return current

    def batch_closed(self, topic: str, partition: int, available: list[int]) -> None:
        """A batch of this partition went out: stick to another one from now on, if there is one."""
        if self._current.get(topic) != partition:
            return
        others = [p for p in available if p != partition]
        if others:
            self._current[topic] = others[self._draw(len(others))]
