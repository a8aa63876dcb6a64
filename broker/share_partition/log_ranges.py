"""The offsets of fetched batches that share consumers may get, and those that they may not.

A read_committed group does not get records of aborted transactions, as in a Fetch. Control batches and offsets without
a batch are never delivered. Source: KIP-932, KIP-98, FetchResponse (AbortedTransactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

NO_PRODUCER_ID = -1


class FetchedBatch(NamedTuple):
    """A batch of the log, with offsets in [first, end). `is_abort` is for the marker of an aborted transaction."""

    first: int
    end: int
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    is_control: bool = False
    is_abort: bool = False


class LogRange(NamedTuple):
    """The offsets [first, end) of one batch, or offsets without records that may be delivered. The batch has `passed`
    more offsets below `first`."""

    first: int
    end: int
    is_deliverable: bool
    passed: int = 0

    @property
    def batch_size(self) -> int:
        """The number of offsets in the whole batch."""
        return self.passed + self.end - self.first


def log_ranges(
    batches: Iterable[FetchedBatch], read_offset: int, aborted: Sequence[tuple[int, int]] | None = None
) -> tuple[LogRange, ...]:
    """Return ranges that cover the offsets from `read_offset` to the end of the last batch without holes.

    `aborted` has the producer id and first offset of each aborted transaction that begins before the end of the
    batches and ends at or after `read_offset`; it is None for a read_uncommitted group."""
    ranges: list[LogRange] = []
    waiting = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)
    open_aborted: set[int] = set()
    position = read_offset
    for batch in batches:
        while waiting and waiting[-1][1] < batch.end:
            open_aborted.add(waiting.pop()[0])
        is_aborted = batch.is_transactional and not batch.is_control and batch.producer_id in open_aborted
        if batch.is_abort:
            open_aborted.discard(batch.producer_id)
        if batch.end <= position:
            continue
        if batch.first > position:
            ranges.append(LogRange(position, batch.first, is_deliverable=False))
        is_deliverable = not batch.is_control and not is_aborted
        first = max(batch.first, position)
        ranges.append(LogRange(first, batch.end, is_deliverable, first - batch.first))
        position = batch.end
    return tuple(ranges)
