"""What the producer was told and what the consumer read; and what must not be: a record lost, a record doubled."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One acknowledged record. `time` is in seconds since the start."""

    number: int
    partition: int
    offset: int
    time: float


@dataclass(slots=True)
class Ledger:
    """Filled by two threads; read when both have ended, or for a glance while they run."""

    sent: int = 0
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def lost(self) -> list[int]:
        """Numbers that were acknowledged and never read."""
        seen = {number for _, number in self.read}
        return sorted(ack.number for ack in self.acknowledged if ack.number not in seen)

    def doubled(self) -> list[int]:
        """Numbers that were read more than once."""
        counts = Counter(number for _, number in self.read)
        return sorted(number for number, count in counts.items() if count > 1)

    def gap_ms(self, start: float, end: float, partitions: frozenset[int]) -> float:
        """The longest time without an acknowledgement between `start` and `end`, over these partitions, in ms."""
        return max((self._partition_gap(start, end, partition) for partition in partitions), default=0.0)

    def _partition_gap(self, start: float, end: float, partition: int) -> float:
        times = sorted(ack.time for ack in self.acknowledged if ack.partition == partition)
        before = [time for time in times if time <= start]
        inside = [time for time in times if start < time <= end]
        edges = [*before[-1:], *inside]
        if not inside:
            return (end - start) * 1000
        return max((later - earlier for earlier, later in pairwise(edges)), default=0.0) * 1000
