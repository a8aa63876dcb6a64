"""The assignor `roundrobin`: it assigns all partitions of all topics one by one to the members in rotation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraft.client.core.assignors.base import Assignments, Assignor, SubscribedMember, wanted_topics


class RoundRobinAssignor(Assignor):
    """Round-robin assignor. A member that is not subscribed to the topic of a partition is skipped for it."""

    name = "roundrobin"

    def assign(self, counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> Assignments:
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
