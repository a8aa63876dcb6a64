"""A quorum of Raft cores with the actions and queries that clients and fault schedules use."""

from __future__ import annotations

from kraft.raft.identity import VoterSet
from kraft.raft.inputs import AppendRequested, Input, VotersChangeRequested
from kraft.raft.state import Leader
from kraft.sim.cores.driver import CoreDriver
from kraft.sim.cores.node import CoreNode

VOTERS_MIN = 2
"""Minimum number of voters that remain when voters are removed."""


class CoreWorld(CoreDriver):
    """Voters 1..n and observers n+1..n+m in a world that follows from one seed."""

    cut_for_good: frozenset[tuple[int, int]] = frozenset()
    """(source, target) pairs that stay cut when everything else is healed."""
    _append_interval_ms = 0
    _voters_interval_ms = 0

    # the links

    def partition(self, *groups: tuple[int, ...]) -> None:
        """Cut all links between two groups of nodes."""
        self.cut = {
            (a, b) for a in self.nodes for b in self.nodes if a != b and not any(a in g and b in g for g in groups)
        }

    def heal(self) -> None:
        self.cut = set(self.cut_for_good)
        self.refused.clear()

    # client of the quorum

    def append(self, count: int = 1) -> bool:
        """Append a batch as the leader's state machine does; return False if no leader can append."""
        return self._ask_leader(AppendRequested((b"x",) * count)) is not None

    def change_voters(self, voters: VoterSet) -> bool:
        """Change the voters; return whether the leader wrote a VotersRecord."""
        leader = self.leader
        before = leader.disk.end if leader is not None else 0
        asked = self._ask_leader(VotersChangeRequested(voters))
        return asked is not None and asked.disk.end > before

    def _ask_leader(self, event: Input) -> CoreNode | None:
        leader = self.leader
        if leader is None or leader.raft is None or leader.is_writing_state or self.now < leader.paused_until:
            return None
        self._step(leader, leader.raft, event)
        return leader

    def append_every(self, interval_ms: int) -> None:
        """Run a client that appends until `stop_appends`."""
        self._append_interval_ms = interval_ms
        self.at(interval_ms, self._write_on)

    def _write_on(self) -> None:
        if self._append_interval_ms:
            self.append(1 + self.chance.below(3))
            self.at(self._append_interval_ms, self._write_on)

    def stop_appends(self) -> None:
        self._append_interval_ms = 0

    def change_voters_every(self, interval_ms: int) -> None:
        """Run an administrator that removes voters and adds them again, one at a time, until `stop_voter_changes`.
        Pauses are at most `interval_ms`. Requests go to the current leader, even if it may not change voters yet."""
        self._voters_interval_ms = interval_ms
        self.at(interval_ms, self._change_on)

    def _change_on(self) -> None:
        if self._voters_interval_ms:
            self._change_one_voter()
            self.at(1 + self.chance.below(self._voters_interval_ms), self._change_on)

    def _change_one_voter(self) -> None:
        leader = self.leader
        if leader is None or leader.raft is None:
            return
        now = leader.raft.voters.voters
        absent = [voter for voter in self.voters.voters if voter not in now]
        if absent and (len(now) <= VOTERS_MIN or self.chance.below(2)):
            changed = (*now, absent[self.chance.below(len(absent))])
        elif len(now) > VOTERS_MIN:
            gone = now[self.chance.below(len(now))]
            changed = tuple(voter for voter in now if voter != gone)
        else:
            return
        self.voter_changes += self.change_voters(VoterSet(changed))

    def stop_voter_changes(self) -> None:
        self._voters_interval_ms = 0

    # queries

    @property
    def leader(self) -> CoreNode | None:
        """The live leader of the highest epoch."""
        found, newest = None, -1
        for node in self.nodes.values():
            raft = node.raft
            if raft is not None and raft.is_leader and raft.epoch > newest:
                found, newest = node, raft.epoch
        return found

    def has_active_leader(self) -> bool:
        """Return whether a leader has committed a record of its epoch and is known to a majority of the voters."""
        leader = self.leader
        if leader is None or leader.raft is None:
            return False
        role, epoch = leader.raft.role, leader.raft.epoch
        if not isinstance(role, Leader) or role.high_watermark is None:
            return False
        known = [n for n in self.voters.ids if _follows(self.nodes[n], leader.node_id, epoch)]
        return len(known) * 2 > len(self.voters)

    @property
    def committed_end(self) -> int:
        """The highest high watermark that a live node knows."""
        return max((node.raft.high_watermark or 0 for node in self.nodes.values() if node.raft is not None), default=0)

    def caught_up(self) -> bool:
        """Return whether every live node has all entries, and knows that they are committed."""
        leader = self.leader
        if leader is None or leader.raft is None:
            return False
        end = leader.raft.log.end_offset
        return all(n.raft is None or (n.raft.high_watermark == end == n.disk.end) for n in self.nodes.values())


def _follows(node: CoreNode, leader_id: int, epoch: int) -> bool:
    return node.raft is not None and node.raft.leader_id == leader_id and node.raft.epoch == epoch
