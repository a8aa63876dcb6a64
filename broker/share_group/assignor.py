"""The assignor "simple" of share groups: every partition has a member, and every member has a partition.

Each partition goes to the subscribed member with the fewest partitions; among equals to one that had it before, then to
the first by id. Then each member without a partition shares the one that the fewest members have. So partitions are
shared only if there are more members than partitions. Source: KIP-932, Kafka's SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from kraft.broker.consumer_group.requests import Partitions

SIMPLE = "simple"
Place = tuple[UUID, int]


def assign_simply(
    subscriptions: Mapping[str, frozenset[UUID]], partitions: Partitions, previous: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """Return the partitions of each member. `subscriptions` has the topic ids of each member, `partitions` all that may
    be assigned, and `previous` the last assignment."""
    chosen: dict[str, set[Place]] = {member: set() for member in sorted(subscriptions)}
    places = [(topic_id, number) for topic_id in sorted(partitions) for number in sorted(partitions[topic_id])]
    holders: dict[Place, int] = dict.fromkeys(places, 0)
    for place in places:
        members = [member for member in chosen if place[0] in subscriptions[member]]
        if members:
            best = min(
                members,
                key=partial(_rank, chosen, previous, place),
            )
            chosen[best].add(place)
            holders[place] += 1
    for member, own in chosen.items():
        open_to = [place for place in places if place[0] in subscriptions[member]]
        if not own and open_to:
            place = min(open_to, key=lambda one: holders[one])
            own.add(place)
            holders[place] += 1
    return {member: _by_topic(own) for member, own in chosen.items()}


def _rank(
    chosen: Mapping[str, set[Place]], previous: Mapping[str, Partitions], place: Place, member: str
) -> tuple[int, bool]:
    topic_id, number = place
    return len(chosen[member]), number not in previous.get(member, {}).get(topic_id, frozenset())


def _by_topic(places: set[Place]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, number in places:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
