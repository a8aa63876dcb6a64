"""Numbers of partitions for a group in which all members subscribe to the same topics.

Invariants: the totals of two members differ by at most one. Among the results with that property, this one moves the
fewest partitions: every member keeps what it owns up to its quota, and the members that own most get the larger quotas.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.broker.consumer_group.assignors.claims import Counts, TopicClaims


def equal_counts(member_count: int, topics: Sequence[TopicClaims]) -> list[Counts]:
    """Return the numbers of partitions of each topic, by member position."""
    room = _quotas(member_count, topics)
    counts: list[Counts] = []
    for topic in topics:
        kept: Counts = {}
        for position, partitions in sorted(topic.owned.items()):
            number = min(len(partitions), room[position])
            if number:
                kept[position] = number
                room[position] -= number
        counts.append(kept)
    position = 0
    for topic, row in zip(topics, counts, strict=True):
        unassigned = topic.partition_count - sum(row.values())
        while unassigned:
            if not room[position]:
                position += 1
                continue
            number = min(unassigned, room[position])
            row[position] = row.get(position, 0) + number
            room[position] -= number
            unassigned -= number
    return counts


def _quotas(member_count: int, topics: Sequence[TopicClaims]) -> list[int]:
    """Return the number of partitions that each member gets."""
    owned = [0] * member_count
    for topic in topics:
        for position, partitions in topic.owned.items():
            owned[position] += len(partitions)
    quota, extra = divmod(sum(topic.partition_count for topic in topics), member_count)
    order = sorted(range(member_count), key=lambda position: (owned[position] <= quota, position))
    quotas = [quota] * member_count
    for position in order[:extra]:
        quotas[position] += 1
    return quotas
