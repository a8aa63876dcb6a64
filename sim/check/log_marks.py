"""D5 and D6: the marks of a log, and how its batches follow on each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BatchWritten,
    BytesBroken,
    LogCut,
    NodeDown,
    PartitionSeen,
    Restarted,
    TopicPartition,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import Shadows


class MarksInOrder(Check):
    """The recovery point is held against the disk: what lies below it is not read again after a crash. The high
    watermark of a life's first look comes from a checkpoint, and somebody has had it before; so this is asked before D2
    notes it."""

    id: ClassVar[str] = "D5"
    statement: ClassVar[str] = (
        "log start <= high watermark <= log end, LSO <= high watermark, all below the recovery point is on the device, "
        "and no log start goes back."
    )

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._known: dict[tuple[int, TopicPartition], PartitionSeen] = {}
        """What was seen last of this log in this life of its node."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, LogCut: self.cut, NodeDown: self.down}

    def cut(self, seen: LogCut) -> None:
        if seen.log is not None and not seen.start_offset and not seen.end_offset:
            self._known.pop((seen.node, seen.log), None)  # its folder is gone

    def down(self, seen: NodeDown) -> None:
        self._known = {place: known for place, known in self._known.items() if place[0] != seen.node}

    def seen_partition(self, seen: PartitionSeen) -> None:
        if seen.log_end_offset:
            self.count()
        place = (seen.node, seen.topic_partition)
        before = self._known.get(place)
        self._known[place] = seen
        ordered = seen.log_start_offset <= seen.high_watermark <= seen.log_end_offset
        if not ordered or seen.last_stable_offset > max(seen.high_watermark, seen.log_start_offset):
            self._fail("the marks of a log are out of order", seen)
        if before is None:
            self._begun(seen)
        elif seen.log_start_offset < before.log_start_offset:
            self._fail("a log start went back", seen, log_start_before=before.log_start_offset)
        shadow = self._shadows.log(*place)
        if seen.recovery_point > max(shadow.durable_end, shadow.start_offset, seen.log_start_offset):
            self._fail("a recovery point is above what is on the device", seen, durable_end=shadow.durable_end)

    def _begun(self, seen: PartitionSeen) -> None:
        committed = max(self._ledgers.committed.get(seen.topic_partition, ()), default=0)
        if seen.high_watermark > max(committed, seen.log_start_offset):
            self._fail("a replica begins with a high watermark that nobody had", seen, committed_end=committed)

    def _fail(self, text: str, seen: PartitionSeen, **more: int) -> None:
        self.fail(
            text,
            partition=seen.topic_partition,
            node=seen.node,
            log_start=seen.log_start_offset,
            last_stable=seen.last_stable_offset,
            high_watermark=seen.high_watermark,
            log_end=seen.log_end_offset,
            recovery_point=seen.recovery_point,
            **more,
        )


class BatchesFollowOn(Check):
    """Of all logs, by the disks. A crash leaves holes and torn batches on its disk, which are no log until it is
    recovered: what comes up while a node is down does not count, nor do bytes that are no batch in a log that was not
    shown in this life."""

    id: ClassVar[str] = "D6"
    statement: ClassVar[str] = "A log has no gap, its batches' epochs never fall, and each is as its CRC says."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._down: set[int] = set()
        self._shown: set[tuple[int, TopicPartition]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            BatchWritten: self.written,
            BytesBroken: self.broken,
            PartitionSeen: self.seen_partition,
            NodeDown: self.down,
            Restarted: self.restarted,
        }

    def seen_partition(self, seen: PartitionSeen) -> None:
        self._shown.add((seen.node, seen.topic_partition))

    def down(self, seen: NodeDown) -> None:
        self._down.add(seen.node)
        self._shown = {place for place in self._shown if place[0] != seen.node}

    def restarted(self, seen: Restarted) -> None:
        self._down.discard(seen.node)

    def written(self, seen: BatchWritten) -> None:
        before = self._shadows.log(seen.node, seen.log).batches[-1].before
        if before is None or seen.node in self._down:
            return
        self.count()
        end, epoch, _ = before
        if seen.base_offset != end or seen.epoch < epoch:
            self.fail(
                "a batch does not follow on the one before it",
                partition=seen.log,
                node=seen.node,
                end_before=end,
                base_offset=seen.base_offset,
                epoch_before=epoch,
                epoch=seen.epoch,
            )

    def broken(self, seen: BytesBroken) -> None:
        if seen.log is not None and (seen.node, seen.log) in self._shown:
            self.fail("a log has bytes that are no batch", partition=seen.log, node=seen.node, file=seen.file)
