"""Check the committed metadata of partitions and brokers, record by record (M3 to M8 and D18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BrokerInactive,
    BrokerRegistered,
    ImagePublished,
    PartitionRecorded,
    Restarted,
    TopicDeleted,
    TopicPartition,
)
from kraft.sim.check.partitions import Damage, PartitionLedgers
from kraft.sim.check.shadow import Shadows


class PartitionChanges(Check):
    """Base of the checks that compare each record of a partition with the record before it."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[TopicPartition, PartitionRecorded] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionRecorded: self.recorded}

    def recorded(self, seen: PartitionRecorded) -> None:
        before = self._known.get(seen.topic_partition)
        self._known[seen.topic_partition] = seen
        if before is not None:
            self.changed(before, seen)

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        """Check one pair of consecutive records, and count it if it could have been wrong."""
        raise AssertionError(f"{type(self).__name__} judges nothing")


class PartitionEpochsRise(PartitionChanges):
    """Check that a partition's epoch rises with each change, and its leader epoch with each new leader. Of several
    changes of one partition in one batch, only the last is observed."""

    id: ClassVar[str] = "M3"
    statement: ClassVar[str] = "A partition's epoch rises with each change, its leader epoch with each new leader."

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        self.count()
        least = before.leader_epoch + (seen.leader != before.leader)
        if seen.partition_epoch <= before.partition_epoch or seen.leader_epoch < least:
            self.fail(
                "an epoch did not rise",
                partition=seen.topic_partition,
                leaders=(before.leader, seen.leader),
                leader_epochs=(before.leader_epoch, seen.leader_epoch),
                partition_epochs=(before.partition_epoch, seen.partition_epoch),
            )


class IsrIsWellFormed(Check):
    """Check that replicas, ISR and ELR are well-formed. Each change of them counts as input; the first record of a
    partition is not a change."""

    id: ClassVar[str] = "M4"
    statement: ClassVar[str] = (
        "Replicas are distinct; ISR and ELR are disjoint subsets; ISR, ELR or last known ELR is not empty."
    )

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[TopicPartition, tuple[tuple[int, ...], ...]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionRecorded: self.recorded}

    def recorded(self, seen: PartitionRecorded) -> None:
        shape = (seen.replicas, seen.isr, seen.elr, seen.last_known_elr)
        if self._known.setdefault(seen.topic_partition, shape) != shape:
            self.count()
        self._known[seen.topic_partition] = shape
        members = (*seen.isr, *seen.elr)
        if not (members or seen.last_known_elr) or len({*members}) < len(members):
            self.fail("ISR and ELR are not as they must be", partition=seen.topic_partition, isr=seen.isr, elr=seen.elr)
        if seen.replicas and not {*members} <= {*seen.replicas}:
            self.fail(
                "a member of the ISR is not a replica", partition=seen.topic_partition, isr=seen.isr, elr=seen.elr
            )
        if len({*seen.replicas}) < len(seen.replicas):
            self.fail("a replica is listed twice", partition=seen.topic_partition, replicas=seen.replicas)


class OnlyActiveReplicasJoin(PartitionChanges):
    """Check that a replica that joins the ISR is registered and active, and that its log directory is online.
    AlterPartition's other preconditions are checked elsewhere: the rise of epochs (M3), and that the replica has caught
    up (D18)."""

    id: ClassVar[str] = "M8"
    statement: ClassVar[str] = "A replica that joins the ISR is registered and active, and its log directory is online."

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        for member in sorted({*seen.isr} - {*before.isr}):
            self.count()
            if member in seen.unable:
                self.fail(
                    "a replica that cannot be in sync joined the ISR",
                    partition=seen.topic_partition,
                    replica=member,
                    isr=(before.isr, seen.isr),
                )


