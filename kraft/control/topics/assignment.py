"""Replicas of new partitions: chosen by the placer, or assigned manually and checked; and the events that
create them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import lcm
from typing import NamedTuple
from uuid import UUID

from kraft.control.decision import Context
from kraft.control.topics.draw import Draw
from kraft.control.topics.placement import PlacementCandidate, PlacementFailed, candidates, place
from kraft.image import MetadataImage
from kraft.image.events import Event, Partition
from kraft.image.partitions import NO_COUNTS, TopicCounts
from kraft.image.registrations import UNASSIGNED_DIRECTORY
from kraft.wire.error_codes import ErrorCode


class Refusal(NamedTuple):
    """Error code and text for one part of a request: a topic, a partition or a resource."""

    code: ErrorCode
    message: str | None


class Assigned(NamedTuple):
    """The replicas of a new partition, and those of them whose brokers are active."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class BrokerSurvey(NamedTuple):
    """Data about the brokers that placement needs, collected once per request. After `cycle` partitions the directories
    of all brokers repeat in the same order."""

    candidates: list[PlacementCandidate]
    active: frozenset[int]
    directories: Mapping[int, tuple[UUID, ...]]
    cycle: int


def survey_brokers(image: MetadataImage, context: Context) -> BrokerSurvey:
    """Collect the data of the present brokers."""
    directories = {broker.broker_id: broker.log_dirs for broker in image.sorted_brokers()}
    return BrokerSurvey(
        candidates(image, context.being_fenced),
        frozenset(_active(image, context, tuple(directories))),
        directories,
        lcm(*(max(1, len(log_dirs)) for log_dirs in directories.values())),
    )


def assign_replicas(
    brokers: BrokerSurvey,
    partitions: int,
    replication_factor: int,
    draw: Draw,
    held: TopicCounts = NO_COUNTS,
) -> list[Assigned] | Refusal:
    """Return replicas chosen by the placer. `held`: the replicas and leaders of the topic that the brokers have
    already."""
    try:
        placed = place(brokers.candidates, partitions, replication_factor, draw, held)
    except PlacementFailed as problem:
        return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, str(problem))
    active = brokers.active
    if partitions == 1:
        return [Assigned(placed[0], tuple([one for one in placed[0] if one in active]))]
    shapes = {
        replicas: Assigned(replicas, tuple([one for one in replicas if one in active])) for replicas in set(placed)
    }
    return [shapes[replicas] for replicas in placed]


def assign_manually(
    image: MetadataImage,
    context: Context,
    assignments: Mapping[int, tuple[int, ...]],
    numbers: range,
    *,
    first: int = 0,
    replication_factor: int | None = None,
) -> list[Assigned] | Refusal:
    """Check manual assignments of these partitions, partition number → replicas. They must be numbered from `first`
    without gaps, have the same number of replicas (`replication_factor`, if given), and name only registered brokers.
    """
    assigned: list[Assigned] = []
    known: dict[tuple[int, ...], Assigned] = {}
    for partition_id in numbers:
        replicas = assignments.get(partition_id)
        if replicas is None:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partitions should be a consecutive {first}-based integer sequence; {partition_id} is missing",
            )
        if replicas in known:
            assigned.append(known[replicas])
            continue
        factor = len(replicas) if replication_factor is None else replication_factor
        problem = assignment_problem(image, partition_id, replicas, factor)
        if problem is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        replication_factor = factor
        isr = _active(image, context, replicas)
        if not isr:
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {partition_id} are fenced or "
                f"in controlled shutdown. They are {list(replicas)}.",
            )
        known[replicas] = one = Assigned(replicas, isr)
        assigned.append(one)
    return assigned


def assignment_problem(image: MetadataImage, partition_id: int, replicas: tuple[int, ...], factor: int) -> str | None:
    """Return why a partition cannot have these replicas, or None."""
    problem = _manual_problem(image, replicas, factor)
    if problem is None:
        return None
    return f"The manual partition assignment includes {problem} See partition {partition_id}: {list(replicas)}."


def _manual_problem(image: MetadataImage, replicas: tuple[int, ...], factor: int) -> str | None:
    if not replicas:
        return "an empty replica list."
    for broker_id, following in itertools.pairwise((*sorted(replicas), None)):
        if broker_id not in image.brokers:
            return f"broker {broker_id}, but no such broker is registered."
        if broker_id == following:
            return f"the broker {broker_id} more than once."
    if len(replicas) != factor:
        there = f"a partition with {len(replicas)} replica(s)"
        return f"{there}, but this is not consistent with previous partitions, which have {factor} replica(s)."
    return None


def _active(image: MetadataImage, context: Context, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the brokers that may be in sync from the start."""
    return tuple(
        broker_id
        for broker_id in replicas
        if image.is_active(broker_id)
        and broker_id not in context.being_fenced
        and image.brokers[broker_id].has_any_directory
    )


def partition_events(
    brokers: BrokerSurvey, topic_id: UUID, first: int, assigned: Sequence[Assigned], draw: Draw
) -> list[Event]:
    """Return the events that create partitions `first`, `first + 1`, … Partitions with equal replicas share one
    directory tuple."""
    turn = draw.below(1 << 16)
    placed: dict[tuple[tuple[int, ...], int], tuple[UUID, ...]] = {}
    events: list[Event] = []
    for number, (replicas, isr) in enumerate(assigned):
        key = replicas, (turn + number) % brokers.cycle
        directories = placed.get(key)
        if directories is None:
            log_dirs = brokers.directories
            directories = placed[key] = tuple([_in_turn(log_dirs[one], turn + number) for one in replicas])
        events.append(Partition(topic_id, first + number, replicas, isr, leader=isr[0], directories=directories))
    return events


def directory_for(image: MetadataImage, broker_id: int, turn: int) -> UUID:
    """Return one of the broker's directories, chosen in turn. The controller assigns it so that it always knows which
    partitions an offline directory affects."""
    return _in_turn(image.brokers[broker_id].log_dirs, turn)


def _in_turn(directories: tuple[UUID, ...], turn: int) -> UUID:
    return directories[turn % len(directories)] if directories else UNASSIGNED_DIRECTORY
