"""Pure: ranges of offsets of topic partitions, and how they are split into tasks.

Invariants: ends are exclusive. The pieces of a range cover it exactly and in order. The same ranges and options always
give the same pieces, so that a batch that is planned again has the same tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from kraft.client.core.topology import BrokerEndpoint


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` to `end` (exclusive) of a partition. Can be pickled.

    `start_epoch`: the leader epoch of the records read before `start`, with which a truncated log is detected (-1:
    unknown). `topic_id`, `leader` and `leader_epoch` are those that the planner found. A reader connects to that leader
    first, and refreshes the metadata if the leader has moved."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    start_epoch: int = -1
    leader: BrokerEndpoint | None = None
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        """Number of offsets in the range, which is an upper bound of its number of records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Return the ranges as tasks read them: none empty, ordered by topic, partition and offset.

    No returned range exceeds `records_max` offsets. If there are fewer ranges than `partitions_min`, large ones are
    split in proportion to their size, so that there are about `partitions_min`."""
    pieces = sorted((one for one in ranges if one.size > 0), key=lambda one: (one.topic, one.partition, one.start))
    if records_max is not None:
        pieces = [piece for one in pieces for piece in _split_evenly(one, -(-one.size // records_max))]
    if partitions_min is None or len(pieces) >= partitions_min:
        return pieces
    return _split_large(pieces, partitions_min)


def _split_large(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Split large ranges in proportion to their size, into about `wanted` pieces in all. Ranges with the size of at
    most one task remain whole."""
    total = sum(one.size for one in ranges)
    small = [one for one in ranges if _share(one.size, total, wanted) == 1]
    left = max(1, wanted - len(small))
    left_size = total - sum(one.size for one in small)
    kept = set(small)
    return [
        piece
        for one in ranges
        for piece in ([one] if one in kept else _split_evenly(one, _share(one.size, left_size, left)))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    return max(1, round(size * tasks / total))


def _split_evenly(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Split the range into `count` pieces of nearly equal size, but not into more pieces than it has offsets. Only the
    first piece keeps `start_epoch`."""
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * at // count for at in range(count + 1)]
    return [
        replace(whole, start=start, end=end, start_epoch=whole.start_epoch if start == whole.start else -1)
        for start, end in itertools.pairwise(bounds)
    ]
