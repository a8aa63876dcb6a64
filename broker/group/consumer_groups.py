"""Consumer groups of the next-generation protocol, as a part of the group coordinator.

The decisions are in `kraft.broker.consumer_group`. This module finds the group, writes the entries of an operation as
one batch, sends the reply when the batch is committed, and sets timers. The state of a group is that of its records, so
an operation that is not written changes nothing.
Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.classic_members import session_timeout_ms
from kraft.broker.consumer_group.describing import describe
from kraft.broker.consumer_group.epochs import bump_if_changed
from kraft.broker.consumer_group.heartbeat import Surroundings, heartbeat
from kraft.broker.consumer_group.leaving import fence
from kraft.broker.consumer_group.membership import member_refusal
from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.records import MemberState
from kraft.broker.consumer_group.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
)
from kraft.broker.consumer_group.resolving import continue_resolutions
from kraft.broker.consumer_group.state import EMPTY_GROUP, ConsumerGroup, Draft
from kraft.broker.consumer_group.timers import ConsumerTimer, ConsumerTimerKind
from kraft.broker.group.classic_group import ClassicGroup
from kraft.broker.group.migrating import (
    begin_upgraded_group,
    downgrade,
    is_downgraded_without,
    upgrade_classic_group,
)
from kraft.broker.group.records import GroupKey, GroupLogEntry
from kraft.broker.group.requests import CONSUMER_TYPE, ListedGroup, Ticket
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import ConsumerTimerFired, CoordinatorCall, ReadStableOffsets, SendReply
from kraft.broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from kraft.wire.error_codes import ErrorCode

TIMER_RETRY_MS = 500
RESOLUTION_PAUSE_MS = 1
"""Milliseconds between two steps of a long resolution, so that requests are handled in between."""


def consumer_heartbeat(shard: Shard, request: ConsumerHeartbeatRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Handle a heartbeat of a consumer group's member, and answer when everything that it changes is committed."""
    group_id = request.group
    group = shard.versions.newest.consumers.get(group_id)
    draft = Draft(group_id, EMPTY_GROUP if group is None else group)
    classic = shard.groups.get(group_id) if group is None else None
    if group is None:
        refusal = _create(shard, request, classic, draft, call)
        if refusal is not None:
            call.reply(ticket, request.refused(ErrorCode.GROUP_ID_NOT_FOUND, refusal))
            return
    elif _leaves_classic_members(shard, group, request):
        downgrade(shard, group_id, group, request.member_id, call)
        reply = ConsumerHeartbeatReply(ErrorCode.NONE, None, request.member_id, LEAVE_EPOCH)
        call.then(SendReply(ticket, request, reply))
        return
    memory = shard.memories.get(group_id) or GroupMemory()
    settings = shard.settings.settings_of(group_id)
    reply = heartbeat(draft, request, Surroundings(shard.topics, settings, memory, call.now))
    if reply.error is not ErrorCode.NONE:
        call.entries.clear()
        call.reply(ticket, reply)
        return
    shard.memories[group_id] = memory
    write_draft(draft, call)
    call.then(SendReply(ticket, request, reply))
    if classic is not None:
        begin_upgraded_group(shard, classic, call)
    set_member_timers(shard, request.member_id, EMPTY_GROUP if group is None else group, draft, call)


def _create(
    shard: Shard,
    request: ConsumerHeartbeatRequest,
    classic: ClassicGroup | None,
    draft: Draft,
    call: CoordinatorCall,
) -> str | None:
    """Begin a new consumer group. An empty classic group makes room; one with members is upgraded. Return why the
    heartbeat may not create its group."""
    if request.group in shard.versions.newest.shares:
        return f"Group {request.group} is not a consumer group."
    if request.epoch != JOIN_EPOCH:
        return f"Group {request.group} not found."
    if classic is not None and not classic.is_empty:
        refusal = upgrade_classic_group(shard, classic, draft, call)
        if refusal is not None:
            return refusal
    if request.group in shard.versions.newest.groups:
        call.write(GroupLogEntry(GroupKey(request.group), None))
    return None


