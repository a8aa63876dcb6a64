"""A rebalance: from the moment when a group needs a new generation until its members have received that generation.

    Empty, Stable, CompletingRebalance → PreparingRebalance → CompletingRebalance (or Empty, if no member remains)

Invariants: the generation rises with each completed join phase. Every parked request is answered exactly once. When a
member leaves, expires or is removed, and it was the last member for which the rebalance waited, the rebalance
completes.
Source: Kafka's GroupMetadataManager, KIP-134 (initial delay), KAFKA-12890 (members that never sync).
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState, Member
from kraft.broker.group.records import GroupKey, GroupLogEntry
from kraft.broker.group.requests import NO_MEMBER_ID, JoinReply, SyncReply
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import CoordinatorCall
from kraft.broker.group.timers import Timer, TimerKind
from kraft.wire.error_codes import ErrorCode


def enter(group: ClassicGroup, state: GroupState, call: CoordinatorCall) -> None:
    """Set the group's state."""
    group.state = state
    group.state_timestamp = call.now.wall_ms


def rebalance(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Begin a rebalance, or complete the current one if possible, after a member joined, left or changed."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(shard, group, call)
    else:
        prepare(shard, group, call)


def prepare(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Begin a rebalance. Members that wait for an assignment get an error with which they join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(shard, group, call, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    shard.timers.cancel(Timer(TimerKind.SYNC, group.group_id))
    group.is_initial_rebalance = group.is_empty
    group.new_member_came = False
    enter(group, GroupState.PREPARING_REBALANCE, call)
    if not group.is_initial_rebalance:
        if group.all_joined:
            complete(shard, group, call)
        else:
            _wait_for_joins(shard, group, call, group.rebalance_timeout_ms)
        return
    delay_ms = shard.settings.initial_rebalance_delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    if delay_ms:
        _wait_for_joins(shard, group, call, delay_ms)
    else:
        complete(shard, group, call)


def complete_if_all_joined(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """End the join phase if all members have joined. The first join phase of a group lasts at least until its initial
    delay is over."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
        complete(shard, group, call)


def complete_if_none_missing(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Complete the rebalance if it waited only for the removed member. The initial delay does not apply to a group
    without members."""
    if not group.members:
        group.is_initial_rebalance = False
    complete_if_all_joined(shard, group, call)


def join_timed_out(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Handle the join timer: complete the join phase with the members that have joined. If more members joined during
    the initial delay, extend the delay instead."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.new_member_came and group.initial_remaining_ms:
        group.new_member_came = False
        delay_ms = min(shard.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms -= delay_ms
        _wait_for_joins(shard, group, call, delay_ms)
    else:
        complete(shard, group, call)


def complete(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """End the join phase: remove members that have not joined, except static ones. The remaining members are the next
    generation."""
    shard.timers.cancel(Timer(TimerKind.JOIN, group.group_id))
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            group.remove(member.member_id)
            shard.forget_session(group, member.member_id)
    if group.members and not group.elect_leader():
        _wait_for_joins(shard, group, call, group.rebalance_timeout_ms)
        return
    group.generation += 1
    shard.counts.completed_rebalances += 1
    group.is_initial_rebalance = False
    if not group.members:
        group.protocol = None
        group.leader = None
        group.find_subscribed()
        enter(group, GroupState.EMPTY, call)
        call.write(GroupLogEntry(GroupKey(group.group_id), group.value(())))
        return
    group.protocol = group.vote()
    group.find_subscribed()
    enter(group, GroupState.COMPLETING_REBALANCE, call)
    for member in group.members.values():
        if member.awaiting_join is not None:
            call.reply(member.awaiting_join, group.join_reply(member.member_id))
            member.awaiting_join = None
        member.is_new = False
        shard.reset_session(group, member, call.now.monotonic_ms)
        group.pending_sync[member.member_id] = None
    deadline_ms = call.now.monotonic_ms + group.rebalance_timeout_ms
    shard.timers.set(Timer(TimerKind.SYNC, group.group_id), deadline_ms)


def sync_timed_out(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Remove members that did not send SyncGroup in time, so that they do not block the others."""
    in_force = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    if not in_force or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        group.remove(member_id)
        shard.forget_session(group, member_id)
    prepare(shard, group, call)


def synced(shard: Shard, group: ClassicGroup, member_id: str) -> None:
    """Record that the member has sent SyncGroup."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        shard.timers.cancel(Timer(TimerKind.SYNC, group.group_id))


def fail_syncs(shard: Shard, group: ClassicGroup, call: CoordinatorCall, error: ErrorCode) -> None:
    """Answer all parked SyncGroup requests with an error: this generation gets no assignments."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(shard, group, member, call, SyncReply(error))


def answer_sync(shard: Shard, group: ClassicGroup, member: Member, call: CoordinatorCall, reply: SyncReply) -> None:
    """Answer the member's parked SyncGroup, if there is one. From now on the member's session can expire again."""
    if member.awaiting_sync is not None:
        call.reply(member.awaiting_sync, reply)
        member.awaiting_sync = None
        shard.reset_session(group, member, call.now.monotonic_ms)


def remove_member(shard: Shard, group: ClassicGroup, member_id: str, call: CoordinatorCall, error: ErrorCode) -> None:
    """Remove a member and reject its parked requests. The caller then checks whether the group must rebalance."""
    member = group.remove(member_id)
    shard.forget_session(group, member_id)
    if member is not None:
        reject_parked_requests(member, call, error)


def reject_parked_requests(member: Member, call: CoordinatorCall, error: ErrorCode) -> None:
    """Reject the member's parked requests, because its id is no longer valid."""
    if member.awaiting_join is not None:
        named = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else NO_MEMBER_ID
        call.reply(member.awaiting_join, JoinReply(error, named))
        member.awaiting_join = None
    if member.awaiting_sync is not None:
        call.reply(member.awaiting_sync, SyncReply(error))
        member.awaiting_sync = None


def _wait_for_joins(shard: Shard, group: ClassicGroup, call: CoordinatorCall, delay_ms: int) -> None:
    shard.timers.set(Timer(TimerKind.JOIN, group.group_id), call.now.monotonic_ms + delay_ms)
