"""The assignors `sticky` and `cooperative-sticky`: they balance first, and then leave as many partitions as possible at
their owners.

Invariants:
- Every partition of a subscribed topic goes to exactly one subscriber.
- Moving one more partition would not make two members' counts more equal.
- A member's claim to a partition counts only if no other member claims it in a higher generation. If two members claim
  it in the same generation, neither claim counts: a member that missed a rebalance must not keep another member's
  partition.
Source: KIP-54, KIP-429, Kafka's AbstractStickyAssignor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from kraft.client.core.assignors.base import Assignments, Assignor, SubscribedMember, wanted_topics
from kraft.client.core.consumer_protocol import Subscription, decode_sticky_data, encode_sticky_data
from kraft.client.core.records import TopicPartition

_GENERATION = struct.Struct(">i")

Claims = dict[str, tuple[tuple[TopicPartition, ...], int]]
"""For each member, the partitions that it claims to own, and the generation in which they were assigned to it."""


class StickyAssignor(Assignor):
    """Sticky assignor. Members give up all partitions before they join. Their user data has their previous
    assignment."""

    name = "sticky"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return encode_sticky_data(owned, generation)

    def assign(self, counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> Assignments:
        return _balance(counts, members, _owners(self._claims(members)))

    def _claims(self, members: Sequence[SubscribedMember]) -> Claims:
        return {
            member.member_id: decode_sticky_data(member.subscription.user_data)
            for member in members
            if member.subscription.user_data
        }


class CooperativeStickyAssignor(Assignor):
    """Cooperative sticky assignor. Members keep their partitions. If a partition is to move, or if two members claim
    it, it is revoked first and assigned in the next rebalance."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        return _GENERATION.pack(generation)

    def assign(self, counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> Assignments:
        claims = {m.member_id: (m.subscription.owned, _generation(m.subscription)) for m in members}
        owners = _owners(claims)
        claimed = {partition for owned, _ in claims.values() for partition in owned}
        assigned = _balance(counts, members, owners)
        for member_id, partitions in assigned.items():
            assigned[member_id] = [tp for tp in partitions if tp not in claimed or owners.get(tp) == member_id]
        return assigned


def _generation(subscription: Subscription) -> int:
    """Return the generation from the subscription, or from the user data of a member whose subscription version lacks
    the field."""
    data = subscription.user_data
    if subscription.generation < 0 and data is not None and len(data) == _GENERATION.size:
        generation: int = _GENERATION.unpack(data)[0]
        return generation
    return subscription.generation


def _owners(claims: Claims) -> dict[TopicPartition, str]:
    """Return the owner of each partition that has exactly one valid claim."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (owned, generation) in sorted(claims.items()):
        for partition in owned:
            known = best.get(partition)
            if known is None or generation > known[0]:
                best[partition] = (generation, member_id)
            elif generation == known[0]:
                best[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in best.items() if owner is not None}


def _balance(
    counts: Mapping[str, int], members: Sequence[SubscribedMember], owners: Mapping[TopicPartition, str]
) -> Assignments:
    ranked = sorted(members, key=lambda member: member.rank)
    wants = {member.member_id: frozenset(member.subscription.topics) for member in ranked}
    every = [(topic, number) for topic in wanted_topics(counts, members) for number in range(counts[topic])]
    assigned: Assignments = {member.member_id: [] for member in ranked}
    free: list[TopicPartition] = []
    for partition in every:
        owner = owners.get(partition)
        if owner in wants and partition[0] in wants[owner]:
            assigned[owner].append(partition)
        else:
            free.append(partition)
    if len(set(wants.values())) <= 1:
        _level_alike(assigned, free)
    else:
        _level_mixed(assigned, free, wants)
    return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}


def _level_alike(assigned: Assignments, free: list[TopicPartition]) -> None:
    """Balance members with equal subscriptions. Each member gets the quotient of partitions and members. The remainder
    goes to members that already own more than the quotient, one partition each, and then to others."""
    if not assigned:
        return
    share, extras = divmod(sum(map(len, assigned.values())) + len(free), len(assigned))
    for partitions in assigned.values():
        keeps = share
        if len(partitions) > share and extras:
            keeps, extras = share + 1, extras - 1
        free += partitions[keeps:]
        del partitions[keeps:]
    free.sort(reverse=True)
    for partitions in assigned.values():
        while len(partitions) < share:
            partitions.append(free.pop())
    for partitions in assigned.values():
        if free and len(partitions) == share:
            partitions.append(free.pop())


def _level_mixed(assigned: Assignments, free: list[TopicPartition], wants: Mapping[str, frozenset[str]]) -> None:
    """Balance members with different subscriptions. Free partitions go to the subscriber with the fewest partitions;
    topics with the fewest subscribers are assigned first. Then single partitions are moved from members with more
    partitions to members with fewer, while that makes two members more equal."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in free:
        by_topic.setdefault(partition[0], []).append(partition)
    takers = {topic: [m for m, topics in wants.items() if topic in topics] for topic in by_topic}
    for topic in sorted(by_topic, key=lambda name: (len(takers[name]), name)):
        heap = [(len(assigned[member_id]), order, member_id) for order, member_id in enumerate(takers[topic])]
        heapify(heap)
        for partition in by_topic[topic]:
            load, order, member_id = heappop(heap)
            assigned[member_id].append(partition)
            heappush(heap, (load + 1, order, member_id))
    while _move_one_per_member(assigned, wants):
        pass


def _move_one_per_member(assigned: Assignments, wants: Mapping[str, frozenset[str]]) -> bool:
    """Make one pass over the members, the one with the most partitions first. Return True if a partition was moved.
    Each move decreases the sum of the squared counts, so the passes end."""
    moved = False
    for giver in sorted(assigned, key=lambda member_id: -len(assigned[member_id])):
        for partition in list(reversed(assigned[giver])):
            load = len(assigned[giver])
            taker = min(
                (member_id for member_id, topics in wants.items() if partition[0] in topics),
                key=lambda member_id: len(assigned[member_id]),
            )
            if len(assigned[taker]) + 1 < load:
                assigned[giver].remove(partition)
                assigned[taker].append(partition)
                moved = True
    return moved
