"""CoordinatorShard: runs the state machine of one offsets partition, in one leader epoch.

Invariants: calls to the state machine come one at a time, in the order of the log. The entries of a call are one batch.
The batch must be appended at the offset that the state machine expects; otherwise the partition is loaded again. The
reply of a call is sent only when the high watermark has passed its batch, within `offsets.commit.timeout.ms`. A batch
that takes longer may still be committed. States: LOADING → ACTIVE → CLOSED. A shard serves one leader epoch only; the
next epoch gets a new shard.
Source: Kafka's CoordinatorRuntime, docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from kraft.broker.coordinator.shard_loading import load_state
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import DurableState
from kraft.broker.group.records import GroupLogEntry, encode_entry
from kraft.broker.group.requests import Request, Ticket
from kraft.broker.group.step import After, CoordinatorStep, Now
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.serving.purgatory import Parked
from kraft.seam import DiskError, StorageCorrupt, WireError
from kraft.storage.append import AppendOrigin
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import Record, encode_batch, read_header
from kraft.wire.records.compression import Compression

if TYPE_CHECKING:
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.groups")

REPLY_TO_ERROR = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error code of an append → error code that a member gets, as in Kafka's GroupCoordinatorService."""

COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Results that count as committed: the high watermark has passed the batch. Groups ignore that too few replicas
acknowledged it."""

LOAD_TIMEOUT_MS = 500
"""Milliseconds that requests wait for a partition that is being loaded, before they are rejected. Loading usually takes
a few milliseconds, and a rejected client may take a second to retry."""
EARLY_REQUESTS_MAX = 1_000
NS_PER_MS = 1e6

Operation = Callable[[Now], CoordinatorStep | None]


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class CoordinatorPorts:
    """The functions of the data plane that coordinators use. `damage_found` is `DamagedLogs.damage_found`,
    `budget_may_be_full` is `AppendBudget.may_be_full`."""

    loop: Loop
    gates: Gates
    find_replica: Callable[[UUID, int], Partition | None]
    damage_found: Callable[[Partition, StorageCorrupt], bool]
    disk_failed: Callable[[Partition, DiskError], None]
    budget_may_be_full: Callable[[Partition], None]


class CoordinatorShard:
    """One partition of the offsets topic while this broker leads it in `leader_epoch`."""

    def __init__(self, owner: GroupCoordinators, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.machine: GroupCoordinator | None = None
        self._owner = owner
        self._ports = owner.ports
        self._loop = owner.ports.loop
        self._clock = owner.ports.loop.clock
        self._timer = ShardTimer(self)
        self._timer_ms = -1
        self._early: list[tuple[Request, Ticket]] = []
        self._load_timeout = LoadTimeout(self)
        self._loop.deadlines.add(self._load_timeout, self._clock.monotonic_ms() + LOAD_TIMEOUT_MS)

    @property
    def waiting_requests(self) -> int:
        """Requests that wait for the partition to be loaded, or for its log."""
        return len(self._early) + len(self.partition.pending)

    # loading and closing

    async def run(self) -> None:
        """Load the partition, then serve it. Return when the shard is active, or is no longer needed."""
        began_ns = self._clock.monotonic_ns()
        loaded = await self._load()
        if loaded is None:
            self.close()
            return
        state, end_offset = loaded
        self.machine = machine = GroupCoordinator(self._owner.settings, state, end_offset, self._owner.counts)
        self.state = ShardState.ACTIVE
        self._owner.load_ms.update((self._clock.monotonic_ns() - began_ns) / NS_PER_MS)
        if machine.groups:
            index, epoch = self.partition.index, self.leader_epoch
            log.info("groups loaded", partition=index, leader_epoch=epoch, groups=len(machine.groups))
        self._in_turn(machine.begin, _ignore_error)
        self._owner.shard_loaded(self)
        self._loop.deadlines.remove(self._load_timeout)
        early, self._early = self._early, []
        for request, ticket in early:
            self.submit(request, ticket)
        self._loop.request_pass()

    async def _load(self) -> tuple[DurableState, int] | None:
        """Load the state from the log. Return None if loading failed, or the shard is no longer needed.

        Nothing is loaded from a damaged log, as in Kafka, because acknowledged offsets would be missing. Members get
        NOT_COORDINATOR. The next change of the partition, for example a replica that is in sync again, starts another
        load."""
        try:
            return await load_state(
                self._loop.disk, self._ports.gates, self.partition, self._is_current, self._owner.load_bytes
            )
        except (UnreadableBatch, WireError) as error:
            self._not_loaded(error)
        except StorageCorrupt as error:
            is_damage = self._is_current()  # otherwise it may have been truncated meanwhile
            if is_damage and not self._ports.damage_found(self.partition, error):
                self._not_loaded(error)
        except DiskError as error:
            self._ports.disk_failed(self.partition, error)
        return None

    def _not_loaded(self, why: Exception) -> None:
        log.error("groups were not loaded", partition=self.partition.index, error=str(why))

    def close(self) -> None:
        """Stop coordinating these groups, and reject the waiting requests."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self._loop.deadlines.remove(self._timer)
        self._loop.deadlines.remove(self._load_timeout)
        self._owner.shard_closed(self)
        self._refuse_early(ErrorCode.NOT_COORDINATOR)
        if self.machine is not None:
            _send_replies(self.machine.unload(self._now()))

    def _is_current(self) -> bool:
        """Return whether this broker leads the partition in the epoch of this shard."""
        partition = self.partition
        return (
            self.state is not ShardState.CLOSED
            and partition.log is not None
            and partition.leader is not None
            and partition.leader.leader_epoch == self.leader_epoch
        )

    # requests

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Answer the request, now or later, by calling `ticket(reply)`."""
        machine = self.machine
        if (
            self.state is ShardState.LOADING
            and self._load_timeout.bucket >= 0
            and len(self._early) < EARLY_REQUESTS_MAX
        ):
            self._early.append((request, ticket))
        elif self.state is ShardState.LOADING:
            ticket(request.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        elif machine is None or not self._is_current():
            ticket(request.refused(ErrorCode.NOT_COORDINATOR))
        else:
            self._in_turn(
                lambda now: machine.handle(request, ticket, now),
                lambda error: ticket(request.refused(error)),
            )

    def load_timed_out(self) -> None:
        """Reject the waiting requests and all later ones, because loading takes too long."""
        self._refuse_early(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _refuse_early(self, error: ErrorCode) -> None:
        early, self._early = self._early, []
        for request, ticket in early:
            ticket(request.refused(error))

    def _in_turn(self, operation: Operation, refuse: Callable[[ErrorCode], None]) -> None:
        """Run the operation when its writes can be appended to the log: at once, or after the appends that already
        wait."""
        partition, opened = self.partition, self.partition.log
        is_free = partition.appendable and not partition.pending and not self._loop.disk.dirty_budget_full
        if is_free and opened is not None and opened.warm_for_append() is None:
            self._carry_out(operation)
            return

        def resume(error: ErrorCode) -> None:
            opened = partition.log
            if error is not ErrorCode.NONE or not self._is_current() or opened is None:
                refuse(ErrorCode.NOT_COORDINATOR)
            elif opened.warm_for_append() is not None:
                partition.reopen_files_for(pending)
            else:
                self._carry_out(operation)

        pending = PendingAppend(resume)
        partition.append_later(pending)
        self._ports.budget_may_be_full(partition)

    def _carry_out(self, operation: Operation) -> None:
        """Make one call of the state machine, and do the work that the call returns."""
        machine = self.machine
        assert machine is not None
        machine.advance(self.partition.high_watermark)
        step = operation(self._now())
        if step is not None:
            self._take(machine, step)
        self._arm(machine)

    def _take(self, machine: GroupCoordinator, step: CoordinatorStep) -> None:
        error = self._append(machine, step.entries) if step.entries else ErrorCode.NONE
        _send_replies(step)
        for after in step.after:
            if error is not ErrorCode.NONE:
                self._take(machine, machine.failed(after, member_error(error), self._now()))
            elif self.partition.high_watermark >= machine.end_offset:
                machine.advance(self.partition.high_watermark)
                self._take(machine, machine.stored(after, self._now()))
            else:
                waiting = WaitingAfter(self, after)
                self.partition.waiting.append((machine.end_offset, waiting))
                self._loop.deadlines.add(waiting, self._clock.monotonic_ms() + self._owner.commit_timeout_ms)

    def step_settled(self, after: After, error: ErrorCode) -> None:
        """Do the work that an earlier step left until its batch is settled. The batch is committed, will not be
        committed on this broker, or was not committed in time."""
        machine = self.machine
        assert machine is not None
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.close()

        def continue_step(now: Now) -> CoordinatorStep:
            return machine.stored(after, now) if error in COMMITTED else machine.failed(after, member_error(error), now)

        def give_up(_: ErrorCode) -> None:
            _send_replies(machine.failed(after, ErrorCode.NOT_COORDINATOR, self._now()))

        if self._is_current():
            self._in_turn(continue_step, give_up)
        else:
            give_up(error)

    def forget(self, waiting: WaitingAfter) -> None:
        """Remove the deadline of work that no longer waits."""
        self._loop.deadlines.remove(waiting)

    # timers

    def tick(self) -> None:
        """Fire the due timers of the state machine."""
        machine = self.machine
        if machine is None or not self._is_current():
            return

        def fire(now: Now) -> None:
            while (step := machine.fire(now)) is not None:
                self._take(machine, step)

        self._in_turn(fire, _ignore_error)
        self._loop.request_pass()

    def _arm(self, machine: GroupCoordinator) -> None:
        """Set the deadline to the state machine's earliest timer."""
        due_ms, timer = machine.next_timer_ms, self._timer
        if due_ms is None or self.state is not ShardState.ACTIVE or (timer.bucket >= 0 and self._timer_ms <= due_ms):
            return
        self._loop.deadlines.remove(timer)
        self._loop.deadlines.add(timer, due_ms)
        self._timer_ms = due_ms

    # the log

    def _append(self, machine: GroupCoordinator, entries: Sequence[GroupLogEntry]) -> ErrorCode:
        """Append the entries as one batch. Once this returns NONE, the state machine has recorded the append."""
        partition, opened = self.partition, self.partition.log
        if not self._is_current() or opened is None or partition.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.leader.has_enough_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if opened.log_end_offset != machine.end_offset:
            log.error(
                "another client wrote to the offsets topic: its groups are loaded again",
                partition=partition.index,
                expected=machine.end_offset,
                found=opened.log_end_offset,
            )
            self._owner.reload(self)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms = self._clock.wall_ms()
        try:
            batch = encode_entries(entries, now_ms, self._owner.codec)
        except ValueError as error:
            log.error("a group's record is too large", partition=partition.index, error=str(error))
            return ErrorCode.MESSAGE_TOO_LARGE
        if len(batch) > min(partition.rules.max_message_bytes, partition.rules.segment_bytes):
            log.error("a group's records are too large", partition=partition.index, size_bytes=len(batch))
            return ErrorCode.MESSAGE_TOO_LARGE
        try:
            partition.append_as_leader(memoryview(batch), read_header(batch), now_ms, AppendOrigin.COORDINATOR)
        except DiskError as error:
            self._ports.disk_failed(partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        machine.appended(entries, opened.log_end_offset)
        return ErrorCode.NONE

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())


