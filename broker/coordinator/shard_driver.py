"""CoordinatorShard: runs the state machine of one partition of a coordinator's topic, in one leader epoch.

The same driver serves group coordinators and transaction coordinators. `ShardKind` has everything in which they differ.

Invariants: calls to the state machine come one at a time, in the order of the log. The entries of a call are one batch.
The batch must be appended at the offset that the state machine expects; otherwise the partition is loaded again. The
reply of a call is sent only when the high watermark has passed its batch, within the kind's reply timeout. A batch
that takes longer may still be committed. States: LOADING → ACTIVE → CLOSED. A shard serves one leader epoch only; the
next epoch gets a new shard.
Source: Kafka's CoordinatorRuntime, docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

import structlog

from kraft.broker.coordinator.shard_loading import DecodeEntry, LoadedState, load_state
from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.serving.purgatory import Parked
from kraft.broker.shard.now import Now
from kraft.broker.shard.transactional import MarkerBatch, TransactionalBatch
from kraft.seam import DiskError, InvariantError, StorageCorrupt, WireError
from kraft.storage.append import AppendOrigin, AppendRefused
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import Record, encode_batch, read_header
from kraft.wire.records.compression import Compression
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.gates import Gates
    from kraft.broker.serving.loop import Loop
    from kraft.seam.measures import Histogram

log = structlog.get_logger("kraft.broker.coordinators")

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
"""Error code of an append → error code that a client gets, as in Kafka's GroupCoordinatorService and
TransactionStateManager."""

COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Results that count as committed: the high watermark has passed the batch. Coordinators ignore that too few replicas
acknowledged it."""

LOAD_TIMEOUT_MS = 500
"""Milliseconds that requests wait for a partition that is being loaded, before they are rejected. Loading usually takes
a few milliseconds, while a rejected client may take a second to retry."""
EARLY_REQUESTS_MAX = 1_000
NS_PER_MS = 1e6


class ShardStep(Protocol):
    """The work that a call of a state machine returns; see `kraft.broker.group.step` and `kraft.broker.txn.step`."""

    @property
    def entries(self) -> tuple[Any, ...]: ...
    @property
    def replies(self) -> tuple[tuple[Callable[[Any], None], Any], ...]: ...
    @property
    def after(self) -> tuple[Any, ...]: ...


class StateMachine(Protocol):
    """The state machine of one shard."""

    @property
    def end_offset(self) -> int: ...
    @property
    def next_timer_ms(self) -> int | None: ...
    def begin(self, now: Now) -> ShardStep: ...
    def appended(self, entries: Any, end_offset: int) -> None: ...
    def advance(self, high_watermark: int) -> None: ...
    def handle(self, request: Any, ticket: Any, now: Now) -> ShardStep: ...
    def fire(self, now: Now) -> ShardStep | None: ...
    def stored(self, after: Any, now: Now) -> ShardStep: ...
    def failed(self, after: Any, error: ErrorCode, now: Now) -> ShardStep: ...
    def late(self, after: Any, error: ErrorCode, now: Now) -> ShardStep | None: ...
    def unload(self, now: Now) -> ShardStep: ...


MachineT = TypeVar("MachineT", bound=StateMachine)
Operation = Callable[[Now], ShardStep | None]


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class CoordinatorPorts:
    """The functions of the data plane that coordinators call. `damage_found` is `DamagedLogs.damage_found`,
    `budget_may_be_full` is `AppendBudget.may_be_full`."""

    loop: Loop
    gates: Gates
    find_replica: Callable[[UUID, int], Partition | None]
    damage_found: Callable[[Partition, StorageCorrupt], bool]
    disk_failed: Callable[[Partition, DiskError], None]
    budget_may_be_full: Callable[[Partition], None]


