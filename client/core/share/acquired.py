"""The records of one partition in a ShareFetch response. They are decoded one batch at a time, when the application
polls.

The bytes are whole batches of the log, which may also hold records that the member has not acquired. An acquired offset
without a record is a gap. Source: ShareFetchResponse, Kafka's ShareCompletedFetch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.client.core.share.records import ShareRecord

_offset = attrgetter("offset")


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired. `last` is inclusive."""

    first: int
    last: int
    delivery_count: int


class AcquiredBatch(NamedTuple):
    """The acquired records of a decoded batch, in order, and the acquired offsets without a record."""

    records: list[ShareRecord]
    gaps: list[int]


class AcquiredRecords:
    """The acquired records of one response that are not decoded yet. At `deadline_ms` their locks have run out."""

    __slots__ = ("_fetched", "_partition", "_ranges", "deadline_ms")

    def __init__(
        self,
        partition: TopicPartition,
        data: bytes,
        ranges: Sequence[AcquiredRange],
        *,
        deadline_ms: float,
        check_crcs: bool = True,
    ) -> None:
        self.deadline_ms = deadline_ms
        self._partition = partition
        self._ranges = sorted(ranges)
        first = self._ranges[0].first if self._ranges else 0
        self._fetched = FetchedBytes(data, FetchPosition(first), check_crcs=check_crcs)

    def next_batch(self) -> AcquiredBatch | None:
        """Decode the next batch. Return None after the last acquired offset. Raise WireError if the batch is
        damaged."""
        if not self._ranges:
            return None
        start = self._ranges[0].first
        decoded = self._fetched.next_batch(self._partition)
        if decoded is None:
            return AcquiredBatch([], self.drop())
        return self._acquired_in(decoded, max(self._fetched.position.offset, start))

    def _acquired_in(self, decoded: list[ConsumerRecord], end: int) -> AcquiredBatch:
        """Return what is acquired before `end`, and remove it from the ranges."""
        records: list[ShareRecord] = []
        gaps: list[int] = []
        make = tuple.__new__
        while self._ranges and self._ranges[0].first < end:
            first, last, count = self._ranges[0]
            stop = min(last + 1, end)
            inside = decoded
            if decoded and (decoded[0].offset < first or decoded[-1].offset >= stop):
                inside = decoded[bisect_left(decoded, first, key=_offset) : bisect_left(decoded, stop, key=_offset)]
            records += [make(ShareRecord, (*record, count)) for record in inside]
            if len(inside) < stop - first:
                present = {record.offset for record in inside}
                gaps += [offset for offset in range(first, stop) if offset not in present]
            if stop <= last:
                self._ranges[0] = AcquiredRange(stop, last, count)
                break
            del self._ranges[0]
        return AcquiredBatch(records, gaps)

    def drop(self) -> list[int]:
        """Return the offsets that are not decoded yet, and forget them."""
        ranges, self._ranges = self._ranges, []
        return list(_offsets(ranges))


def _offsets(ranges: Sequence[AcquiredRange]) -> Iterator[int]:
    for one in ranges:
        yield from range(one.first, one.last + 1)
