"""JoinGroup: decide who may join, under which member id, and whether that starts a new generation.

Source: JoinGroupRequest 0 to 9, Kafka's GroupMetadataManager, KIP-394 (known ids), KIP-345 (static members), KIP-814
(assignment skipped).
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState, Member
from kraft.broker.group.rebalance import complete_if_none_missing, dismiss, dismiss_requests, rebalance
from kraft.broker.group.records import Entry, GroupKey, GroupValue
from kraft.broker.group.requests import NO_MEMBER_ID, JoinReply, JoinRequest, Ticket
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import GoOn, StaticMemberReplaced, Turn
from kraft.broker.group.timers import Timer, TimerKind
from kraft.wire.error_codes import ErrorCode

NEW_GROUP = GroupValue("", 0, None, None, -1, ())
"""What is written of a group before anybody is in it."""


def join(shard: Shard, request: JoinRequest, ticket: Ticket, turn: Turn) -> None:
    """Admit, answer or park. A group that does not exist is written first; its founder comes back when it is safe."""
    group = shard.groups.get(request.group)
    if group is None and request.member_id:
        turn.reply(ticket, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    elif group is None and not (request.protocol_type and request.protocols):
        turn.reply(ticket, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif group is None:
        value = NEW_GROUP._replace(state_timestamp=turn.now.wall_ms)
        turn.write(Entry(GroupKey(request.group), value))
        turn.then(GoOn(ticket, request))
    elif not _has_room(shard, group, request):
        turn.reply(ticket, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED))
        dismiss(shard, group, request.member_id, turn, ErrorCode.GROUP_MAX_SIZE_REACHED)
        complete_if_none_missing(shard, group, turn)
    elif not group.supports(request.protocol_type, request.protocols):
        turn.reply(ticket, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id:
        _join_known(shard, group, request, ticket, turn)
    else:
        _join_new(shard, group, request, ticket, turn)


def _has_room(shard: Shard, group: ClassicGroup, request: JoinRequest) -> bool:
    """While members join again, those that wait are counted: of a group that is too large the last ones are pushed
    out. A static member that returns under a new id takes nobody's place."""
    members_max = shard.settings.members_max
    if group.is_empty or (request.instance_id is not None and request.instance_id in group.static_members):
        return True
    known = group.members.get(request.member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (known is not None and known.awaiting_join is not None) or group.joined < members_max
    return known is not None or len(group.members) < members_max


# who has no id yet


def _join_new(shard: Shard, group: ClassicGroup, request: JoinRequest, ticket: Ticket, turn: Turn) -> None:
    instance_id = request.instance_id
    member_id = f"{request.client_id if instance_id is None else instance_id}-{request.fresh_id}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _add(shard, group, member_id, request, ticket, turn)
        else:
            _replace_static(shard, group, group.members[old_id], member_id, request, ticket, turn)
    elif request.requires_known_id:
        group.pending_join[member_id] = None
        timer = Timer(TimerKind.SESSION, group.group_id, member_id)
        shard.timers.set(timer, turn.now.monotonic_ms + request.session_timeout_ms)
        turn.reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(shard, group, member_id, request, ticket, turn)


def _add(shard: Shard, group: ClassicGroup, member_id: str, request: JoinRequest, ticket: Ticket, turn: Turn) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    member.awaiting_join = ticket
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.state is GroupState.PREPARING_REBALANCE and group.is_initial_rebalance:
        group.new_member_came = True
    group.pending_join.pop(member_id, None)
    group.add(member)
    timer = Timer(TimerKind.SESSION, group.group_id, member_id)
    shard.timers.set(timer, turn.now.monotonic_ms + shard.settings.first_join_timeout_ms)
    rebalance(shard, group, turn)


# who has one


def _join_known(shard: Shard, group: ClassicGroup, request: JoinRequest, ticket: Ticket, turn: Turn) -> None:
    member_id = request.member_id
    if member_id in group.pending_join and request.instance_id is None:
        _add(shard, group, member_id, request, ticket, turn)
        return
    error = group.member_error(member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        turn.reply(ticket, JoinReply(error, member_id))
        return
    member = group.members[member_id]
    knows_all = member.protocols == request.protocols
    leads = group.leader == member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        changes = True
    elif group.state is GroupState.COMPLETING_REBALANCE:
        changes = not knows_all
    else:
        changes = leads or not knows_all
    if changes:
        _update(member, request, ticket, turn)
        rebalance(shard, group, turn)
    else:
        shard.reset_session(group, member, turn.now.monotonic_ms)
        turn.reply(ticket, group.join_reply(member_id))


def _update(member: Member, request: JoinRequest, ticket: Ticket, turn: Turn) -> None:
    """The member joins again, with what it supports now. Whatever it waited for before is over."""
    dismiss_requests(member, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.awaiting_join = ticket


# a static member that returns


def _replace_static(
    shard: Shard,
    group: ClassicGroup,
    old: Member,
    member_id: str,
    request: JoinRequest,
    ticket: Ticket,
    turn: Turn,
) -> None:
    """The old id is fenced at once. A group that is stable, and whose protocol stays, goes on without a rebalance: only
    the new id is written."""
    leader = group.leader or NO_MEMBER_ID
    shard.forget_session(group, old.member_id)
    dismiss_requests(old, turn, ErrorCode.FENCED_INSTANCE_ID)
    new = old.renamed(member_id)
    new.client_id, new.client_host = request.client_id, request.client_host
    group.replace(old.member_id, new)
    _update(new, request, ticket, turn)
    shard.reset_session(group, new, turn.now.monotonic_ms)
    if group.state is GroupState.STABLE and group.vote() == group.protocol:
        group.find_subscribed()
        assignments = [(member.member_id, member.assignment) for member in group.members.values()]
        turn.write(Entry(GroupKey(group.group_id), group.value(assignments)))
        turn.then(StaticMemberReplaced(group.group_id, member_id, old, leader, ticket, request))
    else:
        rebalance(shard, group, turn)


def replaced(shard: Shard, done: StaticMemberReplaced, turn: Turn) -> None:
    """The new id is safe: the member goes on with its assignment."""
    group = shard.groups.get(done.group)
    member = None if group is None else group.members.get(done.member_id)
    if group is None or member is None or member.awaiting_join is not done.ticket:
        return
    if group.state is not GroupState.STABLE:
        return  # a rebalance has begun: it answers with the next generation
    member.awaiting_join = None
    shard.reset_session(group, member, turn.now.monotonic_ms)
    if done.request.can_skip_assignment:
        leads = group.leader == done.member_id
        turn.reply(done.ticket, group.join_reply(done.member_id, skip_assignment=leads))
    else:
        turn.reply(done.ticket, group.join_reply(done.member_id, leader=done.leader))


def not_replaced(shard: Shard, undone: StaticMemberReplaced, error: ErrorCode, turn: Turn) -> None:
    """The new id could not be written: the old one is good again. Whoever has taken the member out, or unloaded its
    group, has answered it."""
    group = shard.groups.get(undone.group)
    member = None if group is None else group.members.get(undone.member_id)
    if group is None or member is None or member.awaiting_join is not undone.ticket:
        return
    member.awaiting_join = None
    turn.reply(undone.ticket, JoinReply(error))
    shard.forget_session(group, undone.member_id)
    group.replace(undone.member_id, undone.old)
    group.find_subscribed()
    shard.reset_session(group, undone.old, turn.now.monotonic_ms)
