"""Check of what a running replica may remove from its log (D9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    LogCut,
    NodeDown,
    PartitionRecorded,
    PartitionSeen,
    Restarted,
    RoleSeen,
    TopicPartition,
)
from kraft.sim.check.partitions import Damage, PartitionLedgers
from kraft.sim.check.shadow import Shadows


class TruncationDiscipline(Check):
    """Check that no running replica truncates committed records: a follower truncates where its log diverges from its
    leader's, which is above all committed records. A folder that is removed must belong to a deleted topic, or to a
    node that is no longer a replica. The metadata may be observed after the disk, so the removal is checked when the
    node's role is observed next.

    A log whose bytes have changed on the device may be truncated at the corrupt batch by recovery, once, and no further
    back. Recovery truncates file by file from the last one. So a truncation above the corrupt bytes is a violation if
    the broker opens the log before the corrupt bytes are removed."""

    id: ClassVar[str] = "D9"
    statement: ClassVar[str] = "No running replica removes a committed record, except from the front."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage
        self._down: set[int] = set()
        self._removed: list[tuple[int, TopicPartition, int]] = []
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self._left: set[tuple[int, TopicPartition]] = set()
        """(node, log) of nodes that were a replica and have been removed, or that were added again and have not been in
        sync since."""
        self._cut_behind: dict[tuple[int, TopicPartition], int] = {}
        """(node, log) that recovery may be truncating step by step down to its corrupt batch → its end after the last
        step."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            LogCut: self.cut,
            PartitionRecorded: self.recorded,
            NodeDown: self.down,
            Restarted: self.restarted,
            RoleSeen: self.role,
            PartitionSeen: self.shown,
        }

    def down(self, seen: NodeDown) -> None:
        self._down.add(seen.node)

    def restarted(self, seen: Restarted) -> None:
        self._down.discard(seen.node)

    def cut(self, seen: LogCut) -> None:
        if seen.log is None or seen.node in self._down or seen.log in self._ledgers.unclean:
            return
        shadow = self._shadows.log(seen.node, seen.log)
        committed = self._ledgers.committed.get(seen.log, {})
        lost = 0
        for batch in shadow.between(seen.end_offset, shadow.end_offset):
            self.count()
            lost += committed.get(batch.next_offset) == (batch.epoch, batch.digest)
        if lost and self._damage.may_be_cut(seen.node, seen.log, seen.end_offset):
            self._cut_behind[seen.node, seen.log] = seen.end_offset
        elif lost and not seen.end_offset and not seen.start_offset:
            self._removed.append((seen.node, seen.log, lost))
        elif lost:
            self._fail(seen.node, seen.log, seen.end_offset)

    def shown(self, seen: PartitionSeen) -> None:
        """Report a truncation that stopped above a corrupt batch: the log is open now, so recovery is complete."""
        end_after = self._cut_behind.pop((seen.node, seen.topic_partition), None)
        if end_after is not None and self._damage.is_corrupt(seen.node, seen.topic_partition):
            self._fail(seen.node, seen.topic_partition, end_after)

    def _fail(self, node: int, log: TopicPartition, end_after: int) -> None:
        committed_end = max(self._ledgers.committed[log])
        text = "a replica truncated committed records"
        self.fail(text, partition=log, node=node, end_after=end_after, committed_end=committed_end)

    def recorded(self, seen: PartitionRecorded) -> None:
        """Record replicas that a reassignment removes: their nodes may delete the logs."""
        tp = seen.topic_partition
        self._left.update((node, tp) for node in {*self._replicas.get(tp, ())} - {*seen.replicas})
        self._left.difference_update((node, tp) for node in seen.isr)
        self._replicas[tp] = seen.replicas

    def role(self, seen: RoleSeen) -> None:
        removed, self._removed = self._removed, []
        for found in removed:
            if found[0] == seen.node:
                self._judge(*found)
            else:
                self._removed.append(found)

    def finish(self) -> None:
        for found in self._removed:
            self._judge(*found)

    def _judge(self, node: int, log: TopicPartition, lost: int) -> None:
        if log[0] not in self._ledgers.deleted and (node, log) not in self._left:
            self.fail(
                "a log was removed without a deletion of its topic or replica", partition=log, node=node, batches=lost
            )
