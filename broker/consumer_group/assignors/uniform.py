"""The uniform assignor: members get equal numbers of partitions and keep as many of their own as possible.

Racks are ignored, as in Kafka.
Source: KIP-848, Kafka's UniformAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kraft.broker.consumer_group.assignors.claims import claims_of, hand_out, sorted_members
from kraft.broker.consumer_group.assignors.equal_subscriptions import equal_counts
from kraft.broker.consumer_group.assignors.members import Assignment, AssignorMember
from kraft.broker.consumer_group.assignors.mixed_subscriptions import mixed_counts


def assign_uniform(members: Sequence[AssignorMember], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Assign the partitions of all topics; `Assignor` says what holds for the result."""
    if not members:
        return {}
    ordered = sorted_members(members)
    topics = claims_of(ordered, partition_counts)
    is_equal = all(len(topic.subscribers) == len(ordered) for topic in topics)
    counts = (equal_counts if is_equal else mixed_counts)(len(ordered), topics)
    return hand_out(ordered, topics, counts)
