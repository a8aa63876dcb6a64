"""Requests of classic clients to a consumer group, as a part of the group coordinator.

The decisions are in `kraft.broker.consumer_group.classic_members`. Every reply waits for the writes before it, so that
a client never learns of an epoch that may not be committed. A client that is asked to join again must do so within its
rebalance timeout, and then fetch its assignment within the same time.
Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.classic_members import (
    assignment_bytes,
    identity_error,
    join,
    join_error,
    leave,
    member_error,
    must_rejoin,
    session_timeout_ms,
    sync_error,
)
from kraft.broker.consumer_group.epochs import epoch_due
from kraft.broker.consumer_group.heartbeat import Surroundings
from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.records import ClassicMemberValue
from kraft.broker.consumer_group.requests import JOIN_EPOCH, ConsumerHeartbeatRequest
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.timers import ConsumerTimer, ConsumerTimerKind
from kraft.broker.group.consumer_groups import set_member_timers, write_draft
from kraft.broker.group.migrating import downgrade, is_downgraded_without
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
    Ticket,
)
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import ContinueRequest, CoordinatorCall, SendReply
from kraft.broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from kraft.wire.error_codes import ErrorCode


def join_consumer_group(
    shard: Shard, group: ConsumerGroup, request: JoinRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Let a classic client join a consumer group that has members. If it takes the place of the last member with the
    new protocol, the group is downgraded, and the client joins the classic group."""
    instance_id, has_fresh_id = request.instance_id, not request.member_id
    prefix = request.client_id if instance_id is None else instance_id
    named = request._replace(member_id=request.member_id or f"{prefix}-{request.fresh_id}")
    settings = shard.settings.settings_of(request.group)
    error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_type == CONSUMER_PROTOCOL_TYPE:
        error = join_error(group, named.member_id, instance_id, request.protocols, settings, has_fresh_id=has_fresh_id)
    if error is not ErrorCode.NONE:
        call.reply(ticket, request.refused(error))
        return
    if has_fresh_id and instance_id is None and request.requires_known_id:
        call.reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, named.member_id))
        return
    owner = None if instance_id is None else group.static_members.get(instance_id)
    replaces_consumer = owner is not None and group.members[owner].classic is None
    draft, memory = Draft(request.group, group), shard.memories.setdefault(request.group, GroupMemory())
    classic = ClassicMemberValue(request.session_timeout_ms, request.protocols)
    after = join(draft, _as_heartbeat(named), classic, Surroundings(shard.topics, settings, memory, call.now))
    if after is None:
        call.reply(ticket, named.refused(ErrorCode.UNKNOWN_MEMBER_ID))
        return
    write_draft(draft, call)
    if replaces_consumer and is_downgraded_without(shard, request.group, draft.group, None):
        downgrade(shard, request.group, draft.group, None, call)
        call.then(ContinueRequest(ticket, named))
        return
    protocol = request.protocols[0][0]
    reply = JoinReply(ErrorCode.NONE, named.member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, protocol)
    call.then(SendReply(ticket, named, reply))
    set_member_timers(shard, named.member_id, group, draft, call)
    shard.timers.cancel(ConsumerTimer(ConsumerTimerKind.CLASSIC_JOIN, request.group, named.member_id))
    synced_by = ConsumerTimer(ConsumerTimerKind.CLASSIC_SYNC, request.group, named.member_id)
    shard.timers.set(synced_by, call.now.monotonic_ms + request.rebalance_timeout_ms)


def _as_heartbeat(request: JoinRequest) -> ConsumerHeartbeatRequest:
    return ConsumerHeartbeatRequest(
        request.group,
        request.member_id,
        JOIN_EPOCH,
        request.client_id,
        request.client_host,
        request.instance_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )


def sync_consumer_group(
    shard: Shard, group: ConsumerGroup, request: SyncRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Return the member's assignment."""
    member_id = request.member_id
    error = member_error(group, member_id, request.instance_id, request.generation)
    if error is ErrorCode.NONE:
        due = _epoch_due(shard, group, request.group, call)
        error = sync_error(group, member_id, request.protocol_type, request.protocol, due)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            _expect_join(shard, group, request.group, member_id, call)
    if error is not ErrorCode.NONE:
        call.then(SendReply(ticket, request, SyncReply(error)))
        return
    shard.timers.cancel(ConsumerTimer(ConsumerTimerKind.CLASSIC_SYNC, request.group, member_id))
    _reset_session(shard, group, request.group, member_id, call)
    assignment = assignment_bytes(group, member_id, shard.topics)
    reply = SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol, assignment)
    call.then(SendReply(ticket, request, reply))


def heartbeat_consumer_group(
    shard: Shard, group: ConsumerGroup, request: GroupHeartbeatRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Extend the member's session, and ask its client to join again if there is a next step."""
    member_id = request.member_id
    error = member_error(group, member_id, request.instance_id, request.generation)
    if error is ErrorCode.NONE:
        _reset_session(shard, group, request.group, member_id, call)
        if must_rejoin(group, member_id, _epoch_due(shard, group, request.group, call)):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            _expect_join(shard, group, request.group, member_id, call)
    call.then(SendReply(ticket, request, GroupHeartbeatReply(error)))


def _epoch_due(shard: Shard, group: ConsumerGroup, group_id: str, call: CoordinatorCall) -> int:
    """Return the epoch that members shall reach now."""
    return epoch_due(group, shard.settings.settings_of(group_id).assignment_interval_ms, call.now.wall_ms)


def leave_consumer_group(
    shard: Shard, group: ConsumerGroup, request: LeaveRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Remove members with the classic protocol, each with its own error code. Their timers stay, because the removal
    may not be written; a timer without a member has no effect."""
    leaving: dict[str, None] = {}
    rows = []
    for leaver in request.members:
        member_id = leaver.member_id or group.static_members.get(leaver.instance_id or "", "")
        error = identity_error(group, member_id, leaver.instance_id)
        if error is ErrorCode.NONE and member_id in leaving:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE:
            leaving[member_id] = None
        rows.append(Leaver(leaver.member_id, leaver.instance_id, error))
    draft, memory = Draft(request.group, group), shard.memories.setdefault(request.group, GroupMemory())
    if leaving:
        leave(draft, list(leaving), shard.topics, memory)
        write_draft(draft, call)
    call.then(SendReply(ticket, request, LeaveReply(ErrorCode.NONE, tuple(rows))))


def _reset_session(shard: Shard, group: ConsumerGroup, group_id: str, member_id: str, call: CoordinatorCall) -> None:
    timeout_ms = session_timeout_ms(group.members[member_id], shard.settings.settings_of(group_id))
    timer = ConsumerTimer(ConsumerTimerKind.SESSION, group_id, member_id)
    shard.timers.set(timer, call.now.monotonic_ms + timeout_ms)


def _expect_join(shard: Shard, group: ConsumerGroup, group_id: str, member_id: str, call: CoordinatorCall) -> None:
    """Give the client its rebalance timeout to join again, counted from the first time that it is asked to."""
    timer = ConsumerTimer(ConsumerTimerKind.CLASSIC_JOIN, group_id, member_id)
    if not shard.timers.is_set(timer):
        shard.timers.set(timer, call.now.monotonic_ms + group.members[member_id].rebalance_timeout_ms)