def _leaves_classic_members(shard: Shard, group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> bool:
    """Return whether this request lets the last member with the new protocol leave."""
    is_leaving = request.epoch == LEAVE_EPOCH
    if not is_leaving or member_refusal(group, request.member_id, request.instance_id) is not None:
        return False
    return is_downgraded_without(shard, request.group, group, request.member_id)


def write_draft(draft: Draft, call: CoordinatorCall) -> None:
    """Write the entries of an operation."""
    for entry in draft.entries:
        call.write(entry)


# timers


def set_member_timers(shard: Shard, member_id: str, before: ConsumerGroup, draft: Draft, call: CoordinatorCall) -> None:
    """Set the timers of a member that has sent a heartbeat or joined.

    Timers that no longer apply are not cancelled, because the records of the operation may not be written. They find
    that they do not apply when they fire."""
    session = ConsumerTimer(ConsumerTimerKind.SESSION, draft.group_id, member_id)
    revocation = ConsumerTimer(ConsumerTimerKind.REVOCATION, draft.group_id, member_id)
    now_ms = call.now.monotonic_ms
    member = draft.group.members.get(member_id)
    if member is None:
        return
    timeout_ms = session_timeout_ms(member, shard.settings.settings_of(draft.group_id))
    shard.timers.set(session, now_ms + timeout_ms)
    is_moved = draft.group.current.get(member_id) is not before.current.get(member_id)
    if is_moved and _is_revoking(draft.group, member_id):
        shard.timers.set(revocation, now_ms + member.rebalance_timeout_ms)
    _continue_later(shard, draft.group_id, now_ms)


def _is_revoking(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether the member must revoke partitions within its rebalance timeout. A static member that is away has
    none left. A member with the classic protocol has the same time to join again."""
    current = group.assignment_of(member_id)
    is_here = group.members[member_id].classic is None and current.epoch != LEAVE_STATIC_EPOCH
    return is_here and current.state is MemberState.UNREVOKED_PARTITIONS


def _continue_later(shard: Shard, group_id: str, now_ms: int) -> None:
    """Set a timer if the group has expressions left to resolve."""
    memory = shard.memories.get(group_id)
    if memory is not None and memory.resolutions:
        timer = ConsumerTimer(ConsumerTimerKind.RESOLUTION, group_id)
        shard.timers.set(timer, now_ms + RESOLUTION_PAUSE_MS)


def begin_consumer_groups(shard: Shard, call: CoordinatorCall) -> None:
    """Set the timers of all members of a loaded partition: the full time of each starts now."""
    now_ms = call.now.monotonic_ms
    for group_id, group in sorted(shard.versions.newest.consumers.items()):
        settings = shard.settings.settings_of(group_id)
        for member_id, member in sorted(group.members.items()):
            timeout_ms = session_timeout_ms(member, settings)
            shard.timers.set(ConsumerTimer(ConsumerTimerKind.SESSION, group_id, member_id), now_ms + timeout_ms)
            if _is_revoking(group, member_id):
                revocation = ConsumerTimer(ConsumerTimerKind.REVOCATION, group_id, member_id)
                shard.timers.set(revocation, now_ms + member.rebalance_timeout_ms)


def consumer_timer_fired(shard: Shard, timer: ConsumerTimer, call: CoordinatorCall) -> None:
    """Fence a member whose time is over, or continue to resolve expressions."""
    group = shard.versions.newest.consumers.get(timer.group)
    if group is None:
        return
    draft, memory = Draft(timer.group, group), shard.memories.setdefault(timer.group, GroupMemory())
    if timer.kind is ConsumerTimerKind.RESOLUTION:
        if continue_resolutions(draft, memory, call.now):
            bump_if_changed(draft, shard.topics, memory, is_changed=True)
        _continue_later(shard, timer.group, call.now.monotonic_ms)
    elif timer.member_id in group.members and _is_over(group, timer):
        if is_downgraded_without(shard, timer.group, group, timer.member_id):
            downgrade(shard, timer.group, group, timer.member_id, call)
            call.then(ConsumerTimerFired(timer, group))
            return
        fence(draft, timer.member_id, shard.topics, memory)
    if draft.entries:
        write_draft(draft, call)
        call.then(ConsumerTimerFired(timer, group))


def _is_over(group: ConsumerGroup, timer: ConsumerTimer) -> bool:
    """Return whether the timer still applies to the member."""
    return timer.kind is not ConsumerTimerKind.REVOCATION or _is_revoking(group, timer.member_id)


def consumer_write_failed(shard: Shard, group_id: str) -> None:
    """Forget what the coordinator remembers of a group, because it may belong to records that were not written."""
    shard.memories.pop(group_id, None)


def consumer_timer_failed(shard: Shard, fired: ConsumerTimerFired, call: CoordinatorCall) -> None:
    """Let the timer fire again if the log refused its records. If they were appended and only their commit takes long,
    the member is gone; it may have joined again meanwhile."""
    timer = fired.timer
    consumer_write_failed(shard, timer.group)
    if shard.versions.newest.consumers.get(timer.group) is fired.group:
        shard.timers.set(timer, call.now.monotonic_ms + TIMER_RETRY_MS)


# reading


def describe_consumer_group(
    shard: Shard, request: ConsumerDescribeRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Describe a group after all writes in flight are committed."""
    call.then(ReadStableOffsets(ticket, request))


def read_description(shard: Shard, request: ConsumerDescribeRequest) -> ConsumerDescribeReply:
    """Return the description of a consumer group from the committed state."""
    group = shard.versions.committed.consumers.get(request.group)
    if group is not None:
        return describe(group, shard.topics, shard.settings.settings_of(request.group).assignors)
    is_other = request.group in shard.groups or request.group in shard.versions.committed.shares
    problem = "is not a consumer group" if is_other else "not found"
    return request.refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group} {problem}.")


def list_consumer_groups(shard: Shard) -> list[ListedGroup]:
    """Return the consumer groups of the committed state."""
    return [
        ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
        for group_id, group in shard.versions.committed.consumers.items()
    ]
