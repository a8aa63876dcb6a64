"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: authorize, translate, and pass the request to the coordinator.

Both are answered with UNSUPPORTED_VERSION while the feature group.version is at level 0, or while the brokers'
group.coordinator.rebalance.protocols does not name the consumer protocol. A heartbeat needs READ on the group, and
DESCRIBE on each topic that it subscribes to by name. A description needs DESCRIBE on the group, and on each topic that
it names: otherwise the client would learn the names of topics that it may not see.
Source: ConsumerGroupHeartbeatRequest 0 to 1, ConsumerGroupDescribeRequest 0 to 1, KIP-848, KIP-1099 (type of member).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.api.group_offsets import group_resource
from kraft.broker.consumer_group.requests import (
    JOIN_EPOCH,
    AssignedTopic,
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    DescribedConsumer,
    Partitions,
)
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.image.image import GROUP_FEATURE
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

HEARTBEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
FIRST_HEARTBEAT_WITH_CLIENTS_MEMBER_ID = 1
FIRST_LEVEL_WITH_CONSUMER_GROUPS = 1
"""Lowest level of the feature group.version at which there are consumer groups."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
NOT_SERVED = (
    "This cluster does not serve the consumer group protocol: it needs the feature group.version at level 1, and "
    "consumer among the brokers' group.coordinator.rebalance.protocols. Clients can set group.protocol=classic."
)
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


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
    )

    def reply(answered: ConsumerHeartbeatReply) -> None:
        answer(request, _heartbeat_response(answered))

    error = _heartbeat_error(context, session, beat)
    if error is ErrorCode.NONE:
        context.groups.submit(beat, partial(context.finish, request, reply))
    else:
        reply(beat.refused(error, NOT_SERVED if error is ErrorCode.UNSUPPORTED_VERSION else None))


def _heartbeat_error(context: HandlerContext, session: Session, beat: ConsumerHeartbeatRequest) -> ErrorCode:
    if not serves_consumer_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.gates.authorize(session, Operation.READ, group_resource(beat.group)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not _may_describe(context, session, beat.subscribed_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _may_describe(context: HandlerContext, session: Session, topics: Iterable[str]) -> bool:
    return all(context.gates.authorize_topic(session, Operation.DESCRIBE, topic) for topic in topics)


def _owned(rows: Iterable[Any]) -> Partitions:
    owned: dict[UUID, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            topic_id = row.topic_id or UUID(int=0)
            owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(row.partitions)
    return owned


def _heartbeat_response(answered: ConsumerHeartbeatReply) -> Any:
    assignment = None
    if answered.assignment is not None:
        row = part(HEARTBEAT, "TopicPartitions")
        rows = tuple(
            row(topic_id=topic_id, partitions=tuple(sorted(answered.assignment[topic_id])))
            for topic_id in sorted(answered.assignment)
        )
        assignment = part(HEARTBEAT, "Assignment")(topic_partitions=rows)
    return respond(
        HEARTBEAT,
        error_code=answered.error,
        error_message=answered.message,
        member_id=answered.member_id,
        member_epoch=answered.epoch,
        heartbeat_interval=messages.duration(answered.heartbeat_interval_ms),
        assignment=assignment,
    )


# ConsumerGroupDescribe


def handle_consumer_group_describe(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each consumer group with its members. The coordinator of the group answers for it."""
    message = read(request)
    rows: list[Any] = [None] * len(message.group_ids)
    missing = len(rows)

    def finish() -> None:
        answer(request, respond(DESCRIBE, groups=tuple(rows)))

    def ask(number: int, group: str) -> None:
        def reply(answered: ConsumerDescribeReply) -> None:
            nonlocal missing
            rows[number] = _described(context, session, message, group, answered)
            missing -= 1
            if not missing:
                finish()

        if not serves_consumer_groups(context):
            reply(ConsumerDescribeReply(ErrorCode.UNSUPPORTED_VERSION, NOT_SERVED))
        elif context.gates.authorize(session, Operation.DESCRIBE, group_resource(group)):
            context.groups.submit(ConsumerDescribeRequest(group), partial(context.finish, request, reply))
        else:
            reply(ConsumerDescribeReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    if not rows:
        finish()
    for number, group in enumerate(message.group_ids):
        ask(number, group)


def _described(
    context: HandlerContext, session: Session, message: Any, group: str, answered: ConsumerDescribeReply
) -> Any:
    topics = {topic.topic for member in answered.members for topic in (*member.assignment, *member.target)}
    if not _may_describe(context, session, sorted(topics)):
        answered = ConsumerDescribeReply(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if message.include_authorized_operations and answered.error is ErrorCode.NONE:
        operations = context.gates.authorized_operations(session, group_resource(group))
    return part(DESCRIBE, "DescribedGroup")(
        error_code=answered.error,
        error_message=answered.message,
        group_id=group,
        group_state=answered.state,
        group_epoch=answered.epoch,
        assignment_epoch=answered.assignment_epoch,
        assignor_name=answered.assignor,
        members=tuple(map(_member, answered.members)),
        authorized_operations=operations,
    )


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
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target),
        member_type=CLASSIC_MEMBER if member.uses_classic else CONSUMER_MEMBER,
    )


def _assignment(topics: tuple[AssignedTopic, ...]) -> Any:
    row = part(DESCRIBE, "TopicPartitions")
    return part(DESCRIBE, "Assignment")(
        topic_partitions=tuple(
            row(topic_id=topic.topic_id, topic_name=topic.topic, partitions=topic.partitions) for topic in topics
        )
    )
