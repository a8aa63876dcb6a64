"""ShareGroupHeartbeat: a member joins, reports that it lives and gets its assignment, or leaves.

A heartbeat updates the member's metadata, begins to initialize new share partitions, and increases the group epoch if
the subscriptions or their topics have changed. Then it computes the target assignment if it belongs to an older epoch
and is as old as the assignment interval, and gives the member its target. Nothing has to be revoked first, because
members may share a partition. All records are one atomic write. The interval to the next heartbeat is short while share
partitions are being initialized.
Source: ShareGroupHeartbeatRequest 1, KIP-932, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.consumer_group.epochs import is_assignment_due
from kraft.broker.consumer_group.requests import JOIN_EPOCH, LEAVE_EPOCH, AssignedTopic, Partitions
from kraft.broker.consumer_group.subscriptions import ids_of, metadata_hash
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.consumer_group.validation import GroupRefusal
from kraft.broker.shard.now import Now
from kraft.broker.share_group.assignor import SIMPLE, assign_simply
from kraft.broker.share_group.initialization import (
    ShareInitialization,
    ShareMemory,
    assignable,
    begin_initialization,
    subscribed_to,
)
from kraft.broker.share_group.records import (
    ShareCurrentKey,
    ShareCurrentValue,
    ShareMemberKey,
    ShareMemberValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetKey,
    ShareTargetValue,
)
from kraft.broker.share_group.requests import (
    DescribedShareMember,
    ShareDescribeReply,
    ShareHeartbeatReply,
    ShareHeartbeatRequest,
    ShareMembershipSettings,
)
from kraft.broker.share_group.state import ShareDraft, ShareGroup
from kraft.wire.error_codes import ErrorCode

INITIALIZING_HEARTBEAT_MS = 300
"""Heartbeat interval in ms while share partitions are being initialized. Members cannot know when these can be
assigned, so with the group's interval the first member of a new group would wait five seconds for its partitions."""


class ShareSurroundings(NamedTuple):
    """What a heartbeat needs besides the group and the request."""

    topics: TopicsView
    settings: ShareMembershipSettings
    memory: ShareMemory
    now: Now


def share_heartbeat(
    draft: ShareDraft, request: ShareHeartbeatRequest, around: ShareSurroundings
) -> tuple[ShareHeartbeatReply, ShareInitialization | None]:
    """Carry out a heartbeat of a valid request. Return the reply, and the share partitions to initialize once the
    records are committed. If the reply has an error, the draft must be dropped."""
    refusal = _refusal(draft.group, request, around.settings)
    if refusal is not None:
        return request.refused(*refusal), None
    if request.epoch == LEAVE_EPOCH:
        fence_share_member(draft, request.member_id, around.topics)
        return ShareHeartbeatReply(ErrorCode.NONE, None, request.member_id, LEAVE_EPOCH), None
    before = draft.group.assignment_of(request.member_id)
    is_new = _update_member(draft, request)
    initialization = begin_initialization(
        draft, around.topics, around.memory, around.now.monotonic_ms, around.settings.initialize_retry_ms
    )
    found = metadata_hash(subscribed_to(draft.group), around.topics)
    if is_new or not draft.group.epoch or found != draft.group.metadata_hash:
        draft.bump(found)
    group, interval_ms = draft.group, around.settings.assignment_interval_ms
    is_due = is_assignment_due(group.assigned_ms, interval_ms, around.now.wall_ms)
    if group.epoch > group.assignment_epoch and is_due:
        _update_target(draft, around.topics, around.now.wall_ms)
    after = _take_target(draft, request)
    is_shown = request.subscribed_names is not None or after.assigned != before.assigned
    assignment = after.assigned if is_shown else None
    beat_ms = around.settings.heartbeat_interval_ms
    if draft.group.states.initializing:
        beat_ms = min(beat_ms, INITIALIZING_HEARTBEAT_MS)
    reply = ShareHeartbeatReply(ErrorCode.NONE, None, request.member_id, after.epoch, beat_ms, assignment)
    return reply, initialization


