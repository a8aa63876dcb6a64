"""RepeatedReadChecks: check stored bytes that a reader fetches again and again, because the reader may be rejecting
them as damaged.

A broker sends the bytes of its files unchecked, as Kafka does. A reader that finds a damaged batch can only fetch that
batch again. Without this check the broker would send the damaged bytes forever, although other replicas have the batch
intact.

Batches that are fetched repeatedly are read and checked in a thread, a piece at a time. `damaged_logs` decides whether
a replica with a damaged batch goes offline. If no other replica could lead, the replica continues. The damaged bytes
are then not checked again for a while, unless another replica could lead by then.
Source: docs/deviations.md, docs/decisions/08-damaged-replicas.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.logs.damaged_logs import NEXT_REPORT_AFTER_MS, was_not_truncated
from kraft.broker.partition.repeated_reads import RepeatedReads
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
"""Slice size in bytes with which the rest of a segment is checked; no segment is larger."""


class RepeatedReadChecks:
    """Counts how often readers get the same bytes, and checks bytes that are fetched too often. At most one check per
    partition runs at a time."""

    def __init__(self, loop: Loop, damaged_logs: DamagedLogs, failures: DiskFailures) -> None:
        self._loop = loop
        self._damaged_logs = damaged_logs
        self._failures = failures
        self._under_way: set[Partition] = set()

    def bytes_sent(self, partition: Partition, reader: int, offset: int, size_bytes: int) -> None:
        """Record that `size_bytes` bytes from `offset` on are sent to `reader`, which is numbered as in
        `RepeatedReads`."""
        repeated_reads = partition.repeated_reads
        if repeated_reads is None:
            repeated_reads = partition.count_reads()
        if repeated_reads.is_suspicious(reader, offset) and not self._is_skipped(partition, repeated_reads, offset):
            self._check(partition, repeated_reads, offset, size_bytes)

    def _is_skipped(self, partition: Partition, repeated_reads: RepeatedReads, offset: int) -> bool:
        now_ms = self._loop.clock.monotonic_ms()
        return repeated_reads.is_skipped(offset, now_ms) and not self._damaged_logs.others_can_lead(partition)

    def _check(self, partition: Partition, repeated_reads: RepeatedReads, offset: int, size_bytes: int) -> None:
        if partition not in self._under_way and partition.log is not None:
            self._under_way.add(partition)
            self._loop.start_task(self._check_bytes, partition, repeated_reads, partition.log, offset, size_bytes)

    async def _check_bytes(
        self, partition: Partition, repeated_reads: RepeatedReads, opened: Log, offset: int, size_bytes: int
    ) -> None:
        loop, truncations = self._loop, opened.truncations
        try:
            piece = await self._find_slice(partition, opened, offset)
            if piece is not None:
                epochs = EpochCache(opened.epochs.entries)
                await loop.disk.offload(piece.check, size_bytes, opened.log_end_offset, epochs)
        except DiskError as error:
            self._failures.disk_failed(partition, error)
        except StorageCorrupt as damage:
            if was_not_truncated(partition, opened, truncations) and not self._damaged_logs.damage_found(
                partition, damage
            ):
                repeated_reads.skip_until(offset, loop.clock.monotonic_ms() + NEXT_REPORT_AFTER_MS)
        finally:
            self._under_way.discard(partition)

    async def _find_slice(self, partition: Partition, opened: Log, offset: int) -> LogSlice | None:
        """Return the part of the segment from `offset` on. Return None if the segment was removed, is being truncated,
        or the device fails."""
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
