"""Checks of what replicas of a partition hold, acknowledge and commit (D1, D2, D4, D11 and K7).

A batch counts as committed when a leader's high watermark passes it, and as acknowledged when a client receives success
for an acks=all request. Exemption: a replica that lost unsynced bytes to a power loss, or whose disk was wiped, is
recorded as `damaged` by (node, log). D1 and K7 are required while at least one member of the ISR of the acknowledgement
is undamaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BatchWritten,
    BrokerRegistered,
    LogCut,
    NodeDown,
    PartitionRecorded,
    PartitionSeen,
    ProduceAcknowledged,
    ProduceAnswered,
    Restarted,
    TopicPartition,
)
from kraft.sim.check.shadow import ShadowLog, Shadows


class Damage:
    """Replicas that lost bytes to an injected fault and are not complete again, and replicas whose bytes changed on the
    device. A replica does not count as repaired before its broker's next registration, because until then a leader may
    count on fetch offsets of an earlier incarnation."""

    def __init__(self) -> None:
        self._nodes: set[tuple[int, TopicPartition]] = set()
        self._corrupt: dict[tuple[int, TopicPartition], tuple[int, int] | None] = {}
        """(node, partition) → (end offset of the batches before the corrupt batch, end offset of the corrupt batch).
        None: the corrupt batch is no longer in the log."""
        self._to_register: set[int] = set()
        self._incarnations: dict[int, int | None] = {}
        """Node that has gone down → the incarnation in which it runs again; None while it is down."""

    def down(self, node: int) -> None:
        self._incarnations[node] = None

    def restarted(self, node: int, incarnation: int) -> None:
        self._incarnations[node] = incarnation

    def corrupt(self, node: int, topic_partition: TopicPartition, end_before: int, next_offset: int) -> None:
        """Record that bytes of a batch of this log were corrupted, until `mended` is called for the log. The batches
        before the corrupt batch end at offset `end_before`; the corrupt batch ends at `next_offset`."""
        self._corrupt[node, topic_partition] = (end_before, next_offset)

    def mended(self, node: int, topic_partition: TopicPartition) -> None:
        self._corrupt.pop((node, topic_partition), None)

    def may_be_cut(self, node: int, topic_partition: TopicPartition, end_offset: int) -> bool:
        """Return whether a truncation to this offset is excused: the log has a corrupt batch, and all batches before it
        remain. Recovery may mistake the corrupt batch for an incomplete one and truncate there. A replica that its
        broker takes offline because of the damage is left unchanged, so no other truncation is excused."""
        corrupt = self._corrupt.get((node, topic_partition))
        return corrupt is not None and end_offset >= corrupt[0]

    def is_corrupt(self, node: int, topic_partition: TopicPartition) -> bool:
        """Return whether this log has a corrupt batch."""
        return self._corrupt.get((node, topic_partition)) is not None

    def cut(self, node: int, topic_partition: TopicPartition, start_offset: int, end_offset: int) -> None:
        """Record a log's new begin and end. If the corrupt batch was removed, from either side, it excuses no later
        truncation."""
        corrupt = self._corrupt.get((node, topic_partition))
        if corrupt is not None and (end_offset <= corrupt[0] or start_offset >= corrupt[1]):
            self._corrupt[node, topic_partition] = None

    def lost(self, node: int, topic_partition: TopicPartition) -> None:
        self._nodes.add((node, topic_partition))
        self._to_register.add(node)

    def registered(self, node: int, incarnation: int) -> None:
        """Record a registration. If it is of the broker's current incarnation, fetch offsets of earlier incarnations no
        longer count."""
        if self._incarnations.get(node, incarnation) == incarnation:
            self._to_register.discard(node)

    def may_be_repaired(self, node: int, topic_partition: TopicPartition) -> bool:
        """Return whether the replica has lost records and will be repaired as soon as it holds all committed
        records."""
        return (node, topic_partition) in self._nodes and node not in self._to_register

    def repaired(self, node: int, topic_partition: TopicPartition) -> None:
        self._nodes.discard((node, topic_partition))

    def anyone(self) -> bool:
        """Return whether any replica is damaged now."""
        return bool(self._nodes or self._corrupt)

    def holds(self, node: int, topic_partition: TopicPartition) -> bool:
        place = (node, topic_partition)
        return place in self._nodes or place in self._corrupt


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An acknowledged batch, the ISR when the client received the success, and the leader epoch in which the batch was
    committed."""

    next_offset: int
    digest: int
    isr: frozenset[int]
    leader_epoch: int


