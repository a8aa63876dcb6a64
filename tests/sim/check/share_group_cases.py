"""Handwritten histories of share groups: for each check a history to accept, and a continuation that violates it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from kraft.broker.share_coordinator.records import ShareKey, ShareSnapshot, ShareUpdate
from kraft.broker.share_partition.states import AcknowledgeType, AcquiredBatch, RecordState, StateBatch
from kraft.sim.check.observations import (
    BatchWritten,
    LoggedShareEntry,
    Observation,
    PartitionSeen,
    ProducedBy,
    TransactionMarker,
)
from kraft.sim.check.share_groups.steps import (
    AcceptConfirmed,
    AcknowledgedRange,
    AcknowledgementAnswered,
    LeaderBegun,
    LeaderClosed,
    LocksExpired,
    LogStartSeen,
    MemberReleased,
    OffsetsChanged,
    RecordsAcknowledged,
    RecordsAcquired,
    SessionClosed,
    SessionContinued,
    SessionOpened,
    ShareGroupDrained,
    ShareLeader,
    StateRead,
    StateRequested,
    WriteEnded,
    WriteSent,
)

STATES, ORDERS = ("__share_group_state", 0), ("orders", 0)
NODE = 1
MEMBERS = frozenset({NODE, 2, 3})
KEY = ShareKey("billing", UUID(int=7), 0)
LOCK_MS, DELIVERIES_MAX = 100, 3
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
FREE, DONE, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
FIRST = ShareLeader(NODE, 1, 1, KEY, ORDERS, 5)
NEXT = ShareLeader(2, 1, 1, KEY, ORDERS, 6)
AGAIN = ShareLeader(NODE, 1, 2, KEY, ORDERS, 5)
LATER = NEXT._replace(number=2)


def committed(offset: int, value: Any) -> list[Observation]:
    """Return the observations that a share coordinator writes this record, and that it is committed."""
    entries, end = (LoggedShareEntry(KEY, value),), offset + 1
    return [
        BatchWritten(NODE, STATES, 0, offset, end, offset, share_entries=entries),
        PartitionSeen(NODE, 1, STATES, True, 0, MEMBERS, MEMBERS, 2, 0, end, end, end),
    ]


def snapshot(
    start: int, *batches: StateBatch, leader_epoch: int = 5, state_epoch: int = 1, count: int = 0
) -> ShareSnapshot:
    return ShareSnapshot(0, state_epoch, leader_epoch, start, count, 0, 0, batches)


def update(start: int, *batches: StateBatch, leader_epoch: int = 5, count: int = 0) -> ShareUpdate:
    return ShareUpdate(0, leader_epoch, start, count, batches)


def records(node: int = NODE, producer: ProducedBy | None = None) -> BatchWritten:
    """Return the observation of ten records in the log of a leader."""
    return BatchWritten(node, ORDERS, 0, 0, 10, 70, producer=producer)


def begun(
    leader: ShareLeader, start: int = 0, *batches: StateBatch, state_epoch: int = 1, count: int = 0
) -> list[Observation]:
    """Return the observations that a leader reads this state, and begins with it."""
    return [StateRequested(leader), StateRead(leader, state_epoch, start, count, batches), LeaderBegun(leader, start)]


def acquired(
    first: int, last: int, count: int = 1, *, member: str = "a", leader: ShareLeader = FIRST, at_ms: int = 0
) -> RecordsAcquired:
    return RecordsAcquired(leader, member, (AcquiredBatch(first, last, count),), at_ms + LOCK_MS, DELIVERIES_MAX, True)


def acknowledged(
    first: int, last: int, kind: AcknowledgeType, write: int, *, member: str = "a", leader: ShareLeader = FIRST
) -> RecordsAcknowledged:
    items = (AcknowledgedRange(first, last + 1, kind),)
    return RecordsAcknowledged(leader, member, items, write, LOCK_MS, DELIVERIES_MAX)


def sent(
    write: int, start: int, *batches: StateBatch, leader: ShareLeader = FIRST, count: int | None = None
) -> WriteSent:
    """Return the observation of a write. It has as many complete records as its batches, if no `count` is given."""
    complete = sum(batch.last_offset + 1 - batch.first_offset for batch in batches if batch.state in (DONE, ARCHIVED))
    return WriteSent(leader, write, start, complete if count is None else count, batches, True)


def stored(write: int, *, leader: ShareLeader = FIRST, is_stored: bool = True) -> WriteEnded:
    return WriteEnded(leader, write, is_stored)


def expired(now_ms: int, write: int, *, deliveries_max: int = DELIVERIES_MAX, start: int = 0) -> LocksExpired:
    """Return the observation of an expiry, after which the leader's start offset is `start`."""
    return LocksExpired(FIRST, now_ms, deliveries_max, write, start)


