"""Observations of share groups: the steps of the leaders of share partitions, and what clients report.

A leader's steps are observed where its driver calls the state machine (`kraft.broker.share_partition`). They are
reported after the pass in which they happened, in their order, and before anything of that pass is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraft.broker.share_coordinator.records import ShareKey
from kraft.broker.share_partition.states import AcknowledgeType, AcquiredBatch, StateBatch
from kraft.sim.check.observations import TopicPartition

NO_WRITE = 0


class ShareLeader(NamedTuple):
    """A share partition at the leader of its partition, from reading the persisted state until it is closed. A leader
    that reads the state again is another one, with another `number`."""

    node: int
    incarnation: int
    number: int
    key: ShareKey
    log: TopicPartition
    leader_epoch: int


class AcknowledgedRange(NamedTuple):
    """What a member reports about the offsets in [first, end)."""

    first: int
    end: int
    type: AcknowledgeType


@dataclass(frozen=True, slots=True)
class StateRequested:
    """A leader begins to read the persisted state."""

    leader: ShareLeader


@dataclass(frozen=True, slots=True)
class StateRead:
    """The share coordinator has returned the persisted state. `start_offset` is -1 if the leader finds the first
    offset, and `complete_count` is -1 if it is not known: a response of another node does not have it."""

    leader: ShareLeader
    state_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class LeaderBegun:
    """A leader begins to deliver records, from `start_offset` on."""

    leader: ShareLeader
    start_offset: int


@dataclass(frozen=True, slots=True)
class RecordsAcquired:
    """A leader gives records to a member, locked until `lock_until_ms` of its monotonic clock. `deliveries_max` is the
    limit of deliveries of a record."""

    leader: ShareLeader
    member: str
    batches: tuple[AcquiredBatch, ...]
    lock_until_ms: int
    deliveries_max: int
    is_read_committed: bool


@dataclass(frozen=True, slots=True)
class RecordsAcknowledged:
    """A leader accepts acknowledgements of a member, which take effect when the write with number `write` is persisted
    (NO_WRITE: there is nothing to persist)."""

    leader: ShareLeader
    member: str
    items: tuple[AcknowledgedRange, ...]
    write: int
    lock_until_ms: int
    deliveries_max: int


@dataclass(frozen=True, slots=True)
class MemberReleased:
    """A leader releases all records of a member, because its session has ended."""

    leader: ShareLeader
    member: str
    deliveries_max: int
    write: int


@dataclass(frozen=True, slots=True)
class LocksExpired:
    """A leader releases all records whose lock has expired at this time of its monotonic clock. `start_offset` is its
    start offset after that."""

    leader: ShareLeader
    now_ms: int
    deliveries_max: int
    write: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class LogStartSeen:
    """A leader drops the records below the log start offset."""

    leader: ShareLeader
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class WriteSent:
    """A leader sends a change of the state to the share coordinator. `complete_count` is the number of complete records
    from the start offset on."""

    leader: ShareLeader
    write: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    is_read_committed: bool


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """A leader learns that a change is persisted, or that the share coordinator has not confirmed it in time."""

    leader: ShareLeader
    write: int
    is_stored: bool


@dataclass(frozen=True, slots=True)
class AcknowledgementAnswered:
    """A leader answers acknowledgements of a member without an error."""

    leader: ShareLeader
    member: str
    write: int


@dataclass(frozen=True, slots=True)
class LeaderClosed:
    """A leader forgets the state."""

    leader: ShareLeader


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A broker opens a share session of a member, or a new one instead of the one that the member has."""

    node: int
    incarnation: int
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class SessionContinued:
    """A broker accepts or rejects a request with this epoch of a member's share session; -1 ends the session."""

    node: int
    incarnation: int
    group: str
    member: str
    epoch: int
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A broker closes the share session of a member."""

    node: int
    incarnation: int
    group: str
    member: str


@dataclass(frozen=True, slots=True)
class AcceptConfirmed:
    """A client reports to its application that its acknowledgements of these records as processed are stored."""

    member: str
    group: str
    log: TopicPartition
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetsChanged:
    """An administrator got the response that a share partition now begins at this offset; -1: its state was deleted.
    `begin_before` is the number of the begin of the state before the request, and `members` are those that were in the
    group all the time from before the request until after the response."""

    key: ShareKey
    start_offset: int
    begin_before: int
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDrained:
    """All writes have ended, and the members have processed whatever they got for some time. `node` leads the
    partition, which ends at `end`."""

    key: ShareKey
    log: TopicPartition
    node: int
    end: int
    is_read_committed: bool
