"""Offsets of a log are ordered, and each batch follows the one before it (D5 and D6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BatchWritten,
    BytesCorrupted,
    LogCut,
    NodeDown,
    PartitionSeen,
    Restarted,
    TopicPartition,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import Shadows


class LogOffsetsInOrder(Check):
    """Check that the offsets of a log are ordered. The recovery point is compared with the disk, because records below
    it are not read again after a crash. The first high watermark of an incarnation comes from a checkpoint, so some
    replica must have had it before. This is checked before the check NoDivergence (D2) records that high watermark as
    committed."""

    id: ClassVar[str] = "D5"
    statement: ClassVar[str] = (
        "log start <= high watermark <= log end, LSO <= high watermark, all records below the recovery point are "
        "durable, and no log start decreases."
    )

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._known: dict[tuple[int, TopicPartition], PartitionSeen] = {}
        """Last observation of this log in this incarnation of its node."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, LogCut: self.cut, NodeDown: self.down}

    def cut(self, seen: LogCut) -> None:
        if seen.log is not None and not seen.start_offset and not seen.end_offset:
            self._known.pop((seen.node, seen.log), None)  # the log's folder was deleted

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
            self._fail("a replica starts with a high watermark that no replica had", seen, committed_end=committed)

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


class BatchesAreContiguous(Check):
    """Check that the batches on each disk form a log without gaps. A crash leaves gaps and incomplete batches on the
    disk, which are not a log until recovery. So writes observed while the node is down do not count. Damaged bytes do
    not count until this incarnation has reported the log."""

    id: ClassVar[str] = "D6"
    statement: ClassVar[str] = "A log has no gap, its batches' epochs never decrease, and each batch matches its CRC."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._down: set[int] = set()
        self._shown: set[tuple[int, TopicPartition]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            BatchWritten: self.written,
            BytesCorrupted: self.broken,
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
                "a batch does not follow the one before it",
                partition=seen.log,
                node=seen.node,
                end_before=end,
                base_offset=seen.base_offset,
                epoch_before=epoch,
                epoch=seen.epoch,
            )

    def broken(self, seen: BytesCorrupted) -> None:
        if seen.log is not None and (seen.node, seen.log) in self._shown:
            self.fail("a log has bytes that are no batch", partition=seen.log, node=seen.node, file=seen.file)
