"""The assignor `range`: it divides each topic's partitions into contiguous ranges, one per member in order. Topics with
equal partition counts and subscribers are divided identically. So records with the same key in such topics go to the
same member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.client.core.assignors.base import Assignments, Assignor, SubscribedMember, subscribers, wanted_topics


class RangeAssignor(Assignor):
    """Range assignor. With n partitions and m members, the first n mod m members get one partition more than the
    others."""

    name = "range"

    def assign(self, counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        for topic in wanted_topics(counts, members):
            among = subscribers(topic, members)
            share, extra = divmod(counts[topic], len(among))
            first = 0
            for number, member in enumerate(among):
                end = first + share + (number < extra)
                assigned[member.member_id] += [(topic, partition) for partition in range(first, end)]
                first = end
        return assigned