def changed(start: int, *members: str, begin_before: int = 1) -> OffsetsChanged:
    return OffsetsChanged(KEY, start, begin_before, members)


def confirmed(*offsets: int) -> AcceptConfirmed:
    return AcceptConfirmed("host-a", "billing", ORDERS, offsets)


def drained(end: int) -> ShareGroupDrained:
    return ShareGroupDrained(KEY, ORDERS, NODE, end, True)


def session(epoch: int, *, is_accepted: bool = True) -> SessionContinued:
    return SessionContinued(NODE, 1, "billing", "a", epoch, is_accepted)


OPENED, CLOSED = SessionOpened(NODE, 1, "billing", "a"), SessionClosed(NODE, 1, "billing", "a")
BEGUN = [records(), records(2), *committed(0, snapshot(0)), *begun(FIRST)]
GIVEN = [*BEGUN, acquired(0, 3)]
ACCEPTED = [
    *GIVEN,
    acknowledged(0, 1, ACCEPT, 1),
    sent(1, 2),
    *committed(1, update(2)),
    stored(1),
    AcknowledgementAnswered(FIRST, "a", 1),
]
"""Records 0 and 1 are acknowledged; member a holds 2 and 3."""
RELEASED = [
    *ACCEPTED,
    acknowledged(2, 3, RELEASE, 2),
    sent(2, 2, StateBatch(2, 3, FREE, 1)),
    *committed(2, update(2, StateBatch(2, 3, FREE, 1))),
    stored(2),
]
EXPIRED = [*ACCEPTED, expired(LOCK_MS, 2), sent(2, 2, StateBatch(2, 3, FREE, 1))]
MOVED = [
    *RELEASED,
    *committed(3, update(2, leader_epoch=6)),
    *begun(NEXT, 2, StateBatch(2, 3, FREE, 1)),
]
"""Another broker leads the partition after `RELEASED`."""
RESET = [*RELEASED, *committed(3, snapshot(1, state_epoch=2)), changed(1), *begun(AGAIN, 1, state_epoch=2)]
"""An administrator has set the start offset back to 1. The leader reads the state again, and FIRST is its share
partition from before, which it has not closed yet."""
DELETED = [
    *RELEASED,
    *committed(3, None),
    changed(-1),
    *committed(4, snapshot(-1, state_epoch=1, leader_epoch=-1, count=-1)),
]
"""The group was deleted, and begins again in the same state epoch."""
SET = [*DELETED, *committed(5, snapshot(3, state_epoch=1, leader_epoch=-1)), changed(3, begin_before=3)]
"""An administrator has set the start offset of the new group, before a leader has found one."""
REJECTED = [
    *ACCEPTED,
    acknowledged(3, 3, REJECT, 2),
    sent(2, 2, StateBatch(3, 3, ARCHIVED, 1)),
    *committed(2, update(2, StateBatch(3, 3, ARCHIVED, 1), count=1)),
    stored(2),
]
PRODUCER = ProducedBy(7, 0, 0, 9, True)


def transaction(*, is_commit: bool) -> list[Observation]:
    marker = BatchWritten(NODE, ORDERS, 0, 10, 11, 71, marker=TransactionMarker(7, 0, 1, is_commit))
    return [records(NODE, PRODUCER), marker, *committed(0, snapshot(0)), *begun(FIRST)]


