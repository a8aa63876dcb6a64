"""A transaction coordinator for tests, with a log in memory whose batches are committed by the test."""

from __future__ import annotations

from typing import Any

from kraft.broker.shard.now import Now
from kraft.broker.txn.coordinator import TransactionCoordinator
from kraft.broker.txn.records import TransactionLogEntry, TransactionValue, decode_entry, encode_entry
from kraft.broker.txn.requests import AddRequest, EndRequest, InitRequest, Request
from kraft.broker.txn.shard import TransactionSettings
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.step import Markers, Step, Written
from kraft.wire.error_codes import ErrorCode

ID = "payments"
ORDERS = frozenset({("orders", 0), ("orders", 1)})
FIRST_PRODUCER_ID = 1_000


class Coordinating:
    """A TransactionCoordinator, its log and its clock. With `commits`, each batch is committed as soon as it is
    appended."""

    def __init__(
        self,
        state: dict[str, TransactionValue] | None = None,
        *,
        commits: bool = True,
        version: int = 0,
        settings: TransactionSettings | None = None,
        now: Now | None = None,
    ) -> None:
        self.commits = commits
        self.log: list[TransactionLogEntry] = []
        self.markers: list[Markers] = []
        self.waiting: list[Written] = []
        self.now = now or Now(50_000, 1_000_000)
        self.producer_ids = iter(range(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 1_000))
        self.has_producer_ids = True
        self.machine = TransactionCoordinator(settings or TransactionSettings(), state or {}, 0, self._take_producer_id)
        self.machine.set_transaction_version(version)
        self._do(self.machine.begin(self.now))

    def _take_producer_id(self) -> int | None:
        return next(self.producer_ids) if self.has_producer_ids else None

    # actions of the driver

    def _do(self, step: Step) -> None:
        for entry in step.entries:
            record = encode_entry(entry, is_flexible=True)
            assert decode_entry(record.key, record.value) == entry, "a record does not keep what it says"
        if step.entries:
            self.log += step.entries
            self.machine.appended(step.entries, len(self.log))
        self.markers += step.markers
        for ticket, reply in step.replies:
            ticket(reply)
        for after in step.after:
            if self.commits:
                self._do(self.machine.stored(after, self.now))
            else:
                self.waiting.append(after)

    def commit(self) -> None:
        """Commit everything that was appended."""
        waiting, self.waiting = self.waiting, []
        for after in waiting:
            self._do(self.machine.stored(after, self.now))

    def fail(self, error: ErrorCode) -> None:
        """Report to the coordinator that the appended batches will not be committed."""
        waiting, self.waiting = self.waiting, []
        for after in waiting:
            self._do(self.machine.failed(after, error, self.now))

    def late(self, error: ErrorCode) -> None:
        for after in self.waiting:
            self._do(self.machine.late(after, error, self.now))

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock, and fire the timers that are due."""
        self.now = Now(self.now.monotonic_ms + duration_ms, self.now.wall_ms + duration_ms)
        while (step := self.machine.fire(self.now)) is not None:
            self._do(step)

    def confirm_markers(self) -> None:
        """Confirm all markers on behalf of the leaders of all partitions."""
        markers, self.markers = self.markers, []
        for one in markers:
            for partition in sorted(one.partitions):
                self._do(self.machine.marked(one.transactional_id, one.attempt, partition, self.now))

    def confirm(self, markers: Markers, partition: tuple[str, int]) -> None:
        self._do(self.machine.marked(markers.transactional_id, markers.attempt, partition, self.now))

    def expire(self) -> None:
        self._do(self.machine.expire(self.now))

    def failover(self, *, version: int = 0) -> Coordinating:
        """Return another coordinator that has loaded the log, at the time of this one."""
        state: dict[str, TransactionValue] = {}
        for entry in self.log:
            if entry.value is None:
                state.pop(entry.transactional_id, None)
            else:
                state[entry.transactional_id] = entry.value
        return Coordinating(state, version=version, now=self.now)

    # requests of clients

    def ask(self, request: Request) -> Any:
        """Send a request. Return the reply, or None if there is none yet."""
        replies: list[Any] = []
        self._do(self.machine.handle(request, replies.append, self.now))
        assert len(replies) <= 1
        return replies[0] if replies else None

    def asked(self, request: Request) -> list[Any]:
        """Send a request. Return a list that gets the reply, now or later."""
        replies: list[Any] = []
        self._do(self.machine.handle(request, replies.append, self.now))
        return replies

    def init(self, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000) -> Any:
        return self.ask(InitRequest(ID, timeout_ms, producer_id, epoch))

    def add(self, producer_id: int, epoch: int, partitions: frozenset[tuple[str, int]] = ORDERS) -> Any:
        return self.ask(AddRequest(ID, producer_id, epoch, partitions))

    def end(self, producer_id: int, epoch: int, *, commit: bool, bumps: bool = False) -> Any:
        return self.ask(EndRequest(ID, producer_id, epoch, commit, bumps))

    @property
    def value(self) -> TransactionValue:
        value = self.machine.transactions[ID].value
        assert value is not None
        return value

    @property
    def states(self) -> list[TransactionState | None]:
        """The transaction state in each record of the log."""
        return [entry.value.state if entry.value else None for entry in self.log]
