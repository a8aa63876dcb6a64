"""Checks of the persisted states of share partitions (S4 to S8, S13, S14): what leaders send, what share coordinators
commit and confirm, with which state a leader begins, and what administrators change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft.broker.share_coordinator.records import NO_EPOCH, ShareSnapshot
from kraft.sim.check.base import Check
from kraft.sim.check.share_groups import deliveries
from kraft.sim.check.share_groups.deliveries import SHOWN_MAX, facts_of
from kraft.sim.check.share_groups.events import (
    AnswerCompared,
    OffsetChangeCompared,
    PositionCompared,
    ShareStateCommitted,
    StateCompared,
    WriteCompared,
    WriteConfirmed,
)


class SharesNeverGoBack(Check):
    """Check each committed record of a share coordinator, and each write of a leader. An administrator who sets the
    start offset begins a new state epoch."""

    id = "S4"
    statement = (
        "within a state epoch no start offset decreases, and no committed delivery of a record is replaced by an "
        "earlier one"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ShareStateCommitted: self._committed, WriteCompared: self._sent}

    def _committed(self, seen: ShareStateCommitted) -> None:
        value, before, after = seen.value, seen.before, seen.after
        if not isinstance(value, ShareSnapshot) or after.begin != before.begin:
            return
        self.count()
        facts = {"group": seen.key.group, "topic_id": seen.key.topic_id, "partition": seen.key.partition}
        if value.start_offset < before.start_offset:
            text = "the start offset of a snapshot is below the last one"
            self.fail(text, **facts, before=before.start_offset, now=value.start_offset)
        for offset, delivery in before.deliveries.items():
            if not after.has(offset, delivery):
                found = after.deliveries.get(offset)
                text = "a snapshot has an earlier delivery of a record"
                self.fail(text, **facts, offset=offset, before=delivery, now=found)

    def _sent(self, seen: WriteCompared) -> None:
        self.count()
        if seen.start_offset < seen.start_before:
            text = "a leader sets its start offset back"
            self.fail(text, **facts_of(seen.leader), before=seen.start_before, now=seen.start_offset)


class WritesSayWhatHappened(Check):
    """Check each write of a leader against its steps. So no record is lost: it stays available until it is
    acknowledged, rejected, or was delivered for the last time."""

    id = "S5"
    statement = (
        "a leader persists exactly what acknowledgements, lock expiry and ended sessions have changed, and its start "
        "offset passes only finished records"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {WriteCompared: self._sent}

    def _sent(self, seen: WriteCompared) -> None:
        self.count()
        facts = {**facts_of(seen.leader), "write": seen.write, "start_offset": seen.start_offset}
        differing = {
            offset: (seen.due.get(offset), seen.sent.get(offset))
            for offset in sorted(seen.due.keys() | seen.sent.keys())
            if seen.due.get(offset) != seen.sent.get(offset)
        }
        if differing:
            offset, (due, sent) = next(iter(differing.items()))
            text = "a leader persists another delivery than the one that its members have caused"
            self.fail(text, **facts, offset=offset, due=due, sent=sent, count=len(differing))
        if seen.unfinished:
            self.fail("a start offset passes unfinished records", **facts, offsets=seen.unfinished[:SHOWN_MAX])


class AnswersFollowCommits(Check):
    id = "S6"
    statement = "an acknowledgement is answered without an error only after its change of the state is committed"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AnswerCompared: self._answered}

    def _answered(self, seen: AnswerCompared) -> None:
        if seen.due:
            self.count()
        if seen.missing:
            missing = dict(sorted(seen.missing.items())[:SHOWN_MAX])
            text = "an acknowledgement is answered before its change is committed"
            self.fail(text, **facts_of(seen.leader), member=seen.member, missing=missing)


class OlderEpochsWriteNothing(Check):
    """Check the epochs in the committed records of share coordinators, and the epochs of confirmed writes."""

    id = "S7"
    statement = (
        "no write of an older leader epoch or state epoch than the committed one changes a share partition, nor one of "
        "a leader that has read the state before it was deleted"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ShareStateCommitted: self._committed, WriteConfirmed: self._confirmed}

    def _committed(self, seen: ShareStateCommitted) -> None:
        value, before = seen.value, seen.before
        if value is None or before.state_epoch == NO_EPOCH:
            return
        facts = {"group": seen.key.group, "topic_id": seen.key.topic_id, "partition": seen.key.partition}
        if value.leader_epoch != NO_EPOCH:
            self.count()
            if value.leader_epoch < before.leader_epoch:
                text = "a change of an older leader epoch is committed"
                self.fail(text, **facts, leader_epoch=value.leader_epoch, known=before.leader_epoch)
        if isinstance(value, ShareSnapshot) and value.state_epoch < before.state_epoch:
            text = "a change of an older state epoch is committed"
            self.fail(text, **facts, state_epoch=value.state_epoch, known=before.state_epoch)

    def _confirmed(self, seen: WriteConfirmed) -> None:
        if seen.newer:
            text = "a write is confirmed although a newer epoch was committed before"
            self.fail(text, **facts_of(seen.leader), write=seen.write, committed=seen.newer)


class LeadersBeginWithCommittedState(Check):
    """Check the state that a leader reads. The share coordinator may have loaded it from its log before, so this also
    checks that its memory is a replay of its log."""

    id = "S8"
    statement = "a leader of a share partition begins with the committed state of its records"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {StateCompared: self._compared}

    def _compared(self, seen: StateCompared) -> None:
        if seen.deliveries or seen.start_offset > 0:
            self.count()
        if seen.is_committed:
            return
        committed, read = seen.committed.deliveries, seen.deliveries
        differing = [
            (offset, committed.get(offset), read.get(offset))
            for offset in sorted(committed.keys() | read.keys())
            if committed.get(offset) != read.get(offset)
        ]
        self.fail(
            "a leader reads a state that was never committed",
            **facts_of(seen.leader),
            start=(seen.committed.start_offset, seen.start_offset),
            complete_count=(seen.committed.complete_count, seen.complete_count),
            differing=differing[:SHOWN_MAX],
        )


class CompleteRecordsAreCounted(Check):
    """Check the number in each write of a leader against a model of single records, and that in each committed state
    against the writes of the leaders since the state began. The lag of a group depends on it (KIP-1226)."""

    id = "S13"
    statement = (
        "the persisted number of complete records counts the acknowledged and archived ones, and the offsets without a "
        "readable record, from the persisted start offset on"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {WriteCompared: self._sent, PositionCompared: self._committed}

    def _sent(self, seen: WriteCompared) -> None:
        self.count()
        least, greatest = seen.counts_due
        if not least <= seen.complete_count <= greatest:
            facts = {"start_offset": seen.start_offset, "sent": seen.complete_count, "least": least}
            text = "a leader sends a wrong number of complete records"
            self.fail(text, **facts_of(seen.leader), **facts, greatest=greatest)

    def _committed(self, seen: PositionCompared) -> None:
        if not seen.is_sent:
            facts = {"group": seen.key.group, "topic_id": seen.key.topic_id, "partition": seen.key.partition}
            before, after = seen.before.position, seen.after.position
            text = "a start offset and a number of complete records are committed that no leader of this state has sent"
            self.fail(text, **facts, before=before, now=after)


class OffsetsChangeAsConfirmed(Check):
    """Check the responses to an administrator who sets or deletes the offsets of a share group, or deletes the
    group."""

    id = "S14"
    statement = (
        "an administrator changes the offsets of a share group only while the group has no members, and a confirmed "
        "change is committed: the state begins again at the new offset, without any deliveries"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {OffsetChangeCompared: self._changed}

    def _changed(self, seen: OffsetChangeCompared) -> None:
        self.count()
        one = seen.changed
        facts = {"group": one.key.group, "topic_id": one.key.topic_id, "partition": one.key.partition}
        if one.members:
            self.fail("the offsets of a share group change while it has members", **facts, members=one.members)
        if not seen.is_committed:
            self.fail("a change of offsets is confirmed and not committed", **facts, start_offset=one.start_offset)


def share_checks() -> tuple[Check, ...]:
    """Return all checks of share groups."""
    return (
        deliveries.OneMemberHoldsARecord(),
        deliveries.DeliveryCountsRise(),
        deliveries.CompleteRecordsAreNotDelivered(),
        SharesNeverGoBack(),
        WritesSayWhatHappened(),
        AnswersFollowCommits(),
        OlderEpochsWriteNothing(),
        LeadersBeginWithCommittedState(),
        deliveries.OnlyReadableRecordsAreDelivered(),
        deliveries.DrainedGroupsHaveEverything(),
        deliveries.ConfirmedAcceptsAreKept(),
        deliveries.SessionEpochsFollow(),
        CompleteRecordsAreCounted(),
        OffsetsChangeAsConfirmed(),
    )
