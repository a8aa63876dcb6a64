"""A replica that leads, in one leader epoch: production's `LeaderState`, and the requests that wait for it.

It is driven as `kraft.broker.partition.partition`, `partition_reading` and `alter_partition` drive the production code.
A fetch counts only after all checks. The offsets in a response are those from before the fetch. One AlterPartition is
in flight at a time. What a node does at the end of a pass of its event loop (responses to produce requests and to
delayed fetches) is done at once here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrProposal
from kraft.broker.replica.leader import LeaderState
from kraft.control.commands import AlterPartition, PartitionProposal, ProposedMember
from kraft.control.replies import AlterPartitionReply
from kraft.image import PartitionState, RecoveryState
from kraft.sim.cores.replicas.log import ReplicaBatch
from kraft.sim.cores.replicas.messages import Fetch, Fetched
from kraft.storage.epochs import UNDEFINED
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import CoreBroker

NONE = ErrorCode.NONE
ANSWER_BATCHES_MAX = 20
"""Maximum batches in the response to a fetch; at least one is returned."""
FETCH_WAIT_MS = 300
"""Maximum time that a fetch without new records is delayed."""
ALTER_RETRY_MS = 50
TRIM_KEEPS_RECORDS = 20
"""Number of records below the high watermark that a deletion keeps."""


class LeadingReplica:
    """A broker that leads in one leader epoch. The role has ended when `broker.leading` is another object or None."""

    def __init__(self, broker: CoreBroker, state: PartitionState, left: frozenset[int]) -> None:
        world, log = broker.world, broker.log
        log.epochs.assign(state.leader_epoch, log.log_end_offset)
        self.broker = broker
        self.core = LeaderState(
            broker.node_id,
            state,
            log_end_offset=log.log_end_offset,
            own_acked_offset=self._own_acked_offset(),
            high_watermark=log.high_watermark,
            min_isr=world.settings.min_isr,
            lag_ms_max=world.settings.lag_ms_max,
            now_ms=world.now,
            removed_by_controller=left,
        )
        self._parked: dict[int, tuple[Fetch, int]] = {}
        """Replica id → its delayed fetch, and the time since which the fetch waits."""
        self._told: dict[int, int] = {}
        """Replica id → last high watermark sent to it."""
        self._waiting: deque[ReplicaBatch] = deque()
        """Batches whose producers wait for the high watermark."""
        self._proposal: IsrProposal | None = None
        """ISR change that is to be proposed to the controller when no proposal is in flight."""
        self._asked: IsrProposal | None = None
        world.witness.on_lead(broker, state)

    def begin(self, state: PartitionState) -> None:
        """Start leading with the partition state of the role."""
        self.core.metadata_changed(state, self.broker.world.now, self.broker.eligible)
        self._take_high_watermark()

    def _own_acked_offset(self) -> int:
        log = self.broker.log
        return log.synced_end_offset if self.broker.world.odds.waits_for_disk else log.log_end_offset

    # requests of others

    def produce(self, count: int, *, all_in_sync: bool) -> bool:
        """Append a batch of this many records; return whether it was accepted. With `all_in_sync` the producer waits
        until the batch is committed (acks=all)."""
        broker, core = self.broker, self.core
        if all_in_sync and not core.has_enough_replicas:
            return False
        world, log = broker.world, broker.log
        batch = world.make_batch(log.log_end_offset, count, core.leader_epoch, log.chain)
        log.append(batch)
        world.witness.on_append(broker, batch)
        if all_in_sync:
            self._waiting.append(batch)
        if world.odds.waits_for_disk:
            core.log_end_offset = batch.next_offset
            broker.request_sync()
        elif core.appended(batch.next_offset, batch.next_offset, world.now, broker.eligible):
            self._take_high_watermark()
        self._answer_parked()
        return True

    def fetch(self, fetch: Fetch) -> None:
        """Handle a follower's fetch, in this leader epoch."""
        refusal = self._refusal(fetch)
        if refusal is not None:
            self.broker.answer_fetch(refusal)
            return
        broker, core, replica_id = self.broker, self.core, fetch.replica_id
        log = broker.log
        high_watermark, end = log.high_watermark, log.log_end_offset
        effects = core.fetched(
            replica_id,
            fetch.fetch_offset,
            fetch.log_start_offset,
            end,
            broker.world.now,
            fetch.broker_epoch,
            broker.eligible,
        )
        self._parked.pop(replica_id, None)
        if fetch.fetch_offset < end or high_watermark > self._told.get(replica_id, -1):
            self._read(fetch, high_watermark)
        else:
            self._parked[replica_id] = (fetch, broker.world.now)
        if effects.high_watermark_moved:
            self._take_high_watermark()
        if effects.proposal is not None:
            self._propose(effects.proposal)

    def _refusal(self, fetch: Fetch) -> Fetched | None:
        """Return the error, or the offset at which the histories diverge, if the fetch is not served
        (`kraft.broker.api.fetch.partition_reading._refusal`)."""
        core, log = self.core, self.broker.log
        if fetch.replica_id not in core.followers:
            return Fetched(fetch, ErrorCode.UNKNOWN_LEADER_EPOCH)
        if not core.knows_incarnation(fetch.replica_id, fetch.broker_epoch):
            return Fetched(fetch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        offset, latest = fetch.fetch_offset, fetch.last_fetched_epoch
        if latest >= 0:
            floor, end = log.end_offset_for(latest)
            if (floor, end) == UNDEFINED or offset < log.log_start_offset:
                return Fetched(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
            if floor != latest or end < offset:
                return Fetched(fetch, NONE, log.high_watermark, log.log_start_offset, diverging=(floor, end))
            if (
                fetch.log_start_offset < log.log_start_offset == offset
                and fetch.replica_id not in core.isr.committed
                and log.epochs.floor(latest) is None
            ):
                return Fetched(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return Fetched(fetch, ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    def _read(self, fetch: Fetch, high_watermark: int) -> None:
        broker, log = self.broker, self.broker.log
        batches = log.read(fetch.fetch_offset, 1 + broker.world.chance.below(ANSWER_BATCHES_MAX))
        self._told[fetch.replica_id] = high_watermark
        broker.answer_fetch(Fetched(fetch, NONE, high_watermark, log.log_start_offset, None, batches))

    def _answer_parked(self) -> None:
        """Answer the delayed fetches for which there are new records or a new high watermark."""
        if not self._parked:
            return
        log = self.broker.log
        for replica_id, (fetch, _) in list(self._parked.items()):
            if fetch.fetch_offset < log.log_end_offset or log.high_watermark > self._told.get(replica_id, -1):
                del self._parked[replica_id]
                self._read(fetch, log.high_watermark)

    # other events

    def synced(self) -> None:
        """Continue after a sync: more of the log is durable."""
        broker = self.broker
        if broker.world.odds.waits_for_disk and self.core.synced(
            broker.log.synced_end_offset, broker.world.now, broker.eligible
        ):
            self._take_high_watermark()

    def metadata_changed(self, state: PartitionState) -> None:
        """Apply a changed ISR in the same leader epoch."""
        self.core.metadata_changed(state, self.broker.world.now, self.broker.eligible)
        self._take_high_watermark()
        self.eligible_changed()

    def brokers_changed(self) -> None:
        """Apply a change of the brokers that may join the ISR."""
        effects = self.core.brokers_changed(self.broker.world.now, self.broker.eligible)
        if effects.high_watermark_moved:
            self._take_high_watermark()
        if effects.proposal is not None:
            self._propose(effects.proposal)

    def eligible_changed(self) -> None:
        """Check again which replicas may join the ISR, after a proposal was decided."""
        proposal = self.core.eligible_changed(self.broker.eligible)
        if proposal is not None:
            self._propose(proposal)

    def check_lag(self) -> None:
        """Check whether followers lag. Called by the ISR timer."""
        broker = self.broker
        proposal = self.core.check_lag(broker.world.now) or self.core.readmit_removed(broker.world.now, broker.eligible)
        if proposal is not None:
            self._propose(proposal)

    def expire_parked(self) -> None:
        """Answer delayed fetches that have waited long enough, without records."""
        broker = self.broker
        due = broker.world.now - FETCH_WAIT_MS
        for replica_id, (fetch, since) in list(self._parked.items()):
            if since <= due:
                del self._parked[replica_id]
                self._read(fetch, broker.log.high_watermark)

    def trim(self) -> None:
        """Delete records, as retention or a client does: whole batches below the high watermark."""
        broker = self.broker
        log = broker.log
        kept = log.position(log.high_watermark - TRIM_KEEPS_RECORDS)
        if kept and log.batches[kept - 1].next_offset <= log.high_watermark:
            offset = log.batches[kept - 1].next_offset
            broker.world.witness.on_trim(broker, offset)
            log.advance_start(offset)

    # high watermark, and requests that wait for it

    def _take_high_watermark(self) -> None:
        broker = self.broker
        log, mark = broker.log, self.core.high_watermark
        before = log.high_watermark
        if mark == before:
            return
        log.high_watermark = mark
        broker.world.witness.on_high_watermark(broker, before)
        waiting = self._waiting
        if waiting and waiting[0].next_offset <= mark:
            is_met = self.core.acknowledgement_error() is ErrorCode.NONE
            while waiting and waiting[0].next_offset <= mark:
                batch = waiting.popleft()
                if is_met:
                    broker.world.acknowledged(self, batch)
        self._answer_parked()

    # the ISR

    def _propose(self, proposal: IsrProposal) -> None:
        self.broker.world.witness.on_proposal(self, proposal)
        self._proposal = proposal
        self.ask()

    def ask(self) -> None:
        """Send the pending proposal, unless another request is in flight."""
        proposal, broker = self._proposal, self.broker
        if proposal is None or broker.is_asking("alter"):
            return
        self._proposal = None
        if self.core.isr.pending is not proposal:
            return
        self._asked = proposal
        members = tuple(
            ProposedMember(member, broker.broker_epoch if member == broker.node_id else epoch)
            for member, epoch in proposal.members
        )
        change = PartitionProposal(
            broker.world.topic_id,
            0,
            proposal.leader_epoch,
            proposal.partition_epoch,
            members,
            int(RecoveryState.RECOVERED),
        )
        command = AlterPartition(broker_id=broker.node_id, broker_epoch=broker.broker_epoch, partitions=(change,))
        broker.ask("alter", command)

    def answered(self, reply: AlterPartitionReply | None) -> None:
        """Handle the controller's answer to a proposal; None if no answer came."""
        asked, self._asked = self._asked, None
        if asked is None:  # it was proposed in an earlier leadership
            self.ask()
            return
        verdict = self._take_answer(asked, reply)
        if verdict is AnswerVerdict.RETRY and self._proposal is None:
            self._proposal = asked
        if verdict is AnswerVerdict.REVERTED:
            self.broker.world.after(self.broker, ALTER_RETRY_MS, self._propose_again)
        elif verdict is AnswerVerdict.RETRY:
            self.broker.world.after(self.broker, ALTER_RETRY_MS, self.ask)
        else:
            self.ask()

    def _propose_again(self) -> None:
        """Repeat a proposal some time after its rejection. This is needed because a follower that is caught up, and
        could not join yet, sends nothing new."""
        if self.broker.leading is self:
            self.eligible_changed()
            self.ask()

    def _take_answer(self, asked: IsrProposal, reply: AlterPartitionReply | None) -> AnswerVerdict:
        if reply is None or reply.error_code != ErrorCode.NONE:
            return AnswerVerdict.RETRY
        row, broker = reply.partitions[0], self.broker
        answer = IsrAnswer(ErrorCode.of(row.error_code), row.leader_epoch, row.partition_epoch, row.isr)
        verdict, moved = self.core.answered(asked, answer, broker.world.now, broker.eligible)
        if moved:
            self._take_high_watermark()
        if verdict is AnswerVerdict.COMMITTED:
            self.eligible_changed()
        return verdict
