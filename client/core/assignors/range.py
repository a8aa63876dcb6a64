"""`range`: per topic, contiguous ranges to the members in order. Topics with equal partition counts and subscribers are
divided alike, so that what is keyed alike meets in one member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.client.core.assignors.base import Assignments, Assignor, GroupMember, subscribers, wanted_topics


class RangeAssignor(Assignor):
    """Of n partitions and m members, the first n mod m members get one more than the others."""

    name = "range"

    def assign(self, counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignments:
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
