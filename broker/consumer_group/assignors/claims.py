"""The input of an assignor by topic, and the last step of an assignor: hand out partitions once the counts are known.

Members are numbered by their position in `sorted_members`, topics by their position in the list of claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.assignors.members import Assignment, AssignorMember


class TopicClaims(NamedTuple):
    """One topic. `subscribers` are the positions of its members, ascending. `owned` maps a subscriber's position to the
    partitions that it owns, ascending; no partition has two owners."""

    topic_id: UUID
    partition_count: int
    subscribers: list[int]
    owned: dict[int, list[int]]


Counts = dict[int, int]
"""Member position → number of partitions of one topic that the member gets. It has no zeros."""


def sorted_members(members: Iterable[AssignorMember]) -> list[AssignorMember]:
    """Sort members: static members by instance id, then dynamic members by member id. Static members come first because
    they keep their place when they return under a new member id."""
    return sorted(members, key=lambda row: (row.instance_id is None, row.instance_id or "", row.member_id))


def claims_of(members: Sequence[AssignorMember], partition_counts: Mapping[UUID, int]) -> list[TopicClaims]:
    """Return the claims of all topics that exist and have a subscriber, by topic id. `members` are sorted."""
    subscribers: dict[UUID, list[int]] = {}
    for position, member in enumerate(members):
        for topic_id in member.subscribed:
            subscribers.setdefault(topic_id, []).append(position)
    found: dict[UUID, TopicClaims] = {}
    for topic_id in sorted(subscribers, key=lambda topic_id: topic_id.int):
        count = partition_counts.get(topic_id, 0)
        if count > 0:
            found[topic_id] = TopicClaims(topic_id, count, subscribers[topic_id], {})
    claimed: dict[UUID, set[int]] = {}
    for position, member in enumerate(members):
        for topic_id, partitions in member.owned.items():
            topic = found.get(topic_id)
            if topic is None or topic_id not in member.subscribed:
                continue
            taken = claimed.setdefault(topic_id, set())
            kept = sorted(row for row in partitions if row < topic.partition_count and row not in taken)
            if kept:
                taken.update(kept)
                topic.owned[position] = kept
    return list(found.values())


def hand_out(members: Sequence[AssignorMember], topics: Sequence[TopicClaims], counts: Sequence[Counts]) -> Assignment:
    """Assign partitions in these numbers (`counts` has one row per topic). A member keeps as many of its partitions as
    its number allows, lowest first; the others are handed out in order."""
    result: Assignment = {member.member_id: {} for member in members}
    for topic, wanted in zip(topics, counts, strict=True):
        kept = {position: topic.owned.get(position, [])[:number] for position, number in wanted.items()}
        taken = {partition for partitions in kept.values() for partition in partitions}
        free = (partition for partition in range(topic.partition_count) if partition not in taken)
        for position in sorted(wanted):
            partitions = kept[position]
            partitions.extend(islice(free, wanted[position] - len(partitions)))
            result[members[position].member_id][topic.topic_id] = frozenset(partitions)
    return result
