"""Heartbeat, LeaveGroup, and the end of sessions.

Source: HeartbeatRequest 0 to 4, LeaveGroupRequest 0 to 5, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.rebalance import complete_if_none_missing, dismiss, prepare, rebalance
from kraft.broker.group.requests import HeartbeatReply, HeartbeatRequest, Leaver, LeaveReply, LeaveRequest, Ticket
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import Turn
from kraft.wire.error_codes import ErrorCode


def heartbeat(shard: Shard, request: HeartbeatRequest, ticket: Ticket, turn: Turn) -> None:
    """The member lives; is its generation still in force?"""
    group = shard.groups.get(request.group)
    turn.reply(ticket, HeartbeatReply(_heard(shard, group, request, turn)))


def _heard(shard: Shard, group: ClassicGroup | None, request: HeartbeatRequest, turn: Turn) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    shard.reset_session(group, group.members[request.member_id], turn.now.monotonic_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def leave(shard: Shard, request: LeaveRequest, ticket: Ticket, turn: Turn) -> None:
    """Members go, each with its own answer; then the group is looked at once."""
    group = shard.groups.get(request.group)
    members = 0 if group is None else len(group.members)
    rows = tuple(leaver._replace(error=_leave(shard, group, leaver, turn)) for leaver in request.members)
    turn.reply(ticket, LeaveReply(ErrorCode.NONE, rows))
    if group is not None and any(row.error is ErrorCode.NONE for row in rows):
        _look_after_leaving(shard, group, turn, is_smaller=len(group.members) < members)


def _leave(shard: Shard, group: ClassicGroup | None, leaver: Leaver, turn: Turn) -> ErrorCode:
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
    dismiss(shard, group, member_id, turn, ErrorCode.UNKNOWN_MEMBER_ID)
    return ErrorCode.NONE


def session_over(shard: Shard, group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """A member, or an id that was given out, was not heard of for its session time-out."""
    if member_id in group.pending_join:
        group.remove(member_id)
        _look_after_leaving(shard, group, turn, is_smaller=False)
        return
    member = group.members.get(member_id)
    if member is None or (member.is_waiting and not member.is_new):
        return
    dismiss(shard, group, member_id, turn, ErrorCode.UNKNOWN_MEMBER_ID)
    _look_after_leaving(shard, group, turn, is_smaller=True)


def _look_after_leaving(shard: Shard, group: ClassicGroup, turn: Turn, *, is_smaller: bool) -> None:
    """Members have gone, or (not `is_smaller`) only ids that were given out: these had no part in the generation."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_none_missing(shard, group, turn)
    elif is_smaller and not group.is_empty:
        rebalance(shard, group, turn)
    shard.forget_if_gone(group.group_id)


def shrink_if_too_large(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """A loaded group that is larger than allowed now joins anew; the last ones to come stay outside."""
    if len(group.members) > shard.settings.members_max:
        prepare(shard, group, turn)
