"""Readers that fetch the same bytes again and again may be refusing them, so the log checks those bytes itself.

A broker sends the bytes of its files unchecked, as Kafka does. A reader that finds a damaged batch can only fetch it
again. So a log that changed on the device would be offered permanently, although other replicas have it whole. Here
batches that are fetched so often are read and checked, off the loop, a piece at a time. `damaged_logs` decides what
happens to a replica with a damaged batch. Where no other replica could lead, it goes on, and the same bytes are not
checked again for a while, unless another replica could lead by then.
Source: docs/deviations.md, docs/decisions/08-damaged-replicas.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.node.damaged_logs import LEFT_ALONE_MS, is_uncut
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.epochs import EpochCache
from kraft.storage.handles import ColdRead
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange

if TYPE_CHECKING:
    from kraft.broker.node.damaged_logs import DamagedLogs
    from kraft.broker.node.disk_failures import DiskFailures
    from kraft.broker.node.loop import Loop
    from kraft.broker.node.partition import Partition
    from kraft.storage.log import Log

AGAIN_MAX = 3
"""So many times a reader comes back for what it was given before its bytes are looked at; once may be because it has
two requests under way."""
READERS_MAX = 64
"""Readers of a partition that are remembered."""
LEFT_ALONE_MAX = 64
"""Offsets of a partition that are left alone."""
COLD_TRIES_MAX = 100
TO_THE_END_BYTES = 2**31 - 1
"""As much as a segment can have."""


class SameAgain:
    """Where each reader of one partition was given bytes last, and how often it has come back. A consumer that reads on
    before it opens what it has may alternate between a damaged batch and the end of the log; a follower never does.
    When there are too many readers, the consumer that was given nothing for the longest time is forgotten."""

    __slots__ = ("_given", "_left_alone")

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}
        self._left_alone: dict[int, float] = {}

    def is_suspicious(self, reader: int, offset: int) -> bool:
        """A reader (a follower's id, or something negative) is given bytes from `offset` on. Whether it has come back
        too often by now."""
        last, times = self._given.pop(reader, (-1, 0))
        is_back = offset <= last
        times = times + 1 if is_back else times if reader < 0 else 0
        if len(self._given) >= READERS_MAX:
            self._forget_one()
        self._given[reader] = (offset, times)
        return is_back and times % AGAIN_MAX == 0

    def _forget_one(self) -> None:
        consumer = next((reader for reader in self._given if reader < 0), None)
        if consumer is not None:
            del self._given[consumer]

    def leave_alone(self, offset: int, until_ms: float) -> None:
        """What stands from `offset` on is damaged, that was told, and nobody can do anything about it."""
        self._left_alone.pop(offset, None)
        if len(self._left_alone) >= LEFT_ALONE_MAX:
            del self._left_alone[next(iter(self._left_alone))]
        self._left_alone[offset] = until_ms

    def is_left_alone(self, offset: int, now_ms: float) -> bool:
        until_ms = self._left_alone.get(offset)
        return until_ms is not None and now_ms < until_ms


class RefusedReads:
    """Counts what readers are given, and looks at what they may refuse: one look at a time for each partition."""

    def __init__(self, loop: Loop, damaged_logs: DamagedLogs, failures: DiskFailures) -> None:
        self._loop = loop
        self._damaged_logs = damaged_logs
        self._failures = failures
        self._under_way: set[Partition] = set()

    def given(self, partition: Partition, reader: int, offset: int, size_bytes: int) -> None:
        """`reader` (see `SameAgain`) gets so many bytes from `offset` on."""
        same_again = partition.same_again
        if same_again is None:
            same_again = partition.same_again = SameAgain()
        if same_again.is_suspicious(reader, offset) and not self._is_left_alone(partition, same_again, offset):
            self._look_at(partition, same_again, offset, size_bytes)

    def _is_left_alone(self, partition: Partition, same_again: SameAgain, offset: int) -> bool:
        now_ms = self._loop.clock.monotonic_ms()
        return same_again.is_left_alone(offset, now_ms) and not self._damaged_logs.others_can_lead(partition)

    def _look_at(self, partition: Partition, same_again: SameAgain, offset: int, size_bytes: int) -> None:
        if partition not in self._under_way and partition.log is not None:
            self._under_way.add(partition)
            self._loop.start_task(self._look, partition, same_again, partition.log, offset, size_bytes)

    async def _look(
        self, partition: Partition, same_again: SameAgain, opened: Log, offset: int, size_bytes: int
    ) -> None:
        loop, truncations = self._loop, opened.truncations
        try:
            piece = await self._find(partition, opened, offset)
            if piece is not None:
                epochs = EpochCache(opened.epochs.entries)
                await loop.disk.offload(piece.check, size_bytes, opened.log_end_offset, epochs)
        except DiskError as error:
            self._failures.disk_failed(partition, error)
        except StorageCorrupt as damage:
            if is_uncut(partition, opened, truncations) and not self._damaged_logs.met(partition, damage):
                same_again.leave_alone(offset, loop.clock.monotonic_ms() + LEFT_ALONE_MS)
        finally:
            self._under_way.discard(partition)

    async def _find(self, partition: Partition, opened: Log, offset: int) -> LogSlice | None:
        """What the segment has from `offset` on; None if it is not there any more or is being cut, or if the device
        refuses."""
        for _ in range(COLD_TRIES_MAX):
            if partition.log is not opened or partition.is_truncating:
                return None
            try:
                return opened.read(offset, TO_THE_END_BYTES, opened.log_end_offset)
            except OffsetOutOfRange:
                return None
            except ColdRead as cold:
                if not await self._failures.warmed(partition, cold):
                    return None
        return None
