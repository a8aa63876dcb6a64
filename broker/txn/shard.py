"""TransactionShard: the state of one partition of `__transaction_state` while this broker coordinates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kraft.broker.shard.timers import Timers
from kraft.broker.txn.records import TransactionLogEntry, TransactionValue
from kraft.broker.txn.requests import NO_EPOCH, Reply, Request, Ticket
from kraft.broker.txn.states import PREDECESSORS
from kraft.broker.txn.step import StepBuilder, Written
from kraft.broker.txn.transaction import Transaction, UncommittedWrite
from kraft.seam import require

DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings under transaction.… and transactional.…, with times in ms."""

    timeout_ms_max: int = 900_000
    id_expiration_ms: int = 7 * DAY_MS
    retry_ms: int = 500
    """Time before the coordinator retries a failed write that no client requested."""


class TransactionTimerKind(Enum):
    TIMEOUT = "the transaction has been open for its timeout"
    RETRY = "a write of the coordinator's own has failed"
    WAIT = "additions have waited long enough for the end of the last transaction"


class TransactionTimer(NamedTuple):
    kind: TransactionTimerKind
    transactional_id: str


@dataclass(slots=True)
class TransactionCounts:
    """Counters of all shards of a broker, for metrics."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0


class TransactionShard:
    """The transactional ids of one partition, their timers, and the offset of the next write.

    `take_producer_id()` returns a new producer id, or None if the broker has none yet. `transaction_version` is the
    finalized level of the feature, which the driver keeps current."""

    __slots__ = (
        "counts",
        "end_offset",
        "settings",
        "take_producer_id",
        "timers",
        "transaction_version",
        "transactions",
        "writes",
    )

    def __init__(
        self,
        settings: TransactionSettings,
        state: Mapping[str, TransactionValue],
        end_offset: int,
        take_producer_id: Callable[[], int | None],
        counts: TransactionCounts,
    ) -> None:
        self.settings = settings
        self.end_offset = end_offset
        self.take_producer_id = take_producer_id
        self.counts = counts
        self.transaction_version = 0
        self.timers: Timers[TransactionTimer] = Timers()
        self.transactions = {name: Transaction(name, value) for name, value in sorted(state.items())}
        self.writes = 0
        """Number of the last write or completion attempt. Both are numbered with this one counter."""

    def write(
        self,
        builder: StepBuilder,
        transaction: Transaction,
        value: TransactionValue,
        *,
        last_epoch: int = NO_EPOCH,
        ticket: Ticket | None = None,
        request: Request | None = None,
        reply: Reply | None = None,
    ) -> None:
        """Append a new value of the transactional id, and send `reply` when it is committed. Raises InvariantError if
        the state of the new value may not follow the current state."""
        known = None if transaction.value is None else transaction.value.state
        require(known in PREDECESSORS[value.state], f"{value.state.label} cannot follow {known}")
        require(transaction.pending is None, "two writes of one transactional id are in flight")
        self.writes += 1
        transaction.pending = UncommittedWrite(self.writes, value, last_epoch, ticket, request, reply)
        builder.entries.append(TransactionLogEntry(transaction.transactional_id, value))
        builder.after.append(Written(transaction.transactional_id, self.writes))

    def set_timeout(self, transaction: Transaction, builder: StepBuilder) -> None:
        """Set the timer that aborts the open transaction at its timeout. The start of the transaction is a wall-clock
        time, which may be long past."""
        value = transaction.value
        require(value is not None, "an id without a value has no transaction")
        assert value is not None
        left_ms = value.start_ms + value.timeout_ms - builder.now.wall_ms
        left_ms = min(max(left_ms, 0), value.timeout_ms)
        timer = TransactionTimer(TransactionTimerKind.TIMEOUT, transaction.transactional_id)
        self.timers.set(timer, builder.now.monotonic_ms + left_ms)

    def retry_later(self, transaction: Transaction, builder: StepBuilder) -> None:
        timer = TransactionTimer(TransactionTimerKind.RETRY, transaction.transactional_id)
        self.timers.set(timer, builder.now.monotonic_ms + self.settings.retry_ms)

    def cancel_timers(self, transaction: Transaction) -> None:
        for kind in TransactionTimerKind:
            self.timers.cancel(TransactionTimer(kind, transaction.transactional_id))
