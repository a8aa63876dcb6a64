"""Requests to a group coordinator, and its replies. They are immutable values: handlers build requests and read
replies.

Every request names its group and can build the error reply to itself (`refused`). So the driver can reject any request
while a partition is being loaded, moves or fails.
Source: JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest, OffsetCommitRequest,
OffsetFetchRequest, TxnOffsetCommitRequest, OffsetDeleteRequest, DescribeGroupsRequest, DeleteGroupsRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.requests import ConsumerReply, ConsumerRequest
from kraft.broker.share_group.requests import ShareGroupReply, ShareGroupRequest
from kraft.wire.error_codes import ErrorCode

NO_GENERATION = -1
NO_OFFSET = -1
NO_MEMBER_ID = ""

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"

COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member supports, in the member's order of preference."""


class JoinReply(NamedTuple):
    """The reply to a JoinGroup request. `members` has (member id, instance id, metadata) of all members in the leader's
    reply, and nothing in the other replies."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class JoinRequest(NamedTuple):
    """A JoinGroup request. `requires_known_id`: a dynamic member that sends no id gets one, and must join again with it
    (KIP-394). `can_skip_assignment`: the client supports that a leader need not assign (KIP-814)."""

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
    """A SyncGroup request. `assignments` maps each member id to its assignment; only the leader sends it."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()

    def refused(self, error: ErrorCode) -> SyncReply:
        return SyncReply(error)


class GroupHeartbeatReply(NamedTuple):
    error: ErrorCode


class GroupHeartbeatRequest(NamedTuple):
    group: str
    generation: int
    member_id: str
    instance_id: str | None = None

    def refused(self, error: ErrorCode) -> GroupHeartbeatReply:
        """Return the reply of a rejected heartbeat. It has no error while the group is being loaded, because members
        must not leave a group during loading."""
        return GroupHeartbeatReply(ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)


class Leaver(NamedTuple):
    """A leaving member, given as a member id, or as an instance id alone (an administrator removes a static member)."""

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
    """The offset to commit for one partition."""

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
    """An OffsetCommit request. `retention_ms` is how long the offsets are kept; -1 for the broker's setting.
    `knows_missing_groups`: the client supports GROUP_ID_NOT_FOUND (version 9 and newer)."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int = -1
    knows_missing_groups: bool = True

    def refused(self, error: ErrorCode) -> CommitReply:
        return CommitReply(tuple(PartitionError(row.topic, row.partition, error) for row in self.offsets))


class TxnCommitRequest(NamedTuple):
    """A TxnOffsetCommit request: commit offsets when the producer's transaction commits. `verification` is the
    permission of the partition's log to open a transaction (`ProducerStates.begin_verification`). It is None if the
    transaction is already open there."""

    group: str
    producer_id: int
    producer_epoch: int
    generation: int
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    verification: Any = None

    def refused(self, error: ErrorCode) -> CommitReply:
        return CommitReply(tuple(PartitionError(row.topic, row.partition, error) for row in self.offsets))


class MarkerReply(NamedTuple):
    """The reply to a MarkerRequest. NONE: the marker is committed, and the staged offsets are applied or dropped."""

    error: ErrorCode


class MarkerRequest(NamedTuple):
    """Internal request of a transaction coordinator: write the marker that ends a producer's transaction in this
    partition of the offsets topic. `transaction_version` is the transaction's version; 0 if it is not known."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0
    group: str = ""

    def refused(self, error: ErrorCode) -> MarkerReply:
        """Return the reply to a rejected marker. After this reply, the sender finds the current leader and retries."""
        return MarkerReply(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in COORDINATOR_ERRORS else error)


class FetchedOffset(NamedTuple):
    """A committed offset in a reply. `offset` is -1 if nothing was committed. `topic_id` is the id of the topic at the
    time of the commit, if it was stored. `error` is UNSTABLE_OFFSET_COMMIT if an open transaction may replace the
    offset."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID | None = None
    error: ErrorCode = ErrorCode.NONE


class FetchOffsetsReply(NamedTuple):
    error: ErrorCode
    rows: tuple[FetchedOffset, ...] = ()


class FetchOffsetsRequest(NamedTuple):
    """An OffsetFetch request. `partitions`: None for all partitions that have an offset. `require_stable`: wait for the
    writes in flight, and return no offset that an open transaction may replace. A member of a consumer group gives its
    member id and epoch (version 9 and newer)."""

    group: str
    partitions: Sequence[tuple[str, int]] | None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = NO_GENERATION

    def refused(self, error: ErrorCode) -> FetchOffsetsReply:
        """Return the reply to a rejected fetch. Consumers before 3.9 do not handle COORDINATOR_NOT_AVAILABLE here, so
        the reply has NOT_COORDINATOR instead, which makes them find the coordinator again."""
        return FetchOffsetsReply(ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error)


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
    """Delete a group and all its offsets. `states_deleted`: the share coordinator has deleted the states of a share
    group."""

    group: str
    states_deleted: bool = False

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
    """The description of a group. `state` "Dead" with GROUP_ID_NOT_FOUND: the group does not exist, or it is not a
    classic group; `message` says which."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    message: str | None = None


class DescribeRequest(NamedTuple):
    group: str

    def refused(self, error: ErrorCode) -> DescribeReply:
        return DescribeReply(error)


class ListedGroup(NamedTuple):
    """A group in a list. `group_type` is "classic", "consumer" or "share"."""

    group: str
    protocol_type: str
    state: str
    group_type: str = CLASSIC_TYPE


class ListReply(NamedTuple):
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


class ListRequest(NamedTuple):
    """List all groups of one partition of the offsets topic."""

    group: str = ""

    def refused(self, error: ErrorCode) -> ListReply:
        return ListReply(error)


class ExpireRequest(NamedTuple):
    """Internal request of the coordinator: remove the group's expired offsets, and the group together with its last
    offset."""

    group: str

    def refused(self, error: ErrorCode) -> None:
        return None


class TopicsGoneRequest(NamedTuple):
    """Internal request of the coordinator after topics were deleted. `topics` has a (name, stored id) for each; the id
    is None for offsets that were stored without one."""

    group: str
    topics: frozenset[tuple[str, UUID | None]]

    def refused(self, error: ErrorCode) -> None:
        return None


Reply = (
    JoinReply
    | SyncReply
    | GroupHeartbeatReply
    | LeaveReply
    | CommitReply
    | MarkerReply
    | FetchOffsetsReply
    | OffsetDeleteReply
    | DeleteReply
    | DescribeReply
    | ListReply
    | ConsumerReply
    | ShareGroupReply
    | None
)
Request = (
    JoinRequest
    | SyncRequest
    | GroupHeartbeatRequest
    | LeaveRequest
    | CommitRequest
    | TxnCommitRequest
    | MarkerRequest
    | FetchOffsetsRequest
    | OffsetDeleteRequest
    | DeleteRequest
    | DescribeRequest
    | ListRequest
    | ExpireRequest
    | TopicsGoneRequest
    | ConsumerRequest
    | ShareGroupRequest
)

Ticket = Callable[[Any], None]
"""Function that receives the reply; the reply's type depends on the request's type. Only the driver calls it, never the
state machine."""