class WaitingAfter(Parked):
    """Remaining work of a step, parked until the high watermark has passed the step's batch."""

    __slots__ = ("after", "shard")

    def __init__(self, shard: CoordinatorShard, after: After) -> None:
        self.bucket = -1
        self.shard = shard
        self.after = after

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Continue with the work. The high watermark has passed the batch (NONE), or never will on this broker."""
        if self.bucket >= 0:
            self.shard.forget(self)
            self.bucket = -1
            self.shard.step_settled(self.after, error)

    def expire(self) -> None:
        self.shard.step_settled(self.after, ErrorCode.REQUEST_TIMED_OUT)


class LoadTimeout(Parked):
    """The deadline of requests that wait while a shard is being loaded."""

    __slots__ = ("shard",)

    def __init__(self, shard: CoordinatorShard) -> None:
        self.bucket = -1
        self.shard = shard

    def expire(self) -> None:
        self.shard.load_timed_out()


class ShardTimer(Parked):
    """The deadline of the earliest timer of a shard's groups."""

    __slots__ = ("shard",)

    def __init__(self, shard: CoordinatorShard) -> None:
        self.bucket = -1
        self.shard = shard

    def expire(self) -> None:
        self.shard.tick()


def encode_entries(entries: Sequence[GroupLogEntry], wall_ms: int, codec: Compression) -> bytearray:
    """Encode the entries as one batch with this timestamp. Raises ValueError if a text does not fit its field."""
    records = [Record(0, wall_ms, *encode_entry(entry)) for entry in entries]
    return encode_batch(records, compression=codec)


def member_error(error: ErrorCode) -> ErrorCode:
    """Return the error code that a member gets for an error of the log."""
    return REPLY_TO_ERROR.get(error, error)


def _send_replies(step: CoordinatorStep) -> None:
    for ticket, reply in step.replies:
        ticket(reply)


def _ignore_error(error: ErrorCode) -> None:
    """Ignore the error of an operation that no request waits for."""
