"""Online migration of a group between the classic and the next-generation protocol, as a part of the group coordinator.

The records are those of `kraft.broker.consumer_group.migration`. The group in memory follows when they are appended
(`GroupCoordinator.appended`). A downgraded group has no leader in its record until its first rebalance. So a
coordinator that loads the group begins that rebalance if it has not happened.
Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.embedded_protocol import encode_assignment, version_of
from kraft.broker.consumer_group.leaving import removal
from kraft.broker.consumer_group.migration import (
    CannotUpgrade,
    ClassicMember,
    classic_members,
    may_downgrade,
    upgrade,
)
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.timers import ConsumerTimer, ConsumerTimerKind
from kraft.broker.group.classic_group import ClassicGroup, GroupState, Member
from kraft.broker.group.rebalance import prepare, reject_parked_requests
from kraft.broker.group.records import GroupKey, GroupLogEntry
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import CoordinatorCall, GroupDowngraded
from kraft.broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from kraft.broker.group.timers import Timer, TimerKind
from kraft.wire.error_codes import ErrorCode

# from classic to consumer group


def upgrade_classic_group(shard: Shard, group: ClassicGroup, draft: Draft, call: CoordinatorCall) -> str | None:
    """Write the members of a classic group to the draft of its consumer group. Return why that is not possible; the
    draft must then be dropped."""
    settings = shard.settings.settings_of(group.group_id)
    reason = None
    if not settings.migration_policy.upgrades:
        reason = "group.consumer.migration.policy does not allow upgrades"
    elif not group.uses_consumer_protocol:
        reason = f"its protocol type is {group.protocol_type!r}, not {CONSUMER_PROTOCOL_TYPE!r}"
    elif len(group.members) > settings.members_max:
        reason = f"it has {len(group.members)} members, a consumer group may have {settings.members_max}"
    else:
        members = [_as_read(member, group.protocol) for member in group.members.values()]
        try:
            upgrade(draft, group.generation, members, shard.topics, call.now.wall_ms)
        except CannotUpgrade as error:
            reason = str(error)
    return None if reason is None else f"Classic group {group.group_id} cannot become a consumer group: {reason}."


def _as_read(member: Member, protocol: str | None) -> ClassicMember:
    """Return the member as the migration reads it. Before the group has chosen a protocol, the member's own choice
    counts."""
    chosen = protocol if protocol is not None else member.protocols[0][0]
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.protocols,
        member.metadata(chosen),
        member.assignment,
    )


def begin_upgraded_group(shard: Shard, group: ClassicGroup, call: CoordinatorCall) -> None:
    """Let clients that wait in the classic group join again, and watch their sessions in the consumer group."""
    for member in group.members.values():
        reject_parked_requests(member, call, ErrorCode.REBALANCE_IN_PROGRESS)
        for kind in ConsumerTimerKind:
            shard.timers.cancel(ConsumerTimer(kind, group.group_id, member.member_id))
        session = ConsumerTimer(ConsumerTimerKind.SESSION, group.group_id, member.member_id)
        shard.timers.set(session, call.now.monotonic_ms + member.session_timeout_ms)


def forget_classic_group(shard: Shard, group_id: str) -> None:
    """Drop a classic group that has become a consumer group, with its timers."""
    group = shard.groups.pop(group_id, None)
    if group is None:
        return
    shard.timers.cancel(Timer(TimerKind.JOIN, group_id))
    shard.timers.cancel(Timer(TimerKind.SYNC, group_id))
    for member_id in (*group.members, *group.pending_join):
        shard.forget_session(group, member_id)


# from consumer to classic group


def is_downgraded_without(shard: Shard, group_id: str, consumers: ConsumerGroup, leaving: str | None) -> bool:
    """Return whether the group becomes a classic group when this member leaves; None if none does."""
    settings = shard.settings.settings_of(group_id)
    return may_downgrade(consumers, leaving, settings, shard.settings.members_max)


def downgrade(
    shard: Shard, group_id: str, consumers: ConsumerGroup, leaving: str | None, call: CoordinatorCall
) -> None:
    """Write the classic group of all members but `leaving`. Its generation is the group's epoch, so that members which
    have reached that epoch can commit until they join again."""
    for entry in removal(group_id, consumers):
        call.write(entry)
    group = ClassicGroup(group_id)
    group.generation = consumers.epoch
    group.protocol_type = CONSUMER_PROTOCOL_TYPE
    group.state_timestamp = call.now.wall_ms
    held = {}
    for row, partitions in classic_members(consumers, leaving, shard.topics):
        group.add(
            Member(
                row.member_id,
                row.instance_id,
                row.client_id,
                row.client_host,
                row.rebalance_timeout_ms,
                row.session_timeout_ms,
                row.protocols,
            )
        )
        held[row.member_id] = partitions
    group.protocol = group.vote()
    assignments = [
        (member_id, encode_assignment(version_of(member.metadata(group.protocol)), held[member_id]))
        for member_id, member in group.members.items()
    ]
    call.write(GroupLogEntry(GroupKey(group_id), group.value(assignments)._replace(leader=None)))
    call.then(GroupDowngraded(group_id))


def begin_downgraded_group(shard: Shard, group_id: str, call: CoordinatorCall) -> None:
    """Give the members of a downgraded group time to join its first rebalance, unless it is already over."""
    group, value = shard.groups.get(group_id), shard.versions.newest.groups.get(group_id)
    if group is None or value is None or not value.members or value.leader is not None:
        return
    for member in group.members.values():
        if not member.is_waiting:
            shard.reset_session(group, member, call.now.monotonic_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        prepare(shard, group, call)


def begin_downgraded_groups(shard: Shard, call: CoordinatorCall) -> None:
    """Begin the first rebalance of each loaded group that was downgraded shortly before its coordinator ended."""
    for group_id in list(shard.groups):
        begin_downgraded_group(shard, group_id, call)
