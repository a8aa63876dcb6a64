"""What the handlers of consumer groups and of share groups have in common: both protocols have a heartbeat that carries
the assignment, and a description with the members' assignments.

A heartbeat needs READ on the group, and DESCRIBE on each topic that it subscribes to by name. An expression matches
only topics on which the client has DESCRIBE. A description needs DESCRIBE on the group, and on each topic that is
assigned to a member: otherwise the client would learn the names of topics that it may not see. As in Kafka, it does not
need DESCRIBE on a topic that a member only subscribes to.
Source: KIP-848, KIP-932, Kafka's ModernGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.broker.api.groups.group_offsets import group_resource
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.consumer_group.requests import (
        AssignedTopic,
        ConsumerDescribeReply,
        ConsumerDescribeRequest,
        ConsumerHeartbeatReply,
        ConsumerHeartbeatRequest,
    )
    from kraft.broker.share_group.requests import (
        ShareDescribeReply,
        ShareDescribeRequest,
        ShareHeartbeatReply,
        ShareHeartbeatRequest,
    )

    Heartbeat = ConsumerHeartbeatRequest | ShareHeartbeatRequest
    HeartbeatReply = ConsumerHeartbeatReply | ShareHeartbeatReply
    DescribeReply = ConsumerDescribeReply | ShareDescribeReply

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class GroupProtocol(NamedTuple):
    """A protocol of groups. `is_served(context)` returns whether this cluster serves it; `not_served` is the error text
    if not. `member` encodes a member of a description, `topics_of` returns the topics of its assignments."""

    heartbeat: ApiKey
    describe: ApiKey
    is_served: Callable[[HandlerContext], bool]
    not_served: str
    describe_request: type[ConsumerDescribeRequest] | type[ShareDescribeRequest]
    describe_reply: type[ConsumerDescribeReply] | type[ShareDescribeReply]
    topics_of: Callable[[Any], Iterable[AssignedTopic]]
    member: Callable[[Any], Any]


# heartbeats


def submit_heartbeat(
    protocol: GroupProtocol, context: HandlerContext, request: Request, session: Session, beat: Heartbeat
) -> None:
    """Pass a heartbeat to the coordinator, if the client may send it, and answer the request with the reply."""

    def reply(answered: HeartbeatReply) -> None:
        answer(request, _heartbeat_response(protocol.heartbeat, answered))

    error = _heartbeat_error(protocol, context, session, beat)
    if error is ErrorCode.NONE:
        context.groups.submit(beat, partial(context.finish, request, reply))
    else:
        reply(beat.refused(error, protocol.not_served if error is ErrorCode.UNSUPPORTED_VERSION else None))


def _heartbeat_error(protocol: GroupProtocol, context: HandlerContext, session: Session, beat: Heartbeat) -> ErrorCode:
    if not protocol.is_served(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.gates.authorize(session, Operation.READ, group_resource(beat.group)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not _may_describe(context, session, beat.subscribed_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _may_describe(context: HandlerContext, session: Session, topics: Iterable[str]) -> bool:
    return all(context.gates.authorize_topic(session, Operation.DESCRIBE, topic) for topic in topics)


def _heartbeat_response(key: ApiKey, answered: HeartbeatReply) -> Any:
    assignment = None
    if answered.assignment is not None:
        row = part(key, "TopicPartitions")
        rows = tuple(
            row(topic_id=topic_id, partitions=tuple(sorted(partitions)))
            for topic_id, partitions in sorted(answered.assignment.items())
        )
        assignment = part(key, "Assignment")(topic_partitions=rows)
    return respond(
        key,
        error_code=answered.error,
        error_message=answered.message,
        member_id=answered.member_id,
        member_epoch=answered.epoch,
        heartbeat_interval=messages.duration(answered.heartbeat_interval_ms),
        assignment=assignment,
    )


# descriptions


def describe_groups(protocol: GroupProtocol, context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each group of the request with its members. The coordinator of a group answers for it."""
    message = read(request)
    rows: list[Any] = [None] * len(message.group_ids)
    missing = len(rows)

    def finish() -> None:
        answer(request, respond(protocol.describe, groups=tuple(rows)))

    def ask(number: int, group: str) -> None:
        def reply(answered: DescribeReply) -> None:
            nonlocal missing
            rows[number] = _described(protocol, context, session, message, group, answered)
            missing -= 1
            if not missing:
                finish()

        if not protocol.is_served(context):
            reply(protocol.describe_reply(ErrorCode.UNSUPPORTED_VERSION, protocol.not_served))
        elif context.gates.authorize(session, Operation.DESCRIBE, group_resource(group)):
            context.groups.submit(protocol.describe_request(group), partial(context.finish, request, reply))
        else:
            reply(protocol.describe_reply(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    if not rows:
        finish()
    for number, group in enumerate(message.group_ids):
        ask(number, group)


def _described(
    protocol: GroupProtocol,
    context: HandlerContext,
    session: Session,
    message: Any,
    group: str,
    answered: DescribeReply,
) -> Any:
    topics = {topic.topic for member in answered.members for topic in protocol.topics_of(member)}
    if not _may_describe(context, session, sorted(topics)):
        answered = protocol.describe_reply(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    operations = AUTHORIZED_OPERATIONS_OMITTED
    if message.include_authorized_operations and answered.error is ErrorCode.NONE:
        operations = context.gates.authorized_operations(session, group_resource(group))
    return part(protocol.describe, "DescribedGroup")(
        error_code=answered.error,
        error_message=answered.message,
        group_id=group,
        group_state=answered.state,
        group_epoch=answered.epoch,
        assignment_epoch=answered.assignment_epoch,
        assignor_name=answered.assignor,
        members=tuple(map(protocol.member, answered.members)),
        authorized_operations=operations,
    )


def encode_assignment(describe: ApiKey, topics: Iterable[AssignedTopic]) -> Any:
    """Return the Assignment of a description."""
    row = part(describe, "TopicPartitions")
    rows = (row(topic_id=topic.topic_id, topic_name=topic.topic, partitions=topic.partitions) for topic in topics)
    return part(describe, "Assignment")(topic_partitions=tuple(rows))
