"""Checks of which node may lead, vote and send in which epoch (R1, R2, R3, second half of R17, first half of R19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    EpochClaimed,
    FetchSent,
    PreVoteAnswered,
    Restarted,
    RoleSeen,
    VoteDurable,
    VoteGranted,
)
from kraft.sim.check.shadow import Shadows


class ElectionSafety(Check):
    """Check that at most one node is ever leader of an epoch. `LEADERS[epoch]` is set once, from observed roles and
    from every message that names a leader."""

    id: ClassVar[str] = "R1"
    statement: ClassVar[str] = "At most one node is ever leader for an epoch."

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[int, int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role, EpochClaimed: self.claim}

    def role(self, seen: RoleSeen) -> None:
        if seen.is_leader:
            self._leads(seen.node, seen.epoch, "its role")

    def claim(self, seen: EpochClaimed) -> None:
        if seen.leader_id >= 0:
            self._leads(seen.leader_id, seen.epoch, f"a message of node {seen.node}")

    def _leads(self, node: int, epoch: int, source: str) -> None:
        self.count()
        first = self.leaders.setdefault(epoch, node)
        if first != node:
            self.fail("two leaders in one epoch", epoch=epoch, first=first, second=node, told_by=source)


class OneVotePerEpoch(Check):
    """Check that a voter grants its vote to at most one candidate per epoch; pre-votes do not count. A wiped voter may
    vote again under its new directory id, which is part of the key."""

    id: ClassVar[str] = "R2"
    statement: ClassVar[str] = "A (node, directory) grants a real vote to at most one candidate per epoch."

    def __init__(self) -> None:
        super().__init__()
        self._votes: dict[tuple[int, str, int], int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {VoteGranted: self.granted}

    def granted(self, seen: VoteGranted) -> None:
        self.count()
        first = self._votes.setdefault((seen.node, seen.directory_id, seen.epoch), seen.candidate)
        if first != seen.candidate:
            self.fail("two votes in one epoch", voter=seen.node, epoch=seen.epoch, first=first, second=seen.candidate)


class EpochsRise(Check):
    """Check that a replica's epoch never decreases, in memory and on disk. A wiped node starts again from zero."""

    id: ClassVar[str] = "R3"
    statement: ClassVar[str] = "A replica's epoch never decreases, and no message carries one above its durable epoch."

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, int] = {}
        self._durable: dict[int, int] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {RoleSeen: self.role, VoteDurable: self.durable, EpochClaimed: self.claim, Restarted: self.restarted}

    def role(self, seen: RoleSeen) -> None:
        self._rises(self._memory, seen.node, seen.epoch, "in memory")

    def durable(self, seen: VoteDurable) -> None:
        self._rises(self._durable, seen.node, seen.epoch, "on disk")

    def _rises(self, known: dict[int, int], node: int, epoch: int, where: str) -> None:
        before = known.get(node, 0)
        if epoch > before:
            self.count()
            known[node] = epoch
        elif epoch < before:
            self.fail(f"the epoch {where} went back", node=node, before=before, after=epoch)

    def claim(self, seen: EpochClaimed) -> None:
        durable = self._durable.get(seen.node, 0)
        if seen.epoch > durable:
            self.fail(
                "a message carries an epoch that is not durable", node=seen.node, epoch=seen.epoch, durable=durable
            )

    def restarted(self, seen: Restarted) -> None:
        # after a start, the state in memory comes from the disk
        self._memory[seen.node] = (
            0 if seen.wiped else min(self._memory.get(seen.node, 0), self._durable.get(seen.node, 0))
        )
        if seen.wiped:
            self._durable.pop(seen.node, None)


class PersistBeforeReply(Check):
    """Check that a vote or a fetch offset is durable before it is sent: what is sent is compared with what a power loss
    at this moment would keep. A vote of an earlier epoch may be sent late. It was durable once, and what is durable now
    does not contradict it."""

    id: ClassVar[str] = "R19"
    statement: ClassVar[str] = (
        "A vote is durable before it is sent; a voter's fetch offset acknowledges only durable records."
    )

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows
        self._durable: dict[int, dict[int, int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {VoteDurable: self.durable, VoteGranted: self.granted, FetchSent: self.fetch}

    def durable(self, seen: VoteDurable) -> None:
        self._durable.setdefault(seen.node, {})[seen.epoch] = seen.voted_id

    def granted(self, seen: VoteGranted) -> None:
        self.count()
        kept = self._durable.get(seen.node, {})
        if kept.get(seen.epoch) != seen.candidate:
            self.fail(
                "a vote left before it was durable",
                voter=seen.node,
                epoch=seen.epoch,
                candidate=seen.candidate,
                durable=sorted(kept.items())[-2:],
            )

    def fetch(self, seen: FetchSent) -> None:
        durable_end = self._shadows.log(seen.node, None).durable_end
        if seen.fetch_offset > 0:
            self.count()
        if seen.fetch_offset > durable_end:
            self.fail(
                "a fetch acknowledges what is not durable",
                node=seen.node,
                fetch_offset=seen.fetch_offset,
                durable_end=durable_end,
            )


class VoteRestriction(Check):
    """Check that a vote goes only to a candidate whose log is at least as up to date as the voter's. The voter's log is
    what would survive a power loss: its durable records of earlier epochs."""

    id: ClassVar[str] = "R13"
    statement: ClassVar[str] = "A vote goes only to a candidate whose log is at least as up to date as the voter's."

    def __init__(self, shadows: Shadows) -> None:
        super().__init__()
        self._shadows = shadows

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {VoteGranted: self.granted}

    def granted(self, seen: VoteGranted) -> None:
        log = self._shadows.log(seen.node, None)
        kept = (batch for batch in reversed(log.batches) if batch.next_offset <= log.durable_end)
        last = next((batch for batch in kept if batch.epoch < seen.epoch), None)
        if last is None:
            return
        self.count()
        if seen.candidate_epoch_and_offset < (last.epoch, last.next_offset):
            self.fail(
                "a vote went to a candidate with an older log",
                voter=seen.node,
                epoch=seen.epoch,
                candidate=seen.candidate,
                candidate_log=seen.candidate_epoch_and_offset,
                voter_log=(last.epoch, last.next_offset),
            )


class PreVoteChangesNothing(Check):
    """Check that a pre-vote changes no state of the voter that answers (the first half of K4). `EpochsAreSteady` checks
    that epochs do not rise while a leader keeps contact with a majority."""

    id: ClassVar[str] = "K4"
    statement: ClassVar[str] = "A pre-vote changes no state of the voter that answers."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PreVoteAnswered: self.answered}

    def answered(self, seen: PreVoteAnswered) -> None:
        self.count()
        if seen.before != seen.after:
            self.fail("a pre-vote changed the voter", node=seen.node, before=seen.before, after=seen.after)
