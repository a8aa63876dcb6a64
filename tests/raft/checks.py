"""Invariants R1 to R19 and K4 over a simulated quorum, checked after every event against ghost ledgers.

A check reads, never changes. It raises `Violation` with its name and the evidence. `counts` says how often each ran on
something that could have failed it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kraft.raft.identity import ReplicaKey
from kraft.raft.inputs import RequestReceived
from kraft.raft.log_view import SnapshotId
from kraft.raft.ready import Leadership
from kraft.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraft.wire.rpc_quorum import (
    FetchSnapshotRequest,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from .simulation import Entry, Node, World


class Violation(AssertionError):
    def __init__(self, name: str, evidence: str) -> None:
        super().__init__(f"{name}: {evidence}")
        self.name = name


class Checks:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.written: dict[tuple[int, int], int] = {}
        """(base offset, epoch) → chain, of everything ever appended anywhere."""
        self.ledger: dict[int, tuple[int, int]] = {0: (0, 0)}
        """End offset of a committed batch → (epoch, chain)."""
        self.committed_in: dict[int, int] = {0: -1}
        """End offset of a committed batch → epoch of the leader that committed it."""
        self.ledger_end = 0
        self.epochs: dict[ReplicaKey, int] = {}
        self.durable_epochs: dict[ReplicaKey, int] = {}
        self.heard: dict[tuple[int, int], int] = {}
        """(who heard, from whom) → when a fetch was delivered last."""
        self.led_since: dict[tuple[int, int, int], int] = {}
        self.watermarks: dict[tuple[int, int], int] = {}

    def fail(self, name: str, evidence: str) -> None:
        raise Violation(name, evidence)

    def require(self, name: str, condition: object, evidence: str) -> None:
        self.counts[name] += 1
        if not condition:
            self.fail(name, evidence)

    # life

    def on_boot(self, world: World, node: Node) -> None:
        # What was not durable and had not been said may be forgotten.
        self.epochs[node.key] = node.disk.state.epoch

    def on_crash(self, world: World, node: Node, life: int) -> None:
        """R10: every committed record is still durable on a majority's worth of voters."""
        self.check_durability(world)

    def check_durability(self, world: World) -> None:
        end = self.ledger_end
        chain = self.ledger[end][1]
        holders = sum(1 for n in world.voters.ids if self._holds(world.nodes[n], end, chain))
        self.require("R10", holders * 2 > len(world.voters), f"{end} is durable on {holders} voters only")

    def _holds(self, node: Node, end: int, chain: int) -> bool:
        disk = node.disk
        if disk.base[0] >= end:
            return True
        return disk.synced_end >= end and disk.chain_at(end) == chain

    # steps

    def before(self, world: World, node: Node, event: Any) -> Any:
        if isinstance(event, RequestReceived):
            request, raft = event.request, node.raft
            if isinstance(request, MetadataFetchRequest | FetchSnapshotRequest):
                self.heard[(node.node_id, request.replica_id)] = world.now
            assert raft is not None
            is_pre_vote = isinstance(request, VoteRequest) and request.pre_vote
            if is_pre_vote or request.epoch < raft.epoch:
                return (is_pre_vote, digest(node))
        return None

    def after(self, world: World, node: Node, event: Any, before: Any) -> None:
        raft = node.raft
        assert raft is not None
        if before is not None:
            is_pre_vote, state = before
            self.require("K4" if is_pre_vote else "R17", digest(node) == state, f"{state} became {digest(node)}")
        epoch = self.epochs.get(node.key, 0)
        if raft.epoch != epoch:
            self.require("R3", raft.epoch > epoch, f"node {node.node_id} went from epoch {epoch} to {raft.epoch}")
            self.epochs[node.key] = raft.epoch
        role = raft.role
        if isinstance(role, Leader):
            self.name_leader(raft.epoch, node.node_id)
            self._check_contact(world, node)
        elif isinstance(role, Candidate | Prospective):
            self.require("R14", raft.is_voter and node.may_vote, f"node {node.node_id} is no voter, but {role}")
        committed = raft.high_watermark
        if committed is not None:
            self.require("R8", committed <= raft.log.end_offset, f"{committed} > {raft.log.end_offset}")

    def _check_contact(self, world: World, node: Node) -> None:
        """R18, by the fetches that were delivered: a majority was heard within 1.5 + 1 fetch time-outs."""
        raft = node.raft
        assert raft is not None
        began = self.led_since.setdefault((node.node_id, node.life, raft.epoch), world.now)
        times = [world.now if n == node.node_id else self.heard.get((node.node_id, n), began) for n in raft.voters.ids]
        if len(times) == 1:
            return
        last = max(sorted(times, reverse=True)[len(times) // 2], began, node.paused_until)
        limit = world.settings.check_quorum_ms + world.settings.fetch_timeout_ms
        self.require("R18", world.now - last <= limit, f"leader {node.node_id} heard no majority since {last}")

    def name_leader(self, epoch: int, leader_id: int) -> None:
        known = self.leaders.setdefault(epoch, leader_id)
        self.require("R1", known == leader_id, f"epoch {epoch} has leaders {known} and {leader_id}")

    # effects

    def on_state(self, world: World, node: Node) -> None:
        state = node.disk.state
        durable = self.durable_epochs.get(node.key, 0)
        self.require("R3", state.epoch >= durable, f"node {node.node_id} writes {state} after epoch {durable}")
        self.durable_epochs[node.key] = state.epoch
        if state.leader_id is not None:
            self.name_leader(state.epoch, state.leader_id)

    def on_leadership(self, world: World, node: Node, leadership: Leadership) -> None:
        if leadership.leader_id is not None:
            self.name_leader(leadership.epoch, leadership.leader_id)
        if leadership.is_local:
            # What later epochs have committed meanwhile is no business of a leader that comes late.
            end = max(end for end, epoch in self.committed_in.items() if epoch < leadership.epoch)
            held = node.disk.base[0] >= end or node.disk.chain_at(end) == self.ledger[end][1]
            self.require("R6", held, f"leader {node.node_id} of {leadership.epoch} lacks {end}")

    def on_append(self, world: World, node: Node, entry: Entry) -> None:
        known = self.written.setdefault((entry.base, entry.epoch), entry.chain)
        self.require("R12", known == entry.chain, f"({entry.base}, {entry.epoch}) names two records")
        raft = node.raft
        assert raft is not None
        if entry.voters is not None and raft.is_leader:
            self._check_voters(node, entry)

    def _check_voters(self, node: Node, entry: Entry) -> None:
        """R16: one change at a time, by one voter, and only once a record of this epoch is committed."""
        raft = node.raft
        assert raft is not None
        assert entry.voters is not None
        committed = self.watermarks.get((node.node_id, node.life), 0)
        older = [other for other in node.disk.entries[:-1] if other.voters is not None]
        before = older[-1].voters if older else node.disk.base_voters or raft.log.voters.at(0)
        assert before is not None
        pending = [other for other in older if other.next > committed]
        self.require("R16", not pending, f"a second change at {entry.base} while {pending} is not committed")
        self.require("R16", entry.voters.differs_by(before) <= 1, f"{entry.voters.ids} follows {before.ids}")
        own = any(other.epoch == raft.epoch and other.next <= committed for other in node.disk.entries)
        self.require("R16", own or node.disk.base[1] == raft.epoch, f"no record of epoch {raft.epoch} is committed")

    def on_truncate(self, world: World, node: Node, offset: int) -> None:
        raft = node.raft
        assert raft is not None
        self.require("R4", not raft.is_leader, f"leader {node.node_id} truncates to {offset}")
        known = self.watermarks.get((node.node_id, node.life), 0)
        self.require("R11", offset >= known, f"node {node.node_id} truncates to {offset}, below {known}")
        for entry in node.disk.entries[node.disk.position(offset) :]:
            committed = self.ledger.get(entry.next)
            lost = committed is not None and committed[1] == entry.chain
            self.require("R11", not lost, f"node {node.node_id} removes committed {entry}")

    def on_install(self, world: World, node: Node, snapshot: SnapshotId, chain: int) -> None:
        raft = node.raft
        assert raft is not None
        self.require("R15", not raft.is_leader, f"leader {node.node_id} loads {snapshot}")
        self.require("R15", self.ledger.get(snapshot.end_offset) == (snapshot.epoch, chain), f"{snapshot} is wrong")

    def on_high_watermark(self, world: World, node: Node, offset: int) -> None:
        raft = node.raft
        assert raft is not None
        before = self.watermarks.get((node.node_id, node.life), 0)
        self.require("R8", offset >= before, f"node {node.node_id} went back from {before} to {offset}")
        self.watermarks[(node.node_id, node.life)] = offset
        if raft.is_leader:
            self._check_commit(world, node, offset)
        self._apply(node, offset)

    def _check_commit(self, world: World, node: Node, offset: int) -> None:
        """R9, recomputed from the disks."""
        raft, disk = node.raft, node.disk
        assert raft is not None
        own = any(entry.epoch == raft.epoch and entry.base < offset for entry in disk.entries)
        own = own or disk.base[1] == raft.epoch
        self.require("R9", own, f"epoch {raft.epoch} commits {offset} without a record of its own below it")
        chain = disk.chain_at(offset)
        voters = raft.voters
        holders = 0
        for voter in voters.voters:
            other = world.nodes[voter.key.node_id]
            if chain is not None and voter.key.stands_for(other.key) and self._holds(other, offset, chain):
                holders += 1
        self.require("R9", holders * 2 > len(voters), f"{offset} is durable on {holders} of {voters.ids}")

    def _apply(self, node: Node, offset: int) -> None:
        """R7: what is applied is what was committed first."""
        disk = node.disk
        for entry in disk.entries[disk.position(node.applied) :]:
            if entry.next > offset:
                break
            known = self.ledger.setdefault(entry.next, (entry.epoch, entry.chain))
            assert node.raft is not None
            self.committed_in.setdefault(entry.next, node.raft.epoch)
            self.require("R7", known == (entry.epoch, entry.chain), f"node {node.node_id} applies {entry}, not {known}")
            self.ledger_end = max(self.ledger_end, entry.next)

    # messages

    def on_send(self, world: World, node: Node, request: Any) -> None:
        self._check_durable(node, request.epoch)
        if isinstance(request, MetadataFetchRequest | FetchSnapshotRequest) and node.may_vote:
            end = getattr(request, "fetch_offset", 0)
            self.require("R19", end <= node.disk.synced_end, f"node {node.node_id} acknowledges {end} before its sync")

    def on_answer(self, world: World, node: Node, response: Any) -> None:
        self._check_durable(node, response.epoch)
        if response.leader_id >= 0:
            self.name_leader(response.epoch, response.leader_id)
        if isinstance(response, MetadataFetchResponse) and response.high_watermark >= 0 and node.raft is not None:
            known = self.watermarks.get((node.node_id, node.life), -1)
            self.require("R9", response.high_watermark <= max(known, 0), "an uncommitted high watermark is told")
            role = node.raft.role
            if isinstance(role, Leader):
                beyond = response.high_watermark > role.epoch_start_offset
                self.require("R9", beyond, f"{response.high_watermark} is told without a record of this epoch")

    def _check_durable(self, node: Node, epoch: int) -> None:
        raft, state = node.raft, node.disk.state
        assert raft is not None
        self.require("R17", epoch <= state.epoch, f"node {node.node_id} says epoch {epoch}, its disk {state.epoch}")
        same = state.epoch == raft.epoch and state.voted == raft.voted
        self.require("R19", same, f"node {node.node_id} speaks at {raft.epoch}, {raft.voted}; its disk has {state}")

    def on_vote_answer(self, world: World, node: Node, candidate: Node, response: Any) -> None:
        if not isinstance(response, VoteResponse) or not response.vote_granted or candidate.raft is None:
            return
        role = candidate.raft.role
        if not isinstance(role, Candidate) or candidate.raft.epoch != response.epoch:
            return
        if node.raft is None or node.raft.voted != candidate.key:
            return
        known = self.votes.setdefault((node.key, response.epoch), candidate.key)
        self.require("R2", known == candidate.key, f"node {node.node_id} votes twice in epoch {response.epoch}")
        theirs = (candidate.raft.log.last_epoch, candidate.raft.log.end_offset)
        ours = node.disk.ending(node.disk.synced)
        self.require("R13", theirs >= ours, f"node {node.node_id} at {ours} votes for {candidate.node_id} at {theirs}")


def digest(node: Node) -> tuple[Any, ...]:
    """What a message that must change nothing may not change."""
    raft = node.raft
    assert raft is not None
    role = raft.role
    times: tuple[Any, ...] = ()
    if isinstance(role, Unattached | Prospective | Candidate | Resigned):
        times = (role.election_deadline_ms,)
    elif isinstance(role, Follower):
        times = (role.fetch_deadline_ms, role.has_fetched, role.lost_since_ms, role.campaign_at_ms)
    return (
        raft.epoch,
        raft.voted,
        raft.leader_id,
        type(role).__name__,
        raft.log.end_offset,
        raft.high_watermark,
        *times,
    )
