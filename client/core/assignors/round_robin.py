"""`roundrobin`: all partitions of all topics, dealt one by one to the members in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.client.core.assignors.base import Assignments, Assignor, GroupMember, wanted_topics


class RoundRobinAssignor(Assignor):
    """A member that does not want the topic at hand is passed over."""

    name = "roundrobin"

    def assign(self, counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        ring = sorted(members, key=lambda member: member.rank)
        turn = 0
        for topic in wanted_topics(counts, members):
            for partition in range(counts[topic]):
                while topic not in ring[turn % len(ring)].subscription.topics:
                    turn += 1
                assigned[ring[turn % len(ring)].member_id].append((topic, partition))
                turn += 1
        return assigned
