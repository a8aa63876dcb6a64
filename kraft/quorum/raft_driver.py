"""The driver of the raft core: it steps the core, and carries out each Ready in the prescribed order.

A Ready that writes quorum-state, truncates, or installs a snapshot waits for the disk; until that is done further
inputs are queued. Log appends never wait. A sync runs beside them; batches appended meanwhile are left to the next sync
(group commit). Files are read or changed off the loop under one lock, `files`.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import Any

import structlog
import trio

from kraft.node.log_limit import LogLimit
from kraft.node.peers import CallOutcome, Failed, Peers
from kraft.quorum.counters import QuorumMeasures
from kraft.quorum.listener_delivery import Delivery
from kraft.quorum.metadata_batches import CommittedBatch, summarise
from kraft.quorum.metadata_log import MetadataLog
from kraft.quorum.peer_answers import PendingResponses
from kraft.raft.identity import VoterSet
from kraft.raft.inputs import (
    AppendRequested,
    ConnectionEnded,
    Failure,
    Input,
    LogSynced,
    PassEnded,
    Redialled,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    VotersChangeRequested,
)
from kraft.raft.log_view import BatchSummary
from kraft.raft.raft import Raft
from kraft.raft.ready import (
    AppendFetched,
    LogAction,
    Purpose,
    Ready,
    Send,
    Truncate,
)
from kraft.seam import DiskError, InvariantError, Peer, Seam, WireError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import MetadataFetchResponse, QuorumRequest
from kraft.wire.server import Request

log = structlog.get_logger("kraft.quorum")

PURPOSES = MappingProxyType({Purpose.FETCH: "quorum-fetch", Purpose.ELECTION: "quorum-election"})
RECOVERY_POINT_MS = 10_000
OBSERVER_SYNC_MS = 1_000
"""Delay between a write and the sync of the log on a node that never votes: it acknowledges nothing as durable."""

_FAILURES = MappingProxyType(
    {
        CallOutcome.REFUSED: Failure.REFUSED,
        CallOutcome.CLOSED: Failure.CLOSED,
        CallOutcome.TIMED_OUT: Failure.TIMED_OUT,
        CallOutcome.UNREACHABLE: Failure.OTHER,
        CallOutcome.BAD_ANSWER: Failure.OTHER,
        CallOutcome.NO_COMMON_VERSION: Failure.OTHER,
        CallOutcome.ABANDONED: Failure.OTHER,
    }
)


class QuorumDriver:
    """Drives the raft core. Created once the log is open; `run` runs until cancelled."""

    def __init__(
        self,
        seam: Seam,
        raft: Raft,
        metadata: MetadataLog,
        peers: Peers,
        delivery: Delivery,
        files: trio.Lock,
        *,
        listener: str,
        tls: object | None,
        may_vote: bool,
        log_limit: LogLimit,
        measures: QuorumMeasures,
    ) -> None:
        self.raft = raft
        self.metadata = metadata
        self.files = files
        self.may_stop = trio.Event()
        self.measures = measures
        self._seam = seam
        self._now_ns = seam.clock.monotonic_ns
        self._peers = peers
        self._delivery = delivery
        self._listener = listener
        self._tls = tls
        self._may_vote = may_vote
        self._log_limit = log_limit
        self._random = seam.random.stream("quorum")
        self._inbox: deque[Input] = deque()
        self._slow: Ready | None = None
        self._slow_arrived = trio.Event()
        self._slow_done = trio.Event()
        self._sync_wanted = trio.Event()
        self._written = trio.Event()
        self._deadline_ms: int | None = None
        self._sleep_scope: trio.CancelScope | None = None
        self._deadline_moved = trio.Event()
        self._pass_wanted = False
        self._answers = PendingResponses(seam, metadata, files, self._may_read, self._start)
        self._watched: dict[int, Peer] = {}
        self._nursery: trio.Nursery | None = None
        self._is_closed = False
        self._broken: DiskError | None = None
        self._broke = trio.Event()
        self._moved = trio.Event()
        """Event that is set, and replaced by a new event, when leadership or the high watermark changes."""

    # running

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._seam.network.at_end_of_pass(self._end_pass)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._stop_when_broken)
            nursery.start_soon(self._carry_out_slow)
            nursery.start_soon(self._sync_log if self._may_vote else self._sync_observer)
            nursery.start_soon(self._save_recovery_point)
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._delivery.run)
            self._carry_out(self.raft.start(self._seam.clock.monotonic_ms(), self._random))
            task_status.started()

    @property
    def is_blocked(self) -> bool:
        """Whether a Ready waits for the disk: until then the state of the core is not durable and must not be shown."""
        return self._slow is not None

    def offer(self, event: Input) -> None:
        """Step an input now, or queue it while a Ready waits for the disk."""
        if self._is_closed:
            return
        if self._slow is not None:
            self._inbox.append(event)
        else:
            self._step(event)

    async def stop(self) -> None:
        """Ignore all further inputs, and wait until no Ready waits for the disk."""
        self._is_closed = True
        while self._slow is not None:
            self._slow_done = trio.Event()
            await self._slow_done.wait()

    def append(self, payload: tuple[bytes, ...]) -> int | None:
        """Append a batch at once. Return its end offset, or None if this node does not lead."""
        if self._slow is not None or self._is_closed or not self.raft.is_leader:
            return None
        end_offset = self.raft.log.end_offset + len(payload)
        ready = self._step(AppendRequested(payload))
        return end_offset if ready.refusal is None else None

    def change_voters(self, voters: VoterSet) -> int | str:
        """Append a Voters record at once. Return its offset, or why it is refused."""
        offset = self.raft.log.end_offset
        ready = self._step(VotersChangeRequested(voters))
        return offset if ready.refusal is None else ready.refusal

    async def wait_committed(self, offset: int, deadline_ms: int) -> bool | None:
        """Wait until a record that this leader appended is committed; see `Quorum.wait_committed`. A record at `offset`
        with the epoch of the append is the record that was appended."""
        clock, epoch = self._seam.clock, self.raft.epoch
        while True:
            raft = self.raft
            if raft.high_watermark is not None and raft.high_watermark > offset:
                return raft.log.epoch_before(offset + 1) == epoch
            if not raft.is_leader or raft.epoch != epoch or self._is_closed:
                return False
            left_ms = deadline_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return None
            await clock.wait_at_most(self._moved, left_ms)

    def _step(self, event: Input) -> Ready:
        ready = self.raft.step(event, self._seam.clock.monotonic_ms(), self._random)
        self._carry_out(ready)
        return ready

    def _carry_out(self, ready: Ready) -> None:
        is_slow = (
            ready.quorum_state is not None
            or (ready.chunk is not None and ready.chunk.is_last)
            or any(isinstance(action, Truncate) for action in ready.log)
        )
        if is_slow:
            self._slow = ready
            self._slow_arrived.set()
        else:
            for action in ready.log:
                self._append(action)
            self._finish(ready)

    async def _carry_out_slow(self) -> None:
        disk = self._seam.disk
        while True:
            await self._slow_arrived.wait()
            self._slow_arrived = trio.Event()
            ready = self._slow
            if ready is None:
                continue
            if ready.quorum_state is not None:
                await disk.offload(self.metadata.write_state, ready.quorum_state)
            for action in ready.log:
                if isinstance(action, Truncate):
                    async with self.files:
                        await disk.offload(self.metadata.truncate, action.end_offset)
                    self._delivery.truncated(action.end_offset)
                else:
                    self._append(action)
            if ready.chunk is not None and ready.chunk.is_last:
                self._inbox.appendleft(await self._install(ready))
                ready = ready._replace(chunk=None, discard_download=False)
            # No checkpoint from here on: the effects become visible in one step, together with the core's state.
            self._slow = None
            self._finish(ready)
            while self._inbox and self._slow is None and not self._is_closed:
                self._step(self._inbox.popleft())
            self._slow_done.set()

    async def _install(self, ready: Ready) -> Input:
        """Replace the log by the downloaded snapshot."""
        chunk = ready.chunk
        assert chunk is not None
        self.metadata.receive(chunk.snapshot, chunk.position, chunk.data)
        async with self.files:
            content = await self._seam.disk.offload(self.metadata.install_download, chunk.snapshot)
        if content is None:
            log.warning("snapshot refused", snapshot=str(chunk.snapshot))
            return SnapshotRefused(chunk.snapshot)
        await self._delivery.installed(content)
        return SnapshotInstalled(chunk.snapshot, content.voters)

    def _append(self, action: LogAction) -> None:
        try:
            if isinstance(action, AppendFetched):
                self.metadata.append_fetched(action)
                self.measures.fetched += sum(batch.next_offset - batch.base_offset for batch in action.batches)
                contents = [batch.content for batch in action.batches]
                self._delivery.appended([batch for batch in contents if isinstance(batch, CommittedBatch)])
            elif not isinstance(action, Truncate):
                batch = self.metadata.append(action)
                self.measures.append(batch.next_offset - batch.base_offset, batch.next_offset, self._now_ns())
                self._delivery.appended([batch])
        except DiskError as error:
            self._broken, self._is_closed = error, True
            self._broke.set()
            raise
        self._written.set()

    async def _stop_when_broken(self) -> None:
        """Stop the node after a disk error: the core's log holds records that are not on the disk. The error is raised
        here, because a caller of `append` might catch it."""
        await self._broke.wait()
        assert self._broken is not None
        raise self._broken

    def _finish(self, ready: Ready) -> None:
        """Carry out the parts of a Ready that do not wait, in order."""
        if ready.discard_download:
            self.metadata.discard_download()
        if ready.chunk is not None:
            self.metadata.receive(ready.chunk.snapshot, ready.chunk.position, ready.chunk.data)
        for answer in ready.answers:
            self._answers.give(answer)
        for send in ready.sends:
            self._send(send)
        if ready.redial is not None:
            peer = Peer(ready.redial.node_id, self._listener, ready.redial.address, self._tls)
            self._redial(peer)
        if ready.sync_wanted:
            self._sync_wanted.set()
        if ready.pass_wanted and not self._pass_wanted:
            self._pass_wanted = True
            self._seam.network.request_pass()
        if ready.may_stop:
            self.may_stop.set()
        for alert in ready.alerts:
            self._log_limit.warning(log, alert.kind.value, client="", why=alert.text)
        self._set_deadline(ready.deadline_ms)
        if ready.leadership is not None or ready.high_watermark is not None:
            self._moved.set()
            self._moved = trio.Event()
        # Listeners come last: they may append in their callbacks.
        if ready.leadership is not None:
            self.measures.lead(ready.leadership, self._now_ns())
            log.info("quorum", leader=ready.leadership.leader_id, epoch=ready.leadership.epoch)
            self._delivery.lead(ready.leadership)
        if ready.high_watermark is not None:
            self.measures.commit(ready.high_watermark, self._now_ns())
            self.metadata.log.update_high_watermark(ready.high_watermark)
            self._delivery.commit(ready.high_watermark)

    # time and passes

    def _end_pass(self) -> None:
        if self._pass_wanted:
            self._pass_wanted = False
            self.offer(PassEnded())

    def _set_deadline(self, deadline_ms: int | None) -> None:
        earlier = deadline_ms is not None and (self._deadline_ms is None or deadline_ms < self._deadline_ms)
        self._deadline_ms = deadline_ms
        if deadline_ms is not None:
            self._deadline_moved.set()
        if earlier and self._sleep_scope is not None:
            self._sleep_scope.cancel()

    async def _keep_time(self) -> None:
        clock = self._seam.clock
        while True:
            deadline_ms = self._deadline_ms
            if deadline_ms is None or self._slow is not None:
                self._deadline_moved = trio.Event()
                await self._deadline_moved.wait()
                continue
            wait_ms = deadline_ms - clock.monotonic_ms()
            if wait_ms > 0:
                with trio.CancelScope() as self._sleep_scope:
                    await clock.sleep_ms(wait_ms)
                self._sleep_scope = None
                continue
            self._deadline_ms = None
            self.offer(Tick())

    # the disk

    async def _sync_log(self) -> None:
        while True:
            await self._sync_wanted.wait()
            self._sync_wanted = trio.Event()
            self.offer(await self._sync_once())
            self._seam.network.request_pass()

    async def _sync_observer(self) -> None:
        while True:
            await self._written.wait()
            self._written = trio.Event()
            await self._seam.clock.sleep_ms(OBSERVER_SYNC_MS)
            await self._sync_once()

    async def _save_recovery_point(self) -> None:
        """Store the recovery point from time to time, so that damage below it is not taken for a torn tail."""
        while True:
            await self._seam.clock.sleep_ms(RECOVERY_POINT_MS)
            async with self.files:
                if self.metadata.recovery_point_moved:
                    await self._seam.disk.offload(self.metadata.save_recovery_point)

    async def _sync_once(self) -> LogSynced:
        """Sync the log once, and report what is now on the device: the part that was both in the core's log and in the
        file when the sync started. The core's log and the file differ while a truncation waits for the disk."""
        disk = self._seam.disk
        async with self.files:
            core = self.raft.log
            synced = LogSynced(min(core.end_offset, self.metadata.log.log_end_offset), core.generation)
            plan = self.metadata.sync_plan()
            if plan is None:
                return synced
            if plan.only_file is not None:
                await disk.sync(plan.only_file)
            else:
                await disk.offload(plan.run)
            self.metadata.log.mark_synced(plan)
            cold = self.metadata.log.warm_for_append()
            if cold is not None:
                await disk.offload(cold.warm)
                cold.keep()
        return synced

    # incoming requests

    def receive(self, request: Request, message: QuorumRequest) -> None:
        self.offer(RequestReceived(self._answers.keep(request), message))

    def _may_read(self, epoch: int) -> bool:
        return self.raft.is_leader and self.raft.epoch == epoch and not self.is_blocked

    def _start(self, task: Any, *arguments: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(task, *arguments)

    # outgoing requests

    def _send(self, send: Send) -> None:
        node_id = send.destination.node_id
        peer = Peer(node_id if node_id >= 0 else None, self._listener, send.destination.address, self._tls)
        if send.purpose is Purpose.FETCH:
            self._watch(peer)

        def on_answer(answer: Any) -> None:
            if isinstance(answer, Failed):
                self.offer(RequestFailed(send.request_id, _FAILURES[answer.outcome]))
            else:
                self._take_answer(send, answer)

        purpose = PURPOSES[send.purpose]
        self._peers.send(peer, send.request, on_answer, timeout_ms=send.timeout_ms, purpose=purpose)

    def _take_answer(self, send: Send, answer: Any) -> None:
        summaries: tuple[BatchSummary, ...] = ()
        if answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._log_limit.warning(
                log,
                "a controller of another cluster was asked; correct its address in controller.quorum.bootstrap.servers "
                "or controller.quorum.voters",
                client=answer.cluster_id,
                address=str(send.destination.address),
                its_cluster=answer.cluster_id or "unknown",
                our_cluster=send.request.cluster_id,
            )
        if isinstance(answer, MetadataFetchResponse) and answer.records:
            try:
                summaries = summarise(answer.records)
            except WireError as error:
                log.warning("metadata fetch", peer=send.destination.node_id, problem=str(error))
                self.offer(RequestFailed(send.request_id, Failure.OTHER))
                return
        self.offer(ResponseReceived(send.request_id, answer, summaries))

    def _watch(self, peer: Peer) -> None:
        """Report to the core when the connection for fetches to this peer ends."""
        node_id = peer.node_id
        if node_id is None:
            return
        purpose = PURPOSES[Purpose.FETCH]
        known = self._watched.get(node_id)
        if known is not None and known.address == peer.address:
            return
        if known is not None:
            self._peers.forget(known, purpose)
        self._watched[node_id] = peer
        self._peers.on_connection_end(peer, purpose, lambda _: self.offer(ConnectionEnded(node_id)))

    def _redial(self, peer: Peer) -> None:
        node_id = peer.node_id
        if node_id is None:
            raise InvariantError("only a leader is redialled, and a leader has an id")

        def on_result(outcome: CallOutcome | None) -> None:
            self.offer(Redialled(node_id, None if outcome is None else _FAILURES[outcome]))

        self._peers.connect(peer, on_result, purpose=PURPOSES[Purpose.FETCH])