class LeaderIsInIsr(Check):
    """Check that a leader is in the ISR, and was elected from ISR or ELR. Unclean elections are disabled in these runs.
    A replica outside ISR and ELR may be elected only where both are empty (KIP-966), because all their last members
    have registered after an unclean stop. Such a replica must, according to the disks, hold everything that was
    committed.

    Counts each election, and each change of the ISR of a leader."""

    id: ClassVar[str] = "M5"
    statement: ClassVar[str] = "A leader is in the ISR, and was elected from ISR or ELR."

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._known: dict[TopicPartition, PartitionRecorded] = {}
        self._stopped_uncleanly: set[tuple[int, int]] = set()
        """(broker, incarnation) pairs that followed an unclean stop and are not known to be registered. If such an
        incarnation stops cleanly before its registration, the next incarnation takes its place."""
        self._returned_unclean: set[int] = set()
        """Brokers whose current registration is the first after an unclean stop."""
        self._awaited: dict[TopicPartition, set[int]] = {}
        """Partitions with empty ISR and ELR → their last members that have restarted after an unclean stop and are not
        registered yet. The registration may be committed after the changes of the partitions, because it is written in
        slices."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionRecorded: self.recorded, Restarted: self.restarted, BrokerRegistered: self.registered}

    def may_take(self, tp: TopicPartition, replica: int) -> bool:
        """Return whether this replica may be the next leader although it is in neither ISR nor ELR."""
        return self._awaited.get(tp) == set() and self._ledgers.is_all_in(self._shadows.log(replica, tp), tp)

    def restarted(self, seen: Restarted) -> None:
        """Record a restart after an unclean stop. If the incarnation before this one followed an unclean stop and was
        not registered, this one counts too, even if the stop between them was clean."""
        if not seen.clean or (seen.node, seen.incarnation - 1) in self._stopped_uncleanly:
            self._stopped_uncleanly.add((seen.node, seen.incarnation))

    def registered(self, seen: BrokerRegistered) -> None:
        self._returned_unclean.discard(seen.broker)
        told = (seen.broker, seen.incarnation) in self._stopped_uncleanly
        lives = range(seen.incarnation + 1)  # earlier incarnations can no longer register
        self._stopped_uncleanly.difference_update((seen.broker, life) for life in lives)
        if told:
            self._returned_unclean.add(seen.broker)
            for awaited in self._awaited.values():
                awaited.discard(seen.broker)

    def _follow(self, seen: PartitionRecorded) -> None:
        tp = seen.topic_partition
        before = self._known.get(tp)
        self._known[tp] = seen
        if seen.isr or seen.elr:
            self._awaited.pop(tp, None)
            return
        last = set() if before is None else {*before.isr, *before.elr}
        awaited = last - self._returned_unclean
        if last and awaited <= {broker for broker, _ in self._stopped_uncleanly}:
            self._awaited[tp] = awaited

    def recorded(self, seen: PartitionRecorded) -> None:
        before = self._known.get(seen.topic_partition)
        if before is not None and (before.leader, before.isr) != (seen.leader, seen.isr):
            self.count()
        self._follow(seen)
        if seen.unclean:
            self.fail("an unclean election", partition=seen.topic_partition, leader=seen.leader, isr=seen.isr)
        if seen.leader >= 0 and seen.leader not in seen.isr:
            self.fail("a leader outside the ISR", partition=seen.topic_partition, leader=seen.leader, isr=seen.isr)


class PartitionsAfterBatches(Check):
    """Base of the checks that examine all partitions after each batch of committed metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[TopicPartition, PartitionRecorded] = {}
        self.due: set[int] = set()
        """Brokers that the current batch of metadata changes."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionRecorded: self.recorded, TopicDeleted: self.deleted, ImagePublished: self.published}

    def recorded(self, seen: PartitionRecorded) -> None:
        self.known[seen.topic_partition] = seen

    def deleted(self, seen: TopicDeleted) -> None:
        self.known = {place: held for place, held in self.known.items() if place[0] != seen.topic}

    def published(self, seen: ImagePublished) -> None:
        """Check all partitions when the first image of a batch is published, because the batch has then been observed
        completely."""
        if self.due:
            due = frozenset(self.due)
            self.due.clear()
            for held in self.known.values():
                self.judge(held, due)

    def judge(self, held: PartitionRecorded, brokers: frozenset[int]) -> None:
        """Report what is wrong with a partition after a batch that changed these brokers."""
        raise AssertionError(f"{type(self).__name__} judges nothing")


class OnlyActiveBrokersLead(PartitionsAfterBatches):
    """Check that brokers that are fenced or in controlled shutdown lead no partition and are in no ISR, except as its
    last member. Each record of a partition is checked, and all partitions when a broker becomes inactive. Counts
    partitions with a replica on such a broker."""

    id: ClassVar[str] = "M6"
    statement: ClassVar[str] = "A fenced or stopping broker leads no partition and is in no ISR with other members."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {**super().readers(), BrokerInactive: self.inactive}

    def inactive(self, seen: BrokerInactive) -> None:
        self.due.add(seen.broker)

    def recorded(self, seen: PartitionRecorded) -> None:
        super().recorded(seen)
        if seen.unable:
            self.count()
        self.judge(seen, frozenset(seen.inactive))

    def judge(self, held: PartitionRecorded, brokers: frozenset[int]) -> None:
        if not brokers.isdisjoint(held.replicas):
            self.count()
        if held.leader in brokers:
            self.fail("an inactive broker leads", partition=held.topic_partition, leader=held.leader)
        if len(held.isr) > 1 and not brokers.isdisjoint(held.isr):
            self.fail(
                "an inactive broker is in sync", partition=held.topic_partition, isr=held.isr, inactive=sorted(brokers)
            )


class BrokerEpochsRise(Check):
    id: ClassVar[str] = "M7"
    statement: ClassVar[str] = "Broker epochs strictly increase, over all brokers."

    def __init__(self) -> None:
        super().__init__()
        self._highest = -1

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BrokerRegistered: self.registered}

    def registered(self, seen: BrokerRegistered) -> None:
        self.count()
        if seen.broker_epoch <= self._highest:
            self.fail("a broker epoch did not rise", broker=seen.broker, epoch=seen.broker_epoch, known=self._highest)
        self._highest = max(self._highest, seen.broker_epoch)


class JoiningReplicasAreComplete(PartitionChanges):
    """Check that a replica that joins the ISR is complete, according to the disks. It holds all records that any leader
    has committed. It also holds all records, committed or not, that its leader had when it began to lead. Records that
    an ISR member lost in a power loss do not count."""

    id: ClassVar[str] = "D18"
    statement: ClassVar[str] = (
        "A replica that joins the ISR has all committed records, and those up to its leader's epoch start."
    )

    def __init__(self, shadows: Shadows, ledgers: PartitionLedgers, damage: Damage) -> None:
        super().__init__()
        self._shadows = shadows
        self._ledgers = ledgers
        self._damage = damage

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        tp = seen.topic_partition
        if seen.unclean or self._ledgers.is_void(tp):
            return
        for member in sorted({*seen.isr} - {*before.isr}):
            self.count()
            if self._damage.holds(member, tp):
                continue
            self._judge_committed(tp, member)
            if seen.leader_epoch == before.leader_epoch and seen.leader >= 0 and seen.leader != member:
                self._judge_epoch_start(seen, member)

    def _judge_committed(self, tp: TopicPartition, member: int) -> None:
        log = self._shadows.log(member, tp)
        missing = self._ledgers.first_missing(log, tp)
        if missing is not None:
            self.fail(
                "a replica joined the ISR without all that is committed",
                partition=tp,
                replica=member,
                replica_end=log.end_offset,
                first_missing=missing,
            )

    def _judge_epoch_start(self, seen: PartitionRecorded, member: int) -> None:
        """Check that the replica reaches the start of the leader's epoch: the leader's first batch of that epoch, or
        the leader's log end if it has no such batch."""
        tp = seen.topic_partition
        log, leaders = self._shadows.log(member, tp), self._shadows.log(seen.leader, tp)
        own = (batch.base_offset for batch in leaders.batches if batch.epoch == seen.leader_epoch)
        start = next(own, leaders.end_offset)
        missing = log.first_missing((batch.next_offset, batch.digest) for batch in leaders.between(0, start))
        if missing is not None:
            self.fail(
                "a replica joined the ISR before it had reached the start of its leader's epoch",
                partition=tp,
                replica=member,
                replica_end=log.end_offset,
                leader=seen.leader,
                leader_epoch=seen.leader_epoch,
                epoch_start=start,
                first_missing=missing,
            )
