"""The assignor "simple" of share groups: every partition has a member, and every member has a partition.

Each partition goes to the subscribed member with the fewest partitions; among equals to one that had it before, then to
the first by id. Then each member without a partition shares the one that the fewest members have. So partitions are
shared only if there are more members than partitions. Source: KIP-932, Kafka's SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
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
    holders: dict[Place, int] = {}
    before = _members_before(previous)
    for topic_id in sorted(partitions):
        members = [member for member in chosen if topic_id in subscriptions[member]]
        places = [(topic_id, number) for number in sorted(partitions[topic_id])]
        _divide(places, members, before, chosen)
        holders.update(dict.fromkeys(places, min(len(members), 1)))
    for member, own in chosen.items():
        open_to = () if own else [place for place in holders if place[0] in subscriptions[member]]
        if open_to:
            place = min(open_to, key=holders.__getitem__)
            own.add(place)
            holders[place] += 1
    return {member: _by_topic(own) for member, own in chosen.items()}


def _members_before(previous: Mapping[str, Partitions]) -> dict[Place, list[str]]:
    """Return the members that had each partition, in the order of their ids."""
    before: dict[Place, list[str]] = {}
    for member in sorted(previous):
        for topic_id, numbers in previous[member].items():
            for number in numbers:
                before.setdefault((topic_id, number), []).append(member)
    return before


def _divide(
    places: Sequence[Place],
    members: Sequence[str],
    before: Mapping[Place, Sequence[str]],
    chosen: Mapping[str, set[Place]],
) -> None:
    """Give each partition of a topic to one of the members that subscribe to it."""
    loads = [(len(chosen[member]), member) for member in members]
    heapify(loads)
    subscribed = frozenset(members)
    for place in places if members else ():
        while loads[0][0] != len(chosen[loads[0][1]]):  # the member has got partitions since
            heappop(loads)
        load, first = loads[0]
        earlier = (one for one in before.get(place, ()) if one in subscribed and len(chosen[one]) == load)
        member = next(earlier, first)
        chosen[member].add(place)
        heappush(loads, (load + 1, member))


def _by_topic(places: set[Place]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, number in places:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
