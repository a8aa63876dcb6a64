"""A rebalance: from the moment that a group needs a new generation until its members know that generation.

    Empty, Stable, CompletingRebalance → PreparingRebalance → CompletingRebalance (or Empty, if no member is left)

Invariants: the generation rises with each completed join phase. Every parked request is answered exactly once. When a
member leaves, expires or is removed while others wait, the rebalance may complete as if that member had been the last
one missing.
Source: Kafka's GroupMetadataManager, KIP-134 (initial delay), KAFKA-12890 (members that never sync).
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState, Member
from kraft.broker.group.records import Entry, GroupKey
from kraft.broker.group.requests import NO_MEMBER_ID, JoinReply, SyncReply
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import Turn
from kraft.broker.group.timers import Timer, TimerKind
from kraft.wire.error_codes import ErrorCode


def enter(group: ClassicGroup, state: GroupState, turn: Turn) -> None:
    """The group is in this state now."""
    group.state = state
    group.state_timestamp = turn.now.wall_ms


def rebalance(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """Somebody came, left or changed: begin a rebalance, or see whether the one that is under way can end."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(shard, group, turn)
    else:
        prepare(shard, group, turn)


def prepare(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """Begin a rebalance. Who waits for an assignment is told to join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_syncs(shard, group, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    shard.timers.cancel(Timer(TimerKind.SYNC, group.group_id))
    group.is_initial_rebalance = group.is_empty
    group.new_member_came = False
    enter(group, GroupState.PREPARING_REBALANCE, turn)
    if not group.is_initial_rebalance:
        if group.all_joined:
            complete(shard, group, turn)
        else:
            _wait_for_joins(shard, group, turn, group.rebalance_timeout_ms)
        return
    delay_ms = shard.settings.initial_rebalance_delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    if delay_ms:
        _wait_for_joins(shard, group, turn, delay_ms)
    else:
        complete(shard, group, turn)


def complete_if_all_joined(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """End the join phase if nobody is missing; the first one of a group waits for its delay in any case."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
        complete(shard, group, turn)


def complete_if_none_missing(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """Somebody is gone who may have been the last one that was waited for. Without anybody there is no delay."""
    if not group.members:
        group.is_initial_rebalance = False
    complete_if_all_joined(shard, group, turn)


def join_time_over(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """The join timer fired: go on with those that are here, or, if more came during the initial delay, wait again."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.new_member_came and group.initial_remaining_ms:
        group.new_member_came = False
        delay_ms = min(shard.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms -= delay_ms
        _wait_for_joins(shard, group, turn, delay_ms)
    else:
        complete(shard, group, turn)


def complete(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """End the join phase: whoever has not come is out, but for static members; the rest are the next generation."""
    shard.timers.cancel(Timer(TimerKind.JOIN, group.group_id))
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.instance_id is None:
            group.remove(member.member_id)
            shard.forget_session(group, member.member_id)
    if group.members and not group.elect_leader():
        _wait_for_joins(shard, group, turn, group.rebalance_timeout_ms)
        return
    group.generation += 1
    shard.counts.completed_rebalances += 1
    group.is_initial_rebalance = False
    if not group.members:
        group.protocol = None
        group.leader = None
        group.find_subscribed()
        enter(group, GroupState.EMPTY, turn)
        turn.write(Entry(GroupKey(group.group_id), group.value(())))
        return
    group.protocol = group.vote()
    group.find_subscribed()
    enter(group, GroupState.COMPLETING_REBALANCE, turn)
    for member in group.members.values():
        if member.awaiting_join is not None:
            turn.reply(member.awaiting_join, group.join_reply(member.member_id))
            member.awaiting_join = None
        member.is_new = False
        shard.reset_session(group, member, turn.now.monotonic_ms)
        group.pending_sync[member.member_id] = None
    deadline_ms = turn.now.monotonic_ms + group.rebalance_timeout_ms
    shard.timers.set(Timer(TimerKind.SYNC, group.group_id), deadline_ms)


def sync_time_over(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """Members that never asked for their assignment block nobody: they are out."""
    in_force = group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    if not in_force or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        group.remove(member_id)
        shard.forget_session(group, member_id)
    prepare(shard, group, turn)


def synced(shard: Shard, group: ClassicGroup, member_id: str) -> None:
    """The member has asked for its assignment."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        shard.timers.cancel(Timer(TimerKind.SYNC, group.group_id))


def fail_syncs(shard: Shard, group: ClassicGroup, turn: Turn, error: ErrorCode) -> None:
    """Nobody gets an assignment in this generation."""
    for member in group.members.values():
        member.assignment = b""
        answer_sync(shard, group, member, turn, SyncReply(error))


def answer_sync(shard: Shard, group: ClassicGroup, member: Member, turn: Turn, reply: SyncReply) -> None:
    """Answer the member's parked sync, if there is one; from here on its silence counts again."""
    if member.awaiting_sync is not None:
        turn.reply(member.awaiting_sync, reply)
        member.awaiting_sync = None
        shard.reset_session(group, member, turn.now.monotonic_ms)


def dismiss(shard: Shard, group: ClassicGroup, member_id: str, turn: Turn, error: ErrorCode) -> None:
    """Take a member out, and tell what it waits for. The caller sees to the rest of the group."""
    member = group.remove(member_id)
    shard.forget_session(group, member_id)
    if member is not None:
        dismiss_requests(member, turn, error)


def dismiss_requests(member: Member, turn: Turn, error: ErrorCode) -> None:
    """The member's id is not good any more: whatever it waits for is refused."""
    if member.awaiting_join is not None:
        named = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else NO_MEMBER_ID
        turn.reply(member.awaiting_join, JoinReply(error, named))
        member.awaiting_join = None
    if member.awaiting_sync is not None:
        turn.reply(member.awaiting_sync, SyncReply(error))
        member.awaiting_sync = None


def _wait_for_joins(shard: Shard, group: ClassicGroup, turn: Turn, delay_ms: int) -> None:
    shard.timers.set(Timer(TimerKind.JOIN, group.group_id), turn.now.monotonic_ms + delay_ms)
