"""Members of a group: which request may act for which member, and how static members follow each other.

A static member that leaves for a while keeps its assignment, in epoch -2. The next member with its instance id takes
its place and continues with that assignment, without a rebalance. Until then, or until its session expires, the
partitions stay with it.
Source: KIP-848, KIP-345, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.epochs import is_epoch_valid
from kraft.broker.consumer_group.records import (
    ConsumerMemberKey,
    CurrentMemberKey,
    TargetMemberKey,
    TargetMemberValue,
)
from kraft.broker.consumer_group.requests import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerHeartbeatRequest
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.validation import GroupRefusal
from kraft.wire.error_codes import ErrorCode


def heartbeat_refusal(
    group: ConsumerGroup, request: ConsumerHeartbeatRequest, settings: ConsumerGroupSettings
) -> GroupRefusal | None:
    """Return why the member may not send this heartbeat; None if it may."""
    member_id, instance_id = request.member_id, request.instance_id
    owner = None if instance_id is None else group.static_members.get(instance_id)
    is_joining = request.epoch == JOIN_EPOCH
    has_place = member_id in group.members or (is_joining and owner is not None)
    if not has_place and len(group.members) >= settings.members_max:
        message = f"The consumer group has reached its maximum capacity of {settings.members_max} members."
        return GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    if is_joining:
        if owner is not None and owner != member_id and _is_live(group, owner):
            message = f"Instance id {instance_id} is still used by member {owner}."
            return GroupRefusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        return None
    refusal = member_refusal(group, member_id, instance_id)
    if refusal is not None:
        return refusal
    current = group.assignment_of(member_id)
    if is_epoch_valid(current, request.epoch, request.owned):
        return None
    message = (
        f"The member sent epoch {request.epoch}, the coordinator knows epoch {current.epoch}. "
        "The member must abandon all its partitions and rejoin."
    )
    return GroupRefusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_live(group: ConsumerGroup, owner: str) -> bool:
    """Return whether a static member must leave before another one takes its place. A client with the classic protocol
    does not leave when it is restarted."""
    return group.members[owner].classic is None and group.assignment_of(owner).epoch != LEAVE_STATIC_EPOCH


def member_refusal(group: ConsumerGroup, member_id: str, instance_id: str | None) -> GroupRefusal | None:
    """Return an error if there is no such member, or if another one has its instance id."""
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if owner != member_id:
            message = f"Static member {member_id} with instance id {instance_id} was fenced by member {owner}."
            return GroupRefusal(ErrorCode.FENCED_INSTANCE_ID, message)
    if member_id not in group.members:
        return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
    return None


def take_place_of_static_member(draft: Draft, request: ConsumerHeartbeatRequest) -> None:
    """Let a static member that joins continue with the assignment of the member that had its instance id."""
    group, group_id, member_id = draft.group, draft.group_id, request.member_id
    owner = None if request.instance_id is None else group.static_members.get(request.instance_id)
    if request.epoch != JOIN_EPOCH or owner is None:
        return
    current = group.assignment_of(owner)
    if owner == member_id and current.epoch != LEAVE_STATIC_EPOCH:
        return
    member, target = group.members[owner], group.targets.get(owner)
    if owner != member_id:
        remove_member(draft, owner)
        draft.write(ConsumerMemberKey(group_id, member_id), member)
        if target is not None:
            draft.write(TargetMemberKey(group_id, member_id), TargetMemberValue(target))
    joined = current._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.write(CurrentMemberKey(group_id, member_id), joined)


def remove_member(draft: Draft, member_id: str) -> None:
    """Remove a member's records."""
    draft.write(CurrentMemberKey(draft.group_id, member_id), None)
    draft.write(TargetMemberKey(draft.group_id, member_id), None)
    draft.write(ConsumerMemberKey(draft.group_id, member_id), None)
