"""SyncGroup: the leader's assignments are written to the log, and sent to members only after they are committed.

A generation is durable after its sync. Until then it exists only in memory.
Source: SyncGroupRequest 0 to 5, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.mixed_groups import sync_consumer_group
from kraft.broker.group.rebalance import answer_sync, enter, fail_syncs, prepare, synced
from kraft.broker.group.records import GroupKey, GroupLogEntry
from kraft.broker.group.requests import SyncReply, SyncRequest, Ticket
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import AssignmentStored, CoordinatorCall
from kraft.wire.error_codes import ErrorCode


def sync(shard: Shard, request: SyncRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Park the request until the leader's assignments are committed; in a stable group, answer at once."""
    consumers = shard.versions.newest.consumers.get(request.group)
    if consumers is not None:
        sync_consumer_group(shard, consumers, request, ticket, call)
        return
    group = shard.groups.get(request.group)
    error = _sync_error(group, request)
    if group is None or error is not ErrorCode.NONE:
        call.reply(ticket, SyncReply(error))
        return
    member = group.members[request.member_id]
    synced(shard, group, member.member_id)
    shard.reset_session(group, member, call.now.monotonic_ms)
    if group.state is GroupState.STABLE:
        call.reply(ticket, SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
        return
    if member.awaiting_sync is not None:
        call.reply(member.awaiting_sync, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = ticket
    if group.leader == member.member_id:
        group.plans += 1
        call.write(GroupLogEntry(GroupKey(group.group_id), group.value(request.assignments)))
        call.then(AssignmentStored(group.group_id, group.generation, group.plans, request.assignments))


def _sync_error(group: ClassicGroup | None, request: SyncRequest) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE


def assigned(shard: Shard, stored: AssignmentStored, call: CoordinatorCall) -> None:
    """Send the committed assignments, if the generation still waits for them."""
    group = _waiting_group(shard, stored)
    if group is None:
        return
    assignments = dict(stored.assignments)
    enter(group, GroupState.STABLE, call)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        reply = SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)
        answer_sync(shard, group, member, call, reply)


def assignments_failed(shard: Shard, lost: AssignmentStored, error: ErrorCode, call: CoordinatorCall) -> None:
    """Answer every parked SyncGroup with an error and rebalance, because the assignments may not be committed."""
    group = _waiting_group(shard, lost)
    if group is not None:
        fail_syncs(shard, group, call, error)
        prepare(shard, group, call)


def _waiting_group(shard: Shard, step: AssignmentStored) -> ClassicGroup | None:
    """Return the group if it still waits for these assignments. A leader that synced again may have sent newer
    assignments; the last ones in the log are valid."""
    group = shard.groups.get(step.group)
    if group is None or group.state is not GroupState.COMPLETING_REBALANCE or group.generation != step.generation:
        return None
    return group if group.plans == step.plan else None
