"""LedSharePartition: the state of one share partition on the broker that leads the partition, in one leader epoch.

It loads the persisted state, writes each change to the share coordinator, and lets locks expire. It watches its
partition, and wakes the parked requests when there may be something to acquire.

Invariants: there is at most one write in flight, so changes are persisted in their order. A member is answered after
its change is persisted. A change that is in effect already, such as the expiry of locks, is written again until it is
persisted; its order does not matter then, because the share coordinator keeps the higher delivery count of a record.
When the leadership ends, or another leader has fenced this one, everything that waits is rejected, and the state is
forgotten.
Source: KIP-932, Kafka's SharePartition and SharePartitionManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from kraft.broker.api.share_fetch.offset_reset import reset_offset
from kraft.broker.serving.purgatory import Parked
from kraft.broker.share_coordinator.records import NO_OFFSET, ShareKey
from kraft.broker.share_coordinator.requests import ReadStateRequest, StateReply, WriteStateRequest
from kraft.broker.share_coordinator.share_state import combine
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import AcknowledgementBatch, AcquiredBatch, StateWrite
from kraft.seam import DiskError
from kraft.seam.measures import Histogram
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.api.share_fetch.share_meters import ShareCounts
    from kraft.broker.coordinator.share_group_settings import ShareGroupSettings
    from kraft.broker.coordinator.share_persister import SharePersister
    from kraft.broker.partition.partition import Partition
    from kraft.broker.replica.leader import LeaderState
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.shares")

OnAcknowledged = Callable[[ErrorCode], None]

FENCED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors of a write after which the state must be read again."""

REPEAT_MS_FIRST, REPEAT_MS_MAX = 1_000, 30_000
"""Backoff before a write is repeated, which `SharePersister` has tried for its whole time."""
NS_PER_MS = 1e6


class QueuedWrite(NamedTuple):
    """A write that waits for its turn. If it fails, the changes of a write `in_effect` stay, and it is repeated; those
    of another write are dropped."""

    write: StateWrite
    on_acknowledged: OnAcknowledged | None = None
    in_effect: bool = False


class WaitingShareFetch(Protocol):
    """A parked request."""

    def wake(self) -> None:
        """Check the request again at the end of this pass."""
        ...