def _refusal(
    group: ShareGroup, request: ShareHeartbeatRequest, settings: ShareMembershipSettings
) -> GroupRefusal | None:
    member_id, is_known = request.member_id, request.member_id in group.members
    if request.epoch == JOIN_EPOCH:
        if is_known or len(group.members) < settings.members_max:
            return None
        message = f"The share group has reached its maximum capacity of {settings.members_max} members."
        return GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    if not is_known:
        return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group.")
    current = group.assignment_of(member_id)
    if request.epoch in (LEAVE_EPOCH, current.epoch) or (request.epoch == current.previous_epoch >= 0):
        return None
    message = f"The member sent epoch {request.epoch}, the coordinator knows epoch {current.epoch}. It must rejoin."
    return GroupRefusal(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _update_member(draft: ShareDraft, request: ShareHeartbeatRequest) -> bool:
    """Write the member's metadata if they changed. Return whether its subscription has changed."""
    old = draft.group.members.get(request.member_id)
    names = request.subscribed_names
    new = ShareMemberValue(
        old.rack if old is not None and request.rack is None else request.rack,
        request.client_id,
        request.client_host,
        old.subscribed_names if old is not None and names is None else tuple(sorted(set(names or ()))),
    )
    if new != old:
        draft.write(ShareMemberKey(draft.group_id, request.member_id), new)
    return old is None or new.subscribed_names != old.subscribed_names


def _update_target(draft: ShareDraft, topics: TopicsView, wall_ms: int) -> None:
    """Write the target assignment of the group's present epoch."""
    group = draft.group
    subscriptions = {member_id: ids_of(one.subscribed_names, topics) for member_id, one in group.members.items()}
    wanted = assign_simply(subscriptions, assignable(group, topics), dict(group.targets.items()))
    for member_id, partitions in wanted.items():
        if member_id not in group.targets or partitions != group.targets[member_id]:
            draft.write(ShareTargetKey(draft.group_id, member_id), ShareTargetValue(partitions))
    draft.write(ShareTargetEpochKey(draft.group_id), ShareTargetEpochValue(group.epoch, wall_ms))


def _take_target(draft: ShareDraft, request: ShareHeartbeatRequest) -> ShareCurrentValue:
    """Give the member its target assignment, and return it."""
    group, member_id = draft.group, request.member_id
    current = group.assignment_of(member_id)
    previous_epoch = current.epoch if group.assignment_epoch != current.epoch else current.previous_epoch
    following = ShareCurrentValue(group.assignment_epoch, previous_epoch, group.target_of(member_id))
    if following != current:
        draft.write(ShareCurrentKey(draft.group_id, member_id), following)
    return following


def fence_share_member(draft: ShareDraft, member_id: str, topics: TopicsView) -> None:
    """Remove a member, and begin a new epoch of the group. When the last member has left, there is nothing to assign,
    so the assignment epoch rises too."""
    for key in (ShareCurrentKey, ShareTargetKey, ShareMemberKey):
        draft.write(key(draft.group_id, member_id), None)
    draft.bump(metadata_hash(subscribed_to(draft.group), topics))
    if not draft.group.members:
        draft.write(ShareTargetEpochKey(draft.group_id), ShareTargetEpochValue(draft.group.epoch))


def describe_share_group(group: ShareGroup, topics: TopicsView) -> ShareDescribeReply:
    """Return the description of the group."""
    return ShareDescribeReply(
        ErrorCode.NONE,
        None,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        SIMPLE,
        tuple(
            DescribedShareMember(
                member_id,
                member.rack,
                group.assignment_of(member_id).epoch,
                member.client_id,
                member.client_host,
                member.subscribed_names,
                _by_topic(group.assignment_of(member_id).assigned, topics),
            )
            for member_id, member in sorted(group.members.items())
        ),
        _by_topic(assignable(group, topics), topics),
    )


def _by_topic(partitions: Partitions, topics: TopicsView) -> tuple[AssignedTopic, ...]:
    """Return the partitions in order of their topics' names."""
    named = ((topics.name_of(topic_id), topic_id) for topic_id in partitions)
    return tuple(
        AssignedTopic(topic_id, name, tuple(sorted(partitions[topic_id])))
        for name, topic_id in sorted((name, topic_id) for name, topic_id in named if name is not None)
    )
