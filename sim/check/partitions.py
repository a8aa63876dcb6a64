"""D1, D2, D4, D11 and K7: what the replicas of a partition may hold, promise and commit.

`DLEDGER[tp]` is filled when a leader's high watermark passes a batch; `ACKED[tp]` from acks=all successes that a client
received. Exemption: a replica that lost unsynced bytes to a power loss, or a wiped one, is remembered by (node, log) as
`damaged`; D1 and K7 hold while at least one member of the in-sync set of the acknowledgement is undamaged.
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
    """Which replicas lost bytes to an injected fault since when they were last complete, or have some that changed on
    the device. Up to a broker's next registration a leader may count on what an earlier incarnation has told it: until
    then nothing is repaired."""

    def __init__(self) -> None:
        self._nodes: set[tuple[int, TopicPartition]] = set()
        self._rotten: dict[tuple[int, TopicPartition], tuple[int, int] | None] = {}
        """Where what stands before the rotten batch ends, and where it ends itself; None: the batch is gone."""
        self._to_register: set[int] = set()
        self._incarnations: dict[int, int | None] = {}
        """Of nodes that went down: their incarnation since, None while there is none."""

    def down(self, node: int) -> None:
        self._incarnations[node] = None

    def restarted(self, node: int, incarnation: int) -> None:
        self._incarnations[node] = incarnation

    def rotten(self, node: int, topic_partition: TopicPartition, end_before: int, next_offset: int) -> None:
        """Bytes of a batch of this log are not as they were written, until it is `mended`; what stands before that
        batch ends at offset `end_before`, and it ends itself at `next_offset`."""
        self._rotten[node, topic_partition] = (end_before, next_offset)

    def mended(self, node: int, topic_partition: TopicPartition) -> None:
        self._rotten.pop((node, topic_partition), None)

    def may_be_cut(self, node: int, topic_partition: TopicPartition, end_offset: int) -> bool:
        """Whether the log has rotten bytes, and this end leaves all that stands before them: whoever takes the rotten
        batch for a torn one, as a recovery may, cuts there. A replica that is given up for its damage is left as it
        is, so nothing else is cut."""
        rotten = self._rotten.get((node, topic_partition))
        return rotten is not None and end_offset >= rotten[0]

    def is_rotten(self, node: int, topic_partition: TopicPartition) -> bool:
        """Whether the rotten batch stands in this log."""
        return self._rotten.get((node, topic_partition)) is not None

    def cut(self, node: int, topic_partition: TopicPartition, start_offset: int, end_offset: int) -> None:
        """The log begins and ends here now. If the rotten batch went with what is gone, from the end or from the front,
        it excuses no other cut."""
        rotten = self._rotten.get((node, topic_partition))
        if rotten is not None and (end_offset <= rotten[0] or start_offset >= rotten[1]):
            self._rotten[node, topic_partition] = None

    def lost(self, node: int, topic_partition: TopicPartition) -> None:
        self._nodes.add((node, topic_partition))
        self._to_register.add(node)

    def registered(self, node: int, incarnation: int) -> None:
        """If it is the one that there is: what those before it have told counts no more."""
        if self._incarnations.get(node, incarnation) == incarnation:
            self._to_register.discard(node)

    def may_be_repaired(self, node: int, topic_partition: TopicPartition) -> bool:
        """Whether it has lost something, and is whole again as soon as it holds all that is committed."""
        return (node, topic_partition) in self._nodes and node not in self._to_register

    def repaired(self, node: int, topic_partition: TopicPartition) -> None:
        self._nodes.discard((node, topic_partition))

    def anyone(self) -> bool:
        """Whether any replica is damaged now."""
        return bool(self._nodes or self._rotten)

    def holds(self, node: int, topic_partition: TopicPartition) -> bool:
        place = (node, topic_partition)
        return place in self._nodes or place in self._rotten


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One entry of ACKED: the batch, who was in sync when the client was told, and the leader epoch of its commit."""

    next_offset: int
    digest: int
    isr: frozenset[int]
    leader_epoch: int


