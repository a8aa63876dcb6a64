"""The events of share groups: each has the facts that checks judge, as they were when the step happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kraft.broker.share_coordinator.records import ShareKey
from kraft.sim.check.share_groups import steps
from kraft.sim.check.share_groups.ledger import RecordedDelivery, RecordedShare
from kraft.sim.check.share_groups.steps import ShareLeader


@dataclass(frozen=True, slots=True)
class ShareStateCommitted:
    """Event: a record of a share coordinator was committed. `before` and `after` are the states of its share
    partition."""

    key: ShareKey
    value: Any
    before: RecordedShare
    after: RecordedShare


@dataclass(frozen=True, slots=True)
class PositionCompared:
    """Event: the start offset or the number of complete records has changed in a committed state. `is_sent`: a leader
    has sent both in one write, since the state began, and not before the write that was committed last."""

    key: ShareKey
    before: RecordedShare
    after: RecordedShare
    is_sent: bool


@dataclass(frozen=True, slots=True)
class OffsetChangeCompared:
    """Event: an administrator got the response that a change of offsets is done. `is_committed`: the state has begun
    again since the request, with nothing but the new start offset, or has been deleted."""

    changed: steps.OffsetsChanged
    is_committed: bool


@dataclass(frozen=True, slots=True)
class StateCompared:
    """Event: a leader has read the persisted state. `is_committed`: the share partition was in that state at some time
    since the leader began to read. For a leader that has been replaced and does not know it yet, at any time: the share
    coordinator that it asks may have been replaced as well."""

    leader: ShareLeader
    start_offset: int
    complete_count: int
    deliveries: Mapping[int, RecordedDelivery]
    is_committed: bool
    committed: RecordedShare


@dataclass(frozen=True, slots=True)
class RecordDelivered:
    """Event: a leader gives one record to a member.

    `held_by` is the member that held the record until then, "" if none did. `count_before` is the number of its
    deliveries before. `deliveries_max` is the highest limit of deliveries so far: a record stays available that was
    released before an administrator lowered the limit, in Kafka too. `complete` describes why the record must not be
    delivered any more, and `hidden` why the group may not read it; "" if it may. `is_accepted`: a client was told that
    its acknowledgement of the record is stored."""

    leader: ShareLeader
    member: str
    offset: int
    delivery_count: int
    count_before: int
    deliveries_max: int
    held_by: str
    complete: str
    hidden: str
    is_accepted: bool
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class WriteCompared:
    """Event: a leader sends a change of the state. `sent` are the deliveries in it, and `due` those that members, locks
    and sessions have caused. `unfinished` are offsets below the new start offset whose records are not finished.
    `start_before` is the start offset of the leader's last write that was confirmed. `counts_due` are the least and the
    greatest number of complete records from the new start offset on. They differ by the offsets behind all records that
    the leader has delivered at which there is no readable record: it counts those that it has read."""

    leader: ShareLeader
    write: int
    start_before: int
    start_offset: int
    complete_count: int
    counts_due: tuple[int, int]
    sent: Mapping[int, RecordedDelivery]
    due: Mapping[int, RecordedDelivery]
    unfinished: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteConfirmed:
    """Event: a share coordinator has confirmed a change. `newer` describes the newer epoch, or the newer begin of the
    state, that was committed before the leader sent the change; "" if there was none."""

    leader: ShareLeader
    write: int
    newer: str


@dataclass(frozen=True, slots=True)
class AnswerCompared:
    """Event: a leader answers acknowledgements without an error. `missing` are the deliveries that they cause and that
    are not committed."""

    leader: ShareLeader
    member: str
    due: int
    missing: Mapping[int, RecordedDelivery]


@dataclass(frozen=True, slots=True)
class AcceptCompared:
    """Event: a client was told that its acknowledgements are stored. `missing` are the offsets of those that are
    not."""

    confirmed: steps.AcceptConfirmed
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DrainCompared:
    """Event: a group has had time to process everything. `left` are the offsets of the records that are not
    complete."""

    drained: steps.ShareGroupDrained
    start_offset: int
    left: tuple[int, ...]
