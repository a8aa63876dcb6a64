"""Partition: one hosted replica. It connects a log with the pure leader or follower state, and keeps the requests that
wait for the replica.

Invariants:
- an append, the producer state, the log end and the high watermark change together, with no checkpoint between them;
- a replica that was never written leads and follows without a log; its first append creates the log (*unwritten*);
- appends run only while the replica leads, its log is open, and the entry of its leader epoch is on disk
  (`appendable`). Until then produce requests wait in their order of arrival (`pending`);
- waiting requests are notified within the same pass: changed partitions are added to `host.changed` and settled at the
  end of the pass;
- a high watermark that clients have seen is never lowered by this leader.
Source: Kafka's Partition, docs/decisions/01-one-seam.md, docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from kraft.broker.partition.partition_host import CommitWaiter, PartitionHost, PendingAppend, Watcher
from kraft.broker.partition.partition_states import (
    APPEND_TRANSITIONS,
    LOG_TRANSITIONS,
    AppendEvent,
    AppendState,
    LogEvent,
    LogState,
)
from kraft.broker.partition.repeated_reads import RepeatedReads
from kraft.broker.partition.replication_quota import is_throttled
from kraft.broker.partition.topic_rules import batch_rules
from kraft.broker.partition.unwritten_log import UnwrittenLog, unwritten_log
from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrProposal
from kraft.broker.replica.leader import LeaderState, removed_from_isr
from kraft.broker.serving.gates import Resource, ResourceType
from kraft.image.partitions import PartitionState
from kraft.seam import require
from kraft.storage.append import AppendInfo, AppendOrigin
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BatchHeader

if TYPE_CHECKING:
    from kraft.broker.partition.log_directories import HostedDirectory
    from kraft.broker.serving.metrics.topics import TopicMeters
    from kraft.config import TopicConfig
    from kraft.storage.log import Log
    from kraft.storage.producers.verification import Verification
    from kraft.storage.segment import Segment
    from kraft.wire.messages.produce import ProduceSuccess

UNWRITTEN, OPEN, TRUNCATING = LogState.UNWRITTEN, LogState.OPEN, LogState.TRUNCATING
OFFLINE, REMOVED, READY = LogState.OFFLINE, LogState.REMOVED, AppendState.READY
UNREADABLE_YET = (LogState.NEW, LogState.CLOSED, LogState.TRUNCATING)
SETTLED = (LogState.OPEN, LogState.OFFLINE, LogState.REMOVED)
EVERY_APPEND = 1
"""Value of flush.messages with which each append waits for a sync."""
NEVER = 2**63 - 1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Partition:
    """One replica of this broker. `log` is None unless `log_state` is OPEN or TRUNCATING (`partition_states`). No other
    module assigns a partition's fields."""

    __slots__ = (
        "__weakref__",
        "active_segment",
        "append_state",
        "blocking",
        "config",
        "directory",
        "flush_records",
        "follower_throttled",
        "high_watermark",
        "host",
        "index",
        "leader",
        "leader_epoch",
        "leader_throttled",
        "log",
        "log_state",
        "meters",
        "opening_waiters",
        "pending",
        "repeated_reads",
        "resource",
        "rules",
        "start_watchers",
        "state",
        "success_answers",
        "topic",
        "topic_id",
        "waiting",
        "waiting_for_disk",
        "watchers",
    )

    def __init__(
        self, host: PartitionHost, topic: str, topic_id: UUID, index: int, config: TopicConfig, meters: TopicMeters
    ) -> None:
        """Create a replica without a role and without a log."""
        self.host = host
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.meters = meters
        self.resource = Resource(ResourceType.TOPIC, topic)
        self.state: PartitionState | None = None
        self.leader_epoch = -1
        self.directory: HostedDirectory | None = None
        self.log: Log | None = None
        self.leader: LeaderState | None = None
        self.high_watermark = 0
        self.log_state = LogState.NEW
        self.append_state = AppendState.IDLE
        self.active_segment: Segment | None = None
        self.repeated_reads: RepeatedReads | None = None
        self.blocking = trio.Lock()
        self.watchers: dict[Watcher, None] = {}
        self.start_watchers = 0
        self.waiting: deque[tuple[int, CommitWaiter]] = deque()
        self.waiting_for_disk: deque[tuple[int, CommitWaiter]] = deque()
        self.pending: deque[PendingAppend] = deque()
        self.opening_waiters: list[Callable[[], None]] = []
        self.success_answers: dict[int, ProduceSuccess] = {}
        self.configure(config)

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index})"

    @property
    def key(self) -> tuple[UUID, int]:
        return self.topic_id, self.index

    # states of the log and of appends

    @property
    def appendable(self) -> bool:
        """Whether an append may run: the replica leads, and its log has been made ready."""
        return self.append_state is READY

    @property
    def is_unwritten(self) -> bool:
        return self.log_state is UNWRITTEN

    @property
    def is_offline(self) -> bool:
        return self.log_state is OFFLINE

    @property
    def is_removed(self) -> bool:
        return self.log_state is REMOVED

    @property
    def is_truncating(self) -> bool:
        return self.log_state is TRUNCATING

    @property
    def waits_for_log(self) -> bool:
        """Whether the log is being opened or truncated, so that it will be readable soon."""
        return self.log_state in UNREADABLE_YET

    @property
    def is_settled(self) -> bool:
        """Whether the log is open and not being truncated, so that a new leadership has begun. Also True if the log can
        no longer be opened."""
        return self.log_state in SETTLED

    def _log_event(self, event: LogEvent) -> None:
        transition = (self.log_state, event)
        state = LOG_TRANSITIONS.get(transition)
        require(state is not None, f"{self}: a log that is {self.log_state.value} cannot be {event.value}")
        self.host.transitions[transition] += 1
        self.log_state = state  # type: ignore[assignment]

    def _append_event(self, event: AppendEvent) -> None:
        transition = (self.append_state, event)
        state = APPEND_TRANSITIONS.get(transition)
        require(state is not None, f"{self}: appends that are {self.append_state.value} cannot be {event.value}")
        self.host.transitions[transition] += 1
        self.append_state = state  # type: ignore[assignment]

    def hold_appends(self) -> None:
        """Hold appends back until the log is ready again."""
        if self.append_state is not AppendState.IDLE:
            self._append_event(AppendEvent.HELD)

    # properties

    @property
    def is_internal(self) -> bool:
        """Whether the topic is a coordinator's internal topic, to which clients must not write."""
        return self.topic in INTERNAL_TOPICS

    @property
    def waits_for_disk(self) -> bool:
        """Whether appends are acknowledged only after they are synced to the device."""
        return self.flush_records == EVERY_APPEND

    @property
    def syncs_appends(self) -> bool:
        """Whether flush.messages requires syncs of appended records, beyond the syncs of closed segments."""
        return self.flush_records < NEVER

    @property
    def leads(self) -> bool:
        """Whether the newest metadata that the partition has applied name this broker as the leader. The log need not
        be open."""
        return self.state is not None and self.state.leader == self.host.node_id and self.log_state is not OFFLINE

    def is_being_added(self, broker_id: int) -> bool:
        """Return whether a reassignment is adding a replica on the broker `broker_id`."""
        return self.state is not None and broker_id in self.state.adding

    @property
    def readable(self) -> Log | UnwrittenLog | None:
        """The log to read from. It is an empty log for a replica that was never written, and None while the log is not
        open."""
        if self.is_unwritten:
            return unwritten_log(self.leader_epoch if self.leads else -1)
        return self.log

    @property
    def was_open(self) -> bool:
        """Whether the log was open at any time in this incarnation, so that its files may have been written to."""
        return self.active_segment is not None

    def configure(self, config: TopicConfig) -> None:
        """Apply changed settings of the topic."""
        self.config = config
        self.flush_records = config.flush_messages
        self.rules = batch_rules(config)
        here = (self.index, self.host.node_id)
        self.leader_throttled = is_throttled(config.leader_replication_throttled_replicas, *here)
        self.follower_throttled = is_throttled(config.follower_replication_throttled_replicas, *here)
        leader = self.leader
        if leader is not None and leader.min_isr != config.min_insync_replicas:
            now_ms = self.host.clock.monotonic_ms()
            leader.min_isr_changed(config.min_insync_replicas, now_ms, self.host.eligible)
            self._take_leader_high_watermark()
        if self.log is not None and self.waits_for_disk:
            self._sync_unsynced(self.log)
        elif self.log is not None:
            self._acknowledge_unsynced(self.log)

    def _sync_unsynced(self, log: Log) -> None:
        """Sync the records that were written before each append had to be synced, so that the leader's acked offset can
        pass them."""
        if log.synced_end_offset < log.log_end_offset:
            self.host.request_sync(self)

    def _acknowledge_unsynced(self, log: Log) -> None:
        """Acknowledge the appends that wait for a sync, because the topic no longer requires one."""
        leader, end = self.leader, log.log_end_offset
        if leader is not None and leader.own_acked_offset < end:
            leader.synced(end, self.host.clock.monotonic_ms(), self.host.eligible)
            self._take_leader_high_watermark()
        while self.waiting_for_disk:
            self.waiting_for_disk.popleft()[1].acknowledged(self, ErrorCode.NONE)

    # the log

    def placed(self, directory: HostedDirectory, *, is_unwritten: bool) -> None:
        """Assign the replica to a log directory. `is_unwritten`: the replica has no folder in it."""
        self.directory = directory
        self._log_event(LogEvent.PLACED_UNWRITTEN if is_unwritten else LogEvent.PLACED)

    def not_placed(self) -> None:
        """Take a new replica offline: its data may be in a directory that is offline."""
        self._log_event(LogEvent.FAILED)

    def opened(self, log: Log, high_watermark: int) -> None:
        """Accept the opened log, and begin the role that was assigned meanwhile, at the checkpointed
        `high_watermark`."""
        was_unwritten = self.log_state is UNWRITTEN
        self._log_event(LogEvent.OPENED)
        self._take_log(log)
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.log_end_offset))
        log.update_high_watermark(self.high_watermark)
        state = self.state
        # the state that the replica already has is kept
        if was_unwritten and self.leader is not None and log.log_end_offset == 0:
            log.epochs.assign(self.leader.leader_epoch, 0)
            self.resume_appends()
        elif state is not None and state.leader == self.host.node_id:
            self._begin_to_lead(state)
        self.host.changed[self] = None
        self._resume_waiters()

    def _resume_waiters(self) -> None:
        waiters, self.opening_waiters = self.opening_waiters, []
        for resume in waiters:
            resume()

    def replaced(self, log: Log, directory: HostedDirectory) -> None:
        """Switch to another log, in another directory. The new log has the same content, all of it synced to the
        device."""
        self.directory = directory
        self._take_log(log)
        self.hold_appends()
        self.resume_appends()
        self.host.changed[self] = None

    def _take_log(self, log: Log) -> None:
        self.log = log
        self.active_segment = log.active
        if self.directory is not None:
            self.directory.open_logs[self] = None

    def resume_appends(self) -> None:
        """Run the appends that were held back."""
        if self.pending:
            self._prepare_to_append()

    def when_open(self, resume: Callable[[], None]) -> None:
        """Call `resume` once the log is open and not being truncated, or can no longer be opened (then `log` is still
        None)."""
        self.opening_waiters.append(resume)
        if self.log is None:
            self.host.request_open(self)

    def failed(self) -> None:
        """Drop the log without another write, because its directory is offline or the log is damaged. Answer the
        waiting requests with KAFKA_STORAGE_ERROR."""
        self._log_event(LogEvent.FAILED)
        self._drop(ErrorCode.KAFKA_STORAGE_ERROR)

    def removed(self) -> None:
        """Drop the log, because the replica was reassigned or its topic deleted."""
        self._log_event(LogEvent.REMOVED)
        self._drop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _drop(self, error: ErrorCode) -> None:
        if self.directory is not None:
            self.directory.open_logs.pop(self, None)
        self.log = None
        self.leader = None
        self.hold_appends()
        self._fail_waiting(error)
        self.host.changed[self] = None
        self._resume_waiters()

    # roles

    def lead(self, state: PartitionState) -> None:
        """Become the leader in a new leader epoch."""
        gone = () if self.state is None else set(self.state.isr).difference(state.isr)
        self.state, self.leader_epoch = state, state.leader_epoch
        self.hold_appends()
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.leader = None
        if self.log_state in (UNWRITTEN, OPEN):
            self._begin_to_lead(state, removed_from_isr(gone, state))
        self.host.changed[self] = None

    def keep_leading(self, state: PartitionState) -> None:
        """Apply another in-sync set or assignment in the same leader epoch."""
        self.state, self.leader_epoch = state, state.leader_epoch
        if self.leader is not None:
            host = self.host
            self.leader.metadata_changed(state, host.clock.monotonic_ms(), host.eligible, host.offline_replicas(state))
            self._take_leader_high_watermark()
            self.eligible_changed()
            if len(state.isr) < len(state.replicas):
                for watcher in self.watchers:
                    watcher.refresh_followers(self.leader)

    def follow(self, state: PartitionState) -> None:
        """Become a follower, perhaps without a leader. The caller has stopped fetching, and starts it again."""
        self.state, self.leader_epoch = state, state.leader_epoch
        self.leader = None
        self.hold_appends()
        self._fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.host.changed[self] = None

    def keep_following(self, state: PartitionState) -> None:
        """Apply another in-sync set or assignment in the same leader epoch."""
        self.state = state

    def _begin_to_lead(self, state: PartitionState, left: frozenset[int] = frozenset()) -> None:
        log = self.log
        log_end_offset = own_acked_offset = 0
        if log is not None:
            log_end_offset, own_acked_offset = log.log_end_offset, self._own_acked_offset(log)
            log.epochs.assign(state.leader_epoch, log_end_offset)
            if self.waits_for_disk:
                self._sync_unsynced(log)
        now_ms, offline = self.host.clock.monotonic_ms(), self.host.offline_replicas(state)
        self.leader = LeaderState(
            self.host.node_id,
            state,
            log_end_offset=log_end_offset,
            own_acked_offset=own_acked_offset,
            high_watermark=self.high_watermark,
            min_isr=self.config.min_insync_replicas,
            lag_ms_max=self.host.lag_ms_max,
            now_ms=now_ms,
            removed_by_controller=left,
            offline=offline,
        )
        self.leader.metadata_changed(state, now_ms, self.host.eligible, offline)
        self._take_leader_high_watermark()
        self.host.changed[self] = None
        if self.pending:
            self._prepare_to_append()

    # appends

    def append_as_leader(
        self,
        data: memoryview,
        header: BatchHeader,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Append one validated batch. Allowed only while `appendable`. `now_ms` is wall clock. `verification` is given
        for a batch that may open a transaction. After AppendRefused nothing has changed; after DiskError the caller
        takes the directory offline."""
        log, leader = self.log, self.leader
        assert log is not None
        assert leader is not None
        info = log.append_as_leader(
            data, header, leader.leader_epoch, origin=origin, verification=verification, now_ms=now_ms
        )
        if not info.duplicate:
            self._appended(log, leader)
        return info

    def _appended(self, log: Log, leader: LeaderState) -> None:
        end = log.log_end_offset
        host = self.host
        if self.flush_records == EVERY_APPEND:
            leader.log_end_offset = end
            host.request_sync(self)
        elif leader.alone:
            if leader.appended(end, end, host.clock.monotonic_ms(), host.eligible):
                self.high_watermark = leader.high_watermark
                log.update_high_watermark(leader.high_watermark)
        else:
            leader.log_end_offset = leader.own_acked_offset = end
        if log.active is not self.active_segment or end - log.recovery_point >= self.flush_records:
            self.sync_later(log)
        host.changed[self] = None

    def sync_later(self, log: Log) -> None:
        """Request a sync of the log after the pass, because the log has a new segment or unsynced bytes."""
        self.active_segment = log.active
        self.host.request_sync(self)

    def append_later(self, append: PendingAppend) -> None:
        """Queue an append behind those that wait already."""
        self.pending.append(append)
        self._prepare_to_append()

    def run_pending(self) -> None:
        """Run queued appends in order, as long as the next one is ready and the budget of dirty bytes has room."""
        while self.pending and self.pending[0].ready and self.append_state is READY and self.host.may_write(self):
            self.pending.popleft().run(ErrorCode.NONE)

    def _prepare_to_append(self) -> None:
        if self.log is None:
            self.host.request_open(self)
        elif self.leader is not None and self.append_state is AppendState.IDLE:
            self._append_event(AppendEvent.PREPARE)
            self.host.request_ready(self)

    def reopen_files_for(self, append: PendingAppend) -> None:
        """Queue `append` before all others, and reopen the log's files, which were closed after an idle time."""
        self.hold_appends()
        self.pending.appendleft(append)
        self._prepare_to_append()

    def readied(self, leader_epoch: int) -> None:
        """Start running appends, because the files are open and the entry of `leader_epoch` is on disk. No effect if
        the leader epoch has changed meanwhile."""
        if self.leader is None or self.log is None:
            self._append_event(AppendEvent.OUTDATED)
        elif self.leader.leader_epoch == leader_epoch:
            self._append_event(AppendEvent.READIED)
            self.run_pending()
        else:
            self._append_event(AppendEvent.OUTDATED)
            if self.pending:
                self._prepare_to_append()

    def synced(self) -> None:
        """Acknowledge the appends that a sync of the log has made durable."""
        log, leader = self.log, self.leader
        if log is None:
            return
        end = log.synced_end_offset
        if (
            leader is not None
            and self.waits_for_disk
            and leader.synced(end, self.host.clock.monotonic_ms(), self.host.eligible)
        ):
            self._take_leader_high_watermark()
        waiting = self.waiting_for_disk
        while waiting and waiting[0][0] <= end:
            waiting.popleft()[1].acknowledged(self, ErrorCode.NONE)
        if end < log.log_end_offset and self.waits_for_disk:
            self.host.request_sync(self)
        self.host.changed[self] = None

    def segments_changed(self) -> None:
        """Sync the log's folder, because retention removed segments and may have rolled the log."""
        if self.log is not None:
            self.sync_later(self.log)
        self.host.changed[self] = None

    def truncation_begun(self) -> None:
        """Begin a truncation. Until `truncation_done`, the log is not fetched or appended to, and the replica does not
        lead."""
        self._log_event(LogEvent.TRUNCATION_BEGUN)

    def truncation_done(self) -> None:
        """End a truncation, and begin a leadership that was assigned meanwhile."""
        self._log_event(LogEvent.TRUNCATION_DONE)
        state = self.state
        if self.log is not None and state is not None and state.leader == self.host.node_id and self.leader is None:
            self._begin_to_lead(state)
        self.host.changed[self] = None
        self._resume_waiters()

    # followers, as seen by the leader

    def follower_fetched(
        self, replica_id: int, fetch_offset: int, log_start_offset: int, leader_end: int, broker_epoch: int
    ) -> None:
        """Record a follower's fetch as its progress. The leader's log ended at `leader_end` when the fetch was read."""
        leader = self.leader
        assert leader is not None
        host = self.host
        effects = leader.fetched(
            replica_id,
            fetch_offset,
            log_start_offset,
            leader_end,
            host.clock.monotonic_ms(),
            broker_epoch,
            host.eligible,
        )
        if effects.high_watermark_moved:
            self._take_leader_high_watermark()
        elif self.start_watchers:
            host.changed[self] = None
        if effects.proposal is not None:
            host.propose_isr(self, effects.proposal)

    def is_out_of_sync(self, replica_id: int) -> bool:
        """Return whether the metadata do not name this replica as in sync."""
        return self.state is None or replica_id not in self.state.isr

    def check_lag(self) -> None:
        """Propose to remove lagging followers from the in-sync set."""
        if self.leader is not None:
            now_ms = self.host.clock.monotonic_ms()
            proposal = self.leader.check_lag(now_ms) or self.leader.readmit_removed(now_ms, self.host.eligible)
            if proposal is not None:
                self.host.propose_isr(self, proposal)

    def isr_answered(self, proposal: IsrProposal, answer: IsrAnswer) -> AnswerVerdict:
        """Apply the controller's response to a proposal."""
        if self.leader is None:
            return AnswerVerdict.STALE
        now_ms = self.host.clock.monotonic_ms()
        verdict, moved = self.leader.answered(proposal, answer, now_ms, self.host.eligible)
        if moved:
            self._take_leader_high_watermark()
        if verdict is AnswerVerdict.COMMITTED:
            self.eligible_changed()
        return verdict

    def brokers_changed(self) -> None:
        """Propose in-sync changes after the registered brokers changed: replicas of other brokers may be allowed to
        join now."""
        if self.leader is not None and self.state is not None:
            host = self.host
            effects = self.leader.brokers_changed(
                host.clock.monotonic_ms(), host.eligible, host.offline_replicas(self.state)
            )
            if effects.high_watermark_moved:
                self._take_leader_high_watermark()
            if effects.proposal is not None:
                self.host.propose_isr(self, effects.proposal)

    def eligible_changed(self) -> None:
        """Propose followers that wait to join the in-sync set, after the last proposal was decided or rejected."""
        if self.leader is not None:
            proposal = self.leader.eligible_changed(self.host.eligible)
            if proposal is not None:
                self.host.propose_isr(self, proposal)

    # readers

    def watch_start(self, watcher: Watcher) -> None:
        """Notify `watcher` also when a follower's log start offset may have moved."""
        self.watchers[watcher] = None
        self.start_watchers += 1

    def unwatch_start(self, watcher: Watcher) -> None:
        self.watchers.pop(watcher, None)
        self.start_watchers -= 1

    def count_reads(self) -> RepeatedReads:
        """Start counting how often readers fetch the same bytes again."""
        self.repeated_reads = RepeatedReads()
        return self.repeated_reads

    # the high watermark and the requests that wait for it

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of the offsets that read_committed consumers may read."""
        assert self.log is not None
        return self.log.last_stable_offset

    def settle(self) -> None:
        """Answer waiting produces and wake fetches, at the end of a pass in which this partition changed."""
        waiting = self.waiting
        if waiting and waiting[0][0] <= self.high_watermark and self.leader is not None:
            error = self.leader.acknowledgement_error()
            mark = self.high_watermark
            while waiting and waiting[0][0] <= mark:
                waiting.popleft()[1].acknowledged(self, error)
        for watcher in list(self.watchers):
            watcher.partition_changed()

    def append_error(self) -> ErrorCode:
        """Return the error with which this partition rejects a produce request; NONE if the batch can be appended, now
        or later."""
        if self.log_state is OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.state is None or self.state.leader != self.host.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _own_acked_offset(self, log: Log) -> int:
        return log.synced_end_offset if self.waits_for_disk else log.log_end_offset

    def _take_leader_high_watermark(self) -> None:
        leader = self.leader
        if leader is not None and leader.high_watermark != self.high_watermark:
            self.set_high_watermark(leader.high_watermark)

    def set_high_watermark(self, mark: int) -> None:
        """Move the high watermark to `mark`. Requests that wait for it are settled at the end of the pass."""
        self.high_watermark = mark
        if self.log is not None:
            self.log.update_high_watermark(mark)
        self.host.changed[self] = None

    def _fail_waiting(self, error: ErrorCode) -> None:
        for waiting in (self.waiting, self.waiting_for_disk):
            while waiting:
                waiting.popleft()[1].acknowledged(self, error)
        while self.pending:
            self.pending.popleft().run(error)
