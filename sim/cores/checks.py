"""Invariants R1 to R19 and K4 over a quorum of cores, checked after every event against a separate record of what was
written and committed, which no node reads.

A check reads and never changes anything. It raises `Violation` with its name and the evidence. Evidence is built only
for a violation, because most checks run on every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.inputs import Input, RequestReceived
from kraft.raft.log_view import SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import Leadership
from kraft.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraft.sim.cores.witness import Memory, Witness
from kraft.wire.rpc.quorum_messages import (
    FetchSnapshotRequest,
    MetadataFetchRequest,
    MetadataFetchResponse,
    QuorumRequest,
    QuorumResponse,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from kraft.sim.cores.driver import CoreDriver
    from kraft.sim.cores.node import CoreEntry, CoreNode


class Violation(AssertionError):
    """Raised when the invariant of the check `name` is violated."""

    def __init__(self, name: str, evidence: str) -> None:
        super().__init__(f"{name}: {evidence}")
        self.name = name


class CoreLife:
    """State that the checks keep of one incarnation of a node."""

    __slots__ = ("applied", "contact_until", "epoch", "high_watermark", "led_epoch", "led_since", "led_voters")

    def __init__(self, epoch: int, applied: int) -> None:
        self.epoch = epoch
        self.applied = applied
        self.high_watermark = 0
        self.led_epoch = -1
        self.led_since = 0
        self.led_voters: VoterSet | None = None
        self.contact_until = -1
        """Time until which the leader may lead even if no further fetch reaches it (R18)."""


class CoreChecks(Witness):
    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.written: dict[tuple[int, int], int] = {}
        """(base offset, epoch) → hash of the log up to and including that entry, for all entries ever appended on any
        node."""
        self.ledger: dict[int, tuple[int, int]] = {0: (0, 0)}
        """End offset of a committed batch → (epoch, hash of the log up to there)."""
        self.committed_in: dict[int, int] = {0: -1}
        """End offset of a committed batch → epoch of the leader that committed it."""
        self.ledger_end = 0
        self.counted_by: VoterSet | None = None
        """Voters among whom a majority had the last committed record."""
        self.lives: dict[int, CoreLife] = {}
        """Node id → its current incarnation; the last one for a node that is down."""
        self.durable_epochs: dict[ReplicaKey, int] = {}
        self.heard: dict[tuple[int, int], int] = {}
        """(receiver, sender) → time when a fetch was last delivered."""

    def require(self, name: str, condition: object, evidence: str) -> None:
        """Raise unless the condition is true. Meant for rare checks, because the caller builds the evidence
        in advance."""
        self.counts[name] += 1
        if not condition:
            raise Violation(name, evidence)

    # starts and ends

    def on_boot(self, node: CoreNode) -> None:
        # The node may forget an epoch and a vote that were neither durable nor sent.
        self.lives[node.node_id] = CoreLife(node.disk.state.epoch, node.disk.base.offset)

    def on_crash(self, world: CoreDriver) -> None:
        """Check R10: every committed record is still durable on a majority of the voters."""
        end, voters = self.ledger_end, self.counted_by or world.voters
        chain = self.ledger[end][1]
        holders = sum(1 for n in voters.ids if holds(world.nodes[n], end, chain))
        self.require("R10", holders * 2 > len(voters), f"{end} is durable on {holders} voters only")

    # steps

    def before(self, world: CoreDriver, node: CoreNode, raft: Raft, event: Input) -> Memory | None:
        if type(event) is RequestReceived:
            request = event.request
            if isinstance(request, MetadataFetchRequest | FetchSnapshotRequest):
                self.heard[(node.node_id, request.replica_id)] = world.now
            if isinstance(request, VoteRequest) and request.pre_vote:
                return ("K4", state_of(raft))
            if request.epoch < raft.epoch:
                return ("R17", state_of(raft))
        return None

    def after(self, world: CoreDriver, node: CoreNode, raft: Raft, memory: Memory | None) -> None:
        if memory is not None:
            name, state = memory
            self.require(name, state_of(raft) == state, f"{state} became {state_of(raft)}")
        life = self.lives[node.node_id]
        epoch = raft.epoch
        if epoch != life.epoch:
            self.require("R3", epoch > life.epoch, f"node {node.node_id} went from epoch {life.epoch} to {epoch}")
            life.epoch = epoch
        role = raft.role
        if isinstance(role, Leader):
            self.name_leader(epoch, node.node_id)
            if world.now > life.contact_until or life.led_epoch != epoch or life.led_voters is not raft.voters:
                self._check_contact(world, node, raft, life)
        elif isinstance(role, Candidate | Prospective):
            self.require("R14", raft.is_voter and node.may_vote, f"node {node.node_id} is no voter, but {role}")
        committed = raft.high_watermark
        if committed is not None:
            self.counts["R8"] += 1
            if committed > raft.log.end_offset:
                raise Violation("R8", f"{committed} > {raft.log.end_offset}")

    def _check_contact(self, world: CoreDriver, node: CoreNode, raft: Raft, life: CoreLife) -> None:
        """Check R18 by the fetches delivered: a majority must have fetched within the check-quorum timeout (1.5 fetch
        timeouts) plus one fetch timeout. After a change of the voters, a majority of the earlier voters counts once
        more."""
        now, voters = world.now, raft.voters
        if life.led_epoch != raft.epoch:
            life.led_epoch, life.led_since, life.led_voters = raft.epoch, now, voters
        self.counts["R18"] += len(voters) > 1
        heard = max(
            self._majority_heard(node, each, now, life.led_since) for each in (voters, life.led_voters or voters)
        )
        last = max(heard, node.paused_until)
        life.led_voters = voters
        life.contact_until = last + world.settings.check_quorum_ms + world.settings.fetch_timeout_ms
        if now > life.contact_until:
            raise Violation("R18", f"leader {node.node_id} heard no majority since {last}")

    def _majority_heard(self, leader: CoreNode, voters: VoterSet, now: int, began: int) -> int:
        """Return the latest time by which each member of some majority has sent a fetch. If the leader is the only
        voter, this is the present time."""
        me = leader.node_id
        times = sorted((now if n == me else self.heard.get((me, n), began) for n in voters.ids), reverse=True)
        return max(times[len(times) // 2], began)

    def name_leader(self, epoch: int, leader_id: int) -> None:
        self.counts["R1"] += 1
        known = self.leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            raise Violation("R1", f"epoch {epoch} has leaders {known} and {leader_id}")

    # the quorum state

    def on_state(self, node: CoreNode) -> None:
        state = node.disk.state
        durable = self.durable_epochs.get(node.key, 0)
        self.require("R3", state.epoch >= durable, f"node {node.node_id} writes {state} after epoch {durable}")
        self.durable_epochs[node.key] = state.epoch
        if state.leader_id is not None:
            self.name_leader(state.epoch, state.leader_id)

    def on_leadership(self, node: CoreNode, leadership: Leadership) -> None:
        if leadership.leader_id is not None:
            self.name_leader(leadership.epoch, leadership.leader_id)
        if leadership.is_local:
            # A late leader need not have what later epochs have committed meanwhile.
            end = max(end for end, epoch in self.committed_in.items() if epoch < leadership.epoch)
            held = node.disk.base.offset >= end or node.disk.chain_at(end) == self.ledger[end][1]
            self.require("R6", held, f"leader {node.node_id} of {leadership.epoch} lacks {end}")

    # the log

    def on_append(self, node: CoreNode, raft: Raft, entry: CoreEntry) -> None:
        self.counts["R12"] += 1
        known = self.written.setdefault((entry.base_offset, entry.epoch), entry.chain)
        if known != entry.chain:
            raise Violation("R12", f"({entry.base_offset}, {entry.epoch}) names two records")
        if entry.voters is not None and raft.is_leader:
            self._check_voters(node, raft, entry.base_offset, entry.voters)

    def _check_voters(self, node: CoreNode, raft: Raft, offset: int, voters: VoterSet) -> None:
        """Check R16: one change at a time, by one voter, and only after a record of this epoch is committed."""
        disk = node.disk
        committed = self.lives[node.node_id].high_watermark
        older = [(other.next_offset, other.voters) for other in disk.entries[:-1] if other.voters is not None]
        before = older[-1][1] if older else disk.base_voters or raft.log.voters.at(0)
        pending = [end for end, _ in older if end > committed]
        self.require("R16", not pending, f"a second change at {offset} while {pending} is not committed")
        self.require("R16", voters.differs_by(before) <= 1, f"{voters.ids} follows {before.ids}")
        own = any(other.epoch == raft.epoch and other.next_offset <= committed for other in disk.entries)
        self.require("R16", own or disk.base.epoch == raft.epoch, f"no record of epoch {raft.epoch} is committed")

    def on_truncate(self, node: CoreNode, raft: Raft, offset: int) -> None:
        self.require("R4", not raft.is_leader, f"leader {node.node_id} truncates to {offset}")
        known = self.lives[node.node_id].high_watermark
        self.require("R11", offset >= known, f"node {node.node_id} truncates to {offset}, below {known}")
        for entry in node.disk.entries[node.disk.position(offset) :]:
            committed = self.ledger.get(entry.next_offset)
            lost = committed is not None and committed[1] == entry.chain
            self.require("R11", not lost, f"node {node.node_id} removes committed {entry}")

    def on_install(self, node: CoreNode, raft: Raft, snapshot: SnapshotId, chain: int) -> None:
        self.require("R15", not raft.is_leader, f"leader {node.node_id} loads {snapshot}")
        self.require("R15", self.ledger.get(snapshot.end_offset) == (snapshot.epoch, chain), f"{snapshot} is wrong")

    # the high watermark

    def on_high_watermark(self, world: CoreDriver, node: CoreNode, raft: Raft, offset: int) -> None:
        life = self.lives[node.node_id]
        self.counts["R8"] += 1
        if offset < life.high_watermark:
            raise Violation("R8", f"node {node.node_id} went back from {life.high_watermark} to {offset}")
        life.high_watermark = offset
        if raft.is_leader:
            self._check_commit(world, node, raft, offset)
        self._apply(node, raft.epoch, life.applied, offset)
        life.applied = offset

    def _check_commit(self, world: CoreDriver, node: CoreNode, raft: Raft, offset: int) -> None:
        """Check R9: the commit is recomputed from what is on the disks."""
        disk = node.disk
        # Epochs only rise along a log, so the last record below `offset` shows whether any is of this epoch.
        last = next((entry.epoch for entry in reversed(disk.entries) if entry.base_offset < offset), -1)
        self.counts["R9"] += 1
        if raft.epoch not in (last, disk.base.epoch):
            raise Violation("R9", f"epoch {raft.epoch} commits {offset} without a record of its own below it")
        chain, voters = disk.chain_at(offset), raft.voters
        holders = 0
        for voter in voters.voters:
            other = world.nodes.get(voter.key.node_id)
            if other is not None and chain is not None and voter.key.matches(other.key):
                holders += holds(other, offset, chain)
        if holders * 2 <= len(voters):
            raise Violation("R9", f"{offset} is durable on {holders} of {voters.ids}")
        if offset > self.ledger_end:
            self.counted_by = voters

    def _apply(self, node: CoreNode, epoch: int, applied: int, offset: int) -> None:
        """Check R7: an applied record is the one that was committed first."""
        entries, ledger, counts = node.disk.entries, self.ledger, self.counts
        index = node.disk.position(applied)
        while index < len(entries) and entries[index].next_offset <= offset:
            entry = entries[index]
            end = entry.next_offset
            counts["R7"] += 1
            known = ledger.get(end)
            if known is None:
                ledger[end] = (entry.epoch, entry.chain)
                self.committed_in[end] = epoch
                self.ledger_end = max(self.ledger_end, end)
            elif known[1] != entry.chain or known[0] != entry.epoch:
                raise Violation("R7", f"node {node.node_id} applies {entry}, not {known}")
            index += 1

    # messages

    def on_send(self, node: CoreNode, raft: Raft, request: QuorumRequest) -> None:
        self._check_durable(node, raft, request.epoch)
        if node.may_vote and isinstance(request, MetadataFetchRequest | FetchSnapshotRequest):
            end = request.fetch_offset if isinstance(request, MetadataFetchRequest) else 0
            self.counts["R19"] += 1
            if end > node.disk.synced_end:
                raise Violation("R19", f"node {node.node_id} acknowledges {end} before its sync")

    def on_answer(self, node: CoreNode, raft: Raft, response: QuorumResponse) -> None:
        self._check_durable(node, raft, response.epoch)
        if response.leader_id >= 0:
            self.name_leader(response.epoch, response.leader_id)
        if isinstance(response, MetadataFetchResponse) and response.high_watermark >= 0:
            told = response.high_watermark
            self.counts["R9"] += 1
            if told > self.lives[node.node_id].high_watermark:
                raise Violation("R9", "an uncommitted high watermark is told")
            role = raft.role
            if isinstance(role, Leader) and told <= role.epoch_start_offset:
                raise Violation("R9", f"{told} is told without a record of this epoch")

    def _check_durable(self, node: CoreNode, raft: Raft, epoch: int) -> None:
        state, counts = node.disk.state, self.counts
        counts["R17"] += 1
        if epoch > state.epoch:
            raise Violation("R17", f"node {node.node_id} says epoch {epoch}, its disk {state.epoch}")
        counts["R19"] += 1
        if state.epoch != raft.epoch or (state.voted is not raft.voted and state.voted != raft.voted):
            evidence = f"node {node.node_id} speaks at {raft.epoch}, {raft.voted}; its disk has {state}"
            raise Violation("R19", evidence)

    def on_answer_to(self, node: CoreNode, raft: Raft, sender: CoreNode, response: QuorumResponse) -> None:
        """Check R2 and R13: a granted vote is the only one of its epoch, and the candidate's log lacks nothing of the
        voter's."""
        if not isinstance(response, VoteResponse) or not response.vote_granted or sender.raft is None:
            return
        candidate = sender.raft
        if not isinstance(candidate.role, Candidate) or candidate.epoch != response.epoch or raft.voted != sender.key:
            return
        known = self.votes.setdefault((node.key, response.epoch), sender.key)
        self.require("R2", known == sender.key, f"node {node.node_id} votes twice in epoch {response.epoch}")
        theirs = (candidate.log.last_epoch, candidate.log.end_offset)
        ours = node.disk.synced_ending()
        self.require("R13", theirs >= ours, f"node {node.node_id} at {ours} votes for {sender.node_id} at {theirs}")


def holds(node: CoreNode, end: int, chain: int) -> bool:
    """Return whether everything below `end`, with this hash of the log, would survive a power loss of the node."""
    disk = node.disk
    return disk.base.offset >= end or (disk.synced_end >= end and disk.chain_at(end) == chain)


def state_of(raft: Raft) -> tuple[object, ...]:
    """Return the state of a node that a message without effect may not change."""
    role = raft.role
    times: tuple[object, ...] = ()
    if isinstance(role, Unattached | Prospective | Candidate | Resigned):
        times = (role.election_deadline_ms,)
    elif isinstance(role, Follower):
        times = (role.fetch_deadline_ms, role.has_fetched, role.lost_since_ms, role.campaign_at_ms)
    facts = (raft.epoch, raft.voted, raft.leader_id, type(role), raft.log.end_offset, raft.high_watermark)
    return (*facts, *times)