class PartitionLedgers:
    """DLEDGER, ACKED and who led which epoch, over all partitions."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, dict[int, tuple[int, int]]] = {}
        self.commit_epochs: dict[TopicPartition, dict[int, int]] = {}
        """The leader epoch in which each batch, by where it ends, was first seen committed."""
        self.acknowledged: dict[TopicPartition, dict[int, Acknowledged]] = {}
        self.unclean: set[TopicPartition] = set()
        self.deleted: set[str] = set()
        """Topics whose deletion is committed: their logs may go, on one node before another."""

    def is_void(self, topic_partition: TopicPartition) -> bool:
        """Whether nothing is promised of this partition any more."""
        return topic_partition in self.unclean or topic_partition[0] in self.deleted

    def first_missing(self, log: ShadowLog, topic_partition: TopicPartition) -> int | None:
        """Where the first batch ends that was committed of the partition and is not in this log, from its start on."""
        committed = self.committed.get(topic_partition, {})
        return log.first_missing((next_offset, digest) for next_offset, (_, digest) in committed.items())

    def is_all_in(self, log: ShadowLog, topic_partition: TopicPartition) -> bool:
        """Whether this log holds all that was committed of the partition, from its start on. Who catches up lacks the
        newest, so these are looked at first: this is asked at each batch that a damaged replica writes."""
        committed = self.committed.get(topic_partition, {})
        return all(log.holds(next_offset, digest) for next_offset, (_, digest) in reversed(committed.items()))

    def commit(
        self, topic_partition: TopicPartition, next_offset: int, entry: tuple[int, int], leader_epoch: int
    ) -> tuple[int, int]:
        self.commit_epochs.setdefault(topic_partition, {}).setdefault(next_offset, leader_epoch)
        return self.committed.setdefault(topic_partition, {}).setdefault(next_offset, entry)


class AckedDurability(Check):
    """Checked against every leader that a partition gets after the acknowledgement, and at the end. Later is who leads
    in the epoch of the commit or above: a broker that was frozen hears only now that it led before that."""

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
        """Compare a replica's whole log with ACKED, or with what was committed up to this leader epoch; `role` is said
        in the evidence."""
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
    """Each replica's batches below its own high watermark are compared with what was committed first."""

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
    """What followers truly hold comes from their disks. A pending shrink does not free the leader from its members.
    What a power loss took from a replica after it had acknowledged it does not count against the leader; nor does what
    is deleted where no replica is due any more (a reassignment), of which the leader may not have heard yet."""

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
            return  # what a new leader knew as a follower was justified by its predecessor
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
    """Epoch and ISR count at the moment of the commit. An answer for several partitions leaves when the last of them is
    done, and one that was done keeps its success, whatever becomes of it meanwhile (as in Kafka's DelayedProduce)."""

    id: ClassVar[str] = "D11"
    statement: ClassVar[str] = "acks=all succeeds only below the high watermark, in the same epoch, with min ISR met."

    def __init__(self) -> None:
        super().__init__()
        self._committed: dict[int, dict[tuple[TopicPartition, int], int]] = {}
        """Node → (partition, leader epoch) → the high watermark that was seen there with min ISR met."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, NodeDown: self.down, ProduceAnswered: self.answered}

    def seen_partition(self, seen: PartitionSeen) -> None:
        if seen.is_leader and len(seen.maximal_isr) >= seen.min_isr:
            place = (seen.topic_partition, seen.leader_epoch)
            self._committed.setdefault(seen.node, {})[place] = seen.high_watermark

    def down(self, seen: NodeDown) -> None:
        self._committed.pop(seen.node, None)

    def _committed_when_appended(self, seen: ProduceAnswered) -> bool:
        """Whether the high watermark passed it in the leader epoch of its append, with min ISR met."""
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
    """Three clauses: the high watermark stands still under min ISR; every ELR member holds what is committed; an
    unclean restart, once it is registered, is out of ISR and ELR before it can be chosen."""

    id: ClassVar[str] = "K7"
    statement: ClassVar[str] = "ELR members hold everything committed, and nothing commits under min ISR."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage
        self._leading: dict[tuple[int, int, TopicPartition], PartitionSeen] = {}
        self._unclean_since: dict[int, set[TopicPartition]] = {}
        self._incarnations: dict[int, int] = {}
        """Of brokers that have restarted: their last."""
        self._registered: set[int] = set()
        """Brokers whose last incarnation is known to be registered."""
        self._recorded: dict[TopicPartition, PartitionRecorded] = {}

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
            # The set may have shrunk behind the move, between two looks.
            if max(len(seen.isr), len(before.isr)) < seen.min_isr:
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
