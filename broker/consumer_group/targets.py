"""The target assignment of a group: choose an assignor, run it, and write what it changes.

Source: KIP-848, Kafka's TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kraft.broker.consumer_group.assignors.members import AssignorMember
from kraft.broker.consumer_group.assignors.names import ASSIGNORS
from kraft.broker.consumer_group.records import TargetEpochKey, TargetEpochValue, TargetMemberKey, TargetMemberValue
from kraft.broker.consumer_group.state import ConsumerGroup, Draft, subscription_of
from kraft.broker.consumer_group.subscriptions import ids_of, subscribed_topics, topics_of
from kraft.broker.consumer_group.topics import TopicsView


def preferred_assignor(group: ConsumerGroup, names: Sequence[str]) -> str:
    """Return the name of the assignor that most members wish, among `names`. Without a wish it is the first name; in a
    tie, the earlier of them."""
    wishes = Counter(member.server_assignor for member in group.members.values())
    return max(names, key=lambda name: wishes[name])


def update_target(draft: Draft, topics: TopicsView, assignors: Sequence[str], wall_ms: int) -> None:
    """Write the target assignment of the group's present epoch: a record per member whose partitions change, then the
    assignment epoch."""
    group = draft.group
    names = subscribed_topics(group)
    counts = {}
    for name in names:
        topic = topics.get(name)
        if topic is not None:
            counts[topic.topic_id] = topic.partition_count
    assign = ASSIGNORS[preferred_assignor(group, assignors)]
    for member_id, partitions in sorted(assign(_assignor_members(group, topics), counts).items()):
        if member_id not in group.targets or partitions != group.targets[member_id]:
            draft.write(TargetMemberKey(draft.group_id, member_id), TargetMemberValue(partitions))
    draft.write(TargetEpochKey(draft.group_id), TargetEpochValue(group.epoch, wall_ms))


def _assignor_members(group: ConsumerGroup, topics: TopicsView) -> list[AssignorMember]:
    """Return the members sorted by id. Members with equal subscriptions share one set of topic ids."""
    subscribed = {one: ids_of(topics_of(group, one), topics) for one in group.subscriptions}
    rows = []
    for member_id, member in sorted(group.members.items()):
        topic_ids = subscribed[subscription_of(member)]
        rows.append(AssignorMember(member_id, member.instance_id, member.rack, topic_ids, group.target_of(member_id)))
    return rows
