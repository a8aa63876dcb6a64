"""The end of a membership: a member leaves, or the coordinator fences it after a timeout.

A fenced client may believe for a while that it owns partitions; a commit with its epoch fails. The group's epoch rises,
and the next heartbeat of any member computes the assignment without it. When the last member has left, there is nothing
to assign, so the assignment epoch rises too (KAFKA-20442).
Source: KIP-848, KIP-345, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.epochs import bump_if_changed
from kraft.broker.consumer_group.membership import member_refusal, remove_member
from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.records import (
    NOTHING_HELD,
    ConsumerGroupKey,
    ConsumerKey,
    ConsumerLogEntry,
    ConsumerMemberKey,
    CurrentMemberKey,
    RegexKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
)
from kraft.broker.consumer_group.requests import (
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
)
from kraft.broker.consumer_group.resolving import forget_unused
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.topics import TopicsView
from kraft.wire.error_codes import ErrorCode


def leave(
    draft: Draft, request: ConsumerHeartbeatRequest, topics: TopicsView, memory: GroupMemory
) -> ConsumerHeartbeatReply:
    """Let a member leave: permanently, or for a while if it is a static one that says so."""
    member_id = request.member_id
    refusal = member_refusal(draft.group, member_id, request.instance_id)
    if refusal is not None:
        return request.refused(*refusal)
    if request.epoch == LEAVE_STATIC_EPOCH:
        current = draft.group.assignment_of(member_id)
        away = current._replace(epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING_HELD)
        draft.write(CurrentMemberKey(draft.group_id, member_id), away)
    else:
        fence(draft, member_id, topics, memory)
    return ConsumerHeartbeatReply(ErrorCode.NONE, None, member_id, request.epoch)


def fence(draft: Draft, member_id: str, topics: TopicsView, memory: GroupMemory) -> None:
    """Remove a member, and begin a new epoch of the group."""
    regex = draft.group.members[member_id].subscribed_regex
    remove_member(draft, member_id)
    forget_unused(draft, memory, regex)
    bump_if_changed(draft, topics, memory, is_changed=True)
    if not draft.group.members:
        draft.write(TargetEpochKey(draft.group_id), TargetEpochValue(draft.group.epoch))


def removal(group_id: str, group: ConsumerGroup) -> list[ConsumerLogEntry]:
    """Return the entries that remove a group with all that it has, in Kafka's order."""
    keys: tuple[ConsumerKey, ...] = (
        *(CurrentMemberKey(group_id, member_id) for member_id in sorted(group.current)),
        *(TargetMemberKey(group_id, member_id) for member_id in sorted(group.targets)),
        TargetEpochKey(group_id),
        *(ConsumerMemberKey(group_id, member_id) for member_id in sorted(group.members)),
        *(RegexKey(group_id, regex) for regex in sorted(group.regexes)),
        ConsumerGroupKey(group_id),
    )
    return [ConsumerLogEntry(key, None) for key in keys]
