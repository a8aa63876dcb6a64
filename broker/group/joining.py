"""JoinGroup: decide which members may join, under which member id, and whether this starts a new generation.

Source: JoinGroupRequest 0 to 9, Kafka's GroupMetadataManager, KIP-394 (known ids), KIP-345 (static members), KIP-814
(assignment skipped).
"""

from __future__ import annotations

from kraft.broker.consumer_group.leaving import removal
from kraft.broker.group.classic_group import ClassicGroup, GroupState, Member
from kraft.broker.group.mixed_groups import join_consumer_group
from kraft.broker.group.rebalance import complete_if_none_missing, rebalance, reject_parked_requests, remove_member
from kraft.broker.group.records import GroupKey, GroupLogEntry, GroupValue
from kraft.broker.group.requests import NO_MEMBER_ID, JoinReply, JoinRequest, Ticket
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import ContinueRequest, CoordinatorCall, StaticMemberReplaced
from kraft.broker.group.timers import Timer, TimerKind
from kraft.wire.error_codes import ErrorCode

NEW_GROUP = GroupValue("", 0, None, None, -1, ())
"""The record of a new group, before it has members."""


def join(shard: Shard, request: JoinRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Admit, reject or park a JoinGroup request. A new group is written to the log first; the request of its first
    member continues when that write is committed."""
    group, consumers = shard.groups.get(request.group), shard.versions.newest.consumers.get(request.group)
    if request.group in shard.versions.newest.shares:
        call.reply(ticket, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif consumers is not None and consumers.members:
        join_consumer_group(shard, consumers, request, ticket, call)
    elif group is None and request.member_id:
        call.reply(ticket, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    elif group is None and not (request.protocol_type and request.protocols):
        call.reply(ticket, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif group is None:
        if consumers is not None:
            for entry in removal(request.group, consumers):
                call.write(entry)
        value = NEW_GROUP._replace(state_timestamp=call.now.wall_ms)
        call.write(GroupLogEntry(GroupKey(request.group), value))
        call.then(ContinueRequest(ticket, request))
    elif not _has_room(shard, group, request):
        call.reply(ticket, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED))
        remove_member(shard, group, request.member_id, call, ErrorCode.GROUP_MAX_SIZE_REACHED)
        complete_if_none_missing(shard, group, call)
    elif not group.supports(request.protocol_type, request.protocols):
        call.reply(ticket, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id:
        _join_known(shard, group, request, ticket, call)
    else:
        _join_new(shard, group, request, ticket, call)


def _has_room(shard: Shard, group: ClassicGroup, request: JoinRequest) -> bool:
    """Return whether the group has room for the member. During a rebalance only members that have rejoined count, so if
    a group is too large, the last members to rejoin are rejected. A static member that returns under a new id needs no
    additional place."""
    members_max = shard.settings.members_max
    if group.is_empty or (request.instance_id is not None and request.instance_id in group.static_members):
        return True
    known = group.members.get(request.member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (known is not None and known.awaiting_join is not None) or group.joined < members_max
    return known is not None or len(group.members) < members_max


# members without an id


def _join_new(shard: Shard, group: ClassicGroup, request: JoinRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    instance_id = request.instance_id
    member_id = f"{request.client_id if instance_id is None else instance_id}-{request.fresh_id}"
    if instance_id is not None:
        old_id = group.static_members.get(instance_id)
        if old_id is None:
            _add(shard, group, member_id, request, ticket, call)
        else:
            _replace_static(shard, group, group.members[old_id], member_id, request, ticket, call)
    elif request.requires_known_id:
        group.pending_join[member_id] = None
        timer = Timer(TimerKind.SESSION, group.group_id, member_id)
        shard.timers.set(timer, call.now.monotonic_ms + request.session_timeout_ms)
        call.reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(shard, group, member_id, request, ticket, call)


def _add(
    shard: Shard, group: ClassicGroup, member_id: str, request: JoinRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
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
    shard.timers.set(timer, call.now.monotonic_ms + shard.settings.first_join_timeout_ms)
    rebalance(shard, group, call)


# members with an id


def _join_known(shard: Shard, group: ClassicGroup, request: JoinRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    member_id = request.member_id
    if member_id in group.pending_join and request.instance_id is None:
        _add(shard, group, member_id, request, ticket, call)
        return
    error = group.member_error(member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        call.reply(ticket, JoinReply(error, member_id))
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
        _update(member, request, ticket, call)
        rebalance(shard, group, call)
    else:
        shard.reset_session(group, member, call.now.monotonic_ms)
        call.reply(ticket, group.join_reply(member_id))


def _update(member: Member, request: JoinRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Apply a member's new JoinGroup request with its current protocols. Reject its older parked requests."""
    reject_parked_requests(member, call, ErrorCode.REBALANCE_IN_PROGRESS)
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    member.awaiting_join = ticket


# static members that return


def _replace_static(
    shard: Shard,
    group: ClassicGroup,
    old: Member,
    member_id: str,
    request: JoinRequest,
    ticket: Ticket,
    call: CoordinatorCall,
) -> None:
    """Fence the old member id of a static member at once and replace it. If the group is stable and its protocol stays
    the same, write only the new id; there is no rebalance."""
    leader = group.leader or NO_MEMBER_ID
    shard.forget_session(group, old.member_id)
    reject_parked_requests(old, call, ErrorCode.FENCED_INSTANCE_ID)
    new = old.renamed(member_id)
    new.client_id, new.client_host = request.client_id, request.client_host
    group.replace(old.member_id, new)
    _update(new, request, ticket, call)
    shard.reset_session(group, new, call.now.monotonic_ms)
    if group.state is GroupState.STABLE and group.vote() == group.protocol:
        group.find_subscribed()
        assignments = [(member.member_id, member.assignment) for member in group.members.values()]
        call.write(GroupLogEntry(GroupKey(group.group_id), group.value(assignments)))
        call.then(StaticMemberReplaced(group.group_id, member_id, old, leader, ticket, request))
    else:
        rebalance(shard, group, call)


def replaced(shard: Shard, done: StaticMemberReplaced, call: CoordinatorCall) -> None:
    """Answer the returned static member once its new id is committed. It continues with the assignment of its old
    id."""
    group = shard.groups.get(done.group)
    member = None if group is None else group.members.get(done.member_id)
    if group is None or member is None or member.awaiting_join is not done.ticket:
        return
    if group.state is not GroupState.STABLE:
        return  # a rebalance has begun, which answers the member with the next generation
    member.awaiting_join = None
    shard.reset_session(group, member, call.now.monotonic_ms)
    if done.request.can_skip_assignment:
        leads = group.leader == done.member_id
        call.reply(done.ticket, group.join_reply(done.member_id, skip_assignment=leads))
    else:
        call.reply(done.ticket, group.join_reply(done.member_id, leader=done.leader))


def static_replacement_failed(
    shard: Shard, undone: StaticMemberReplaced, error: ErrorCode, call: CoordinatorCall
) -> None:
    """Restore the old member id, because the new one could not be written. If the member was removed or its group
    unloaded meanwhile, its request was already answered and nothing is done."""
    group = shard.groups.get(undone.group)
    member = None if group is None else group.members.get(undone.member_id)
    if group is None or member is None or member.awaiting_join is not undone.ticket:
        return
    member.awaiting_join = None
    call.reply(undone.ticket, JoinReply(error))
    shard.forget_session(group, undone.member_id)
    group.replace(undone.member_id, undone.old)
    group.find_subscribed()
    shard.reset_session(group, undone.old, call.now.monotonic_ms)
