"""Checks of groups: what members received from their coordinators, and what coordinators remember (G1 to G7, G9).

What members know is incomplete. If a commit got no response, or an ambiguous error, it may have been carried out, or
may still be carried out later. The checks allow for that, and for no other deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.observations import TopicPartition

Place = tuple[str, TopicPartition]
"""A committed offset, identified as (group, partition)."""


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    """Observation: a member got a successful SyncGroup response. `plan` identifies the decision of the group's leader
    that the assignment is part of. `made_for` is the member for which the group's leader made the assignment. Both are
    None for an empty assignment."""

    group: str
    member: str
    generation: int
    plan: str | None
    made_for: str | None


@dataclass(frozen=True, slots=True)
class CommitStarted:
    """Observation: a member sends a commit with this generation (-1: none)."""

    group: str
    partition: TopicPartition
    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommitEnded:
    """Observation: outcome of a commit: True acknowledged, False rejected, None unknown."""

    group: str
    partition: TopicPartition
    generation: int
    offset: int
    outcome: bool | None
    newest_synced: int
    """Highest generation that any member had been notified of when the commit was sent."""


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """Observation: a coordinator answered an OffsetFetch. `floor` is the highest offset that had been acknowledged when
    the request was sent."""

    group: str
    partition: TopicPartition
    offset: int
    floor: int


@dataclass(frozen=True, slots=True)
class GroupSettled:
    """State of a group at the end of a run. `owners`: partition → the members that consider themselves its owner.
    `generations`: the generations that the coordinator has confirmed to the members; None for a member without one."""

    group: str
    owners: Mapping[TopicPartition, tuple[str, ...]]
    generations: frozenset[int | None]


@dataclass(frozen=True, slots=True)
class CoordinatorSeen:
    """State of a coordinator at the end of a run: what it remembers, what a replay of its log yields, and whether it
    leads its partition."""

    node: int
    partition: int
    remembered: Any
    replayed: Any
    leads: bool


class GenerationsIncrease(Check):
    """Check that each member is notified of increasing generations, whichever coordinator notifies it. Different
    members may be notified of a generation at different times."""

    id = "G1"
    statement = "the generations that a member is notified of increase, with any coordinator"

    def __init__(self) -> None:
        super().__init__()
        self._generations: dict[tuple[str, str], int] = {}
        """(group, member) → the last generation that the member was notified of."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AssignmentReceived: self._told}

    def _told(self, told: AssignmentReceived) -> None:
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
    """Check that a generation has one assignment plan, and that each member receives the part of the plan that was made
    for it. Two coordinators never announce the same generation."""

    id = "G5"
    statement = "a generation has one plan, of one leader, and each member gets its own part of it"

    def __init__(self) -> None:
        super().__init__()
        self._plans: dict[tuple[str, int], str] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AssignmentReceived: self._told}

    def _told(self, told: AssignmentReceived) -> None:
        if told.plan is None:
            return
        self.count()
        known = self._plans.setdefault((told.group, told.generation), told.plan)
        if known != told.plan:
            self.fail(
                "two plans of one generation", group=told.group, generation=told.generation, one=known, other=told.plan
            )
        if told.made_for != told.member:
            self.fail(
                "an assignment made for another member", group=told.group, member=told.member, made_for=told.made_for
            )


class CommitsNeverGoBack(Check):
    """Check that no member reads an older offset after an acknowledged commit (G3)."""

    id = "G3"
    statement = (
        "after an acknowledged commit no member reads an older offset, except one whose commit has an unknown outcome"
    )

    def __init__(self) -> None:
        super().__init__()
        self._unknown: dict[Place, set[int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitStarted: self._begun, CommitEnded: self._ended, OffsetRead: self._read}

    def _begun(self, begun: CommitStarted) -> None:
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


class OldGenerationsFenced(Check):
    """Check that a commit of a generation that was over when it was sent never succeeds (G4)."""

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
    """Check that each coordinator that is active at the end leads the partition that stores its groups. The answers of
    replaced coordinators are checked by `metadata_histories` (G3b)."""

    id = "G6"
    statement = "a coordinator of groups leads the partition that stores them"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CoordinatorSeen: self._seen}

    def _seen(self, seen: CoordinatorSeen) -> None:
        if seen.remembered.groups or seen.remembered.offsets:
            self.count()
        if not seen.leads:
            self.fail("a coordinator of a partition that is led elsewhere", node=seen.node, partition=seen.partition)


class StateIsReplay(Check):
    id = "G7"
    statement = "a coordinator's state equals a replay of its log"

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
    """Check that each partition has one owner among a group's members (G2, G9)."""

    id = "G9"
    statement = "once a group has settled, each partition has exactly one owner, all in one generation"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupSettled: self._rests}

    def _rests(self, rest: GroupSettled) -> None:
        self.count()
        if None in rest.generations:
            self.fail("members that are unknown to their coordinator", group=rest.group)
        generations = sorted(one for one in rest.generations if one is not None)
        if len(generations) > 1:
            self.fail("members of several generations", group=rest.group, generations=generations)
        for partition, owners in rest.owners.items():
            if len(owners) != 1:
                self.fail("a partition without exactly one owner", group=rest.group, partition=partition, owners=owners)


def group_checks() -> Checks:
    """Return all checks of groups over one run."""
    every = (
        GenerationsIncrease,
        CommitsNeverGoBack,
        OldGenerationsFenced,
        OnePlanPerGeneration,
        CoordinatorsLead,
        StateIsReplay,
        OneOwner,
    )
    return Checks(check() for check in every)
