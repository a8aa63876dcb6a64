"""Choose the partition of a record: Kafka's default partitioner.

A record with a key goes to partition murmur2(key) mod partitions, as in every Java-compatible client, so that clients
in different languages agree. Records without a key stick to one partition until `batch.size` bytes went there and its
batch is complete, or until twice as many bytes went there. The next partition is drawn at random; the fewer bytes wait
for a partition, the likelier it is (KIP-480, KIP-794).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of `data` with Kafka's seed, as an unsigned integer."""
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


@dataclass(slots=True)
class _StickyState:
    partition: int
    bytes_sent: int = 0


class StickyPartitioner:
    """Chooses partitions of records without a key. `draw(bound)` returns a uniform random integer in [0, bound), and is
    the only source of randomness here. `waiting_bytes(topic, partition)` returns the number of bytes that have not been
    sent yet."""

    def __init__(self, draw: Callable[[int], int], waiting_bytes: Callable[[str, int], int], batch_bytes: int) -> None:
        self._draw = draw
        self._waiting_bytes = waiting_bytes
        self._batch_bytes = max(batch_bytes, 1)
        self._current: dict[str, _StickyState] = {}

    def current(self, topic: str) -> int | None:
        """Return the sticky partition of this topic; None if one must be drawn with `draw`."""
        stuck = self._current.get(topic)
        return None if stuck is None else stuck.partition

    def draw(self, topic: str, available: Sequence[int]) -> int:
        """Draw a new sticky partition from `available`, the partitions with a leader (not empty)."""
        stuck = self._current[topic] = _StickyState(self._next(topic, available))
        return stuck.partition

    def sent(self, topic: str, partition: int, size_bytes: int, *, completes_batch: bool) -> None:
        """Count a record without a key that was queued for this partition. `completes_batch` is true if the record
        began a new batch, so that the batch before it is complete."""
        stuck = self._current.get(topic)
        if stuck is None or stuck.partition != partition:
            return
        stuck.bytes_sent += size_bytes
        if stuck.bytes_sent >= (self._batch_bytes if completes_batch else 2 * self._batch_bytes):
            del self._current[topic]

    def forget(self, topic: str, partition: int) -> None:
        """Drop a sticky partition that has lost its leader, so that another one is drawn."""
        stuck = self._current.get(topic)
        if stuck is not None and stuck.partition == partition:
            del self._current[topic]

    def _next(self, topic: str, available: Sequence[int]) -> int:
        """Draw a partition at random. The weight of a partition is (longest queue + 1 - its own queue), in batches."""
        queues = [self._waiting_bytes(topic, partition) // self._batch_bytes for partition in available]
        longest = max(queues)
        drawn = self._draw(sum(longest + 1 - queue for queue in queues))
        for partition, queue in zip(available, queues, strict=True):
            drawn -= longest + 1 - queue
            if drawn < 0:
                return partition
        return available[-1]
