"""Checks of what the leaders of share partitions deliver (S1, S2, S3, S9), of what clients are told and get (S10, S11),
and of share sessions (S12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft.sim.check.base import Check
from kraft.sim.check.share_groups.events import AcceptCompared, DrainCompared, RecordDelivered
from kraft.sim.check.share_groups.steps import SessionClosed, SessionContinued, SessionOpened, ShareLeader

FINAL_EPOCH = -1
SHOWN_MAX = 10
"""Maximum number of offsets that a finding shows."""


def facts_of(leader: ShareLeader) -> dict[str, object]:
    """Return the evidence that names a leader of a share partition."""
    facts = {"group": leader.key.group, "partition": leader.log, "node": leader.node}
    return {**facts, "leader_epoch": leader.leader_epoch}


class _DeliveryCheck(Check):
    """Base of the checks of single deliveries."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RecordDelivered: self.delivered}

    def delivered(self, seen: RecordDelivered) -> None:
        raise AssertionError(f"{type(self).__name__} does not define delivered()")

    def fail_at(self, text: str, seen: RecordDelivered, **evidence: object) -> None:
        count = seen.delivery_count
        facts = {**facts_of(seen.leader), "offset": seen.offset, "member": seen.member, "delivery_count": count}
        self.fail(text, **facts, **evidence)


class OneMemberHoldsARecord(_DeliveryCheck):
    """Check each delivery against the earlier steps of the same leader. A member that holds a record loses it when its
    acknowledgement or the end of its session is persisted, or when its lock expires. A new leader knows no locks."""

    id = "S1"
    statement = (
        "a leader gives a record to a member only if no member holds it: it was released, its lock has expired, or the "
        "session of its member has ended"
    )

    def delivered(self, seen: RecordDelivered) -> None:
        if seen.count_before or seen.held_by:
            self.count()
        if seen.held_by:
            self.fail_at("a record is given to a second member", seen, held_by=seen.held_by)


class DeliveryCountsRise(_DeliveryCheck):
    """Check the delivery count of each delivery. A new leader begins with the committed counts. A lowered limit does
    not archive records that are available already. S5 checks that a record becomes available only below the limit."""

    id = "S2"
    statement = (
        "the delivery count of a record rises by one with each delivery, also after the end of a session, and never "
        "exceeds the limit"
    )

    def delivered(self, seen: RecordDelivered) -> None:
        if seen.count_before:
            self.count()
        if seen.delivery_count != seen.count_before + 1:
            self.fail_at("a delivery has a wrong count", seen, count_before=seen.count_before)
        elif seen.delivery_count > seen.deliveries_max:
            self.fail_at("a record is delivered too often", seen, deliveries_max=seen.deliveries_max)


class CompleteRecordsAreNotDelivered(_DeliveryCheck):
    """Check each delivery against the committed states. Exemptions: a leader that has been replaced and does not know
    it yet, and a record whose completion the share coordinator did not confirm to this leader in time."""

    id = "S3"
    statement = (
        "a record that is acknowledged or archived in the committed state is not delivered again, whichever broker "
        "leads or coordinates"
    )

    def delivered(self, seen: RecordDelivered) -> None:
        self.count()
        if seen.complete:
            self.fail_at("a complete record is delivered", seen, committed=seen.complete)


class OnlyReadableRecordsAreDelivered(_DeliveryCheck):
    id = "S9"
    statement = (
        "a member gets only records, no markers; one of a read_committed group gets no record of a transaction that is "
        "open or was aborted"
    )

    def delivered(self, seen: RecordDelivered) -> None:
        if seen.is_transactional:
            self.count()
        if seen.hidden:
            self.fail_at("a member gets what its group must not read", seen, why=seen.hidden)


class DrainedGroupsHaveEverything(Check):
    """Check the committed state of a share group after all faults, when its members have processed whatever they got:
    every record from the group's first start offset on is acknowledged, or archived. S5 checks for what reason each was
    completed."""

    id = "S10"
    statement = (
        "in the end every record that a share group may read has been delivered, and is acknowledged or archived"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {DrainCompared: self._drained}

    def _drained(self, seen: DrainCompared) -> None:
        self.count()
        drained = seen.drained
        names = {"group": drained.key.group, "partition": drained.log}
        facts = {**names, "start": seen.start_offset, "end": drained.end}
        if seen.left:
            self.fail("records are not delivered", **facts, offsets=seen.left[:SHOWN_MAX], count=len(seen.left))


class ConfirmedAcceptsAreKept(_DeliveryCheck):
    """Check what clients report to their applications: whether it is true, and against later deliveries."""

    id = "S11"
    statement = (
        "a record whose acceptance was confirmed to an application is acknowledged in the committed state, and no "
        "member gets it again"
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AcceptCompared: self._confirmed, **super().readers()}

    def _confirmed(self, seen: AcceptCompared) -> None:
        self.count()
        if seen.missing:
            one = seen.confirmed
            facts = {"member": one.member, "group": one.group, "partition": one.log}
            text = "a client confirms an acknowledgement that is not stored"
            self.fail(text, **facts, offsets=seen.missing[:SHOWN_MAX])

    def delivered(self, seen: RecordDelivered) -> None:
        if seen.is_accepted:
            self.fail_at("a record is delivered after an application was told that it is acknowledged", seen)


class SessionEpochsFollow(Check):
    """Check which requests of share sessions a broker accepts. The model has the next epoch of each session."""

    id = "S12"
    statement = "a share session accepts each of its requests once, in the order of the epochs"

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[tuple[int, int, str, str], int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {SessionOpened: self._opened, SessionContinued: self._continued, SessionClosed: self._closed}

    def _opened(self, seen: SessionOpened) -> None:
        self._next[_session(seen)] = 1

    def _continued(self, seen: SessionContinued) -> None:
        self.count()
        due = self._next.get(_session(seen))
        is_due = due is not None and seen.epoch in (due, FINAL_EPOCH)
        if seen.is_accepted != is_due:
            what = "accepts" if seen.is_accepted else "rejects"
            facts = {"node": seen.node, "group": seen.group, "member": seen.member, "epoch": seen.epoch, "due": due}
            self.fail(f"a broker {what} a request of a share session", **facts)
        if seen.is_accepted and due is not None and seen.epoch != FINAL_EPOCH:
            self._next[_session(seen)] = due + 1

    def _closed(self, seen: SessionClosed) -> None:
        self._next.pop(_session(seen), None)


def _session(seen: SessionOpened | SessionContinued | SessionClosed) -> tuple[int, int, str, str]:
    return seen.node, seen.incarnation, seen.group, seen.member
