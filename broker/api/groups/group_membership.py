"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: authorize, translate, and pass the request to the group's coordinator.

Each request needs READ on the group. Each constant `FIRST_…` is the first version that has a field.
Source: JoinGroupRequest 0 to 9, SyncGroupRequest 0 to 5, HeartbeatRequest 0 to 4, LeaveGroupRequest 0 to 5.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.group.requests import (
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    LeaveRequest,
    SyncReply,
    SyncRequest,
)
from kraft.broker.group.requests import Request as GroupRequest
from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft.broker.api.context import HandlerContext

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
FIRST_JOIN_WITH_KNOWN_IDS = 4
FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT = 9
FIRST_SYNC_WITH_PROTOCOL = 5


def handle_join_group(context: HandlerContext, request: Request, session: Session) -> None:
    """Join a group. An error is answered at once; a successful join is answered when the group's next generation
    begins."""
    message, version = read(request), request.api_version
    session_timeout_ms = milliseconds(message.session_timeout)
    has_own_timeout = version >= FIRST_JOIN_WITH_REBALANCE_TIMEOUT
    join = JoinRequest(
        group=message.group_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        client_id=session.client_id,
        client_host=f"/{session.client_address}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(message.rebalance_timeout) if has_own_timeout else session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
        fresh_id=str(context.loop.random.uuid()),
        requires_known_id=version >= FIRST_JOIN_WITH_KNOWN_IDS,
        can_skip_assignment=version >= FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT,
    )
    member = part(ApiKey.JOIN_GROUP, "JoinGroupResponseMember")

    def reply(answered: JoinReply) -> None:
        members = [member(member_id=one, group_instance_id=two, metadata=data) for one, two, data in answered.members]
        answer(
            request,
            respond(
                ApiKey.JOIN_GROUP,
                error_code=answered.error,
                generation_id=answered.generation,
                protocol_type=answered.protocol_type,
                protocol_name=answered.protocol,
                leader=answered.leader,
                skip_assignment=answered.skip_assignment,
                member_id=answered.member_id,
                members=members,
            ),
        )

    _submit(context, request, session, join, reply)


def handle_sync_group(context: HandlerContext, request: Request, session: Session) -> None:
    """Sync the group, and answer when the leader's assignments are committed. From version 5 on, the request names the
    protocol."""
    message = read(request)
    sync = SyncRequest(
        group=message.group_id,
        generation=message.generation_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        protocol_type=message.protocol_type,
        protocol=message.protocol_name,
        assignments=tuple((row.member_id, row.assignment) for row in message.assignments),
    )

    def reply(answered: SyncReply) -> None:
        answer(
            request,
            respond(
                ApiKey.SYNC_GROUP,
                error_code=answered.error,
                protocol_type=answered.protocol_type,
                protocol_name=answered.protocol,
                assignment=answered.assignment,
            ),
        )

    if request.api_version >= FIRST_SYNC_WITH_PROTOCOL and None in (sync.protocol_type, sync.protocol):
        reply(sync.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        _submit(context, request, session, sync, reply)


def handle_heartbeat(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer whether the member's generation is still current, and extend the member's session."""
    message = read(request)
    beat = GroupHeartbeatRequest(message.group_id, message.generation_id, message.member_id, message.group_instance_id)

    def reply(answered: GroupHeartbeatReply) -> None:
        answer(request, respond(ApiKey.HEARTBEAT, error_code=answered.error))

    _submit(context, request, session, beat, reply)


def handle_leave_group(context: HandlerContext, request: Request, session: Session) -> None:
    """Remove members from the group; each has its own result."""
    message = read(request)
    members = tuple(Leaver(member.member_id, member.group_instance_id) for member in message.members)
    row = part(ApiKey.LEAVE_GROUP, "MemberResponse")

    def reply(answered: LeaveReply) -> None:
        rows = [row(member_id=one, group_instance_id=two, error_code=error) for one, two, error in answered.members]
        answer(request, respond(ApiKey.LEAVE_GROUP, error_code=answered.error, members=rows))

    _submit(context, request, session, LeaveRequest(message.group_id, members), reply)


def _submit(
    context: HandlerContext, request: Request, session: Session, asked: GroupRequest, reply: Callable[[Any], None]
) -> None:
    """Pass an authorized request to the coordinator. An error while its reply is sent fails this request alone."""
    if context.gates.authorize(session, Operation.READ, Resource(ResourceType.GROUP, asked.group)):
        context.groups.submit(asked, partial(context.finish, request, reply))
    else:
        reply(asked.refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