class ShareStage(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class LedSharePartition(Parked):
    """One share partition. As a Parked operation it is the deadline of its earliest lock."""

    delayed_operation = "ShareLock"

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        *,
        loop: Loop,
        persister: SharePersister,
        settings_of: Callable[[str], ShareGroupSettings],
        counts: ShareCounts,
        closed: Callable[[LedSharePartition], None],
    ) -> None:
        self.bucket = -1
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.stage = ShareStage.LOADING
        self.load_error = ErrorCode.NONE
        self.state: SharePartition | None = None
        self.parked: dict[WaitingShareFetch, None] = {}
        """The requests that wait until there is something to acquire, in the order in which they will be served."""
        self.batch_sizes = Histogram()
        """Number of records in each batch that was new in flight, acquired or loaded."""
        self._loop = loop
        self._persister = persister
        self._settings_of = settings_of
        self._counts = counts
        self._began_ns = loop.clock.monotonic_ns()
        self._closed = closed
        self._writes: deque[QueuedWrite] = deque()
        self._is_in_flight = False
        """Whether the first write was sent and has no reply yet."""
        self._is_sending = False
        self._failed: StateWrite | None = None
        """The write to repeat; it has the changes of all writes that have failed."""
        self._repetition = WriteRepetition(self)
        self._failures = 0
        self._lock_ms = -1
        self._is_idle = False
        """Whether the share partition closes once its changes are persisted, because the group has no session."""
        partition.watchers[self] = None

    @property
    def settings(self) -> ShareGroupSettings:
        """The newest settings of the group."""
        return self._settings_of(self.key.group)

    @property
    def records_in_flight(self) -> int:
        """Number of records between the first that is not complete and the last that was acquired."""
        return 0 if self.state is None else self.state.end_offset - self.state.start_offset

    @property
    def batches_in_flight(self) -> int:
        """Number of runs of these records that have the same delivery state."""
        return 0 if self.state is None else len(self.state.runs)

    @property
    def can_acquire(self) -> bool:
        """Return whether the state is loaded, and has room for a request that acquires records."""
        return self.stage is ShareStage.ACTIVE and self.state is not None and self.state.can_acquire

    @property
    def expired_records(self) -> int:
        """Number of records whose lock has expired since this broker leads the partition."""
        return 0 if self.state is None else self.state.expired_records

    # loading and closing

    def load(self) -> None:
        """Begin to read the persisted state. When it is there, or cannot be read, the parked requests are woken."""
        self._persister.ask(ReadStateRequest(self.key, self.leader_epoch), self._read)

    def _read(self, reply: StateReply) -> None:
        persisted = reply.state
        if self.stage is ShareStage.CLOSED:
            return
        if reply.error is not ErrorCode.NONE or persisted is None:
            self.close(reply.error)
        elif persisted.start_offset == NO_OFFSET:
            self._loop.start_task(self._find_start, persisted.state_epoch)
        else:
            for batch in persisted.batches:
                self.batch_sizes.update(batch.last_offset - batch.first_offset + 1)
            self._begin(
                SharePartition(
                    state_epoch=persisted.state_epoch,
                    leader_epoch=self.leader_epoch,
                    start_offset=persisted.start_offset,
                    batches=persisted.batches,
                    limits=self.settings.limits,
                )
            )

    async def _find_start(self, state_epoch: int) -> None:
        """Begin at the offset that the group's share.auto.offset.reset names, and persist it. Otherwise another leader,
        or this one after a time without members, would look for the end again and miss the records before it."""
        try:
            offset = await reset_offset(
                self.partition, self.settings.offset_reset, self._loop.disk, self._loop.clock.wall_ms()
            )
        except DiskError:
            offset = None
        if offset is None:
            self.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.stage is ShareStage.LOADING:
            state = SharePartition(
                state_epoch=state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=offset,
                limits=self.settings.limits,
            )
            self._begin(state)
            self._persist(QueuedWrite(state.write_start(), in_effect=True))
        self._loop.request_pass()

    def _begin(self, state: SharePartition) -> None:
        self.state = state
        self.stage = ShareStage.ACTIVE
        self._counts.load_ms.update((self._loop.clock.monotonic_ns() - self._began_ns) / NS_PER_MS)
        self.wake_parked()

    def close(self, error: ErrorCode) -> None:
        """Forget the state, and reject what waits, because the state could not be read, or is another leader's."""
        if self.stage is ShareStage.CLOSED:
            return
        self.stage, self.load_error = ShareStage.CLOSED, error
        self.state = None
        self._loop.deadlines.remove(self)
        self._loop.deadlines.remove(self._repetition)
        self.partition.watchers.pop(self, None)
        self._closed(self)
        writes, self._writes = self._writes, deque()
        self._failed = None
        for one in writes:
            if one.on_acknowledged is not None:
                one.on_acknowledged(error)
        self.wake_parked()

    # members

    def acquired(self, batches: Sequence[AcquiredBatch], known_end: int) -> None:
        """Measure the batches that a member has acquired, and set the deadline of their locks. `known_end` is the end
        offset before: batches of records below it were in flight already."""
        for batch in batches:
            if batch.last_offset >= known_end:
                self.batch_sizes.update(batch.last_offset - batch.first_offset + 1)
        self.changed()

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch], on_acknowledged: OnAcknowledged
    ) -> None:
        """Apply a member's acknowledgements. Call `on_acknowledged` when they are persisted, or with an error."""
        if self.state is None:
            on_acknowledged(ErrorCode.INVALID_RECORD_STATE)
            return
        self.take_limits()
        error, write = self.state.acknowledge(member, batches, self._loop.clock.monotonic_ms())
        if write is None:
            on_acknowledged(error)
        else:
            self._persist(QueuedWrite(write, on_acknowledged))
        self.changed()

    def release(self, member: str) -> None:
        """Release the records that a member holds, because its session has ended."""
        self.take_limits()
        write = None if self.state is None else self.state.release_member(member)
        if write is not None:
            self._persist(QueuedWrite(write))
            self.changed()

    def use(self) -> None:
        """Keep the state, because a member fetches from this broker."""
        self._is_idle = False

    def close_when_idle(self) -> None:
        """Forget the state once all changes are persisted, because no member fetches from this broker. An administrator
        may change the offsets of the group then."""
        self._is_idle = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._is_idle and not self._writes and self._failed is None:
            self.close(ErrorCode.NONE)

    def take_limits(self) -> None:
        """Apply the newest settings of the group, and the newest log start offset."""
        if self.state is not None:
            self.state.limits = self.settings.limits
            if self.partition.log is not None:
                self.state.move_start(self.partition.log.log_start_offset)

    # persistence

    def _persist(self, write: QueuedWrite) -> None:
        self._writes.append(write)
        self._send_writes()

    def _send_writes(self) -> None:
        """Send the first write, unless one is in flight. The reply may come at once, and then the next write is sent:
        by this loop, because a recursion would be as deep as there are writes."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while self._writes and not self._is_in_flight and self.state is not None:
                self._is_in_flight = True
                self._send(self.state.sent_write(self._writes[0].write))
        finally:
            self._is_sending = False

    def _send(self, write: StateWrite) -> None:
        request = WriteStateRequest(
            self.key,
            write.state_epoch,
            write.leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            write.batches,
        )
        self._persister.ask(request, self._written)

    def _written(self, reply: StateReply) -> None:
        if self.state is None:
            return
        if reply.error in FENCED:
            self.close(reply.error)
            return
        self._is_in_flight = False
        done = self._writes.popleft()
        if reply.error is ErrorCode.NONE:
            self.state.write_stored(done.write.number)
            self._failures = 0
        else:
            log.warning("share state was not persisted", key=self.key.coordinator_key, error=reply.error.name)
            self.state.write_failed(done.write.number)
            if done.in_effect:
                self._repeat_later(done.write)
        self._send_writes()
        if done.on_acknowledged is not None:
            done.on_acknowledged(reply.error)
        self.changed()
        self.wake_parked()
        self._close_if_idle()

    def _repeat_later(self, write: StateWrite) -> None:
        if self._failed is not None:
            write = write._replace(batches=combine(self._failed.batches, write.batches, write.start_offset))
        self._failed = write
        if self._repetition.bucket < 0:
            backoff_ms = min(REPEAT_MS_FIRST << min(self._failures, 10), REPEAT_MS_MAX)
            self._failures += 1
            self._loop.deadlines.add(self._repetition, self._loop.clock.monotonic_ms() + backoff_ms)

    def repeat_failed(self) -> None:
        """Write the changes again whose writes have failed."""
        failed, self._failed = self._failed, None
        if failed is not None:
            self._persist(QueuedWrite(failed, in_effect=True))
            self._loop.request_pass()

    # locks

    def changed(self) -> None:
        """Set the deadline to the earliest lock."""
        due_ms = None if self.state is None else self.state.next_expiry_ms
        if due_ms is None or (self.bucket >= 0 and self._lock_ms <= due_ms):
            return
        self._loop.deadlines.remove(self)
        self._loop.deadlines.add(self, due_ms)
        self._lock_ms = due_ms

    def expire(self) -> None:
        """Release the records whose lock has expired."""
        self.take_limits()
        write = None if self.state is None else self.state.expire_locks(self._loop.clock.monotonic_ms())
        if write is not None:
            self._persist(QueuedWrite(write, in_effect=True))
            self.wake_parked()
            self._loop.request_pass()
        self.changed()

    # the partition

    def partition_changed(self) -> None:
        """Close if the leadership has ended. Otherwise wake the requests, because there may be new records."""
        partition = self.partition
        if (partition.leader is None and not partition.waits_for_log) or partition.leader_epoch != self.leader_epoch:
            self.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.parked:
            self.wake_parked()

    def refresh_followers(self, leader: LeaderState) -> None:
        """Do nothing: the followers' reports do not matter here."""

    def wake_parked(self) -> None:
        """Check the parked requests again at the end of this pass."""
        for request in self.parked:
            request.wake()


class WriteRepetition(Parked):
    """The time at which failed writes of a share partition are repeated."""

    __slots__ = ("_share",)

    def __init__(self, share: LedSharePartition) -> None:
        self.bucket = -1
        self._share = share

    def expire(self) -> None:
        self._share.repeat_failed()
