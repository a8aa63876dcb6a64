"""The epoch of a group, when its members shall reach it, and the check of a member's epoch.

| epoch in the request | verdict |
|---|---|
| 0 | accepted: the member joins, or joins again |
| equal to the member's | accepted |
| the member's previous one, and the client owns only partitions that the member has | accepted: a reply was lost |
| any other | FENCED_MEMBER_EPOCH: the client gives up its partitions and joins again |

Source: KIP-848, KAFKA-19233, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.memory import CheckedTopics, GroupMemory
from kraft.broker.consumer_group.records import ConsumerGroupKey, ConsumerGroupValue, CurrentMemberValue
from kraft.broker.consumer_group.requests import JOIN_EPOCH, Partitions
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.subscriptions import metadata_hash, subscribed_topics
from kraft.broker.consumer_group.topics import TopicsView

NO_NUMBERS: frozenset[int] = frozenset()


def is_epoch_valid(current: CurrentMemberValue, epoch: int, owned: Partitions | None) -> bool:
    """Return whether a member may send a heartbeat with this epoch."""
    if epoch in (JOIN_EPOCH, current.epoch):
        return True
    return epoch == current.previous_epoch and epoch < current.epoch and _is_subset(owned, current)


def is_assignment_due(assigned_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """Return whether a group's next target assignment may be computed: the last one, from `assigned_ms`, is as old as
    the interval. A time ahead of this clock is from a coordinator with another clock, and delays nothing."""
    return not assigned_ms or not assigned_ms <= wall_ms < assigned_ms + interval_ms


def epoch_due(group: ConsumerGroup, interval_ms: int, wall_ms: int) -> int:
    """Return the epoch that members shall reach now: the group's, or that of the last target assignment while the next
    one has to wait."""
    is_due = is_assignment_due(group.assigned_ms, interval_ms, wall_ms)
    return group.epoch if is_due else group.assignment_epoch


def _is_subset(owned: Partitions | None, current: CurrentMemberValue) -> bool:
    if owned is None:
        return False
    return all(partitions <= current.assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())


def bump_if_changed(draft: Draft, topics: TopicsView, memory: GroupMemory, *, is_changed: bool) -> None:
    """Increase the group's epoch if its subscription has changed, or if its topics have since the last call."""
    group, checked = draft.group, memory.checked
    is_checked = checked is not None and checked.topics is topics and checked.metadata_hash == group.metadata_hash
    if is_checked and not is_changed:
        return
    found = metadata_hash(subscribed_topics(group), topics)
    memory.checked = CheckedTopics(topics, found)
    if is_changed or found != group.metadata_hash:
        draft.write(ConsumerGroupKey(draft.group_id), ConsumerGroupValue(group.epoch + 1, found))
