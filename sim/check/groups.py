"""Groups: what members were told, and what coordinators remember (G1 to G7, G9).

What members see is a history: an answer that never came, or an error that leaves it open, may stand for a write that
was carried out, or will be. A check allows for that, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.observations import TopicPartition

Place = tuple[str, TopicPartition]
"""A group and a partition that it reads."""


@dataclass(frozen=True, slots=True)
class AssignmentTold:
    """A member got a successful SyncGroup. `plan` names the leader's one decision that the assignment is part of, and
    `made_for` the member that it was made for; both None for an empty assignment."""

    group: str
    member: str
    generation: int
    plan: str | None
    made_for: str | None


@dataclass(frozen=True, slots=True)
class CommitBegun:
    """A member sends a commit of this generation (-1: none)."""

    group: str
    partition: TopicPartition
    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """Its outcome: True acknowledged, False refused, None nobody knows."""

    group: str
    partition: TopicPartition
    generation: int
    offset: int
    outcome: bool | None
    newest_synced: int
    """The highest generation that any member had been told of when the commit was sent."""


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """An OffsetFetch was answered; `floor` is the highest offset acknowledged when it was sent."""

    group: str
    partition: TopicPartition
    offset: int
    floor: int


@dataclass(frozen=True, slots=True)
class GroupAtRest:
    """In the end: partition → the members that believe to own it; and the generations that their coordinator has
    confirmed to them, None for a member to which it has confirmed none."""

    group: str
    owners: Mapping[TopicPartition, tuple[str, ...]]
    generations: frozenset[int | None]


@dataclass(frozen=True, slots=True)
class CoordinatorSeen:
    """A coordinator at rest: what it remembers, what a replay of its log says, and whether it leads its partition."""

    node: int
    partition: int
    remembered: Any
    replayed: Any
    leads: bool


class GenerationsRise(Check):
    """Members hear of a generation at different times, but each of them of one after the other."""

    id = "G1"
    statement = "the generations that a member is told of rise, whoever coordinates its group"

    def __init__(self) -> None:
        super().__init__()
        self._generations: dict[tuple[str, str], int] = {}
        """(group, member) → the last that it was told of."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AssignmentTold: self._told}

    def _told(self, told: AssignmentTold) -> None:
        if told.plan is None:
            return
        self.count()
        before = self._generations.get((told.group, told.member), -1)
        self._generations[told.group, told.member] = told.generation
        if told.generation < before:
            self.fail(
                "a generation went back", group=told.group, member=told.member, before=before, now=told.generation
            )


class OnePlanPerGeneration(Check):
    """Also across coordinators: what one of them gave out as a generation is no other's."""

    id = "G5"
    statement = "a generation has one plan, of one leader, of which each member gets its own part"

    def __init__(self) -> None:
        super().__init__()
        self._plans: dict[tuple[str, int], str] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AssignmentTold: self._told}

    def _told(self, told: AssignmentTold) -> None:
        if told.plan is None:
            return
        self.count()
        known = self._plans.setdefault((told.group, told.generation), told.plan)
        if known != told.plan:
            self.fail(
                "two plans of one generation", group=told.group, generation=told.generation, one=known, other=told.plan
            )
        if told.made_for != told.member:
            self.fail("an assignment of somebody else", group=told.group, member=told.member, made_for=told.made_for)


class CommitsStick(Check):
    """G3."""

    id = "G3"
    statement = "after an acknowledged commit nobody reads an older offset, but one whose outcome nobody knows"

    def __init__(self) -> None:
        super().__init__()
        self._unknown: dict[Place, set[int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitBegun: self._begun, CommitEnded: self._ended, OffsetRead: self._read}

    def _begun(self, begun: CommitBegun) -> None:
        self._unknown.setdefault((begun.group, begun.partition), set()).add(begun.offset)

    def _ended(self, ended: CommitEnded) -> None:
        if ended.outcome is not None:
            self._unknown[ended.group, ended.partition].discard(ended.offset)

    def _read(self, read: OffsetRead) -> None:
        if read.floor < 0:
            return
        self.count()
        is_open = read.offset in self._unknown.get((read.group, read.partition), ())
        if read.offset < read.floor and not is_open:
            self.fail(
                "an acknowledged commit is gone",
                group=read.group,
                partition=read.partition,
                acknowledged=read.floor,
                read=read.offset,
            )


class Fenced(Check):
    """G4."""

    id = "G4"
    statement = "a commit of a generation that was over when it was sent never succeeds"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitEnded: self._ended}

    def _ended(self, ended: CommitEnded) -> None:
        if ended.generation < ended.newest_synced:
            self.count()
            if ended.outcome:
                self.fail(
                    "a commit of an old generation succeeded",
                    group=ended.group,
                    generation=ended.generation,
                    newest=ended.newest_synced,
                    offset=ended.offset,
                )


class CoordinatorsLead(Check):
    """By what is in office at rest. An answer of one who is not in office any more is judged by
    `metadata_histories` (G3b)."""

    id = "G6"
    statement = "who coordinates groups leads the partition that they are in"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CoordinatorSeen: self._seen}

    def _seen(self, seen: CoordinatorSeen) -> None:
        if seen.remembered.groups or seen.remembered.offsets:
            self.count()
        if not seen.leads:
            self.fail("a coordinator of a partition that is led elsewhere", node=seen.node, partition=seen.partition)


class StateIsReplay(Check):
    id = "G7"
    statement = "a coordinator remembers what a replay of its log says"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CoordinatorSeen: self._seen}

    def _seen(self, seen: CoordinatorSeen) -> None:
        if seen.replayed.groups or seen.replayed.offsets:
            self.count()
        if seen.remembered != seen.replayed:
            self.fail(
                "a coordinator remembers something else than its log",
                node=seen.node,
                partition=seen.partition,
                remembered=seen.remembered,
                replayed=seen.replayed,
            )


class OneOwner(Check):
    """Each partition has one owner among a group's members (G2, G9)."""

    id = "G9"
    statement = "once a group is at rest, each partition has exactly one owner, all of one generation"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupAtRest: self._rests}

    def _rests(self, rest: GroupAtRest) -> None:
        self.count()
        if None in rest.generations:
            self.fail("members that their coordinator has not heard of", group=rest.group)
        generations = sorted(one for one in rest.generations if one is not None)
        if len(generations) > 1:
            self.fail("members of several generations", group=rest.group, generations=generations)
        for partition, owners in rest.owners.items():
            if len(owners) != 1:
                self.fail("a partition without its one owner", group=rest.group, partition=partition, owners=owners)


def group_checks() -> Checks:
    """All checks of groups, over one run."""
    every = (GenerationsRise, CommitsStick, Fenced, OnePlanPerGeneration, CoordinatorsLead, StateIsReplay, OneOwner)
    return Checks(check() for check in every)
