"""Checks of which nodes may be candidates, and of how long a leader may lead without fetches from a majority (R14 and
R18).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    Campaigned,
    NodeDown,
    QuorumFetchHandled,
    Restarted,
    RoleSeen,
    TimeElapsed,
    VoterKeys,
    VotersSeen,
)


class OnlyVotersAreCandidates(Check):
    """Check that only voters request votes and lead, by the voter sets that the node has used in this incarnation. A
    request that waits for its connection may be sent after the record that removes its sender. A removed leader leads
    until that record is committed, so for leaders all these sets count. R9 checks that observers do not count for the
    high watermark."""

    id: ClassVar[str] = "R14"
    statement: ClassVar[str] = "Only voters request votes, and only nodes that were voters lead."

    def __init__(self, voters: frozenset[int]) -> None:
        super().__init__()
        self._voters = voters
        self._sets: dict[int, list[VoterKeys]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            VotersSeen: self.voters_seen,
            Restarted: self.restarted,
            Campaigned: self.campaigned,
            RoleSeen: self.role,
        }

    def voters_seen(self, seen: VotersSeen) -> None:
        known = self._sets.setdefault(seen.node, [])
        if not known or known[-1] != seen.voters:
            known.append(seen.voters)

    def restarted(self, seen: Restarted) -> None:
        self._sets.pop(seen.node, None)

    def campaigned(self, seen: Campaigned) -> None:
        self.count()
        known = self._sets.get(seen.node, [])[-2:]
        names = ((seen.node, ""), (seen.node, seen.directory_id))
        if not (any(name in keys for keys in known for name in names) if known else seen.node in self._voters):
            self.fail("a node that is not a voter requests votes", node=seen.node, epoch=seen.epoch, voters=known[-1:])

    def role(self, seen: RoleSeen) -> None:
        if not seen.is_leader:
            return
        known = self._sets.get(seen.node)
        is_known = any(node == seen.node for keys in known for node, _ in keys) if known else seen.node in self._voters
        if not is_known:
            self.fail("a node that is not a voter leads", node=seen.node, epoch=seen.epoch)


@dataclass(slots=True)
class _Leadership:
    epoch: int
    since_ms: int
    """Time when the leadership began, or when the leader's process was last frozen."""
    heard_ms: dict[int, int] = field(default_factory=dict)
    is_told: bool = False


class LeadersHaveFetchingMajority(Check):
    """Check that a leader resigns if no majority fetches from it. A majority must fetch within the check-quorum timeout
    plus one fetch timeout; only fetches that reached the leader count. A frozen process receives no fetch and cannot
    resign, so its time starts again when it continues."""

    id: ClassVar[str] = "R18"
    statement: ClassVar[str] = "A leader that no majority fetches from resigns."

    def __init__(self, voters: frozenset[int], bound_ms: int) -> None:
        super().__init__()
        self._voters = voters
        self._bound_ms = bound_ms
        self._sets: dict[int, frozenset[int]] = {}
        self._reigns: dict[int, _Leadership] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            RoleSeen: self.role,
            VotersSeen: self.voters_seen,
            NodeDown: self.down,
            QuorumFetchHandled: self.fetched,
            TimeElapsed: self.passed,
        }

    def role(self, seen: RoleSeen) -> None:
        if not seen.is_leader:
            self._reigns.pop(seen.node, None)
        elif seen.node not in self._reigns or self._reigns[seen.node].epoch != seen.epoch:
            self._reigns[seen.node] = _Leadership(seen.epoch, self.at_ms)

    def voters_seen(self, seen: VotersSeen) -> None:
        """Restart the time limit after a change of the voters."""
        voters = frozenset(node for node, _ in seen.voters)
        if seen.node in self._reigns and voters != self._sets.get(seen.node, self._voters):
            self._reigns[seen.node].since_ms = self.at_ms
        self._sets[seen.node] = voters

    def down(self, seen: NodeDown) -> None:
        self._reigns.pop(seen.node, None)

    def fetched(self, seen: QuorumFetchHandled) -> None:
        reign = self._reigns.get(seen.leader)
        if reign is not None and reign.epoch == seen.epoch:
            reign.heard_ms[seen.voter] = self.at_ms

    def passed(self, seen: TimeElapsed) -> None:
        for leader, reign in self._reigns.items():
            voters = self._sets.get(leader, self._voters)
            if leader in seen.frozen:
                reign.since_ms = self.at_ms
            elif len(voters) > 1 or leader not in voters:
                self.count()
                self._judge(leader, reign, voters)

    def _judge(self, leader: int, reign: _Leadership, voters: frozenset[int]) -> None:
        times = sorted((self.at_ms if node == leader else reign.heard_ms.get(node, 0) for node in voters), reverse=True)
        silent_ms = self.at_ms - max(times[len(times) // 2], reign.since_ms)
        if silent_ms > self._bound_ms and not reign.is_told:
            reign.is_told = True
            self.fail(
                "a leader leads on that no majority fetches from",
                leader=leader,
                epoch=reign.epoch,
                silent_ms=silent_ms,
                bound_ms=self._bound_ms,
            )