SHARE_GROUP_CASES: dict[str, tuple[list[Observation], list[Observation]]] = {
    "S1": ([*RELEASED, acquired(2, 3, 2, member="b")], [acquired(3, 3, 3, member="a")]),
    "S1 by a second member while the first one acknowledges": (
        [*EXPIRED, acquired(2, 2, 2), acknowledged(2, 2, RELEASE, 3)], [acquired(2, 2, 3, member="b")],
    ),
    "S1 by an expiry before the lock has expired": (
        [*EXPIRED, acquired(2, 2, 2, at_ms=LOCK_MS)],
        [expired(2 * LOCK_MS - 1, 3), acquired(2, 2, 3, member="b")],
    ),
    "S1 after a release that was not confirmed": (
        [*RELEASED, acquired(2, 2, 2), acknowledged(2, 2, RELEASE, 3), stored(3, is_stored=False)],
        [acquired(2, 2, 3, member="b")],
    ),
    "S2": ([*RELEASED, acquired(2, 2, 2)], [acquired(3, 3, 1)]),
    "S2 by more deliveries than the limit": (
        [*MOVED, acquired(2, 2, 2, leader=NEXT)],
        [*begun(LATER, 2, StateBatch(2, 3, FREE, 3)), acquired(2, 2, 4, leader=LATER)],
    ),
    "S2 after the limit was lowered": (
        [*RELEASED, replace(acquired(2, 2, 2), deliveries_max=1), expired(LOCK_MS, 3)],
        [replace(acquired(2, 2, 4), deliveries_max=1)],
    ),
    "S2 after a change of the leader": ([*MOVED, acquired(2, 2, 2, leader=NEXT)], [acquired(3, 3, 1, leader=NEXT)]),
    "S2 after the end of a session": (
        [*ACCEPTED, MemberReleased(FIRST, "a", DELIVERIES_MAX, 2), stored(2), acquired(2, 2, 2, member="b")],
        [acquired(3, 3, 1, member="b")],
    ),
    "S3": ([*MOVED, acquired(2, 2, 2, leader=NEXT)], [acquired(1, 1, 1, leader=NEXT)]),
    "S3 by a leader that has not been replaced": (
        [*ACCEPTED, acknowledged(3, 3, REJECT, 2), *committed(2, update(2, StateBatch(3, 3, ARCHIVED, 1))), stored(2)],
        [acquired(3, 3, 2)],
    ),
    "S3 by a leader whose write was not confirmed": (
        [*ACCEPTED, acknowledged(2, 3, ACCEPT, 2), *committed(2, update(4)), stored(2, is_stored=False),
         expired(LOCK_MS, 3), acquired(2, 2, 2)],
        [acquired(1, 1, 1)],
    ),
    "S4": ([*RELEASED, *committed(3, snapshot(2, StateBatch(2, 3, FREE, 1)))], committed(4, snapshot(1))),
    "S4 by an earlier delivery": (
        [*RELEASED, *committed(3, snapshot(2, StateBatch(2, 3, FREE, 1)))],
        committed(4, snapshot(2, StateBatch(2, 2, FREE, 1))),
    ),
    "S4 by a leader": ([*ACCEPTED], [acknowledged(3, 3, ACCEPT, 2), sent(2, 1, StateBatch(3, 3, DONE, 1))]),
    "S3 after the start offset was set back": (
        [*RESET, acquired(1, 3, 1, leader=AGAIN)], [acquired(0, 0, leader=AGAIN)],
    ),
    "S3 by a record that is complete since the start offset was set back": (
        [*RESET, acquired(1, 3, 1, leader=AGAIN), *committed(4, update(1, StateBatch(2, 2, DONE, 1), count=1))],
        [acquired(2, 2, 2, leader=AGAIN)],
    ),
    "S4 after the start offset was set back": (
        [*RESET, *committed(4, snapshot(4, state_epoch=2))], committed(5, snapshot(2, state_epoch=2)),
    ),
    "S5": (RELEASED, [acquired(2, 3, 2), acknowledged(2, 3, RELEASE, 3), sent(3, 2, StateBatch(2, 3, DONE, 2))]),
    "S5 by a record that is left out": (
        EXPIRED, [acquired(2, 3, 2), acknowledged(2, 3, RELEASE, 3), sent(3, 2, StateBatch(2, 2, FREE, 2))],
    ),
    "S5 by a start offset behind unfinished records": (RELEASED, [acquired(4, 9, 1), acknowledged(9, 9, ACCEPT, 3),
                                                                 sent(3, 10)]),
    "S5 by a start offset behind unfinished records above the log start offset": (
        [*ACCEPTED, LogStartSeen(FIRST, 3), acknowledged(3, 3, ACCEPT, 2), sent(2, 4)], [sent(3, 6)],
    ),
    "S5 by the end of a session that lowers a delivery count": (
        [*ACCEPTED, MemberReleased(FIRST, "a", DELIVERIES_MAX, 2), sent(2, 2, StateBatch(2, 3, FREE, 1)), stored(2)],
        [acquired(2, 3, 2), MemberReleased(FIRST, "a", DELIVERIES_MAX, 3), sent(3, 2, StateBatch(2, 3, FREE, 1))],
    ),
    "S5 by the end of a session after the last delivery": (
        [*EXPIRED, acquired(2, 3, 2), MemberReleased(FIRST, "a", 2, 3), sent(3, 4)],
        [stored(3), acquired(4, 9), MemberReleased(FIRST, "a", 1, 4), sent(4, 4, StateBatch(4, 9, FREE, 1))],
    ),
    "S5 by a change that is repeated": (
        [*EXPIRED, stored(2, is_stored=False), acquired(2, 3, 2), sent(2, 2, StateBatch(2, 3, FREE, 1)), stored(2)],
        [sent(2, 2, StateBatch(2, 3, FREE, 2))],
    ),
    "S5 by a change that is repeated in part": (
        [*EXPIRED, stored(2, is_stored=False), acquired(2, 3, 2), sent(2, 2, StateBatch(2, 3, FREE, 1)),
         stored(2, is_stored=False)],
        [sent(2, 2, StateBatch(2, 2, FREE, 1))],
    ),
    "S5 by a start offset that is repeated with a change": (
        [*BEGUN, sent(1, 0), stored(1, is_stored=False), acquired(0, 3),
         expired(LOCK_MS, 2), sent(2, 0, StateBatch(0, 3, FREE, 1)),
         stored(2, is_stored=False), sent(1, 0, StateBatch(0, 3, FREE, 1))],
        [sent(1, 0, StateBatch(0, 3, FREE, 2))],
    ),
    "S6": (ACCEPTED, [acknowledged(2, 3, ACCEPT, 2), AcknowledgementAnswered(FIRST, "a", 2)]),
    "S6 by a commit of another delivery": (
        ACCEPTED,
        [acknowledged(2, 3, REJECT, 2), *committed(2, update(2, StateBatch(2, 3, DONE, 1))), stored(2),
         AcknowledgementAnswered(FIRST, "a", 2)],
    ),
    "S7": (MOVED, committed(4, update(2, StateBatch(3, 3, DONE, 1), leader_epoch=5))),
    "S7 by an older state epoch": (MOVED, committed(4, snapshot(0, leader_epoch=6, state_epoch=0))),
    "S7 by a confirmation": (MOVED, [acknowledged(2, 3, ACCEPT, 3), sent(3, 4), stored(3)]),
    "S7 by a leader from before the start offset was set": (
        RESET, [acquired(2, 2, 2), acknowledged(2, 2, ACCEPT, 3), sent(3, 3), stored(3)],
    ),
    "S7 by a leader from before the state was deleted": (
        DELETED, [acquired(2, 2, 2), acknowledged(2, 2, ACCEPT, 3), sent(3, 3), stored(3)],
    ),
    "S8 after the start offset was set back": (RESET, begun(LATER, 2, state_epoch=2)),
    "S8 by a lost count": (
        [*REJECTED, *begun(AGAIN, 2, StateBatch(3, 3, ARCHIVED, 1), count=1)],
        begun(AGAIN._replace(number=3), 2, StateBatch(3, 3, ARCHIVED, 1), count=0),
    ),
    "S8": (MOVED, begun(AGAIN, 1)),
    "S8 by an old state": ([*MOVED, *begun(AGAIN, 0)], begun(LATER, 0)),
    "S8 by a lost delivery count": (MOVED, begun(AGAIN, 2, StateBatch(2, 3, FREE, 0))),
    "S9": ([*transaction(is_commit=True), acquired(0, 9)], [acquired(10, 10)]),
    "S9 by an aborted transaction": (
        [*transaction(is_commit=True), acquired(0, 9)],
        [LeaderClosed(FIRST), BatchWritten(NODE, ORDERS, 0, 11, 12, 72, producer=PRODUCER),
         BatchWritten(NODE, ORDERS, 0, 12, 13, 73, marker=TransactionMarker(7, 0, 1, False)),
         *begun(AGAIN), acquired(11, 11, leader=AGAIN)],
    ),
    "S9 by an open transaction": (
        [*transaction(is_commit=True), acquired(0, 9)],
        [BatchWritten(NODE, ORDERS, 0, 11, 12, 72, producer=PRODUCER), acquired(11, 11)],
    ),
    "S10": ([*ACCEPTED, drained(2)], [drained(3)]),
    "S10 without a leader": ([records(), drained(0)], [drained(1)]),
    "S11": (
        [*ACCEPTED, confirmed(0, 1)],
        [confirmed(2)],
    ),
    "S11 by a later delivery": (
        [*ACCEPTED, confirmed(0, 1)], [acquired(1, 1, 1, member="b")],
    ),
    "S11 by a write that is not stored": (
        [*ACCEPTED, confirmed(0, 1), acknowledged(2, 2, ACCEPT, 2), sent(2, 3)],
        [stored(2, is_stored=False), confirmed(2)],
    ),
    "S11 by records that an expiry has archived": (
        [*ACCEPTED, expired(LOCK_MS, 2, deliveries_max=1, start=4),
         confirmed(2, 3), sent(2, 4, StateBatch(2, 3, ARCHIVED, 1))],
        [acquired(4, 4), confirmed(4)],
    ),
    "S11 by a record that was accepted before the start offset was set back": (
        [*ACCEPTED, confirmed(0, 1), *committed(2, snapshot(0, state_epoch=2)), *begun(AGAIN, 0, state_epoch=2),
         acquired(0, 1, 1, leader=AGAIN)],
        [confirmed(0)],
    ),
    "S11 by two late confirmations of one acceptance": (
        [*ACCEPTED, *committed(2, snapshot(0, state_epoch=2)), confirmed(0, 1)], [confirmed(1)],
    ),
    "S11 by a late answer": (
        [*GIVEN, acknowledged(0, 1, ACCEPT, 1), sent(1, 2), *committed(1, update(2)),
         *committed(2, snapshot(0, state_epoch=2)), stored(1), AcknowledgementAnswered(FIRST, "a", 1), confirmed(0, 1)],
        [confirmed(0)],
    ),
    "S13": (REJECTED, [acquired(4, 4), acknowledged(4, 4, REJECT, 3), sent(3, 2, StateBatch(4, 4, ARCHIVED, 1))]),
    "S13 by records below the start offset": (
        REJECTED, [acquired(4, 4), acknowledged(4, 4, REJECT, 3), sent(3, 2, StateBatch(4, 4, ARCHIVED, 1), count=4)],
    ),
    "S13 by a marker that is not counted": (
        [*transaction(is_commit=True), BatchWritten(NODE, ORDERS, 0, 11, 12, 72), acquired(0, 9), acquired(11, 11),
         acknowledged(1, 1, ACCEPT, 1), sent(1, 0, StateBatch(1, 1, DONE, 1), count=2)],
        [acknowledged(2, 2, ACCEPT, 2), sent(2, 0, StateBatch(2, 2, DONE, 1), count=1)],
    ),
    "S13 by a snapshot": (
        [*REJECTED, *committed(3, snapshot(2, StateBatch(3, 3, ARCHIVED, 1), count=1))],
        [*committed(4, snapshot(2, StateBatch(3, 3, ARCHIVED, 1))), drained(2)],
    ),
    "S13 by a commit after the start offset was set back": ([*RESET, acquired(1, 1, leader=AGAIN),
        acknowledged(1, 1, ACCEPT, 1, leader=AGAIN), sent(1, 2, leader=AGAIN), *committed(4, update(2))],
        [*committed(5, update(3)), drained(2)],
    ),
    "S14": (RESET, [changed(3)]),
    "S14 by a start offset that was set before": (RESET, [changed(1, begin_before=2)]),
    "S14 by a start offset that is not set in a state without one": (SET, [changed(2, begin_before=3)]),
    "S14 by a start offset that a leader has found": (
        [*DELETED, *committed(5, snapshot(3, state_epoch=1))], [changed(3, begin_before=3)],
    ),
    "S14 by deliveries that are kept": (
        RESET, [*committed(4, snapshot(1, StateBatch(2, 3, FREE, 1), state_epoch=3)), changed(1, begin_before=2)],
    ),
    "S14 by a group with members": (RESET, [changed(1, "a")]),
    "S14 by a state that is not deleted": (DELETED, [changed(-1, begin_before=3)]),
    "S12": ([OPENED, session(1), session(2), session(2, is_accepted=False), session(-1)], [session(2)]),
    "S12 by a request of the right epoch that is rejected": ([OPENED, session(1)], [session(2, is_accepted=False)]),
    "S12 after the end": ([OPENED, session(1), CLOSED, OPENED, session(1)], [CLOSED, session(-1)]),
}  # fmt: skip
"""Name that begins with a check's code → (a history to accept, a continuation that violates the check)."""
