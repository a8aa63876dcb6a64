"""Requests of share groups and their replies, which join those of `kraft.broker.group.requests`.

Source: ShareGroupHeartbeatRequest, ShareGroupDescribeRequest, KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.requests import JOIN_EPOCH, LEAVE_EPOCH, AssignedTopic, Partitions
from kraft.broker.consumer_group.validation import GroupRefusal
from kraft.wire.error_codes import ErrorCode

SHARE_TYPE = "share"


@dataclass(frozen=True, slots=True)
class ShareMembershipSettings:
    """The settings of the members of one share group. Times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    """Shortest time between two target assignments of the group."""
    members_max: int = 200
    initialize_retry_ms: int = 30_000


class ShareHeartbeatReply(NamedTuple):
    """The reply to a heartbeat. `assignment` is None if the member keeps what it has."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class ShareHeartbeatRequest(NamedTuple):
    """A ShareGroupHeartbeat request. A field that is None has not changed since the member's last heartbeat."""

    group: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    rack: str | None = None
    subscribed_names: tuple[str, ...] | None = None

    def refused(self, error: ErrorCode, message: str | None = None) -> ShareHeartbeatReply:
        return ShareHeartbeatReply(error, message)


class DescribedShareMember(NamedTuple):
    """A member in the description of a share group. A topic that no longer exists is not described."""

    member_id: str
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    assignment: tuple[AssignedTopic, ...]


class ShareDescribeReply(NamedTuple):
    """The description of a share group, as of the last committed records. `initialized` has the partitions whose
    delivery state is persisted. GROUP_ID_NOT_FOUND: there is no share group with this id."""

    error: ErrorCode
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()
    initialized: tuple[AssignedTopic, ...] = ()


class ShareDescribeRequest(NamedTuple):
    group: str

    def refused(self, error: ErrorCode, message: str | None = None) -> ShareDescribeReply:
        return ShareDescribeReply(error, message)


class SharePreparedReply(NamedTuple):
    """The reply to one part of a change of offsets. After the first part, `partitions` are the share partitions whose
    states must be changed at the share coordinator, in `state_epoch`."""

    error: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    partitions: tuple[tuple[UUID, int], ...] = ()


class ShareInitializedRequest(NamedTuple):
    """Last part of AlterShareGroupOffsets, and internal request: the share coordinator has the state of these share
    partitions in this state epoch, so they may be assigned."""

    group: str
    partitions: tuple[tuple[UUID, int], ...]
    state_epoch: int

    def refused(self, error: ErrorCode, message: str | None = None) -> SharePreparedReply:
        return SharePreparedReply(error, message)


class PrepareAlterRequest(NamedTuple):
    """First part of AlterShareGroupOffsets: the group must be empty. A new epoch begins, in which the states of these
    share partitions (topic id, topic, partition) may begin again."""

    group: str
    partitions: tuple[tuple[UUID, str, int], ...]

    def refused(self, error: ErrorCode, message: str | None = None) -> SharePreparedReply:
        return SharePreparedReply(error, message)


class PrepareDeleteRequest(NamedTuple):
    """First part of DeleteShareGroupOffsets: the group must be empty. From then on, the states of these topics are
    being deleted."""

    group: str
    topic_ids: frozenset[UUID]

    def refused(self, error: ErrorCode, message: str | None = None) -> SharePreparedReply:
        return SharePreparedReply(error, message)


class StatesDeletedRequest(NamedTuple):
    """Last part of DeleteShareGroupOffsets: the share coordinator has deleted the states of these topics."""

    group: str
    topic_ids: frozenset[UUID]

    def refused(self, error: ErrorCode, message: str | None = None) -> SharePreparedReply:
        return SharePreparedReply(error, message)


class RaiseEpochRequest(NamedTuple):
    """Internal request: a share partition has a state of this epoch, which fences the initializations of the group. It
    is left from a deleted group of the same name. The group continues in a newer epoch."""

    group: str
    state_epoch: int

    def refused(self, error: ErrorCode, message: str | None = None) -> SharePreparedReply:
        return SharePreparedReply(error, message)


ShareGroupRequest = (
    ShareHeartbeatRequest
    | ShareDescribeRequest
    | ShareInitializedRequest
    | PrepareAlterRequest
    | PrepareDeleteRequest
    | StatesDeletedRequest
    | RaiseEpochRequest
)
ShareGroupReply = ShareHeartbeatReply | ShareDescribeReply | SharePreparedReply


def share_heartbeat_error(request: ShareHeartbeatRequest) -> GroupRefusal | None:
    """Return the first error in the request itself; None if a coordinator may handle the request."""
    message = next(_problems(request), None)
    return None if message is None else GroupRefusal(ErrorCode.INVALID_REQUEST, message)


def _problems(request: ShareHeartbeatRequest) -> Iterator[str]:
    if not request.group:
        yield "GroupId can't be empty."
    if not request.member_id:
        yield "MemberId can't be empty."
    if request.rack == "":
        yield "RackId can't be empty."
    if request.epoch < LEAVE_EPOCH:
        yield "MemberEpoch is invalid."
    if request.epoch == JOIN_EPOCH and not request.subscribed_names:
        yield "SubscribedTopicNames must be set in first request."
