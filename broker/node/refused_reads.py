"""Readers that come back for the same bytes again and again: they may refuse them, so the log looks at them itself.

A broker sends what stands in its files without a look (DESIGN 10), and a reader that finds a damaged batch can only ask
once more. So a log that changed on the device would be offered for ever, while others have it whole. Here the batches
that are asked for so often are read and checked, off the loop; if one does not fit its CRC, the replica ends and others
lead. Where nobody could, it goes on: all but that batch can still be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kraft.seam import DiskError, StorageCorrupt
from kraft.storage.handles import ColdRead
from kraft.storage.log_slice import LogSlice, OffsetOutOfRange

if TYPE_CHECKING:
    from kraft.broker.node.partition import Partition
    from kraft.broker.node.replica_manager import ReplicaManager
    from kraft.storage.log import Log

log = structlog.get_logger("kraft.broker.reads")

AGAIN_MAX = 3
"""So many times a reader comes back for what it was given before its bytes are looked at; once may be because it has
two requests under way."""
READERS_MAX = 64
"""Readers of a partition that are remembered."""
COLD_TRIES_MAX = 100


class SameAgain:
    """Where each reader of one partition was given bytes last, and how often it has come back. A consumer that reads on
    before it opens what it has may alternate between a damaged batch and the end of the log; a follower never does."""

    __slots__ = ("_given",)

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}

    def is_suspicious(self, reader: int, offset: int) -> bool:
        """A reader (a follower's id, or something negative) is given bytes from `offset` on. Whether it has come back
        too often by now."""
        last, times = self._given.get(reader, (-1, 0))
        is_back = offset <= last
        times = times + 1 if is_back else times if reader < 0 else 0
        if len(self._given) >= READERS_MAX:
            self._given.clear()
        self._given[reader] = (offset, times)
        return is_back and times % AGAIN_MAX == 0


class RefusedReads:
    """Counts what readers are given, and looks at what they may refuse: one look at a time for each partition."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._under_way: set[Partition] = set()

    def given(self, partition: Partition, reader: int, offset: int, bytes_max: int) -> None:
        """`reader` (see `SameAgain`) gets what a fetch of so many bytes from `offset` on finds."""
        same_again = partition.same_again
        if same_again is None:
            same_again = partition.same_again = SameAgain()
        if same_again.is_suspicious(reader, offset):
            self._look_at(partition, offset, bytes_max)

    def _look_at(self, partition: Partition, offset: int, bytes_max: int) -> None:
        if partition not in self._under_way and partition.log is not None:
            self._under_way.add(partition)
            self._manager.start_task(self._look, partition, partition.log, offset, bytes_max)

    async def _look(self, partition: Partition, opened: Log, offset: int, bytes_max: int) -> None:
        truncations = opened.truncations
        try:
            piece = await self._find(partition, opened, offset, bytes_max)
            if piece is not None and piece.ranges:
                await self._manager.disk.offload(piece.read_whole)
        except DiskError as error:
            self._manager.disk_failed(partition, error)
        except StorageCorrupt as damage:
            if partition.log is opened and opened.truncations == truncations:  # else it was cut under the look
                self._found(partition, damage)
        finally:
            self._under_way.discard(partition)

    async def _find(self, partition: Partition, opened: Log, offset: int, bytes_max: int) -> LogSlice | None:
        """The bytes; None if they are not there any more, or the device refuses."""
        for _ in range(COLD_TRIES_MAX):
            if partition.log is not opened:
                return None
            try:
                return opened.read(offset, bytes_max, opened.log_end_offset, at_least_one=True)
            except OffsetOutOfRange:
                return None
            except ColdRead as cold:
                if not await self._manager.maintenance.warmed(partition, cold):
                    return None
        return None

    def _found(self, partition: Partition, damage: StorageCorrupt) -> None:
        leader, state = partition.leader, partition.state
        others_can_lead = leader is None or len(leader.isr.committed) > 1 or (state is not None and bool(state.elr))
        if others_can_lead:
            self._manager.log_damaged(partition, damage)
        else:
            log.error(
                "log is damaged, and no other replica is in sync: readers refuse a part of it",
                topic=partition.topic,
                partition=partition.index,
                error=str(damage),
            )
