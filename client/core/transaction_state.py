"""The states of a transactional producer, and the transitions between them. Source: Kafka's TransactionManager."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class ProducerTransactionState(Enum):
    UNINITIALIZED = "no producer id was requested yet"
    INITIALIZING = "a producer id, or its next epoch, is requested"
    READY = "no transaction is open"
    IN_TRANSACTION = "records and offsets can be added"
    COMMITTING = "the remaining batches are sent, then the coordinator gets the commit"
    ABORTING = "batches in flight are awaited, then the coordinator gets the abort"
    ABORTABLE_ERROR = "something in the transaction failed: it can only be aborted"
    FATAL_ERROR = "the producer can only be closed"


class Outcome(Enum):
    """The result of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"


S = ProducerTransactionState
PREDECESSORS: Mapping[S, frozenset[S]] = MappingProxyType(
    {
        S.UNINITIALIZED: frozenset(),
        S.INITIALIZING: frozenset({S.UNINITIALIZED, S.COMMITTING, S.ABORTING}),
        S.READY: frozenset({S.INITIALIZING, S.COMMITTING, S.ABORTING}),
        S.IN_TRANSACTION: frozenset({S.READY}),
        S.COMMITTING: frozenset({S.IN_TRANSACTION}),
        S.ABORTING: frozenset({S.IN_TRANSACTION, S.ABORTABLE_ERROR, S.COMMITTING}),
        S.ABORTABLE_ERROR: frozenset({S.IN_TRANSACTION, S.COMMITTING}),
        S.FATAL_ERROR: frozenset(S) - {S.FATAL_ERROR},
    }
)
"""The states from which each state may be entered. ABORTING may follow COMMITTING, because some commits abort the
transaction themselves if they fail."""
