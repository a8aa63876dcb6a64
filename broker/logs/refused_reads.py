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

from kraft.broker.logs.damaged_logs import LEFT_ALONE_MS, is_uncut
from kraft.broker.partition.repeated_reads import SameAgain
from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.epochs import EpochCache
from kraft.storage.handles import ColdRead
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange

if TYPE_CHECKING:
    from kraft.broker.logs.damaged_logs import DamagedLogs
    from kraft.broker.logs.disk_failures import DiskFailures
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.storage.log import Log

COLD_TRIES_MAX = 100
TO_THE_END_BYTES = 2**31 - 1
"""As much as a segment can have."""


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
            same_again = partition.count_reads()
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
