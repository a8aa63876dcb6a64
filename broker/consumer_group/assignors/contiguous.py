"""The range assignor: each subscriber of a topic gets a contiguous range of its partitions.

Static members come first, in the order of their instance ids, then dynamic members in the order of their ids. So if all
members subscribe to the same topics and these have equal partition counts, a member gets the same partition numbers of
every topic (co-partitioning).
Source: KIP-848, Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kraft.broker.consumer_group.assignors.claims import claims_of, sorted_members
from kraft.broker.consumer_group.assignors.members import Assignment, AssignorMember


def assign_ranges(members: Sequence[AssignorMember], partition_counts: Mapping[UUID, int]) -> Assignment:
    """Assign the partitions of all topics; `Assignor` says what holds for the result."""
    ordered = sorted_members(members)
    result: Assignment = {member.member_id: {} for member in ordered}
    for topic in claims_of(ordered, partition_counts):
        size, larger = divmod(topic.partition_count, len(topic.subscribers))
        start = 0
        for rank, position in enumerate(topic.subscribers):
            end = start + size + (rank < larger)
            if start < end:
                result[ordered[position].member_id][topic.topic_id] = frozenset(range(start, end))
            start = end
    return result
