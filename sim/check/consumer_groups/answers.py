"""Checks of what coordinators answer to members of groups (G3c, G4b, G6b), as the network shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraft.broker.consumer_group.records import CurrentMemberKey
from kraft.broker.group.records import OffsetKey
from kraft.sim.check.base import Check
from kraft.sim.check.consumer_groups.feed import GroupRecordsCommitted
from kraft.sim.check.consumer_groups.ledger import GroupLedger, Place, places_of
from kraft.sim.check.observations import TopicPartition

LEAVE_EPOCH = -1


@dataclass(frozen=True, slots=True)
class HeartbeatAccepted:
    """Observation: a coordinator answers a ConsumerGroupHeartbeat without an error. `assigned` is None if the answer
    has no assignment."""

    node: int
    group: str
    member_id: str
    epoch: int
    assigned: frozenset[Place] | None


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """Observation: a member sends an OffsetCommit. `number` identifies the request in its group. `topic_ids` has those
    of its topics that exist."""

    number: int
    group: str
    member_id: str
    epoch: int
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """Observation: a coordinator answers an OffsetCommit, and accepts the offsets of these partitions."""

    number: int
    group: str
    accepted: frozenset[TopicPartition]


class HeartbeatsTellCommittedState(Check):
    """Check that a member gets an epoch and an assignment only after their record is committed. Then no failover can
    take them back."""

    id = "G6b"
    statement = "the answer to a heartbeat has an epoch and an assignment that are committed"

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._committed: dict[tuple[str, str], set[tuple[int, frozenset[Place]]]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupRecordsCommitted: self._records, HeartbeatAccepted: self._answered}

    def _records(self, batch: GroupRecordsCommitted) -> None:
        for key, value in batch.entries:
            if isinstance(key, CurrentMemberKey) and value is not None:
                known = self._committed.setdefault((key.group, key.member_id), set())
                known.add((value.epoch, places_of(value.assigned)))

    def _answered(self, seen: HeartbeatAccepted) -> None:
        self.count()
        facts = {"node": seen.node, "group": seen.group, "member_id": seen.member_id, "epoch": seen.epoch}
        if seen.epoch == LEAVE_EPOCH:
            if seen.member_id in self._ledger.group(seen.group).members:
                self.fail("a member is told that it has left, which is not committed", **facts)
            return
        known = self._committed.get((seen.group, seen.member_id), set())
        epochs = {epoch for epoch, _ in known}
        if seen.epoch not in epochs:
            self.fail("a member is told an epoch that is not committed", **facts)
        elif seen.assigned is not None and (seen.epoch, seen.assigned) not in known:
            assigned = sorted((str(topic_id), index) for topic_id, index in seen.assigned)
            self.fail("a member is told an assignment that is not committed", **facts, assigned=assigned)


class FormerMembersCommitNothing(Check):
    """Check that each committed offset is of a request whose member was in the group then, in a valid epoch: the
    present one of the member, or one since which the member has had the partition. The order of the log is that in
    which the coordinator decided. In a classic group the epoch is the generation. An offset that several requests have
    must be valid for one of them."""

    id = "G4b"
    statement = "no offset is committed by a member that has been removed, or in an epoch that is over"

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._requests: dict[tuple[str, TopicPartition, int], list[CommitRequested]] = {}
        """(group, partition, offset) → the requests to commit it, so far."""
        self._open: dict[tuple[str, int], CommitRequested] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            CommitRequested: self._requested,
            CommitAnswered: self._answered,
            GroupRecordsCommitted: self._committed,
        }

    def _requested(self, asked: CommitRequested) -> None:
        self._open[asked.group, asked.number] = asked
        for partition, offset in asked.offsets.items():
            self._requests.setdefault((asked.group, partition, offset), []).append(asked)

    def _answered(self, answered: CommitAnswered) -> None:
        asked = self._open.pop((answered.group, answered.number), None)
        refused = () if asked is None else sorted(asked.offsets.keys() - answered.accepted)
        if any(self._is_over(asked, partition) for partition in refused if asked is not None):
            self.count()

    def _committed(self, batch: GroupRecordsCommitted) -> None:
        for key, value in batch.entries:
            if not isinstance(key, OffsetKey) or value is None:
                continue
            partition = (key.topic, key.partition)
            requests = self._requests.get((key.group, partition, value.offset), ())
            if requests and requests[-1].epoch < (self._ledger.group(key.group).epoch or 0):
                self.count()
            if requests and all(self._is_over(asked, partition) for asked in requests):
                self.fail(
                    "a former member has committed an offset",
                    group=key.group, member_id=requests[-1].member_id, epoch=requests[-1].epoch, partition=partition,
                    offset=value.offset,
                )  # fmt: skip

    def _is_over(self, asked: CommitRequested, partition: TopicPartition) -> bool:
        """Return whether the request is no longer valid. It can never become valid again."""
        group = self._ledger.group(asked.group)
        if not group.is_consumer_group:
            return group.classic is not None and group.classic.generation > asked.epoch >= 0
        if asked.member_id not in group.members:
            return True
        value = group.current.get(asked.member_id)
        if value is None or asked.epoch >= value.epoch:
            return False
        topic_id = asked.topic_ids.get(partition[0])
        held = {} if topic_id is None else {**value.revoking.get(topic_id, {}), **value.assigned.get(topic_id, {})}
        return held.get(partition[1], value.epoch) > asked.epoch


class OffsetsGoBackOnlyByLateCommits(Check):
    """Check that committed offsets do not decrease. A commit that was sent before the newer one was acknowledged may
    still be carried out after it. In a group whose members are observed, each committed offset is one that a member has
    sent."""

    id = "G3c"
    statement = (
        "a committed offset is one that a member has sent, and decreases only by a commit that was sent before the "
        "newer one was acknowledged"
    )

    def __init__(self) -> None:
        super().__init__()
        self._requests: dict[tuple[str, int], CommitRequested] = {}
        self._sent: dict[tuple[str, TopicPartition, int], dict[int, int]] = {}
        """(group, partition, offset) → the requests to commit it that may still be carried out, with the step at which
        each was sent. One with an error response may be: the coordinator may have written it before it failed."""
        self._acknowledged: dict[tuple[str, TopicPartition, int], int] = {}
        """(group, partition, offset) → step at which its newest record was first acknowledged."""
        self._groups: set[str] = set()
        """Groups whose members are observed."""
        self._step = 0

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            CommitRequested: self._requested,
            CommitAnswered: self._answered,
            GroupRecordsCommitted: self._committed,
        }

    def _requested(self, asked: CommitRequested) -> None:
        self._step += 1
        self._requests[asked.group, asked.number] = asked
        self._groups.add(asked.group)
        for partition, offset in asked.offsets.items():
            self._sent.setdefault((asked.group, partition, offset), {})[asked.number] = self._step

    def _answered(self, answered: CommitAnswered) -> None:
        self._step += 1
        asked = self._requests.pop((answered.group, answered.number), None)
        if asked is None:
            return
        for partition in answered.accepted:
            place = (asked.group, partition, asked.offsets[partition])
            self._sent[place].pop(asked.number)
            self._acknowledged.setdefault(place, self._step)

    def _committed(self, batch: GroupRecordsCommitted) -> None:
        for key, value in batch.entries:
            if not isinstance(key, OffsetKey) or value is None:
                continue
            name = (key.group, (key.topic, key.partition))
            if key.group not in self._groups:
                continue
            before, sent = batch.offsets_before.get(name), self._sent.get((*name, value.offset))
            self._acknowledged.pop((*name, value.offset), None)
            facts = {"group": key.group, "partition": name[1], "before": before, "now": value.offset}
            if sent is None:
                self.fail("an offset is committed that no member has sent", **facts)
            elif before is not None:
                self.count()
                acknowledged = self._acknowledged.get((*name, before))
                is_late = acknowledged is None or any(step < acknowledged for step in sent.values())
                if value.offset < before and not is_late:
                    self.fail("a committed offset went back", **facts)
