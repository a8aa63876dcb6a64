"""A heap of events around raft cores: no trio, no bytes. Messages are delayed, lost, cut; disks lose unsynced bytes.

Every node has a `Disk` (what a crash leaves), a `Raft` (what it takes away), and a log of entries (base offset, next
offset, epoch, chain hash). `checks.Checks` looks at everything that is done, said or written.
"""

from __future__ import annotations

import dataclasses
import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from kraft.raft.identity import Identity, ReplicaKey, Voter, VoterSet
from kraft.raft.inputs import (
    AppendRequested,
    Failure,
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
    VotersChangeRequested,
)
from kraft.raft.log_view import BatchSummary, LogView, SnapshotId
from kraft.raft.raft import Raft
from kraft.raft.ready import (
    AppendEvents,
    AppendFetched,
    AppendVoters,
    QuorumState,
    Ready,
    Reply,
    ReplyWithRecords,
    Send,
    Truncate,
)
from kraft.raft.settings import RaftSettings
from kraft.seam import Address

from .checks import Checks

CLUSTER = "sim-cluster"


class Chance(random.Random):
    """A seeded source with the seam's shape."""

    def below(self, bound: int) -> int:
        return int(self.random() * bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128), version=4)

    def stream(self, name: str) -> Chance:
        return Chance(f"{name}/{self.random()}")


class Entry(NamedTuple):
    """One batch. `chain` covers everything up to and including it."""

    base: int
    next: int
    epoch: int
    chain: int
    voters: VoterSet | None = None


@dataclass
class Disk:
    """What survives. `entries[:synced]` survives power loss; all of `entries` survives the death of the process."""

    state: QuorumState = field(default_factory=QuorumState)
    entries: list[Entry] = field(default_factory=list)
    synced: int = 0
    base: tuple[int, int, int] = (0, 0, 0)
    """(end offset, epoch, chain) of what the log starts after."""
    base_voters: VoterSet | None = None
    snapshots: dict[SnapshotId, tuple[int, VoterSet]] = field(default_factory=dict)
    """Snapshot → (chain, voters as of it)."""

    @property
    def end(self) -> int:
        return self.entries[-1].next if self.entries else self.base[0]

    @property
    def synced_end(self) -> int:
        return self.entries[self.synced - 1].next if self.synced else self.base[0]

    @property
    def chain(self) -> int:
        return self.entries[-1].chain if self.entries else self.base[2]

    def position(self, offset: int) -> int:
        """Index of the first entry that ends after `offset`."""
        entries = self.entries
        low, high = 0, len(entries)
        while low < high:
            middle = (low + high) // 2
            if entries[middle].next <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def ending(self, count: int) -> tuple[int, int]:
        """(last epoch, end offset) of the first `count` entries."""
        return (self.entries[count - 1].epoch, self.entries[count - 1].next) if count else (self.base[1], self.base[0])

    def chain_at(self, offset: int) -> int | None:
        """Chain of the prefix that ends at `offset`; None if we do not hold that boundary."""
        if offset == self.base[0]:
            return self.base[2]
        index = self.position(offset - 1)
        if index < len(self.entries) and self.entries[index].next == offset:
            return self.entries[index].chain
        return None

    def truncate(self, offset: int) -> None:
        index = self.position(offset)
        del self.entries[index:]
        self.synced = min(self.synced, index)


class Node:
    """One node's life. `raft` is None while it is down."""

    def __init__(self, node_id: int, directory: UUID, *, may_vote: bool) -> None:
        self.node_id = node_id
        self.key = ReplicaKey(node_id, directory)
        self.may_vote = may_vote
        self.disk = Disk()
        self.raft: Raft | None = None
        self.life = 0
        self.inbox: deque[Any] = deque()
        self.is_writing_state = False
        self.is_syncing = False
        self.paused_until = 0
        self.deadline: int | None = None
        self.requests: dict[int, tuple[Node, int, int]] = {}
        """token → (sender, sender's life, request id)"""
        self.applied = 0


@dataclass
class Odds:
    """How hard the world is. Times in ms, chances per 1000."""

    latency: tuple[int, int] = (1, 4)
    sync: tuple[int, int] = (1, 6)
    state_write: tuple[int, int] = (1, 6)
    loss: int = 0
    snapshot: int = 0


