"""Raft cores on a heap of events: their starts and ends, disks and messages. Messages are delayed, lost and cut; disks
lose unsynced entries.

A core is driven as `kraft.quorum` drives it. A `Ready` is carried out in its order, and the quorum state is durable
before anything is sent. No input is stepped while the state is being written. Every input to a core is one step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import MutableSequence
from dataclasses import dataclass

from kraft.raft.identity import Identity, ReplicaKey, Voter, VoterSet
from kraft.raft.inputs import (
    Failure,
    Input,
    LogSynced,
    LogTrimmed,
    PassEnded,
    Redialled,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotWritten,
    Tick,
)
from kraft.raft.log_view import BatchSummary, LogView, SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import (
    Answer,
    AppendEvents,
    AppendFetched,
    AppendVoters,
    LogAction,
    QuorumState,
    Ready,
    ReplyWithRecords,
    ReplyWithSnapshot,
    Send,
    SnapshotChunk,
    Truncate,
)
from kraft.raft.settings import RaftSettings
from kraft.seam import Address
from kraft.sim.cores.checks import CoreChecks
from kraft.sim.cores.heap import EventHeap
from kraft.sim.cores.node import CoreEntry, CoreNode, CoreSnapshot, LogStart, PendingAnswer
from kraft.sim.cores.witness import Witness
from kraft.wire.rpc.quorum_messages import FetchSnapshotResponse, QuorumResponse

CLUSTER = "sim-cluster"
ANSWER_BATCHES_MAX = 60
"""Maximum batches in the response to a fetch; at least one is returned."""


@dataclass(slots=True)
class Odds:
    """Rates of faults in the world. Times are in ms, probabilities per 1000."""

    latency: tuple[int, int] = (1, 4)
    sync: tuple[int, int] = (1, 6)
    state_write: tuple[int, int] = (1, 6)
    loss: int = 0
    snapshot: int = 0


class CoreDriver(EventHeap):
    """The nodes, their disks and the messages between them, without a schedule of faults."""

    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        *,
        odds: Odds | None = None,
        settings: RaftSettings | None = None,
        checks: Witness | None = None,
    ) -> None:
        super().__init__(seed)
        self.odds = odds or Odds()
        self.settings = settings or RaftSettings()
        self.checks = checks or CoreChecks()
        self.steps = 0
        ids = range(1, voters + 1)
        self.nodes = {n: CoreNode(n, self.chance.uuid(), may_vote=n in ids) for n in range(1, voters + observers + 1)}
        self.voters = VoterSet(tuple(Voter(ReplicaKey(n), _address(n)) for n in ids))
        self.cut: set[tuple[int, int]] = set()
        """(source, target) pairs of nodes between which nothing arrives, without an error."""
        self.refused: set[tuple[int, int]] = set()
        """(source, target) pairs of nodes whose dials are refused although the target runs."""
        self.elections = 0
        self.voter_changes = 0
        self.trace: MutableSequence[str] | None = None
        """Receives a record of every step; None: steps are not recorded."""
        self._tokens = 0
        self._batches = 0
        self._sent_snapshots: list[CoreSnapshot | None] = []

    # starts and ends

    def start(self, *node_ids: int) -> None:
        """Start these nodes, or all."""
        for node_id in node_ids or tuple(self.nodes):
            node = self.nodes[node_id]
            if node.raft is None:
                self._boot(node)

    def _boot(self, node: CoreNode) -> None:
        disk = node.disk
        disk.synced = len(disk.entries)
        log = LogView.recovered(
            disk.base_voters or self.voters,
            start_offset=disk.base.offset,
            end_offset=disk.end,
            epochs=disk.epochs(),
            snapshots=disk.snapshots,
            voters_records=[(entry.base_offset, entry.voters) for entry in disk.entries if entry.voters is not None],
        )
        identity = Identity(node.key, CLUSTER, node.may_vote, _address(node.node_id))
        node.raft = Raft(identity, self.settings, log, disk.state)
        node.begin_life()
        self.checks.on_boot(node)
        self._carry_out(node, node.raft, node.raft.start(self.now, self.chance))

    def kill(self, node_id: int, *, power: bool = False) -> None:
        """Kill the process of a node. With `power` a randomly chosen part of the unsynced tail of its log is
        lost too."""
        node = self.nodes[node_id]
        if node.raft is None:
            return
        node.raft = None
        if power:
            disk = node.disk
            keep = disk.synced + self.chance.below(len(disk.entries) - disk.synced + 1)
            del disk.entries[keep:]
        else:
            for waiting in node.requests.values():
                self.at(self.between(self.odds.latency), self._fail, *waiting, Failure.CLOSED)
        node.requests.clear()
        self.checks.on_crash(self)

    def pause(self, node_id: int, duration_ms: int) -> None:
        """Freeze the process; incoming messages wait until it continues."""
        node = self.nodes[node_id]
        node.paused_until = self.now + duration_ms
        self.at(duration_ms, self._drain, node, node.life)

    # driving a core

    def offer(self, node: CoreNode, event: Input) -> None:
        """Pass an input to the core of this node: now, or, while a quorum state is being written, when that state is
        durable."""
        raft = node.raft
        if raft is None:
            return
        if node.is_writing_state or self.now < node.paused_until:
            node.inbox.append(event)
            return
        self._step(node, raft, event)

    def _step(self, node: CoreNode, raft: Raft, event: Input) -> None:
        self.steps += 1
        checks = self.checks
        memory = checks.before(self, node, raft, event)
        ready = raft.step(event, self.now, self.chance)
        if self.trace is not None:
            self.trace.append(f"{self.now} {node.node_id} {event} -> {ready}")
        checks.after(self, node, raft, memory)
        self._carry_out(node, raft, ready)

    def _drain(self, node: CoreNode, life: int) -> None:
        while node.life == life and node.raft is not None and node.inbox and not node.is_writing_state:
            if self.now < node.paused_until:
                return
            self._step(node, node.raft, node.inbox.popleft())

    def _carry_out(self, node: CoreNode, raft: Raft, ready: Ready) -> None:
        if ready.quorum_state is None:
            self._effects(node, raft, ready)
            return
        node.is_writing_state = True
        self.at(self.between(self.odds.state_write), self._state_written, node, node.life, ready, ready.quorum_state)

    def _state_written(self, node: CoreNode, life: int, ready: Ready, state: QuorumState) -> None:
        if node.raft is None or node.life != life:
            return
        node.disk.state = state
        self.checks.on_state(node)
        node.is_writing_state = False
        self._effects(node, node.raft, ready)
        self._drain(node, life)

    def _effects(self, node: CoreNode, raft: Raft, ready: Ready) -> None:
        committed = ready.high_watermark
        for action in ready.log:
            self._write(node, raft, action)
        if committed is not None:
            self.checks.on_high_watermark(self, node, raft, committed)
        for answer in ready.answers:
            self._answer(node, raft, answer)
        for send in ready.sends:
            self._send(node, raft, send)
        if ready.redial is not None:
            self._redial(node, ready.redial.node_id)
        if ready.leadership is not None:
            self.elections += ready.leadership.is_local
            self.checks.on_leadership(node, ready.leadership)
        if committed is not None and self.odds.snapshot and self.chance.below(1000) < self.odds.snapshot:
            self.at(self.between(self.odds.sync), self._snapshot, node, node.life, committed)
        if ready.sync_wanted and not node.is_syncing:
            self._begin_sync(node, raft)
        if ready.pass_wanted:
            self.at(0, self._offer_alive, node, node.life, PassEnded())
        deadline = ready.deadline_ms
        if deadline is not None and (node.deadline is None or deadline < node.deadline):
            node.deadline = deadline
            self.at(max(0, deadline - self.now), self._tick, node, node.life, deadline)
        if ready.chunk is not None and ready.chunk.is_last:
            self._install(node, raft, ready.chunk)

    def _offer_alive(self, node: CoreNode, life: int, event: Input) -> None:
        if node.life == life:
            self.offer(node, event)

    def _tick(self, node: CoreNode, life: int, deadline: int) -> None:
        if node.life == life and node.raft is not None:
            if node.deadline == deadline:
                node.deadline = None
            self.offer(node, Tick())

    # the disk

    def _write(self, node: CoreNode, raft: Raft, action: LogAction) -> None:
        disk = node.disk
        if isinstance(action, Truncate):
            self.checks.on_truncate(node, raft, action.end_offset)
            disk.truncate(action.end_offset)
        elif isinstance(action, AppendFetched):
            for batch in action.batches:
                self._append(node, raft, batch)
        else:
            count = len(action.payload) if isinstance(action, AppendEvents) else 1
            voters = action.voters if isinstance(action, AppendVoters) else None
            self._batches += 1
            base, epoch = action.base_offset, action.epoch
            chain = hash((disk.chain, epoch, base, self._batches))
            self._append(node, raft, CoreEntry(base, base + count, epoch, voters, None, chain))

    def _append(self, node: CoreNode, raft: Raft, batch: BatchSummary) -> None:
        assert isinstance(batch, CoreEntry), "nothing else is ever sent"
        node.disk.entries.append(batch)
        self.checks.on_append(node, raft, batch)

    def _begin_sync(self, node: CoreNode, raft: Raft) -> None:
        node.is_syncing = True
        generation, count = raft.log.generation, len(node.disk.entries)
        self.at(self.between(self.odds.sync), self._synced, node, node.life, generation, count)

    def _synced(self, node: CoreNode, life: int, generation: int, count: int) -> None:
        raft, disk = node.raft, node.disk
        if raft is None or node.life != life:
            return
        node.is_syncing = False
        end = disk.base.offset
        if generation == raft.log.generation:
            disk.synced = max(disk.synced, min(count, len(disk.entries)))
            end = disk.synced_end
        self.offer(node, LogSynced(end, generation))

    def _snapshot(self, node: CoreNode, life: int, offset: int) -> None:
        """Write a snapshot of committed state, and often trim the log below its end."""
        raft, disk = node.raft, node.disk
        if raft is None or node.life != life or node.is_writing_state or self.now < node.paused_until:
            return
        chain = disk.chain_at(offset)
        epoch = raft.log.epoch_before(offset)
        snapshot = SnapshotId(offset, epoch)
        if chain is None or not raft.may_snapshot(snapshot):
            return
        disk.snapshots[snapshot] = CoreSnapshot(chain, raft.log.voters.at(offset))
        self._step(node, raft, SnapshotWritten(snapshot))
        if self.chance.below(2):
            disk.trim(LogStart(offset, epoch, chain), raft.log.voters.at(offset))
            self._step(node, raft, LogTrimmed(offset))

    def _install(self, node: CoreNode, raft: Raft, chunk: SnapshotChunk) -> None:
        held = self._sent_snapshots[int(chunk.data)]
        if held is None:
            self.offer(node, SnapshotRefused(chunk.snapshot))
            return
        self.checks.on_install(node, raft, chunk.snapshot, held.chain)
        node.disk.install(chunk.snapshot, held)
        self._step(node, raft, SnapshotInstalled(chunk.snapshot, held.voters))

    # the network

    def _send(self, node: CoreNode, raft: Raft, send: Send) -> None:
        self.checks.on_send(node, raft, send.request)
        pair = (node.node_id, send.destination.node_id)
        life = node.life
        target = self.nodes.get(pair[1])
        if target is None or pair in self.cut or self.chance.below(1000) < self.odds.loss:
            self.at(send.timeout_ms, self._fail, node, life, send.request_id, Failure.TIMED_OUT)
            return
        delay = self.between(self.odds.latency)
        if target.raft is None or pair in self.refused:
            self.at(delay, self._fail, node, life, send.request_id, Failure.REFUSED)
            return
        self.at(delay, self._deliver, node, life, target, target.life, send)
        self.at(send.timeout_ms, self._fail, node, life, send.request_id, Failure.TIMED_OUT)

    def _deliver(self, sender: CoreNode, life: int, target: CoreNode, target_life: int, send: Send) -> None:
        if target.raft is None or target.life != target_life:
            self.at(1, self._fail, sender, life, send.request_id, Failure.CLOSED)
            return
        self._tokens += 1
        target.requests[self._tokens] = PendingAnswer(sender, life, send.request_id)
        self.offer(target, RequestReceived(self._tokens, send.request))

    def _answer(self, node: CoreNode, raft: Raft, answer: Answer) -> None:
        """Answer a request. Records travel as batches beside the response, because the core reads nothing
        else of them."""
        waiting = node.requests.pop(answer.token, None)
        response: QuorumResponse = answer.response
        batches: tuple[BatchSummary, ...] = ()
        if isinstance(answer, ReplyWithRecords):
            first = node.disk.position(answer.offset)
            batches = tuple(node.disk.entries[first : first + 1 + self.chance.below(ANSWER_BATCHES_MAX)])
        elif isinstance(answer, ReplyWithSnapshot):
            response = self._with_snapshot(node, answer)
        self.checks.on_answer(node, raft, response)
        if waiting is None:
            return
        sender, life, request_id = waiting
        self.checks.on_answer_to(node, raft, sender, response)
        pair = (node.node_id, sender.node_id)
        if pair in self.cut or self.chance.below(1000) < self.odds.loss:
            return
        event = ResponseReceived(request_id, response, batches)
        self.at(self.between(self.odds.latency), self._offer_alive, sender, life, event)

    def _with_snapshot(self, node: CoreNode, answer: ReplyWithSnapshot) -> FetchSnapshotResponse:
        """Add a snapshot as a single chunk; its number identifies the held snapshot for `_install`."""
        data = str(len(self._sent_snapshots)).encode()
        self._sent_snapshots.append(node.disk.snapshots.get(answer.snapshot))
        return dataclasses.replace(answer.response, size=len(data), data=data)

    def _fail(self, node: CoreNode, life: int, request_id: int, failure: Failure) -> None:
        if node.life == life:
            self.offer(node, RequestFailed(request_id, failure))

    def _redial(self, node: CoreNode, target_id: int) -> None:
        pair = (node.node_id, target_id)
        if pair in self.cut:
            return
        refused = self.nodes[target_id].raft is None or pair in self.refused
        failure = Failure.REFUSED if refused else None
        self.at(self.between(self.odds.latency), self._offer_alive, node, node.life, Redialled(target_id, failure))


def _address(node_id: int) -> Address:
    return Address(f"n{node_id}", 9000)
