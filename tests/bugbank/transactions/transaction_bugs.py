"""Mutations of transactions: B54 to B58, B62, B78, B82 and B83."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.broker.api.produce.waiting_batches import WaitingBatches
from kraft.broker.txn import coordinator, ending
from kraft.broker.txn.coordinator import TransactionCoordinator
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import Transaction
from kraft.storage.append import AppendRefused
from kraft.storage.log import Log
from kraft.storage.producers.producer_state import BUMPING_VERSION, ProducerStates
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.error_codes import ErrorCode
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting
from tests.bugbank.transactions import transaction_schedules as play

PART = "Transactions"


@bug(
    "B54",
    "an EndTxn of the last transaction ends the next one",
    part=PART,
    expected=("T9", "T5"),
    directed=play.a_late_end,
    no_swarm="the client ends a connection before it repeats the request on another, and a coordinator that was frozen "
    "has been replaced",
)
def end_without_identity(plant: Planting) -> None:
    original = ending._end_bumping

    def twin(shard: Any, transaction: Any, value: Any, request: Any, ticket: Any, builder: Any) -> None:
        is_open = value.state is TransactionState.ONGOING and transaction.pending is None
        if is_open and ending._is_retry(value, request):
            ending._end_current(shard, transaction, value, request, ticket, builder)
        else:
            original(shard, transaction, value, request, ticket, builder)

    plant.replace(ending, "_end_bumping", twin)


@bug(
    "B55",
    "readers of committed records get the record at the last stable offset",
    part=PART,
    expected=("T6",),
    directed=play.an_open_transaction_at_the_end,
    swarm=play.transactions,
)
def last_stable_offset_is_inclusive(plant: Planting) -> None:
    original = Log.last_stable_offset.fget
    assert original is not None

    def twin(self: Log) -> int:
        stable: int = original(self)
        return min(stable + 1, self.high_watermark)

    plant.replace(Log, "last_stable_offset", property(twin))


@bug(
    "B56",
    "late data is appended after the marker of its transaction",
    part=PART,
    expected=("T12", "T7"),
    directed=play.data_after_the_marker,
    no_swarm="with transaction.version 2 the epoch in the marker rejects late data as well, and in runs below it "
    "coordinators reject late questions, because each transaction has its own epoch",
)
def late_data_is_appended(plant: Planting) -> None:
    original = ProducerStates._check_opening

    def twin(self: ProducerStates, entry: Any, header: Any, origin: Any, verification: Any) -> Any:
        return original(self, entry, header, origin, NOT_VERIFYING if verification is not None else None)

    plant.replace(ProducerStates, "_check_opening", twin)


@bug(
    "B57",
    "a repeated marker with the producer's epoch is rejected",
    part=PART,
    expected=("T7", "L9"),
    directed=play.a_repeated_marker,
    swarm=play.transactions,
)
def repeated_marker_is_rejected(plant: Planting) -> None:
    original = ProducerStates.check_marker

    def twin(
        self: ProducerStates, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0
    ) -> None:
        original(self, producer_id, epoch, coordinator_epoch, transaction_version)
        entry = self.entries.get(producer_id)
        if entry is not None and transaction_version >= BUMPING_VERSION and epoch <= entry.epoch:
            raise AppendRefused(ErrorCode.INVALID_PRODUCER_EPOCH, "the epoch must rise")

    plant.replace(ProducerStates, "check_marker", twin)


@bug(
    "B58",
    "a marker of the last transaction counts for the next one",
    part=PART,
    expected=("T8", "T7"),
    directed=play.a_late_report,
    no_swarm="each marker of a completion is reported once, also when it is sent again",
)
def any_attempt_counts(plant: Planting) -> None:
    original = ending.marked

    def twin(shard: Any, transactional_id: str, attempt: int, partition: Any, builder: Any) -> None:
        transaction = shard.transactions.get(transactional_id)
        completion = None if transaction is None else transaction.completion
        present = attempt if completion is None else completion.attempt
        original(shard, transactional_id, present, partition, builder)

    plant.replace(coordinator, "marked", twin)


@bug(
    "B62",
    "a raised epoch stays in memory though its write has failed",
    part=PART,
    expected=("T10",),
    directed=play.failed_writes,
    swarm=play.transactions,
)
def bump_survives_a_failed_write(plant: Planting) -> None:
    original = TransactionCoordinator.failed

    def twin(self: TransactionCoordinator, after: Any, error: ErrorCode, now: Any) -> Any:
        transaction, pending = self._written(after)
        step = original(self, after, error, now)
        if transaction is not None and transaction.value is not None and pending is not None:
            is_identity = pending.value is not None and pending.value.state is TransactionState.EMPTY
            transaction.value = pending.value if is_identity else transaction.value
        return step

    plant.replace(TransactionCoordinator, "failed", twin)


@bug(
    "B78",
    "a later batch of a producer is checked at once although older ones still wait for the coordinator",
    part=PART,
    expected=("L7",),
    directed=play.a_later_batch,
    swarm=play.pipelining,
)
def later_batch_is_checked_at_once(plant: Planting) -> None:
    plant.replace(WaitingBatches, "confirm", confirm_oldest_only())


@bug(
    "B82",
    "a request with the producer id of the next transaction is refused while the last one is completed",
    part=PART,
    expected=("L7",),
    directed=play.the_next_producer_id_is_used_at_once,
    no_swarm="a producer seldom aborts before the markers of a transaction with the last epoch are written",
)
def next_id_is_unknown(plant: Planting) -> None:
    def twin(self: Transaction, producer_id: int) -> bool:
        return False

    plant.replace(Transaction, "is_next_id", twin)


@bug(
    "B83",
    "a log that was truncated or moved forgets which transactions the coordinator is asked about",
    part=PART,
    expected=("L7",),
    directed=play.a_log_changes_while_the_coordinator_is_asked,
    no_swarm="in a run that is short enough, a log seldom moves within the time of one question",
)
def verifications_are_forgotten(plant: Planting) -> None:
    original, moved = Log.truncate_to, Log.copy_state_of

    def twin(self: Log, offset: int, now_ms: int) -> bool:
        is_shorter = original(self, offset, now_ms)
        self.producers.verifications = {}
        return is_shorter

    def twin_of_move(self: Log, other: Log) -> None:
        moved(self, other)
        self.producers.verifications = {}

    plant.replace(Log, "truncate_to", twin)
    plant.replace(Log, "copy_state_of", twin_of_move)


def confirm_oldest_only() -> Callable[[WaitingBatches, Any], None]:
    """Return a twin of `WaitingBatches.confirm`: each answer of the coordinator resumes one batch, the oldest."""
    resuming: list[WaitingBatches] = []

    def twin(self: WaitingBatches, verification: Any) -> None:
        waiting = self._resumes.get(verification)
        if not waiting or self in resuming:
            return
        batch, resume = next(iter(waiting.items()))
        self.remove(verification, batch)
        resuming.append(self)
        try:
            resume()
        finally:
            resuming.remove(self)

    return twin