class PartitionLedgers:
    """The committed batches and the acknowledged batches of all partitions."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        self.commit_epochs: dict[TopicPartition, dict[int, int]] = {}
        """Partition → end of each batch → the leader epoch in which it was first seen committed."""
        self.acknowledged: dict[TopicPartition, dict[int, Acknowledged]] = {}
        self.unclean: set[TopicPartition] = set()
        self.deleted: set[str] = set()
        """Topics whose deletion is committed: nodes may remove their logs at different times."""

    def is_void(self, topic_partition: TopicPartition) -> bool:
        """Return whether nothing is guaranteed for this partition any more."""
        return topic_partition in self.unclean or topic_partition[0] in self.deleted

    def first_missing(self, log: ShadowLog, topic_partition: TopicPartition) -> int | None:
        """Return the end offset of the first committed batch of the partition that this log lacks; batches before the
        log's start do not count."""
        committed = self.committed.get(topic_partition, {})
        return log.first_missing((next_offset, digest) for next_offset, (_, digest) in committed.items())

    def is_all_in(self, log: ShadowLog, topic_partition: TopicPartition) -> bool:
        """Return whether this log holds all committed batches of the partition that end after the log's start. This is
        called at each batch that a damaged replica writes. A replica that is catching up lacks the newest batches, so
        these are compared first."""
        committed = self.committed.get(topic_partition, {})
        return all(log.holds(next_offset, digest) for next_offset, (_, digest) in reversed(committed.items()))

    def commit(
        self, topic_partition: TopicPartition, next_offset: int, entry: tuple[int, int], leader_epoch: int
    ) -> tuple[int, int]:
        self.commit_epochs.setdefault(topic_partition, {}).setdefault(next_offset, leader_epoch)
        return self.committed.setdefault(topic_partition, {}).setdefault(next_offset, entry)


class AckedDurability(Check):
    """Check that every later leader of a partition, and the leader at the end of the run, holds every acknowledged
    record. A leader is later if its epoch is at least that of the commit. Leaders of lower epochs are not checked: a
    broker that was paused may begin to lead late, in an epoch that has ended."""

    id: ClassVar[str] = "D1"
    statement: ClassVar[str] = "Every later leader holds every acknowledged record."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage
        self._isr: dict[TopicPartition, frozenset[int]] = {}
        self._newest_epoch: dict[TopicPartition, int] = {}
        self._checked: set[tuple[TopicPartition, int]] = set()

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, ProduceAcknowledged: self.acknowledged}

    def acknowledged(self, seen: ProduceAcknowledged) -> None:
        tp = seen.topic_partition
        batch = self._ledgers.committed.get(tp, {}).get(seen.next_offset)
        self.count()
        if batch is None:
            self.fail("acknowledged before any leader committed it", partition=tp, next_offset=seen.next_offset)
            return
        isr = self._isr.get(tp, frozenset())
        epoch = self._ledgers.commit_epochs[tp][seen.next_offset]
        entry = Acknowledged(seen.next_offset, batch[1], isr, epoch)
        self._ledgers.acknowledged.setdefault(tp, {}).setdefault(seen.next_offset, entry)

    def seen_partition(self, seen: PartitionSeen) -> None:
        if not seen.is_leader:
            return
        tp, epoch = seen.topic_partition, seen.leader_epoch
        if epoch >= self._newest_epoch.get(tp, epoch):
            self._newest_epoch[tp], self._isr[tp] = epoch, seen.isr
        if (tp, epoch) in self._checked:
            return
        self._checked.add((tp, epoch))
        self.check_log(seen.node, tp, f"leader of epoch {epoch}", epoch)

    def check_log(self, node: int, tp: TopicPartition, role: str, leader_epoch: int | None = None) -> None:
        """Check that a replica's whole log holds the acknowledged batches, or those committed up to this leader epoch.
        `role` is the replica's role as shown in the evidence."""
        if self._ledgers.is_void(tp):
            return
        shadow = self._shadows.log(node, tp)
        for entry in self._ledgers.acknowledged.get(tp, {}).values():
            is_later = leader_epoch is not None and entry.leader_epoch > leader_epoch
            if entry.next_offset <= shadow.start_offset or is_later:
                continue
            if entry.isr and all(self._damage.holds(member, tp) for member in entry.isr):
                continue
            self.count()
            batch = shadow.at_end(entry.next_offset)
            if batch is None or batch.digest != entry.digest:
                self.fail(
                    "an acknowledged record is not in the log",
                    partition=tp,
                    node=node,
                    role=role,
                    next_offset=entry.next_offset,
                    in_sync_then=sorted(entry.isr),
                    log_end=shadow.end_offset,
                )


