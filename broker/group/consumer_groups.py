"""Consumer groups of the next-generation protocol, as a part of the group coordinator.

The decisions are in `kraft.broker.consumer_group`. This module finds the group, writes the entries of an operation as
one batch, sends the reply when the batch is committed, and sets timers. The state of a group is that of its records, so
an operation that is not written changes nothing.
Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.describing import describe
from kraft.broker.consumer_group.epochs import bump_if_changed
from kraft.broker.consumer_group.heartbeat import Surroundings, heartbeat
from kraft.broker.consumer_group.leaving import fence
from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.records import MemberState
from kraft.broker.consumer_group.requests import (
    JOIN_EPOCH,
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatRequest,
)
from kraft.broker.consumer_group.resolving import continue_resolutions
from kraft.broker.consumer_group.state import EMPTY_GROUP, ConsumerGroup, Draft
from kraft.broker.consumer_group.timers import ConsumerTimer, ConsumerTimerKind
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
    if group is None:
        refusal = _creation_refusal(shard, request)
        if refusal is not None:
            call.reply(ticket, request.refused(ErrorCode.GROUP_ID_NOT_FOUND, refusal))
            return
        if group_id in shard.versions.newest.groups:
            call.write(GroupLogEntry(GroupKey(group_id), None))
    draft = Draft(group_id, EMPTY_GROUP if group is None else group)
    memory = shard.memories.get(group_id) or GroupMemory()
    settings = shard.settings.settings_of(group_id)
    reply = heartbeat(draft, request, Surroundings(shard.topics, settings, memory, call.now))
    if reply.error is not ErrorCode.NONE:
        call.entries.clear()
        call.reply(ticket, reply)
        return
    shard.memories[group_id] = memory
    _write(draft, call)
    call.then(SendReply(ticket, request, reply))
    _set_timers(shard, request.member_id, EMPTY_GROUP if group is None else group, draft, call)


def _creation_refusal(shard: Shard, request: ConsumerHeartbeatRequest) -> str | None:
    """Return why a heartbeat may not create its consumer group; None if it may. An empty classic group makes room."""
    group = shard.groups.get(request.group)
    if group is not None and not group.is_empty:
        return f"Group {request.group} is not a consumer group."
    return None if request.epoch == JOIN_EPOCH else f"Group {request.group} not found."


def _write(draft: Draft, call: CoordinatorCall) -> None:
    for entry in draft.entries:
        call.write(entry)


# timers


def _set_timers(shard: Shard, member_id: str, before: ConsumerGroup, draft: Draft, call: CoordinatorCall) -> None:
    """Set the timers of a member that has sent a heartbeat."""
    session = ConsumerTimer(ConsumerTimerKind.SESSION, draft.group_id, member_id)
    revocation = ConsumerTimer(ConsumerTimerKind.REVOCATION, draft.group_id, member_id)
    now_ms = call.now.monotonic_ms
    member = draft.group.members.get(member_id)
    if member is None:
        shard.timers.cancel(session)
        shard.timers.cancel(revocation)
        return
    shard.timers.set(session, now_ms + shard.settings.settings_of(draft.group_id).session_timeout_ms)
    current = draft.group.assignment_of(member_id)
    if current is not before.current.get(member_id):
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            shard.timers.set(revocation, now_ms + member.rebalance_timeout_ms)
        else:
            shard.timers.cancel(revocation)
    _continue_later(shard, draft.group_id, now_ms)


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
        timeout_ms = shard.settings.settings_of(group_id).session_timeout_ms
        for member_id, member in sorted(group.members.items()):
            shard.timers.set(ConsumerTimer(ConsumerTimerKind.SESSION, group_id, member_id), now_ms + timeout_ms)
            if group.assignment_of(member_id).state is MemberState.UNREVOKED_PARTITIONS:
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
        fence(draft, timer.member_id, shard.topics, memory)
    if draft.entries:
        _write(draft, call)
        call.then(ConsumerTimerFired(timer))


def _is_over(group: ConsumerGroup, timer: ConsumerTimer) -> bool:
    """Return whether the timer still applies to the member."""
    if timer.kind is ConsumerTimerKind.SESSION:
        return True
    return group.assignment_of(timer.member_id).state is MemberState.UNREVOKED_PARTITIONS


def consumer_write_failed(shard: Shard, group_id: str) -> None:
    """Forget what the coordinator remembers of a group, because it may belong to records that were not written."""
    shard.memories.pop(group_id, None)


def consumer_timer_failed(shard: Shard, timer: ConsumerTimer, call: CoordinatorCall) -> None:
    """Let the timer fire again, because its records were not written."""
    consumer_write_failed(shard, timer.group)
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
    is_classic = request.group in shard.groups
    problem = "is not a consumer group" if is_classic else "not found"
    return request.refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group} {problem}.")


def list_consumer_groups(shard: Shard) -> list[ListedGroup]:
    """Return the consumer groups of the committed state."""
    return [
        ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
        for group_id, group in shard.versions.committed.consumers.items()
    ]
