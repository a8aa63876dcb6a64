"""ConsumerGroupDescribe: a group as administrators see it.

Source: ConsumerGroupDescribeRequest 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.broker.consumer_group.requests import (
    AssignedTopic,
    ConsumerDescribeReply,
    DescribedConsumer,
    Partitions,
)
from kraft.broker.consumer_group.state import ConsumerGroup, partitions_of
from kraft.broker.consumer_group.targets import preferred_assignor
from kraft.broker.consumer_group.topics import TopicsView
from kraft.wire.error_codes import ErrorCode


def describe(group: ConsumerGroup, topics: TopicsView, assignors: Sequence[str]) -> ConsumerDescribeReply:
    """Return the description of the group."""
    return ConsumerDescribeReply(
        ErrorCode.NONE,
        None,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        preferred_assignor(group, assignors),
        tuple(_describe_member(group, member_id, topics) for member_id in sorted(group.members)),
    )


def _describe_member(group: ConsumerGroup, member_id: str, topics: TopicsView) -> DescribedConsumer:
    member, current = group.members[member_id], group.assignment_of(member_id)
    return DescribedConsumer(
        member_id,
        member.instance_id,
        member.rack,
        current.epoch,
        member.client_id,
        member.client_host,
        member.subscribed_names,
        member.subscribed_regex,
        _by_topic(partitions_of(current.assigned), topics),
        _by_topic(group.target_of(member_id), topics),
        member.classic is not None,
    )


def _by_topic(partitions: Partitions, topics: TopicsView) -> tuple[AssignedTopic, ...]:
    """Return the partitions in order of their topics' names."""
    named = ((topics.name_of(topic_id), topic_id) for topic_id in partitions)
    return tuple(
        AssignedTopic(topic_id, name, tuple(sorted(partitions[topic_id])))
        for name, topic_id in sorted((name, topic_id) for name, topic_id in named if name is not None)
    )
