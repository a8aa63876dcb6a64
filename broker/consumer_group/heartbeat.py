"""ConsumerGroupHeartbeat: a member joins, reports what it owns, gets its assignment, or leaves.

A heartbeat does the following in this order. All its records are one atomic write, and the reply follows their commit.

1. Find the member, or add it. A static member takes the place of the one with its instance id.
2. Update the member's metadata.
3. Resolve regular expressions.
4. Increase the group epoch if the subscriptions or their topics have changed.
5. Compute the target assignment if it belongs to an older epoch, and is as old as the assignment interval.
6. Reconcile the member with its target.

Source: ConsumerGroupHeartbeatRequest 0 to 1, KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.consumer_group.epochs import bump_if_changed, epoch_due
from kraft.broker.consumer_group.leaving import leave
from kraft.broker.consumer_group.membership import heartbeat_refusal, take_place_of_static_member
from kraft.broker.consumer_group.memory import GroupMemory, TopicSearch
from kraft.broker.consumer_group.reconciliation import Goal, reconcile
from kraft.broker.consumer_group.records import (
    ClassicMemberValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    MemberState,
)
from kraft.broker.consumer_group.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
)
from kraft.broker.consumer_group.resolving import (
    begin_resolution,
    continue_resolutions,
    forget_unused,
    refresh,
    regex_problem,
)
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroup, Draft, partitions_of, subscription_of
from kraft.broker.consumer_group.subscriptions import ids_of, topics_of
from kraft.broker.consumer_group.targets import update_target
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.consumer_group.validation import GroupRefusal
from kraft.broker.shard.now import Now
from kraft.wire.error_codes import ErrorCode


class Surroundings(NamedTuple):
    """What a heartbeat needs besides the group and the request."""

    topics: TopicsView
    settings: ConsumerGroupSettings
    memory: GroupMemory
    now: Now


def heartbeat(draft: Draft, request: ConsumerHeartbeatRequest, around: Surroundings) -> ConsumerHeartbeatReply:
    """Carry out a heartbeat of a valid request. If the reply has an error, the draft must be dropped."""
    if request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return leave(draft, request, around.topics, around.memory)
    refusal = heartbeat_refusal(draft.group, request, around.settings) or _regex_refusal(draft.group, request)
    if refusal is not None:
        return request.refused(*refusal)
    before, after = advance(draft, request, around)
    if after is None:
        message = "The member is in an unknown state. It must abandon all its partitions and rejoin."
        return request.refused(ErrorCode.FENCED_MEMBER_EPOCH, message)
    is_changed = after is not before and partitions_of(after.assigned) != partitions_of(before.assigned)
    is_shown = is_changed or _is_full(request)
    return ConsumerHeartbeatReply(
        ErrorCode.NONE,
        None,
        request.member_id,
        after.epoch,
        around.settings.heartbeat_interval_ms,
        partitions_of(after.assigned) if is_shown else None,
    )


def advance(
    draft: Draft, request: ConsumerHeartbeatRequest, around: Surroundings, classic: ClassicMemberValue | None = None
) -> tuple[CurrentMemberValue, CurrentMemberValue | None]:
    """Carry out the steps of an accepted heartbeat. Return the member's assignment before and after; the latter is None
    if the member must be fenced. `classic`: the member has sent a JoinGroup request, which says the same things."""
    take_place_of_static_member(draft, request)
    before = draft.group.assignment_of(request.member_id)
    is_new_subscription = _update_member(draft, request, around, classic)
    group = draft.group
    if epoch_due(group, around.settings.assignment_interval_ms, around.now.wall_ms) > group.assignment_epoch:
        update_target(draft, around.topics, around.settings.assignors, around.now.wall_ms)
    return before, _reconcile(draft, request, around.topics, is_new_subscription=is_new_subscription)


def _is_full(request: ConsumerHeartbeatRequest) -> bool:
    """Return whether the client sent everything, as it does when it joins and after an error. It then also wants to
    know everything."""
    has_subscription = request.subscribed_names is not None or request.subscribed_regex is not None
    return request.epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms is not None and has_subscription and request.owned is not None
    )


# what it subscribes to


def _regex_refusal(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> GroupRefusal | None:
    regex, member = request.subscribed_regex, group.members.get(request.member_id)
    if not regex or (member is not None and member.subscribed_regex == regex):
        return None
    problem = regex_problem(regex)
    return None if problem is None else GroupRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)


def _update_member(
    draft: Draft, request: ConsumerHeartbeatRequest, around: Surroundings, classic: ClassicMemberValue | None
) -> bool:
    """Write the member's metadata if they changed, and what follows for the group. Return whether the member's
    subscription has changed."""
    old = draft.group.members.get(request.member_id)
    new = _updated(old, request, classic)
    if new != old:
        draft.write(ConsumerMemberKey(draft.group_id, request.member_id), new)
    old_names, old_regex = ((), None) if old is None else (old.subscribed_names, old.subscribed_regex)
    has_new_regex = new.subscribed_regex != old_regex
    if has_new_regex:
        forget_unused(draft, around.memory, old_regex)
    if request.may_describe is not None:
        search = TopicSearch(around.topics, request.may_describe)
        if new.subscribed_regex is not None:
            begin_resolution(draft, search, around.memory, new.subscribed_regex)
        refresh(draft, search, around.memory, around.now, around.settings.regex_refresh_interval_ms)
    has_new_topics = continue_resolutions(draft, around.memory, around.now)
    is_resolved = new.subscribed_regex is None or new.subscribed_regex in draft.group.regexes
    has_new_names = new.subscribed_names != old_names
    is_changed = not draft.group.epoch or has_new_names or (has_new_regex and is_resolved) or has_new_topics
    bump_if_changed(draft, around.topics, around.memory, is_changed=is_changed)
    return has_new_names or has_new_regex or has_new_topics


def _updated(
    old: ConsumerMemberValue | None, request: ConsumerHeartbeatRequest, classic: ClassicMemberValue | None
) -> ConsumerMemberValue:
    """Return the member's metadata after this heartbeat; what the request does not have stays."""
    known = ConsumerMemberValue(None, None, "", "", (), None, -1) if old is None else old
    regex, names = request.subscribed_regex, request.subscribed_names
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberValue(
        known.instance_id if request.instance_id is None else request.instance_id,
        known.rack if request.rack is None else request.rack,
        request.client_id,
        request.client_host,
        known.subscribed_names if names is None else tuple(sorted(set(names))),
        known.subscribed_regex if regex is None else regex or None,
        known.rebalance_timeout_ms if timeout_ms is None else timeout_ms,
        known.server_assignor if request.server_assignor is None else request.server_assignor,
        classic,
    )


# what it gets


def _reconcile(
    draft: Draft, request: ConsumerHeartbeatRequest, topics: TopicsView, *, is_new_subscription: bool
) -> CurrentMemberValue | None:
    """Write the member's next assignment if it changes, and return it."""
    group, member_id = draft.group, request.member_id
    current = group.assignment_of(member_id)
    is_settled = current.state is MemberState.STABLE and current.epoch == group.assignment_epoch
    if is_settled and not is_new_subscription:
        return current
    goal = Goal(
        group.assignment_epoch,
        group.target_of(member_id),
        ids_of(topics_of(group, subscription_of(group.members[member_id])), topics),
        request.owned,
        lambda topic_id, partition: group.is_free_for(member_id, topic_id, partition),
        is_new_subscription,
    )
    following = reconcile(current, goal)
    if following is not None and following is not current:
        draft.write(CurrentMemberKey(draft.group_id, member_id), following)
    return following
