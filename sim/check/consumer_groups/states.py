"""Checks of the records of consumer groups, and of what coordinators compute from them (G1b, G2b, G7b, G9b)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kraft.broker.consumer_group.records import CurrentMemberKey
from kraft.sim.check.base import Check
from kraft.sim.check.consumer_groups.feed import GroupRecordsCommitted
from kraft.sim.check.consumer_groups.ledger import GroupLedger
from kraft.sim.check.observations import TopicPartition


@dataclass(frozen=True, slots=True)
class CoordinatorCompared:
    """Observation: what a coordinator remembers of a group, and what its log up to the same offset says, both as plain
    values by name. `is_new`: the coordinator has just loaded its partition."""

    node: int
    group: str
    is_new: bool
    remembered: Mapping[str, Any]
    replayed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MixedGroupSettled:
    """Observation: the state of a group at the end of a run. `owners`: partition → the live members that own it, as
    their applications know."""

    group: str
    owners: Mapping[TopicPartition, tuple[str, ...]]


class GroupEpochsRise(Check):
    """Check the epochs in the committed records of each group. A classic group's generation is an epoch too, so that
    epochs also rise when a group changes its protocol. A static member that leaves for a while, or joins again, has an
    epoch of 0 or below; so does a member before its first assignment."""

    id = "G1b"
    statement = (
        "the epochs of a group, its assignment and its members never decrease; a member's epoch is at most the "
        "assignment's, and that at most the group's"
    )

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger
        self._epochs: dict[str, int] = {}
        self._assignment_epochs: dict[str, int] = {}
        self._members: dict[tuple[str, str], int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupRecordsCommitted: self._committed}

    def _committed(self, batch: GroupRecordsCommitted) -> None:
        groups = dict.fromkeys(entry.key.group for entry in batch.entries if not hasattr(entry.key, "partition"))
        for group_id in groups:
            self._look_at(group_id)
        for key, _ in batch.entries:
            if isinstance(key, CurrentMemberKey):
                self._look_at_member(key.group, key.member_id)

    def _look_at(self, group_id: str) -> None:
        group = self._ledger.group(group_id)
        if not group.member_ids:  # an empty group may be replaced by one of the other protocol, which begins again
            self._epochs.pop(group_id, None)
            self._assignment_epochs.pop(group_id, None)
            return
        self.count()
        epoch = group.epoch if group.epoch is not None else group.classic.generation
        self._rise(self._epochs, group_id, epoch, "the epoch of a group went back", group=group_id)
        if group.is_consumer_group:
            assigned, text = group.assignment_epoch, "the epoch of an assignment went back"
            self._rise(self._assignment_epochs, group_id, assigned, text, group=group_id)
            if assigned > epoch:
                self.fail("an assignment of a later epoch", group=group_id, epoch=epoch, assignment_epoch=assigned)
        else:
            self._assignment_epochs.pop(group_id, None)

    def _look_at_member(self, group_id: str, member_id: str) -> None:
        group = self._ledger.group(group_id)
        value = group.current.get(member_id)
        if value is None or value.epoch <= 0:
            self._members.pop((group_id, member_id), None)
            return
        names = {"group": group_id, "member_id": member_id}
        self._rise(self._members, (group_id, member_id), value.epoch, "the epoch of a member went back", **names)
        if value.epoch > group.assignment_epoch:
            self.fail("a member of a later epoch", **names, epoch=value.epoch, assignment_epoch=group.assignment_epoch)

    def _rise(self, known: dict[Any, int], name: Any, epoch: int, text: str, **names: str) -> None:
        if epoch < known.get(name, epoch):
            self.fail(text, **names, before=known[name], now=epoch)
        known[name] = epoch


class PartitionsHaveOneHolder(Check):
    """Check that no two members of a group have the same partition, or still have to revoke it, after any committed
    batch."""

    id = "G2b"
    statement = "no committed record gives a partition to two members of a consumer group"

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupRecordsCommitted: self._committed}

    def _committed(self, batch: GroupRecordsCommitted) -> None:
        for group_id in dict.fromkeys(key.group for key, _ in batch.entries if isinstance(key, CurrentMemberKey)):
            for (topic_id, index), holders in self._ledger.group(group_id).holders().items():
                self.count()
                if len(holders) > 1:
                    facts = {"group": group_id, "topic_id": topic_id, "partition": index}
                    self.fail("two members have one partition", **facts, members=sorted(holders))


class ConsumerStateIsReplay(Check):
    """Check that a coordinator's state of a consumer group follows from its log, when it has loaded it and later."""

    id = "G7b"
    statement = "a coordinator's state of a consumer group equals a replay of its log, at each load and afterwards"

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CoordinatorCompared: self._compared}

    def _compared(self, seen: CoordinatorCompared) -> None:
        if seen.is_new and seen.replayed:
            self.count()
        names = sorted({*seen.remembered, *seen.replayed})
        for name in names:
            remembered, replayed = seen.remembered.get(name), seen.replayed.get(name)
            if remembered != replayed:
                self.fail(
                    "a coordinator remembers something else of a consumer group than its log",
                    node=seen.node, group=seen.group, what=name, remembered=remembered, replayed=replayed,
                )  # fmt: skip


class SettledGroupIsStable(Check):
    """Check that after the faults each partition has one owner, and that each member has its whole assignment."""

    id = "G9b"
    statement = "after the faults a group is stable: each partition has one owner, and each member all of its own"

    def __init__(self, ledger: GroupLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {MixedGroupSettled: self._settled}

    def _settled(self, rest: MixedGroupSettled) -> None:
        self.count()
        for partition, owners in rest.owners.items():
            if len(owners) != 1:
                self.fail("a partition without exactly one owner", group=rest.group, partition=partition, owners=owners)
        for problem in why_unstable(self._ledger, rest.group):
            self.fail("a group does not become stable", group=rest.group, why=problem)


def why_unstable(ledger: GroupLedger, group_id: str) -> list[str]:
    """Return why a consumer group is not stable; nothing if it is, or if it is a classic group."""
    group = ledger.group(group_id)
    if not group.is_consumer_group:
        return []
    found = []
    if group.assignment_epoch != group.epoch:
        found.append(f"epoch {group.epoch} has the assignment of epoch {group.assignment_epoch}")
    for member_id in group.members:
        value = group.current.get(member_id)
        if value is None or value.epoch != group.epoch or value.state != 0:
            found.append(f"member {member_id} has {value}")
    return found