class NoDivergence(Check):
    """Check that replicas do not diverge: each replica's batches below that replica's high watermark must equal those
    that were committed first."""

    id: ClassVar[str] = "D2"
    statement: ClassVar[str] = "Replicas are equal below the lower of their high watermarks."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._upto: dict[tuple[int, int, TopicPartition], int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, PartitionRecorded: self.recorded}

    def recorded(self, seen: PartitionRecorded) -> None:
        if seen.unclean:
            self._ledgers.unclean.add(seen.topic_partition)

    def seen_partition(self, seen: PartitionSeen) -> None:
        tp = seen.topic_partition
        key = (seen.node, seen.incarnation, tp)
        start = self._upto.get(key, 0)
        if seen.high_watermark <= start or tp in self._ledgers.unclean:
            return
        self._upto[key] = seen.high_watermark
        for batch in self._shadows.log(seen.node, tp).between(start, seen.high_watermark):
            entry = self._ledgers.commit(tp, batch.next_offset, (batch.epoch, batch.digest), seen.leader_epoch)
            self.count()
            if entry != (batch.epoch, batch.digest):
                self.fail(
                    "two records are committed at one offset",
                    partition=tp,
                    node=seen.node,
                    next_offset=batch.next_offset,
                    held=(batch.epoch, batch.digest),
                    committed=entry,
                )


class HighWatermarkJustified(Check):
    """Check that every member of the maximal ISR holds the records below a leader's high watermark. What followers hold
    is read from their disks. The leader must count members until their removal from the ISR is committed. Records that
    a replica acknowledged and then lost in a power loss do not count against the leader. A replica that a reassignment
    deleted does not count either, because the leader may not know of that yet."""

    id: ClassVar[str] = "D4"
    statement: ClassVar[str] = "A leader's high watermark is held by every member of the maximal ISR."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage
        self._upto: dict[tuple[int, int, TopicPartition], int] = {}
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, PartitionRecorded: self.recorded}

    def recorded(self, seen: PartitionRecorded) -> None:
        self._replicas[seen.topic_partition] = seen.replicas

    def seen_partition(self, seen: PartitionSeen) -> None:
        key = (seen.node, seen.leader_epoch, seen.topic_partition)
        if not seen.is_leader:
            return
        before = self._upto.get(key)
        self._upto[key] = seen.high_watermark
        if before is None or seen.high_watermark <= before or self._ledgers.is_void(seen.topic_partition):
            # a new leader's first high watermark is the one that it had as a follower, which its predecessor justified
            return
        self.count()
        own = self._shadows.log(seen.node, seen.topic_partition).between(before, seen.high_watermark)
        newly = [(batch.next_offset, batch.digest) for batch in own]
        replicas = self._replicas.get(seen.topic_partition, ())
        for member in sorted(seen.maximal_isr.intersection(replicas) if replicas else seen.maximal_isr):
            log = self._shadows.log(member, seen.topic_partition)
            missing = log.first_missing(newly)
            lacks = missing is not None or log.end_offset < seen.high_watermark
            if lacks and not self._damage.holds(member, seen.topic_partition):
                self.fail(
                    "the high watermark passes an in-sync replica",
                    partition=seen.topic_partition,
                    leader=seen.node,
                    high_watermark=seen.high_watermark,
                    replica=member,
                    replica_end=log.end_offset,
                    first_missing=missing,
                )


