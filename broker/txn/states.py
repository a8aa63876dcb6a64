"""The states of a transactional id, and which state may follow which.

Source: KIP-98, KIP-890, Kafka's TransactionState.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class TransactionState(IntEnum):
    """State of a transactional id; the value is the status byte of a record in `__transaction_state`. Kafka's eighth
    state, PrepareEpochFence, is never stored. Here fencing is one write of PREPARE_ABORT and does not need that state.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """The name of the state in DescribeTransactions and ListTransactions."""
        return LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in PREPARED


LABELS: Mapping[TransactionState, str] = MappingProxyType(
    {
        TransactionState.EMPTY: "Empty",
        TransactionState.ONGOING: "Ongoing",
        TransactionState.PREPARE_COMMIT: "PrepareCommit",
        TransactionState.PREPARE_ABORT: "PrepareAbort",
        TransactionState.COMPLETE_COMMIT: "CompleteCommit",
        TransactionState.COMPLETE_ABORT: "CompleteAbort",
        TransactionState.DEAD: "Dead",
    }
)

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDLE = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""States without an open transaction: the next one may begin, and the transactional id may expire."""

PREDECESSORS: Mapping[TransactionState, frozenset[TransactionState | None]] = MappingProxyType(
    {
        TransactionState.EMPTY: frozenset({None, *IDLE}),
        TransactionState.ONGOING: frozenset({TransactionState.ONGOING, *IDLE}),
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        TransactionState.PREPARE_ABORT: frozenset({TransactionState.ONGOING, *IDLE}),
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: IDLE,
    }
)
"""State → states that it may follow. None stands for a new id. PREPARE_ABORT follows an idle state only for an abort
without partitions (KIP-890, part 2)."""
