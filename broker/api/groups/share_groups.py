"""ShareGroupHeartbeat and ShareGroupDescribe: authorize, translate, and pass the request to the coordinator.

Both are answered with UNSUPPORTED_VERSION while the feature share.version is at level 0. A heartbeat needs READ on the
group, and DESCRIBE on each topic that it subscribes to. A description needs DESCRIBE on the group, and on each topic
that it names.
Source: ShareGroupHeartbeatRequest 1, ShareGroupDescribeRequest 1, KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.api.groups.group_offsets import group_resource
from kraft.broker.consumer_group.requests import AssignedTopic
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.share_group.requests import (
    DescribedShareMember,
    ShareDescribeReply,
    ShareDescribeRequest,
    ShareHeartbeatReply,
    ShareHeartbeatRequest,
)
from kraft.image.image import SHARE_FEATURE
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
FIRST_LEVEL_WITH_SHARE_GROUPS = 1
NOT_SERVED = "This cluster does not serve share groups: it needs the feature share.version at level 1."
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def serves_share_groups(context: HandlerContext) -> bool:
    """Return whether share groups are on."""
    return context.image.features.get(SHARE_FEATURE, 0) >= FIRST_LEVEL_WITH_SHARE_GROUPS


def handle_share_group_heartbeat(context: HandlerContext, request: Request, session: Session) -> None:
    """Take a member's heartbeat: it joins, gets what it is assigned, or leaves."""
    message = read(request)
    beat = ShareHeartbeatRequest(
        group=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        client_id=session.client_id,
        client_host=f"/{session.client_address}",
        rack=message.rack_id,
        subscribed_names=message.subscribed_topic_names,
    )

    def reply(answered: ShareHeartbeatReply) -> None:
        answer(request, _heartbeat_response(answered))

    error = _heartbeat_error(context, session, beat)
    if error is ErrorCode.NONE:
        context.groups.submit(beat, partial(context.finish, request, reply))
    else:
        reply(beat.refused(error, NOT_SERVED if error is ErrorCode.UNSUPPORTED_VERSION else None))


def _heartbeat_error(context: HandlerContext, session: Session, beat: ShareHeartbeatRequest) -> ErrorCode:
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.gates.authorize(session, Operation.READ, group_resource(beat.group)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not _may_describe(context, session, beat.subscribed_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _may_describe(context: HandlerContext, session: Session, topics: Iterable[str]) -> bool:
    return all(context.gates.authorize_topic(session, Operation.DESCRIBE, topic) for topic in topics)


def _heartbeat_response(answered: ShareHeartbeatReply) -> Any:
    assignment = None
    if answered.assignment is not None:
        row = part(HEARTBEAT, "TopicPartitions")
        rows = tuple(
            row(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in sorted(answered.assignment.items())
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


def handle_share_group_describe(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each share group with its members. The coordinator of the group answers for it."""
    message = read(request)
    rows: list[Any] = [None] * len(message.group_ids)
    missing = len(rows)

    def finish() -> None:
        answer(request, respond(DESCRIBE, groups=tuple(rows)))

    def ask(number: int, group: str) -> None:
        def reply(answered: ShareDescribeReply) -> None:
            nonlocal missing
            rows[number] = _described(context, session, message, group, answered)
            missing -= 1
            if not missing:
                finish()

        if not serves_share_groups(context):
            reply(ShareDescribeReply(ErrorCode.UNSUPPORTED_VERSION, NOT_SERVED))
        elif context.gates.authorize(session, Operation.DESCRIBE, group_resource(group)):
            context.groups.submit(ShareDescribeRequest(group), partial(context.finish, request, reply))
        else:
            reply(ShareDescribeReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    if not rows:
        finish()
    for number, group in enumerate(message.group_ids):
        ask(number, group)


def _described(
    context: HandlerContext, session: Session, message: Any, group: str, answered: ShareDescribeReply
) -> Any:
    topics = {topic.topic for member in answered.members for topic in member.assignment}
    if not _may_describe(context, session, sorted(topics)):
        answered = ShareDescribeReply(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
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


def _member(member: DescribedShareMember) -> Any:
    return part(DESCRIBE, "Member")(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_names,
        assignment=_assignment(member.assignment),
    )


def _assignment(topics: tuple[AssignedTopic, ...]) -> Any:
    row = part(DESCRIBE, "TopicPartitions")
    rows = (row(topic_id=topic.topic_id, topic_name=topic.topic, partitions=topic.partitions) for topic in topics)
    return part(DESCRIBE, "Assignment")(topic_partitions=tuple(rows))