class AcksAllReply(Check):
    """Check that acks=all succeeds only below the high watermark, in the same epoch, with min ISR met. Epoch and ISR
    are those at the time of the commit. A response for several partitions is sent when the last of them is complete. A
    partition that was complete stays successful, even if its leader or ISR changes before the response is sent (as in
    Kafka's DelayedProduce)."""

    id: ClassVar[str] = "D11"
    statement: ClassVar[str] = "acks=all succeeds only below the high watermark, in the same epoch, with min ISR met."

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[int, dict[tuple[TopicPartition, int], int]] = {}
        """Node → (partition, leader epoch) → the last high watermark that was observed on the node while min ISR was
        met."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, NodeDown: self.down, ProduceAnswered: self.answered}

    def seen_partition(self, seen: PartitionSeen) -> None:
        if seen.is_leader and len(seen.maximal_isr) >= seen.min_isr:
            place = (seen.topic_partition, seen.leader_epoch)
            self._committed.setdefault(seen.node, {})[place] = seen.high_watermark

    def down(self, seen: NodeDown) -> None:
        self._committed.pop(seen.node, None)

    def _committed_when_appended(self, seen: ProduceAnswered) -> bool:
        """Return whether the high watermark passed the batch in the leader epoch in which it was appended, with min ISR
        met."""
        place = (seen.topic_partition, seen.epoch_appended)
        return self._committed.get(seen.node, {}).get(place, 0) >= seen.next_offset

    def answered(self, seen: ProduceAnswered) -> None:
        self.count()
        if seen.high_watermark < seen.next_offset:
            self.fail(
                "acknowledged above the high watermark",
                partition=seen.topic_partition,
                leader=seen.node,
                next_offset=seen.next_offset,
                high_watermark=seen.high_watermark,
            )
        if self._committed_when_appended(seen):
            return
        if seen.epoch_appended != seen.epoch_now:
            self.fail(
                "acknowledged in another leader epoch",
                partition=seen.topic_partition,
                leader=seen.node,
                appended_in=seen.epoch_appended,
                answered_in=seen.epoch_now,
            )
        if seen.isr_size < seen.min_isr:
            self.fail(
                "acknowledged with too few in sync",
                partition=seen.topic_partition,
                leader=seen.node,
                in_sync=seen.isr_size,
                min_in_sync=seen.min_isr,
            )


class EligibleReplicas(Check):
    """Check three rules of KIP-966. The high watermark does not advance below min ISR. Every ELR member holds all
    committed records. A broker that restarted uncleanly is removed from ISR and ELR, at the latest by its registration,
    before it can be elected."""

    id: ClassVar[str] = "K7"
    statement: ClassVar[str] = "ELR members have all committed records, and no record is committed under min ISR."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage
        self._leading: dict[tuple[int, int, TopicPartition], PartitionSeen] = {}
        self._unclean_since: dict[int, set[TopicPartition]] = {}
        self._incarnations: dict[int, int] = {}
        """Broker that has restarted → its last incarnation."""
        self._registered: set[int] = set()
        """Brokers whose last incarnation is known to be registered."""
        self._recorded: dict[TopicPartition, PartitionRecorded] = {}
        self._isr_sizes: dict[TopicPartition, dict[int, int]] = {}
        """Partition → size of the committed ISR, by partition epoch."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            PartitionSeen: self.seen_partition,
            PartitionRecorded: self.recorded,
            Restarted: self.restarted,
            BrokerRegistered: self.registered,
            LogCut: self.cut,
            BatchWritten: self.written,
        }

    def seen_partition(self, seen: PartitionSeen) -> None:
        if not seen.is_leader:
            return
        key = (seen.node, seen.leader_epoch, seen.topic_partition)
        before = self._leading.get(key)
        self._leading[key] = seen
        if before is not None and seen.high_watermark > before.high_watermark:
            self.count()
            # The ISR may have shrunk after the advance, or grown before it and shrunk again, between two observations.
            recorded = self._isr_sizes.get(seen.topic_partition, {})
            between = (recorded.get(epoch, 0) for epoch in range(before.partition_epoch + 1, seen.partition_epoch))
            if max(len(seen.isr), len(before.isr), *between) < seen.min_isr:
                self.fail(
                    "the high watermark moved under min.insync.replicas",
                    partition=seen.topic_partition,
                    leader=seen.node,
                    in_sync=sorted(seen.isr),
                    min_in_sync=seen.min_isr,
                )

    def recorded(self, seen: PartitionRecorded) -> None:
        tp = seen.topic_partition
        before = self._recorded.get(tp)
        self._recorded[tp] = seen
        self._isr_sizes.setdefault(tp, {})[seen.partition_epoch] = len(seen.isr)
        if self._ledgers.is_void(tp) or seen.unclean:
            return
        for member in seen.elr:
            self.count()
            log = self._shadows.log(member, tp)
            missing = self._ledgers.first_missing(log, tp)
            if missing is not None and not self._damage.holds(member, tp):
                self.fail(
                    "an eligible replica lacks committed records",
                    partition=tp,
                    replica=member,
                    replica_end=log.end_offset,
                    first_missing=missing,
                )
        chosen = before is None or seen.leader_epoch != before.leader_epoch
        self._caught_up(seen.leader, tp)
        if chosen and seen.leader in self._registered and tp in self._unclean_since.get(seen.leader, ()):
            self.fail(
                "a replica was chosen after an unclean restart before it caught up", partition=tp, replica=seen.leader
            )

    def registered(self, seen: BrokerRegistered) -> None:
        if self._incarnations.get(seen.broker, seen.incarnation) == seen.incarnation:
            self._registered.add(seen.broker)

    def restarted(self, seen: Restarted) -> None:
        self._registered.discard(seen.node)
        self._incarnations[seen.node] = seen.incarnation
        if seen.clean:
            return
        waiting = self._unclean_since.setdefault(seen.node, set())
        for tp, record in self._recorded.items():
            sole = record.isr == (seen.node,) and not record.elr
            if not sole and self._damage.holds(seen.node, tp):
                waiting.add(tp)

    def cut(self, seen: LogCut) -> None:
        self._caught_up(seen.node, seen.log)

    def written(self, seen: BatchWritten) -> None:
        self._caught_up(seen.node, seen.log)

    def _caught_up(self, node: int, log: TopicPartition | None) -> None:
        waiting = self._unclean_since.get(node)
        if log is None or not waiting or log not in waiting:
            return
        if self._ledgers.is_all_in(self._shadows.log(node, log), log):
            waiting.discard(log)
