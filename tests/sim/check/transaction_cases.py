"""Handwritten histories of transactions: for each check a history to accept, and a continuation that violates it."""

from __future__ import annotations

from kraft.sim.check.observations import (
    BatchWritten,
    LogCut,
    LoggedTransaction,
    Observation,
    PartitionSeen,
    ProducedBy,
    ProducerIdSent,
    TopicPartition,
    TransactionMarker,
)
from kraft.sim.check.transactions.ledger import LoggedState as S

LOG, ORDERS, OTHER = ("__transaction_state", 0), ("orders", 0), ("others", 0)
PRODUCER, COORDINATOR, LEADER, THIRD = 7, 1, 2, 3
MEMBERS = frozenset({COORDINATOR, LEADER, THIRD})


def seen(
    place: TopicPartition, end: int, node: int, *, stable: int | None = None, incarnation: int = 1
) -> PartitionSeen:
    """Return the observation that all records below `end` are committed, as this leader knows. `stable` is its last
    stable offset, by default `end`."""
    marks = (0, end, end if stable is None else stable, end)
    return PartitionSeen(node, incarnation, place, True, 0, MEMBERS, MEMBERS, 2, *marks)


ELSEWHERE = seen(("quiet", 0), 0, THIRD)
"""Observation of a node without a part in the transaction. After it, all earlier writes are checked."""


def value(state: int, epoch: int, *places: TopicPartition) -> LoggedTransaction:
    return LoggedTransaction("payments", state, PRODUCER, epoch, frozenset(places), -1)


def written_value(offset: int, state: int, epoch: int, *places: TopicPartition) -> BatchWritten:
    entries = (value(state, epoch, *places),)
    return BatchWritten(COORDINATOR, LOG, 0, offset, offset + 1, offset, transactions=entries)


def logged(offset: int, state: int, epoch: int, *places: TopicPartition) -> list[Observation]:
    """Return the observations that the coordinator writes a record, and that the record is committed."""
    return [written_value(offset, state, epoch, *places), ELSEWHERE, seen(LOG, offset + 1, COORDINATOR)]


def data(place: TopicPartition, offset: int, epoch: int) -> list[Observation]:
    """Return the observations that a leader writes one record of the transaction, and that the record is committed."""
    producer = ProducedBy(PRODUCER, epoch, 0, 0, True)
    batch = BatchWritten(LEADER, place, 0, offset, offset + 1, 100 + offset, producer)
    return [batch, ELSEWHERE, seen(place, offset + 1, LEADER, stable=offset), ELSEWHERE]


def marker(
    place: TopicPartition, offset: int, epoch: int, *, is_commit: bool = True, coordinator_epoch: int = 5
) -> list[Observation]:
    """Return the observations that a leader writes a marker, and that the marker is committed."""
    found = TransactionMarker(PRODUCER, epoch, coordinator_epoch, is_commit)
    batch = BatchWritten(LEADER, place, 0, offset, offset + 1, 200 + offset, marker=found)
    return [batch, ELSEWHERE, seen(place, offset + 1, LEADER), ELSEWHERE]


def sent(epoch: int, caller: str, *, producer_id: int = PRODUCER) -> ProducerIdSent:
    return ProducerIdSent(COORDINATOR, producer_id, epoch, "payments", caller)


BEGUN = [*logged(0, S.EMPTY, 0), *logged(1, S.ONGOING, 0, ORDERS, OTHER)]
DECIDED = [*BEGUN, *data(ORDERS, 0, 0), *data(OTHER, 0, 0), *logged(2, S.PREPARE_COMMIT, 1, ORDERS, OTHER)]
ONE_MARKER = [*DECIDED, *marker(ORDERS, 1, 1)]
COMPLETE = [*ONE_MARKER, *marker(OTHER, 1, 1), *logged(3, S.COMPLETE_COMMIT, 1)]

TRANSACTION_CASES: dict[str, tuple[list[Observation], list[Observation]]] = {
    "T4b": (
        [sent(0, "a"), *BEGUN, *data(ORDERS, 0, 0)], [sent(1, "b"), *data(ORDERS, 1, 0)],
    ),
    "T4b by the last producer id": (
        [sent(0, "a"), *BEGUN, *data(ORDERS, 0, 0)], [sent(0, "b", producer_id=8), *data(ORDERS, 1, 0)],
    ),
    "T5": (COMPLETE, marker(OTHER, 2, 1, is_commit=False)),
    "T5 by the first marker": (COMPLETE, [
        *logged(4, S.ONGOING, 1, ORDERS), *logged(5, S.PREPARE_ABORT, 2, ORDERS), *marker(ORDERS, 2, 2),
    ]),
    "T6": (BEGUN + data(ORDERS, 0, 0), [seen(ORDERS, 1, LEADER, stable=1)]),
    "T6 below the first open transaction": (
        [*DECIDED, *marker(ORDERS, 1, 1), *logged(3, S.ONGOING, 1, ORDERS), *data(ORDERS, 2, 1)],
        [seen(ORDERS, 3, LEADER, stable=1)],
    ),
    "T6 after a restart": (
        [*DECIDED, *marker(ORDERS, 1, 1), seen(ORDERS, 1, LEADER, stable=0, incarnation=2)],
        [LogCut(LEADER, ORDERS, 0, 1), seen(ORDERS, 1, LEADER, stable=1, incarnation=3)],
    ),
    "T6 under a high watermark that is lower again": (
        [*DECIDED, *marker(ORDERS, 1, 1), seen(ORDERS, 1, LEADER, stable=1)], [seen(ORDERS, 2, LEADER, stable=1)],
    ),
    "T8": (COMPLETE, [*logged(4, S.ONGOING, 1, ORDERS), *marker(ORDERS, 2, 2)]),
    "T8 by a marker of a partition that is not enrolled": (COMPLETE, marker(("third", 0), 0, 1)),
    "T8 by a completion without a marker": (ONE_MARKER, logged(3, S.COMPLETE_COMMIT, 1)),
    "T8 by a state that may not follow": (COMPLETE, logged(4, S.PREPARE_COMMIT, 2, ORDERS)),
    "T8 by the marker of a coordinator that was replaced": (COMPLETE, marker(ORDERS, 2, 1, coordinator_epoch=4)),
    "T10": ([sent(0, "a"), sent(0, "a"), sent(1, "b")], [sent(1, "c")]),
    "T10 by an epoch that a failed write used up": ([sent(0, "a"), *COMPLETE], logged(4, S.EMPTY, 3)),
    "T12": (DECIDED, data(("third", 0), 0, 0)),
    "T12 after the end": (COMPLETE, data(ORDERS, 2, 0)),
    "T12 after the marker": (ONE_MARKER, data(ORDERS, 2, 0)),
    "T12 after the second marker, the first of which was lost": (
        [*DECIDED, marker(ORDERS, 1, 1)[0], LogCut(LEADER, ORDERS, 0, 1), *data(ORDERS, 1, 0)],
        [*marker(ORDERS, 2, 1), *data(ORDERS, 3, 0)],
    ),
    "T12 before the begin": (COMPLETE, data(ORDERS, 2, 1)),
}  # fmt: skip
"""Name that begins with a check's code → (a history to accept, a continuation that violates the check)."""
