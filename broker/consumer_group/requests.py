"""Requests of next-generation consumer groups and their replies, which join those of `kraft.broker.group.requests`.

Source: ConsumerGroupHeartbeatRequest, ConsumerGroupDescribeRequest, KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from kraft.wire.error_codes import ErrorCode

JOIN_EPOCH = 0
"""Epoch with which a member joins, or joins again."""
LEAVE_EPOCH = -1
"""Epoch with which a member leaves permanently."""
LEAVE_STATIC_EPOCH = -2
"""Epoch with which a static member leaves for a while; another member with its instance id may take its place."""

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No mapping of this type is ever changed, and none has an empty set."""
NO_PARTITIONS: Partitions = MappingProxyType({})


def _all_topics(topic: str) -> bool:
    return True


class ConsumerHeartbeatReply(NamedTuple):
    """The reply to a heartbeat. `assignment` is None if the member keeps what it has; an empty mapping takes everything
    from the member."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class ConsumerHeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat request. A field that is None has not changed since the member's last heartbeat. An
    empty `subscribed_regex` removes the expression. Version 0 clients may join without a member id; the handler of the
    request then puts a new id into `member_id`.

    `owned` has the partitions that the client owns now. `may_describe(topic)` returns whether the client may see a
    topic; it gets no other topics by its expression. It is None for a request that resolves no expressions."""

    group: str
    member_id: str
    epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_names: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    may_describe: Callable[[str], bool] | None = _all_topics

    def refused(self, error: ErrorCode, message: str | None = None) -> ConsumerHeartbeatReply:
        return ConsumerHeartbeatReply(error, message)


class AssignedTopic(NamedTuple):
    """Partitions of one topic in a description, sorted."""

    topic_id: UUID
    topic: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    """A member in the description of a consumer group. `uses_classic`: its client uses the classic protocol. A topic
    that no longer exists is not described."""

    member_id: str
    instance_id: str | None
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str | None
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]
    uses_classic: bool = False


class ConsumerDescribeReply(NamedTuple):
    """The description of a consumer group, as of the last committed records. GROUP_ID_NOT_FOUND: there is no group with
    this id, or it is a classic group."""

    error: ErrorCode
    message: str | None = None
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class ConsumerDescribeRequest(NamedTuple):
    group: str

    def refused(self, error: ErrorCode, message: str | None = None) -> ConsumerDescribeReply:
        return ConsumerDescribeReply(error, message)


ConsumerReply = ConsumerHeartbeatReply | ConsumerDescribeReply
ConsumerRequest = ConsumerHeartbeatRequest | ConsumerDescribeRequest
