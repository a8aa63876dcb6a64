"""Choose the brokers of new partitions: spread replicas over racks, then over hosts, then by load.

Invariants: two replicas of a partition are never on one broker. The first replica is on an unfenced broker. Replicas
use as many racks as possible, then as many hosts as possible. Within that, brokers get equally many leaders and
replicas of a topic; ties go to the broker with the fewest replicas. Kafka does not consider hosts.
Source: Kafka's StripedReplicaPlacer, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from kraft.control.topics.draw import Draw
from kraft.image import MetadataImage
from kraft.image.partitions import NO_COUNTS, TopicCounts


class PlacementCandidate(NamedTuple):
    """A broker that may get replicas. `rack` and `host` are failure domains; `load` counts the replicas that it has."""

    broker_id: int
    rack: str
    host: str
    fenced: bool
    load: int


class PlacementFailed(Exception):
    """Error: no placement exists; the text explains why."""


@dataclass(slots=True, eq=False)
class _CandidateState:
    """A candidate during placement: how many leaders and replicas of the topic it has, and its position in
    this round."""

    broker_id: int
    rack: str
    host: tuple[str, str]
    fenced: bool
    load: int
    leaders: int
    replicas: int
    order: int = 0


_as_leader = attrgetter("leaders", "replicas", "load", "order")
_as_follower = attrgetter("fenced", "replicas", "load", "order")


def candidates(image: MetadataImage, being_fenced: frozenset[int]) -> list[PlacementCandidate]:
    """Return all registered brokers that are not shutting down, by id. A broker without a host id counts as a host by
    itself."""
    loads = image.topics.replica_counts
    return [
        PlacementCandidate(
            broker.broker_id,
            broker.rack or "",
            broker.host_id or f"broker {broker.broker_id}",
            broker.fenced or broker.broker_id in being_fenced or not broker.has_any_directory,
            loads.get(broker.broker_id, 0),
        )
        for broker in image.sorted_brokers()
        if not broker.in_controlled_shutdown
    ]


def place(
    brokers: Iterable[PlacementCandidate],
    partitions: int,
    replication_factor: int,
    draw: Draw,
    held: TopicCounts = NO_COUNTS,
) -> list[tuple[int, ...]]:
    """Return the replicas of `partitions` new partitions, the preferred leader first. `held`: the replicas and leaders
    of the topic that brokers have already. Raises PlacementFailed if there are too few brokers."""
    known = [
        _CandidateState(
            broker.broker_id,
            broker.rack,
            (broker.rack, broker.host),
            broker.fenced,
            broker.load,
            held.preferred.get(broker.broker_id, 0),
            held.replicas.get(broker.broker_id, 0),
        )
        for broker in sorted(brokers)
    ]
    unfenced = [seat for seat in known if not seat.fenced]
    if known and not unfenced:
        raise PlacementFailed(f"All brokers are currently fenced. {len(known)} broker(s) are registered.")
    if not known or replication_factor > len(known):
        raise PlacementFailed(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(known)} broker(s) are registered."
        )
    is_flat = len({seat.rack for seat in known}) == 1 and len({seat.host for seat in known}) == len(known)
    choose_followers = _least_loaded if is_flat else _spread
    placed: list[tuple[int, ...]] = []
    for number in range(partitions):
        if number % len(unfenced) == 0:
            _shuffle(known, draw)
        leader = min(unfenced, key=_as_leader)
        others = [seat for seat in known if seat is not leader]
        chosen = [leader, *choose_followers(leader, others, replication_factor - 1)]
        leader.leaders += 1
        for seat in chosen:
            seat.replicas += 1
        placed.append(tuple([seat.broker_id for seat in chosen]))
    return placed


def _least_loaded(_leader: _CandidateState, others: list[_CandidateState], count: int) -> list[_CandidateState]:
    """Choose followers where all brokers are equivalent: in one rack, each on its own host."""
    others.sort(key=_as_follower)
    return others[:count]


def _spread(leader: _CandidateState, others: list[_CandidateState], count: int) -> list[_CandidateState]:
    """Choose followers: over racks, then over hosts, then as `_least_loaded`."""
    racks, hosts = {leader.rack: 1}, {leader.host: 1}
    chosen: list[_CandidateState] = []

    def as_follower(seat: _CandidateState) -> tuple[Any, ...]:
        return racks.get(seat.rack, 0), hosts.get(seat.host, 0), _as_follower(seat)

    while len(chosen) < count:
        follower = min(others, key=as_follower)
        others.remove(follower)
        chosen.append(follower)
        racks[follower.rack] = racks.get(follower.rack, 0) + 1
        hosts[follower.host] = hosts.get(follower.host, 0) + 1
    return chosen


def _shuffle(seats: list[_CandidateState], draw: Draw) -> None:
    """Give every broker a position in a new random order."""
    order = list(seats)
    for position in range(len(order) - 1, 0, -1):
        other = draw.below(position + 1)
        order[position], order[other] = order[other], order[position]
    for position, seat in enumerate(order):
        seat.order = position
