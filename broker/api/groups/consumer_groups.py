"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: authorize, translate, and pass the request to the coordinator.

Both are answered with UNSUPPORTED_VERSION while the feature group.version is at level 0, or while the brokers'
group.coordinator.rebalance.protocols does not name the consumer protocol. `assigned_groups` says which rights they
need.
Source: ConsumerGroupHeartbeatRequest 0 to 1, ConsumerGroupDescribeRequest 0 to 1, KIP-848, KIP-1099 (type of member).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.api.groups.assigned_groups import GroupProtocol, describe_groups, encode_assignment, submit_heartbeat
from kraft.broker.consumer_group.requests import (
    JOIN_EPOCH,
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatRequest,
    DescribedConsumer,
    Partitions,
)
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import part, read
from kraft.broker.serving.session import Session
from kraft.image.image import GROUP_FEATURE
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

DESCRIBE = ApiKey.CONSUMER_GROUP_DESCRIBE
FIRST_HEARTBEAT_WITH_CLIENTS_MEMBER_ID = 1
FIRST_LEVEL_WITH_CONSUMER_GROUPS = 1
"""Lowest level of the feature group.version at which there are consumer groups."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_SERVED = (
    "This cluster does not serve the consumer group protocol: it needs the feature group.version at level 1, and "
    "consumer among the brokers' group.coordinator.rebalance.protocols. Clients can set group.protocol=classic."
)


def serves_consumer_groups(context: HandlerContext) -> bool:
    """Return whether the new consumer group protocol is on."""
    is_on = context.image.features.get(GROUP_FEATURE, 0) >= FIRST_LEVEL_WITH_CONSUMER_GROUPS
    return is_on and "consumer" in context.config.list("group.coordinator.rebalance.protocols")


# ConsumerGroupHeartbeat


def handle_consumer_group_heartbeat(context: HandlerContext, request: Request, session: Session) -> None:
    """Take a member's heartbeat: it joins, reports what it owns and gets what it is assigned, or leaves."""
    message = read(request)
    member_id = message.member_id
    if request.api_version < FIRST_HEARTBEAT_WITH_CLIENTS_MEMBER_ID and not member_id:
        member_id = str(context.loop.random.uuid()) if message.member_epoch == JOIN_EPOCH else ""
    rebalance_timeout_ms = milliseconds(message.rebalance_timeout)
    beat = ConsumerHeartbeatRequest(
        group=message.group_id,
        member_id=member_id,
        epoch=message.member_epoch,
        client_id=session.client_id,
        client_host=f"/{session.client_address}",
        instance_id=message.instance_id,
        rack=message.rack_id,
        rebalance_timeout_ms=None if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        subscribed_names=message.subscribed_topic_names,
        subscribed_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=None if message.topic_partitions is None else _owned(message.topic_partitions),
        may_describe=partial(context.gates.authorize_topic, session, Operation.DESCRIBE),
    )
    submit_heartbeat(CONSUMER, context, request, session, beat)


def _owned(rows: Iterable[Any]) -> Partitions:
    owned: dict[UUID, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            topic_id = row.topic_id or UUID(int=0)
            owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(row.partitions)
    return owned


# ConsumerGroupDescribe


def handle_consumer_group_describe(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each consumer group with its members. The coordinator of the group answers for it."""
    describe_groups(CONSUMER, context, request, session)


def _member(member: DescribedConsumer) -> Any:
    return part(DESCRIBE, "Member")(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_names,
        subscribed_topic_regex=member.subscribed_regex,
        assignment=encode_assignment(DESCRIBE, member.assignment),
        target_assignment=encode_assignment(DESCRIBE, member.target),
        member_type=CLASSIC_MEMBER if member.uses_classic else CONSUMER_MEMBER,
    )


CONSUMER = GroupProtocol(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE,
    serves_consumer_groups,
    NOT_SERVED,
    ConsumerDescribeRequest,
    ConsumerDescribeReply,
    lambda member: (*member.assignment, *member.target),
    _member,
)
