"""Where the replicas of new partitions go: over racks, then over hosts, then by load (kraft-spec B.4, DESIGN 11).

Invariants: never two replicas of a partition on one broker; the first replica is on an unfenced broker; as many racks
as possible, then as many hosts as possible; within that, brokers get equally many leaders and replicas of a topic, and
among equals the one that holds least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kraft.control.draw import Draw
from kraft.image import MetadataImage


class Candidate(NamedTuple):
    """A broker that may take replicas. `rack` and `host` are failure domains; `load` counts replicas that it has."""

    broker_id: int
    rack: str
    host: str
    fenced: bool
    load: int


class PlacementFailed(Exception):
    """There is no placement; the text says why."""


@dataclass(slots=True)
class _Count:
    leaders: int = 0
    replicas: int = 0


def candidates(image: MetadataImage, being_fenced: frozenset[int]) -> list[Candidate]:
    """All registered brokers that do not shut down, by id. A broker without a host id counts as a host of its own."""
    loads = image.topics.replica_counts
    return [
        Candidate(
            broker.broker_id,
            broker.rack or "",
            broker.host_id or f"broker {broker.broker_id}",
            broker.fenced or broker.broker_id in being_fenced,
            loads.get(broker.broker_id, 0),
        )
        for broker in image.sorted_brokers()
        if not broker.in_controlled_shutdown
    ]


def place(
    brokers: Iterable[Candidate],
    partitions: int,
    replication_factor: int,
    draw: Draw,
    existing: Iterable[tuple[int, ...]] = (),
) -> list[tuple[int, ...]]:
    """The replicas of `partitions` new partitions, the preferred leader first. `existing` are the assignments that the
    topic has already. PlacementFailed if there are too few brokers."""
    known = sorted(brokers)
    unfenced = [broker for broker in known if not broker.fenced]
    if not known or replication_factor > len(known):
        raise PlacementFailed(
            f"the replication factor is {replication_factor}, but only {len(known)} brokers are registered"
        )
    if not unfenced:
        raise PlacementFailed(f"all {len(known)} registered brokers are fenced")
    counts = {broker.broker_id: _Count() for broker in known}
    for replicas in existing:
        _count(counts, replicas)
    placed: list[tuple[int, ...]] = []
    order: dict[int, int] = {}
    for number in range(partitions):
        if number % len(unfenced) == 0:
            order = _shuffled(known, draw)
        replicas = _place_one(known, unfenced, replication_factor, counts, order)
        _count(counts, replicas)
        placed.append(replicas)
    return placed


def _place_one(
    known: list[Candidate],
    unfenced: list[Candidate],
    replication_factor: int,
    counts: dict[int, _Count],
    order: dict[int, int],
) -> tuple[int, ...]:
    def as_leader(broker: Candidate) -> tuple[int, ...]:
        count = counts[broker.broker_id]
        return count.leaders, count.replicas, broker.load, order[broker.broker_id]

    leader = min(unfenced, key=as_leader)
    chosen = [leader]
    racks, hosts = {leader.rack: 1}, {(leader.rack, leader.host): 1}
    left = [broker for broker in known if broker is not leader]

    def as_follower(broker: Candidate) -> tuple[int, ...]:
        count = counts[broker.broker_id]
        return (
            racks.get(broker.rack, 0),
            hosts.get((broker.rack, broker.host), 0),
            broker.fenced,
            count.replicas,
            broker.load,
            order[broker.broker_id],
        )

    while len(chosen) < replication_factor:
        follower = min(left, key=as_follower)
        left.remove(follower)
        chosen.append(follower)
        racks[follower.rack] = racks.get(follower.rack, 0) + 1
        host = (follower.rack, follower.host)
        hosts[host] = hosts.get(host, 0) + 1
    return tuple(broker.broker_id for broker in chosen)


def _count(counts: dict[int, _Count], replicas: tuple[int, ...]) -> None:
    for position, broker_id in enumerate(replicas):
        if broker_id in counts:
            counts[broker_id].replicas += 1
            counts[broker_id].leaders += position == 0


def _shuffled(brokers: list[Candidate], draw: Draw) -> dict[int, int]:
    """Every broker's place in a new random order."""
    order = [broker.broker_id for broker in brokers]
    for position in range(len(order) - 1, 0, -1):
        other = draw.below(position + 1)
        order[position], order[other] = order[other], order[position]
    return {broker_id: position for position, broker_id in enumerate(order)}
