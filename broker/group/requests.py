"""Requests to a group coordinator, and its replies. Plain values: handlers build the former and read the latter.

Every request names its group and can build its own refusal (`refused`), so that the driver can refuse any of them while
a partition loads, moves or fails.
Source: JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest, OffsetCommitRequest,
OffsetFetchRequest, OffsetDeleteRequest, DescribeGroupsRequest, DeleteGroupsRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kraft.wire.error_codes import ErrorCode

NO_GENERATION = -1
NO_OFFSET = -1
NO_MEMBER_ID = ""

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in its order of preference."""


class JoinReply(NamedTuple):
    """`members`: (member id, instance id, metadata) of all members, for the leader alone."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class JoinRequest(NamedTuple):
    """`requires_known_id`: a dynamic member without an id is given one, and must come back with it (KIP-394).
    `can_skip_assignment`: the client understands that a leader need not assign (KIP-814)."""

    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    fresh_id: str
    requires_known_id: bool = True
    can_skip_assignment: bool = True

    def refused(self, error: ErrorCode) -> JoinReply:
        return JoinReply(error, self.member_id)


class SyncReply(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class SyncRequest(NamedTuple):
    """`assignments`: member id → its assignment; from the leader alone."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()

    def refused(self, error: ErrorCode) -> SyncReply:
        return SyncReply(error)


class HeartbeatReply(NamedTuple):
    error: ErrorCode


class HeartbeatRequest(NamedTuple):
    group: str
    generation: int
    member_id: str
    instance_id: str | None = None

    def refused(self, error: ErrorCode) -> HeartbeatReply:
        """While the group is being loaded its members must not leave it: they are told that all is well."""
        return HeartbeatReply(ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)


class Leaver(NamedTuple):
    """Who leaves: a member id, or an instance id alone (an administrator removes a static member)."""

    member_id: str
    instance_id: str | None = None
    error: ErrorCode = ErrorCode.NONE


class LeaveReply(NamedTuple):
    error: ErrorCode
    members: tuple[Leaver, ...] = ()


class LeaveRequest(NamedTuple):
    group: str
    members: tuple[Leaver, ...]

    def refused(self, error: ErrorCode) -> LeaveReply:
        return LeaveReply(error)


class OffsetToCommit(NamedTuple):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID | None = None


class PartitionError(NamedTuple):
    topic: str
    partition: int
    error: ErrorCode


class CommitReply(NamedTuple):
    rows: tuple[PartitionError, ...]


class CommitRequest(NamedTuple):
    """`retention_ms`: how long the offsets are kept, -1 for the broker's own rule. `knows_missing_groups`: the client
    understands GROUP_ID_NOT_FOUND (version 9 and newer)."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    knows_missing_groups: bool = True

    def refused(self, error: ErrorCode) -> CommitReply:
        return CommitReply(tuple(PartitionError(row.topic, row.partition, error) for row in self.offsets))


class FetchedOffset(NamedTuple):
    """`offset` -1: there is none. `topic_id` is that of the topic that it was committed for, if that was stored."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID | None = None


class FetchReply(NamedTuple):
    error: ErrorCode
    rows: tuple[FetchedOffset, ...] = ()


class FetchRequest(NamedTuple):
    """`partitions`: None for all that have an offset. `require_stable`: wait for what is being written now."""

    group: str
    partitions: Sequence[tuple[str, int]] | None
    require_stable: bool = False

    def refused(self, error: ErrorCode) -> FetchReply:
        """Consumers before 3.9 know no COORDINATOR_NOT_AVAILABLE here; they look for another coordinator."""
        return FetchReply(ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error)


class OffsetDeleteReply(NamedTuple):
    error: ErrorCode
    rows: tuple[PartitionError, ...] = ()


class OffsetDeleteRequest(NamedTuple):
    group: str
    partitions: tuple[tuple[str, int], ...]

    def refused(self, error: ErrorCode) -> OffsetDeleteReply:
        return OffsetDeleteReply(error)


class DeleteReply(NamedTuple):
    error: ErrorCode


class DeleteRequest(NamedTuple):
    """Delete a group and all its offsets."""

    group: str

    def refused(self, error: ErrorCode) -> DeleteReply:
        return DeleteReply(error)


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeReply(NamedTuple):
    """`state` "Dead" and GROUP_ID_NOT_FOUND: there is no such group."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class DescribeRequest(NamedTuple):
    group: str

    def refused(self, error: ErrorCode) -> DescribeReply:
        return DescribeReply(error)


class ListedGroup(NamedTuple):
    group: str
    protocol_type: str
    state: str


class ListReply(NamedTuple):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


class ListRequest(NamedTuple):
    """All groups of one partition of the offsets topic."""

    group: str = ""

    def refused(self, error: ErrorCode) -> ListReply:
        return ListReply(error)


class ExpireRequest(NamedTuple):
    """The coordinator's own: drop the group's offsets that are past their time, and the group with its last one."""

    group: str

    def refused(self, error: ErrorCode) -> None:
        return None


class TopicsGoneRequest(NamedTuple):
    """The coordinator's own: topics were deleted. `topics`: (name, stored id), the id None for offsets that were stored
    without one."""

    group: str
    topics: frozenset[tuple[str, UUID | None]]

    def refused(self, error: ErrorCode) -> None:
        return None


Reply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | FetchReply
    | OffsetDeleteReply
    | DeleteReply
    | DescribeReply
    | ListReply
    | None
)
Request = (
    JoinRequest
    | SyncRequest
    | HeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | FetchRequest
    | OffsetDeleteRequest
    | DeleteRequest
    | DescribeRequest
    | ListRequest
    | ExpireRequest
    | TopicsGoneRequest
)

Ticket = Callable[[Any], None]
"""Who asked: takes the reply, whose type is the request's. The machine itself never calls it; its driver does."""
