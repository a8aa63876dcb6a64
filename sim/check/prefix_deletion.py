"""Retention, DeleteRecords and prefix truncation remove only committed records, by the files on the disks (D16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import LogCut, NodeDown, PartitionSeen, TopicPartition
from kraft.sim.check.shadow import Shadows


class OnlyCommittedPrefixesDeleted(Check):
    """Check that only committed prefixes of a log are deleted. One pass of a node's event loop may raise the high
    watermark and delete below it, and the disk is observed before the high watermark. So a deletion is checked at the
    next observation of the replica. A log without any remaining batch was restarted and is not checked."""

    id: ClassVar[str] = "D16"
    statement: ClassVar[str] = "Deletion takes a prefix of a log, never beyond the high watermark."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._marks: dict[tuple[int, TopicPartition], int] = {}
        """(node, partition) → its last observed high watermark in this incarnation."""
        self._due: dict[tuple[int, TopicPartition], int] = {}
        """(node, partition) → its new log start, which is above the last observed high watermark and is checked at the
        next observation."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {LogCut: self.cut, PartitionSeen: self.seen_partition, NodeDown: self.down}

    def cut(self, seen: LogCut) -> None:
        if seen.log is None:
            return
        place, before = (seen.node, seen.log), self._shadows.log(seen.node, seen.log)
        if not before.start_offset < seen.start_offset < seen.end_offset or place not in self._marks:
            return
        self.count()
        if seen.start_offset > self._marks[place]:
            self._due[place] = seen.start_offset

    def seen_partition(self, seen: PartitionSeen) -> None:
        place = (seen.node, seen.topic_partition)
        self._marks[place] = seen.high_watermark
        start = self._due.pop(place, 0)
        if start > seen.high_watermark:
            self.fail(
                "records were deleted that are not committed",
                partition=seen.topic_partition,
                node=seen.node,
                log_start=start,
                high_watermark=seen.high_watermark,
            )

    def down(self, seen: NodeDown) -> None:
        """Drop what is known about this node's logs: bytes that a crash removes from a disk are not deletions."""
        for known in (self._marks, self._due):
            for place in [place for place in known if place[0] == seen.node]:
                del known[place]
