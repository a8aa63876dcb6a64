"""Pure: ranges of offsets of topic partitions, and how a plan splits them over tasks.

Invariants: ends are exclusive; the splits of a range cover it exactly and in order; the same ranges and options give
the same splits, so that a batch that is planned again has the same tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from kraft.client.core.topology import Broker


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` up to `end` of a partition. Can be pickled.

    `start_epoch`: the leader epoch as of which `start` was the end of what had been read, to detect a truncated log
    (-1: not known). `topic_id`, `leader` and `leader_epoch` are what the planner knew: a reader goes there first, and
    asks where the leader is if it is not there any more."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    start_epoch: int = -1
    leader: Broker | None = None
    leader_epoch: int = -1

    @property
    def size(self) -> int:
        """Offsets in the range: an upper bound of its records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The ranges as tasks read them: none empty, ordered by topic, partition and offset. None spans more than
    `records_max` offsets; if there are fewer than `partitions_min`, large ones are split in proportion to their size,
    so that there are about as many."""
    pieces = sorted((one for one in ranges if one.size > 0), key=lambda one: (one.topic, one.partition, one.start))
    if records_max is not None:
        pieces = [piece for one in pieces for piece in _cut(one, -(-one.size // records_max))]
    if partitions_min is None or len(pieces) >= partitions_min:
        return pieces
    return _split_large(pieces, partitions_min)


def _split_large(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Leave ranges whole whose share is one task, and deal the other tasks out to the others by size."""
    total = sum(one.size for one in ranges)
    small = [one for one in ranges if _share(one.size, total, wanted) == 1]
    left = max(1, wanted - len(small))
    left_size = total - sum(one.size for one in small)
    kept = set(small)
    return [
        piece for one in ranges for piece in ([one] if one in kept else _cut(one, _share(one.size, left_size, left)))
    ]


def _share(size: int, total: int, tasks: int) -> int:
    return max(1, round(size * tasks / total))


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """The range in `count` pieces of nearly one size; never more pieces than offsets. Only the first has the epoch of
    the start."""
    count = max(1, min(count, whole.size))
    bounds = [whole.start + whole.size * at // count for at in range(count + 1)]
    return [
        replace(whole, start=start, end=end, start_epoch=whole.start_epoch if start == whole.start else -1)
        for start, end in itertools.pairwise(bounds)
    ]