class World:
    """Voters 1..n and observers n+1..n+m under one seed."""

    def __init__(
        self,
        seed: int,
        voters: int,
        observers: int = 0,
        *,
        odds: Odds | None = None,
        settings: RaftSettings | None = None,
        checks: Checks | None = None,
        static_directories: bool = True,
    ) -> None:
        self.chance = Chance(seed)
        self.odds = odds or Odds()
        self.settings = settings or RaftSettings()
        self.checks = checks or Checks()
        self.now = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._sequence = 0
        self._tokens = 0
        ids = range(1, voters + 1)
        self.nodes = {n: Node(n, self.chance.uuid(), may_vote=n in ids) for n in range(1, voters + observers + 1)}
        self.voters = VoterSet(tuple(self._voter(n, static=static_directories) for n in ids))
        self.cut: set[tuple[int, int]] = set()
        """Directed pairs between which nothing arrives (silence)."""
        self.refused: set[tuple[int, int]] = set()
        """Directed pairs whose dials are refused although the target runs."""
        self.waits_for_state = True
        self.counter = 0
        self.elections: list[tuple[int, int, int]] = []
        self.trace: list[str] | None = None

    def _voter(self, node_id: int, *, static: bool) -> Voter:
        directory_id = None if static else self.nodes[node_id].key.directory_id
        return Voter(ReplicaKey(node_id, directory_id), Address(f"n{node_id}", 9000))

    # the heap

    def at(self, delay: int, action: Any, *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay, self._sequence, action, arguments))

    def between(self, bounds: tuple[int, int]) -> int:
        low, high = bounds
        return low + self.chance.below(high - low + 1)

    def run(self, duration: int) -> None:
        """Let `duration` virtual ms pass."""
        end = self.now + duration
        while self._heap and self._heap[0][0] <= end:
            self._pop()
        self.now = end

    def forget(self, name: str) -> None:
        """Nothing of this name will happen any more (`write`, `fault`)."""
        self._heap = [event for event in self._heap if getattr(event[2], "__name__", "") != name]
        heapq.heapify(self._heap)

    def run_until(self, condition: Any, limit: int) -> bool:
        """Until `condition()` holds, at most `limit` virtual ms."""
        end = self.now + limit
        while not condition():
            if not self._heap or self._heap[0][0] > end:
                self.now = end
                return False
            self._pop()
        return True

    def _pop(self) -> None:
        self.now, _, action, arguments = heapq.heappop(self._heap)
        action(*arguments)
        self.steps += 1

    # life and death

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            self._boot(self.nodes[node_id])

    def _boot(self, node: Node) -> None:
        if node.raft is not None:
            return
        disk = node.disk
        disk.synced = len(disk.entries)
        base = disk.base_voters or self.voters
        epochs: list[tuple[int, int]] = []
        for entry in disk.entries:
            if not epochs or entry.epoch > epochs[-1][0]:
                epochs.append((entry.epoch, entry.base))
        log = LogView.recovered(
            base,
            start_offset=disk.base[0],
            end_offset=disk.end,
            epochs=epochs,
            snapshots=disk.snapshots,
            voters_records=[(entry.base, entry.voters) for entry in disk.entries if entry.voters is not None],
        )
        identity = Identity(node.key, CLUSTER, node.may_vote, Address(f"n{node.node_id}", 9000))
        node.raft = Raft(identity, self.settings, log, disk.state)
        node.life += 1
        node.paused_until = 0
        node.inbox.clear()
        node.requests.clear()
        node.is_writing_state = node.is_syncing = False
        node.deadline = None
        node.applied = disk.base[0]
        self.checks.on_boot(self, node)
        self._carry_out(node, node.raft.start(self.now, self.chance), None)

    def kill(self, node_id: int, *, power: bool = False) -> None:
        """The process dies; with `power` the unsynced tail may go too (a seeded part of it)."""
        node = self.nodes[node_id]
        if node.raft is None:
            return
        node.raft = None
        if power:
            disk = node.disk
            keep = disk.synced + self.chance.below(len(disk.entries) - disk.synced + 1)
            del disk.entries[keep:]
        life = node.life
        for _token, (sender, sender_life, request_id) in list(node.requests.items()):
            if not power:
                self.at(self.between(self.odds.latency), self._fail, sender, sender_life, request_id, Failure.CLOSED)
        node.requests.clear()
        self.checks.on_crash(self, node, life)

    def wipe(self, node_id: int) -> None:
        """A dead node gets a new disk, and with it a new directory id."""
        node = self.nodes[node_id]
        assert node.raft is None
        node.disk = Disk()
        node.key = ReplicaKey(node_id, self.chance.uuid())

    # driving a core

    def offer(self, node: Node, event: Any) -> None:
        """An input for this node: now, or when what it waits for is written."""
        if node.raft is None:
            return
        if node.is_writing_state or self.now < node.paused_until:
            node.inbox.append(event)
            return
        self._step(node, event)

    def _step(self, node: Node, event: Any) -> None:
        raft = node.raft
        assert raft is not None
        before = self.checks.before(self, node, event)
        ready = raft.step(event, self.now, self.chance)
        if self.trace is not None:
            self.trace.append(f"{self.now} {node.node_id} {event} -> {ready}")
        self.checks.after(self, node, event, before)
        self._carry_out(node, ready, event)

    def pause(self, node_id: int, duration: int) -> None:
        node = self.nodes[node_id]
        node.paused_until = self.now + duration
        self.at(duration, self._drain, node, node.life)

    def _drain(self, node: Node, life: int) -> None:
        while node.raft is not None and node.life == life and node.inbox and not node.is_writing_state:
            if self.now < node.paused_until:
                return
            self._step(node, node.inbox.popleft())

    def _carry_out(self, node: Node, ready: Ready, event: Any) -> None:
        if ready.quorum_state is None:
            self._effects(node, ready)
            return
        if not self.waits_for_state:
            self._effects(node, ready)
            self.at(self.between(self.odds.state_write), self._late_write, node, node.life, ready.quorum_state)
            return
        node.is_writing_state = True
        self.at(self.between(self.odds.state_write), self._state_written, node, node.life, ready)

    def _late_write(self, node: Node, life: int, state: QuorumState) -> None:
        if node.raft is not None and node.life == life:
            node.disk.state = state

    def _state_written(self, node: Node, life: int, ready: Ready) -> None:
        if node.raft is None or node.life != life:
            return
        assert ready.quorum_state is not None
        node.disk.state = ready.quorum_state
        self.checks.on_state(self, node)
        node.is_writing_state = False
        self._effects(node, ready)
        self._drain(node, life)

    def _effects(self, node: Node, ready: Ready) -> None:
        for action in ready.log:
            self._write(node, action)
        if ready.high_watermark is not None:
            self.checks.on_high_watermark(self, node, ready.high_watermark)
        for answer in ready.answers:
            self._answer(node, answer)
        for send in ready.sends:
            self._send(node, send)
        if ready.redial is not None:
            self._redial(node, ready.redial.node_id)
        if ready.leadership is not None:
            self.checks.on_leadership(self, node, ready.leadership)
            if ready.leadership.is_local:
                self.elections.append((self.now, node.node_id, ready.leadership.epoch))
        if ready.high_watermark is not None:
            node.applied = ready.high_watermark
            if self.odds.snapshot and self.chance.below(1000) < self.odds.snapshot:
                self.at(self.between(self.odds.sync), self._snapshot, node, node.life, ready.high_watermark)
        if ready.sync_wanted and not node.is_syncing:
            self._begin_sync(node)
        if ready.pass_wanted:
            self.at(0, self._offer_alive, node, node.life, PassEnded())
        if ready.deadline_ms is not None and (node.deadline is None or ready.deadline_ms < node.deadline):
            node.deadline = ready.deadline_ms
            self.at(max(0, ready.deadline_ms - self.now), self._tick, node, node.life, ready.deadline_ms)
        if ready.chunk is not None and ready.chunk.is_last:
            self._install(node, ready.chunk.snapshot, ready.chunk.data)

    def _offer_alive(self, node: Node, life: int, event: Any) -> None:
        if node.life == life:
            self.offer(node, event)

    def _tick(self, node: Node, life: int, deadline: int) -> None:
        if node.life == life and node.raft is not None:
            if node.deadline == deadline:
                node.deadline = None
            self.offer(node, Tick())

    # the disk

    def _write(self, node: Node, action: Any) -> None:
        disk = node.disk
        if isinstance(action, Truncate):
            self.checks.on_truncate(self, node, action.end_offset)
            disk.truncate(action.end_offset)
            return
        if isinstance(action, AppendFetched):
            for entry in action.records:
                disk.entries.append(entry)
                self.checks.on_append(self, node, entry)
            return
        count = len(action.payload) if isinstance(action, AppendEvents) else 1
        self.counter += 1
        chain = hash((disk.chain, action.epoch, action.base_offset, self.counter))
        voters = action.voters if isinstance(action, AppendVoters) else None
        entry = Entry(action.base_offset, action.base_offset + count, action.epoch, chain, voters)
        disk.entries.append(entry)
        self.checks.on_append(self, node, entry)

    def _begin_sync(self, node: Node) -> None:
        assert node.raft is not None
        node.is_syncing = True
        generation, count = node.raft.log.generation, len(node.disk.entries)
        self.at(self.between(self.odds.sync), self._synced, node, node.life, generation, count)

    def _synced(self, node: Node, life: int, generation: int, count: int) -> None:
        if node.raft is None or node.life != life:
            return
        node.is_syncing = False
        end = node.disk.base[0]
        if generation == node.raft.log.generation:
            node.disk.synced = max(node.disk.synced, min(count, len(node.disk.entries)))
            end = node.disk.synced_end
        self.offer(node, LogSynced(end, generation))

    def _snapshot(self, node: Node, life: int, offset: int) -> None:
        """Write a snapshot of committed state, and often trim the log behind it."""
        raft = node.raft
        if raft is None or node.life != life or node.is_writing_state or self.now < node.paused_until:
            return
        chain = node.disk.chain_at(offset)
        epoch = raft.log.epoch_before(offset)
        snapshot = SnapshotId(offset, epoch)
        if chain is None or not raft.may_snapshot(snapshot):
            return
        node.disk.snapshots[snapshot] = (chain, raft.log.voters.at(offset))
        self._step(node, SnapshotWritten(snapshot))
        if self.chance.below(2):
            disk = node.disk
            index = disk.position(offset)
            disk.base_voters = raft.log.voters.at(offset)
            del disk.entries[:index]
            disk.synced = max(0, disk.synced - index)
            disk.base = (offset, epoch, chain)
            disk.snapshots = {s: c for s, c in disk.snapshots.items() if s.end_offset >= offset}
            self._step(node, LogTrimmed(offset))

    def _install(self, node: Node, snapshot: SnapshotId, data: Any) -> None:
        chain, voters = data[0]
        if chain is None:
            self.offer(node, SnapshotRefused(snapshot))
            return
        self.checks.on_install(self, node, snapshot, chain)
        disk = node.disk
        disk.entries.clear()
        disk.synced = 0
        disk.base = (snapshot.end_offset, snapshot.epoch, chain)
        disk.base_voters = voters
        disk.snapshots = {snapshot: (chain, voters)}
        assert node.raft is not None
        self._step(node, SnapshotInstalled(snapshot, voters))

    # the network

    def _send(self, node: Node, send: Send) -> None:
        self.checks.on_send(self, node, send.request)
        pair = (node.node_id, send.destination.node_id)
        life = node.life
        target = self.nodes.get(send.destination.node_id)
        if target is None or pair in self.cut or self.chance.below(1000) < self.odds.loss:
            self.at(send.timeout_ms, self._fail, node, life, send.request_id, Failure.TIMED_OUT)
            return
        delay = self.between(self.odds.latency)
        if target.raft is None or pair in self.refused:
            self.at(delay, self._fail, node, life, send.request_id, Failure.REFUSED)
            return
        self.at(delay, self._deliver, node, life, target, target.life, send)
        self.at(send.timeout_ms, self._fail, node, life, send.request_id, Failure.TIMED_OUT)

    def _deliver(self, sender: Node, life: int, target: Node, target_life: int, send: Send) -> None:
        if target.raft is None or target.life != target_life:
            self.at(1, self._fail, sender, life, send.request_id, Failure.CLOSED)
            return
        self._tokens += 1
        target.requests[self._tokens] = (sender, life, send.request_id)
        self.offer(target, RequestReceived(self._tokens, send.request))

    def _answer(self, node: Node, answer: Any) -> None:
        waiting = node.requests.pop(answer.token, None)
        response, batches = answer.response, ()
        if isinstance(answer, ReplyWithRecords):
            entries = node.disk.entries
            first = node.disk.position(answer.offset)
            picked = tuple(entries[first : first + 1 + self.chance.below(60)])
            response = dataclasses.replace(response, records=picked)
            batches = tuple(BatchSummary(e.base, e.next, e.epoch, e.voters) for e in picked)
        elif not isinstance(answer, Reply):
            held = node.disk.snapshots.get(answer.snapshot, (None, None))
            response = dataclasses.replace(response, size=1, data=(held,))
        self.checks.on_answer(self, node, response)
        if waiting is None:
            return
        sender, life, request_id = waiting
        self.checks.on_vote_answer(self, node, sender, response)
        pair = (node.node_id, sender.node_id)
        if pair in self.cut or self.chance.below(1000) < self.odds.loss:
            return
        event = ResponseReceived(request_id, response, batches)
        self.at(self.between(self.odds.latency), self._offer_alive, sender, life, event)

    def _fail(self, node: Node, life: int, request_id: int, failure: Failure) -> None:
        if node.life == life:
            self.offer(node, RequestFailed(request_id, failure))

    def _redial(self, node: Node, target_id: int) -> None:
        pair = (node.node_id, target_id)
        if pair in self.cut:
            return
        refused = self.nodes[target_id].raft is None or pair in self.refused
        failure = Failure.REFUSED if refused else None
        self.at(self.between(self.odds.latency), self._offer_alive, node, node.life, Redialled(target_id, failure))

    # what tests ask and do

    @property
    def leader(self) -> Node | None:
        """The live leader of the highest epoch."""
        found = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        return max(found, key=lambda node: node.raft.epoch) if found else None  # type: ignore[union-attr]

    def has_active_leader(self) -> bool:
        """A leader with a committed record of its epoch, known to a majority of the voters."""
        leader = self.leader
        if leader is None or leader.raft is None or leader.raft.role.high_watermark is None:
            return False
        known = [n for n in self.voters.ids if self._follows(self.nodes[n], leader.node_id, leader.raft.epoch)]
        return len(known) * 2 > len(self.voters)

    def _follows(self, node: Node, leader_id: int, epoch: int) -> bool:
        return node.raft is not None and node.raft.leader_id == leader_id and node.raft.epoch == epoch

    def append(self, count: int = 1) -> bool:
        leader = self.leader
        if leader is None or leader.is_writing_state or self.now < leader.paused_until:
            return False
        self._step(leader, AppendRequested((b"x",) * count))
        return True

    def change_voters(self, voters: VoterSet) -> bool:
        leader = self.leader
        if leader is None or leader.is_writing_state or leader.raft is None or self.now < leader.paused_until:
            return False
        before = leader.raft.log.end_offset
        self._step(leader, VotersChangeRequested(voters))
        return leader.raft.log.end_offset > before

    def append_every(self, interval: int) -> None:
        """A client that writes for ever."""

        def write() -> None:
            self.append(1 + self.chance.below(3))
            self.at(interval, write)

        self.at(interval, write)

    def partition(self, *groups: tuple[int, ...]) -> None:
        self.cut = {
            (a, b) for a in self.nodes for b in self.nodes if a != b and not any(a in g and b in g for g in groups)
        }

    def heal(self) -> None:
        self.cut.clear()
        self.refused.clear()

    def caught_up(self) -> bool:
        """Every live node has everything, and knows that it is committed."""
        leader = self.leader
        if leader is None or leader.raft is None:
            return False
        end = leader.raft.log.end_offset
        return all(n.raft is None or (n.raft.high_watermark == end == n.disk.end) for n in self.nodes.values())
