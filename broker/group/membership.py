"""Heartbeat, LeaveGroup, and the expiry of member sessions.

Source: HeartbeatRequest 0 to 4, LeaveGroupRequest 0 to 5, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.mixed_groups import heartbeat_consumer_group, leave_consumer_group
from kraft.broker.group.rebalance import complete_if_none_missing, prepare, rebalance, remove_member
from kraft.broker.group.requests import (
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    Leaver,
    LeaveReply,
    LeaveRequest,
    Ticket,
)
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import CoordinatorCall
from kraft.wire.error_codes import ErrorCode


def heartbeat(shard: Shard, request: GroupHeartbeatRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Extend the member's session and report whether the member's generation is still current."""
    group = shard.groups.get(request.group)
    consumers = None if group is not None else shard.versions.newest.consumers.get(request.group)
    if consumers is not None:
        heartbeat_consumer_group(shard, consumers, request, ticket, call)
        return
    call.reply(ticket, GroupHeartbeatReply(_heartbeat_error(shard, group, request, call)))


def _heartbeat_error(
    shard: Shard, group: ClassicGroup | None, request: GroupHeartbeatRequest, call: CoordinatorCall
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    shard.reset_session(group, group.members[request.member_id], call.now.monotonic_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def leave(shard: Shard, request: LeaveRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Remove members, each with its own error code; then check once whether the group must rebalance."""
    consumers = shard.versions.newest.consumers.get(request.group)
    if consumers is not None:
        leave_consumer_group(shard, consumers, request, ticket, call)
        return
    group = shard.groups.get(request.group)
    members = 0 if group is None else len(group.members)
    rows = tuple(leaver._replace(error=_leave(shard, group, leaver, call)) for leaver in request.members)
    call.reply(ticket, LeaveReply(ErrorCode.NONE, rows))
    if group is not None and any(row.error is ErrorCode.NONE for row in rows):
        _rebalance_after_leaving(shard, group, call, is_smaller=len(group.members) < members)


def _leave(shard: Shard, group: ClassicGroup | None, leaver: Leaver, call: CoordinatorCall) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    member_id = leaver.member_id
    if not member_id:
        member_id = group.static_members.get(leaver.instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.pending_join:
        error = group.member_error(member_id, leaver.instance_id)
        if error is not ErrorCode.NONE:
            return error
    remove_member(shard, group, member_id, call, ErrorCode.UNKNOWN_MEMBER_ID)
    return ErrorCode.NONE


def session_timed_out(shard: Shard, group: ClassicGroup, member_id: str, call: CoordinatorCall) -> None:
    """Remove a member, or an issued member id, that sent nothing for its session timeout."""
    if member_id in group.pending_join:
        group.remove(member_id)
        _rebalance_after_leaving(shard, group, call, is_smaller=False)
        return
    member = group.members.get(member_id)
    if member is None or (member.is_waiting and not member.is_new):
        return
    remove_member(shard, group, member_id, call, ErrorCode.UNKNOWN_MEMBER_ID)
    _rebalance_after_leaving(shard, group, call, is_smaller=True)


def _rebalance_after_leaving(shard: Shard, group: ClassicGroup, call: CoordinatorCall, *, is_smaller: bool) -> None:
    """Rebalance, or complete a rebalance, after members left. Without `is_smaller`, only issued member ids were
    removed, which were not part of the generation."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_none_missing(shard, group, call)
    elif is_smaller and not group.is_empty:
        rebalance(shard, group, call)
    shard.forget_if_gone(group.group_id)


def shrink_if_too_large(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Rebalance a loaded group that has more members than the current limit; the last members to rejoin are
    rejected."""
    if len(group.members) > shard.settings.members_max:
        prepare(shard, group, call)