@dataclass(frozen=True, slots=True)
class ShardKind(Generic[MachineT]):
    """The differences between shards of group coordinators and of transaction coordinators. `subject` names the shard's
    contents in log messages.

    `make_machine(state, end_offset)` makes the state machine of a loaded shard; `count(machine)` is the number of its
    groups or transactional ids. `loaded`, `closed` and `reload` report to the owner of the shards. `perform(shard,
    step)` does the work of a step other than appends and replies."""

    subject: str
    empty_state: Callable[[], LoadedState]
    decode_entry: DecodeEntry
    encode_entry: Callable[[Any], tuple[bytes, bytes | None]]
    make_machine: Callable[[Any, int], MachineT]
    count: Callable[[MachineT], int]
    loaded: Callable[[CoordinatorShard[MachineT]], None]
    closed: Callable[[CoordinatorShard[MachineT]], None]
    reload: Callable[[CoordinatorShard[MachineT]], None]
    perform: Callable[[CoordinatorShard[MachineT], Any], None]
    load_ms: Histogram
    reply_timeout_ms: int
    load_bytes: int
    codec: Compression


class CoordinatorShard(Generic[MachineT]):
    """One partition of a coordinator's topic while this broker leads it in `leader_epoch`."""

    def __init__(
        self, kind: ShardKind[MachineT], ports: CoordinatorPorts, partition: Partition, leader_epoch: int
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.machine: MachineT | None = None
        self._kind = kind
        self._ports = ports
        self._loop = ports.loop
        self._clock = ports.loop.clock
        self._timer = ShardTimer(self)
        self._timer_ms = -1
        self._early: list[tuple[Any, Any]] = []
        self._load_timeout = LoadTimeout(self)
        self._loop.deadlines.add(self._load_timeout, self._clock.monotonic_ms() + LOAD_TIMEOUT_MS)

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for the partition to be loaded, or for its log."""
        return len(self._early) + len(self.partition.pending)

    # loading and closing

    async def run(self) -> None:
        """Load the partition and make the shard active. Return after that, or when the shard is no longer needed."""
        began_ns = self._clock.monotonic_ns()
        loaded = await self._load()
        if loaded is None:
            self.close()
            return
        state, end_offset = loaded
        kind = self._kind
        self.machine = machine = kind.make_machine(state, end_offset)
        self.state = ShardState.ACTIVE
        kind.load_ms.update((self._clock.monotonic_ns() - began_ns) / NS_PER_MS)
        if count := kind.count(machine):
            index, epoch = self.partition.index, self.leader_epoch
            log.info(f"{kind.subject} loaded", partition=index, leader_epoch=epoch, count=count)
        self._in_turn(machine.begin, _ignore_error)
        kind.loaded(self)
        self._loop.deadlines.remove(self._load_timeout)
        early, self._early = self._early, []
        for request, ticket in early:
            self.submit(request, ticket)
        self._loop.request_pass()

    async def _load(self) -> tuple[LoadedState, int] | None:
        """Load the state from the log. Return None if loading failed, or the shard is no longer needed.

        Nothing is loaded from a damaged log, as in Kafka, because acknowledged records would be missing. Clients get
        NOT_COORDINATOR. The next change of the partition, for example a replica that is in sync again, starts another
        load."""
        try:
            return await load_state(
                self._loop.disk,
                self._ports.gates,
                self.partition,
                self._is_current,
                self._kind.load_bytes,
                empty_state=self._kind.empty_state,
                decode_entry=self._kind.decode_entry,
            )
        except (UnreadableBatch, WireError) as error:
            self._not_loaded(error)
        except StorageCorrupt as error:
            is_damage = self._is_current()  # otherwise the log may have been truncated meanwhile
            if is_damage and not self._ports.damage_found(self.partition, error):
                self._not_loaded(error)
        except DiskError as error:
            self._ports.disk_failed(self.partition, error)
        return None

    def _not_loaded(self, why: Exception) -> None:
        log.error(f"{self._kind.subject} were not loaded", partition=self.partition.index, error=str(why))

    def close(self) -> None:
        """Stop coordinating this partition, and reject the waiting requests."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self._loop.deadlines.remove(self._timer)
        self._loop.deadlines.remove(self._load_timeout)
        self._kind.closed(self)
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

    def submit(self, request: Any, ticket: Callable[[Any], None]) -> None:
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
            self._in_turn(partial(self._handle, machine, request, ticket), lambda error: ticket(request.refused(error)))

    def _handle(self, machine: MachineT, request: Any, ticket: Callable[[Any], None], now: Now) -> ShardStep | None:
        """Let the state machine process a request. An error there fails this request and nothing else: the operation
        may run while the log continues the appends of others."""
        try:
            return machine.handle(request, ticket, now)
        except InvariantError:
            raise
        except Exception as error:
            log.error("a coordinator's request failed", request=type(request).__name__, exc_info=error)
            ticket(request.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
            return None

    def load_timed_out(self) -> None:
        """Reject the waiting requests and all later ones until loading ends, because it takes too long."""
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
        """Make one call of the state machine, and do the work that it returns."""
        machine = self.machine
        assert machine is not None
        machine.advance(self.partition.high_watermark)
        step = operation(self._now())
        if step is not None:
            self._take(machine, step)
        self._arm(machine)

    def _take(self, machine: MachineT, step: ShardStep) -> None:
        error = self._append(machine, step.entries) if step.entries else ErrorCode.NONE
        _send_replies(step)
        self._kind.perform(self, step)
        for after in step.after:
            if error is not ErrorCode.NONE:
                self._take(machine, machine.failed(after, client_error(error), self._now()))
            elif self.partition.high_watermark >= machine.end_offset:
                machine.advance(self.partition.high_watermark)
                self._take(machine, machine.stored(after, self._now()))
            else:
                waiting = WaitingAfter(self, after)
                self.partition.waiting.append((machine.end_offset, waiting))
                self._loop.deadlines.add(waiting, self._clock.monotonic_ms() + self._kind.reply_timeout_ms)

    def run_now(self, operation: Operation) -> None:
        """Call the state machine for something other than a request, once the log accepts its writes."""
        if self.machine is not None and self._is_current():
            self._in_turn(operation, _ignore_error)

    def timed_out(self, after: Any) -> bool:
        """Send the reply of a step whose reply timeout has passed. Return whether the step's work continues to wait for
        its batch."""
        machine = self.machine
        assert machine is not None
        step = machine.late(after, client_error(ErrorCode.REQUEST_TIMED_OUT), self._now())
        if step is None:
            self.step_settled(after, ErrorCode.REQUEST_TIMED_OUT)
            return False
        _send_replies(step)
        return True

    def step_settled(self, after: Any, error: ErrorCode) -> None:
        """Do the remaining work of an earlier step, now that the outcome of its batch is clear: the batch is committed,
        will not be committed on this broker, or was not committed in time."""
        machine = self.machine
        assert machine is not None
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.close()

        def continue_step(now: Now) -> ShardStep:
            return machine.stored(after, now) if error in COMMITTED else machine.failed(after, client_error(error), now)

        def give_up(_: ErrorCode) -> None:
            _send_replies(machine.failed(after, ErrorCode.NOT_COORDINATOR, self._now()))

        if self._is_current():
            self._in_turn(continue_step, give_up)
        else:
            give_up(error)

    def forget(self, waiting: WaitingAfter) -> None:
        """Remove the deadline of work that is no longer waiting."""
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

    def _arm(self, machine: MachineT) -> None:
        """Set this shard's deadline to the earliest timer of the state machine."""
        due_ms, timer = machine.next_timer_ms, self._timer
        if due_ms is None or self.state is not ShardState.ACTIVE or (timer.bucket >= 0 and self._timer_ms <= due_ms):
            return
        self._loop.deadlines.remove(timer)
        self._loop.deadlines.add(timer, due_ms)
        self._timer_ms = due_ms

    # the log

    def _append(self, machine: MachineT, entries: Sequence[Any]) -> ErrorCode:
        """Append the entries as one batch. When this returns NONE, the state machine knows of the append."""
        partition, opened = self.partition, self.partition.log
        if not self._is_current() or opened is None or partition.leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.leader.has_enough_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if opened.log_end_offset != machine.end_offset:
            log.error(
                f"another client wrote to a coordinator's topic: its {self._kind.subject} are loaded again",
                topic=partition.topic,
                partition=partition.index,
                expected=machine.end_offset,
                found=opened.log_end_offset,
            )
            self._kind.reload(self)
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        now_ms = self._clock.wall_ms()
        try:
            batch = encode_entries(self._kind.encode_entry, entries, now_ms, self._kind.codec)
        except ValueError as error:
            log.error("a coordinator's record cannot be encoded", partition=partition.index, error=str(error))
            return ErrorCode.MESSAGE_TOO_LARGE
        if len(batch) > min(partition.rules.max_message_bytes, partition.rules.segment_bytes):
            log.error("a coordinator's records are too large", partition=partition.index, size_bytes=len(batch))
            return ErrorCode.MESSAGE_TOO_LARGE
        first = entries[0]
        verification = first.verification if isinstance(first, TransactionalBatch) else None
        try:
            if isinstance(first, MarkerBatch):
                opened.producers.check_marker(
                    first.producer_id, first.producer_epoch, first.coordinator_epoch, first.transaction_version
                )
            partition.append_as_leader(
                memoryview(batch), read_header(batch), now_ms, AppendOrigin.COORDINATOR, verification
            )
        except AppendRefused as refused:
            return refused.error_code
        except DiskError as error:
            self._ports.disk_failed(partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        machine.appended(entries, opened.log_end_offset)
        return ErrorCode.NONE

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())


class WaitingAfter(Parked):
    """Remaining work of a step, which waits until the high watermark has passed the step's batch."""

    __slots__ = ("after", "is_over", "shard")

    def __init__(self, shard: CoordinatorShard[Any], after: Any) -> None:
        self.bucket = -1
        self.shard = shard
        self.after = after
        self.is_over = False

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Do the remaining work. NONE: the high watermark has passed the batch. An error: it never will on this
        broker."""
        if not self.is_over:
            self.is_over = True
            if self.bucket >= 0:
                self.shard.forget(self)
                self.bucket = -1
            self.shard.step_settled(self.after, error)

    def expire(self) -> None:
        self.is_over = not self.shard.timed_out(self.after)


class LoadTimeout(Parked):
    """The deadline of requests that wait while a shard is being loaded."""

    __slots__ = ("shard",)

    def __init__(self, shard: CoordinatorShard[Any]) -> None:
        self.bucket = -1
        self.shard = shard

    def expire(self) -> None:
        self.shard.load_timed_out()


class ShardTimer(Parked):
    """The deadline of the earliest timer of a shard's state machine."""

    __slots__ = ("shard",)

    def __init__(self, shard: CoordinatorShard[Any]) -> None:
        self.bucket = -1
        self.shard = shard

    def expire(self) -> None:
        self.shard.tick()


def encode_entries(
    encode_entry: Callable[[Any], tuple[bytes, bytes | None]], entries: Sequence[Any], wall_ms: int, codec: Compression
) -> bytearray:
    """Encode the entries as one batch with this timestamp. Raises ValueError if a string does not fit its field."""
    first = entries[0]
    if isinstance(first, MarkerBatch):
        kind = ControlRecordType.COMMIT if first.is_commit else ControlRecordType.ABORT
        return encode_control(
            ControlRecord(type=kind, coordinator_epoch=first.coordinator_epoch),
            timestamp_ms=wall_ms,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
        )
    if isinstance(first, TransactionalBatch):
        return encode_batch(
            [Record(0, wall_ms, *encode_entry(entry)) for entry in first.entries],
            compression=codec,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            transactional=True,
        )
    return encode_batch([Record(0, wall_ms, *encode_entry(entry)) for entry in entries], compression=codec)


def client_error(error: ErrorCode) -> ErrorCode:
    """Return the error code that a client gets for an error of the log."""
    return REPLY_TO_ERROR.get(error, error)


def _send_replies(step: ShardStep) -> None:
    for ticket, reply in step.replies:
        ticket(reply)


def _ignore_error(error: ErrorCode) -> None:
    """Ignore the error of an operation that no request waits for."""
